//! Embeds the files of this folder: one table per folder, so that adding a file needs no code.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// Constant, its documentation, folder, extension.
const FOLDERS: [(&str, &str, &str, &str); 6] = [
    ("NETS", "Networks (`net/1`).", "nets", "toml"),
    ("GPUS", "Devices (`gpu/1`).", "gpus", "toml"),
    (
        "CALIBRATIONS",
        "Fitted models (`calibration/1`), by chip in lower case, and `all_chips`.",
        "calibrations",
        "toml",
    ),
    ("FRAMEWORKS", "Framework profiles (`framework/1`).", "frameworks", "toml"),
    ("INTERCONNECTS", "What joins GPUs (`interconnect/1`).", "interconnects", "toml"),
    ("PAPERS", "Values that papers printed, by the paper's key, as CSV.", "published/papers", "csv"),
];
/// Constant, its documentation, file.
const FILES: [(&str, &str, &str); 4] = [
    ("SPLITS", "The role of every network (`splits/1`).", "splits.toml"),
    ("PAPERS_MAPPING", "What the names in [`PAPERS`] mean.", "published/papers/papers.toml"),
    ("CUDNN", "Jumps of cuDNN's times (`library/1`).", "libraries/cudnn.toml"),
    ("REFERENCE_PLAN", "The plan that `calibrate plan` expands (`plan/1`).", "plans/reference.toml"),
];

fn main() -> io::Result<()> {
    let data = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).canonicalize()?;
    let mut code = String::new();
    for (constant, what, folder, extension) in FOLDERS {
        let path = data.join(folder);
        println!("cargo::rerun-if-changed={}", path.display());
        let mut files: Vec<_> = fs::read_dir(&path)?.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|e| e == extension));
        files.sort();
        let _ = writeln!(code, "/// {what}\npub const {constant}: &[(&str, &str)] = &[");
        for path in files {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let _ = writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string());
        }
        code.push_str("];\n");
    }
    for (constant, what, file) in FILES {
        let path = data.join(file).display().to_string();
        let _ = writeln!(code, "/// {what}\npub const {constant}: &str = include_str!({path:?});");
    }
    fs::write(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("files.rs"), code)
}
