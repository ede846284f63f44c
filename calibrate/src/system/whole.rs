//! Files written whole, as both programs write them, and never over what somebody may have edited unasked.

pub use joulecast_reports::whole::{Done, check_free, folder, holds, nameless, write, write_new};

use anyhow::{Context, Result};
use std::fs::File;
use std::path::Path;

/// Makes names in a folder durable.
///
/// # Errors
/// When the folder cannot be synchronized.
pub fn sync_folder(folder: &Path) -> Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder).and_then(|f| f.sync_all()).with_context(|| folder.display().to_string())
}
