//! Writes the packed calibrations that a build with the feature `fetched` leaves out, each under its name there:
//! `cargo run -p joulecast-data --example packed -- DIR`.

use joulecast_data::{PACKED_CALIBRATIONS, calibration_bytes};
use std::path::PathBuf;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| std::io::Error::other("which folder? packed DIR"))?;
    std::fs::create_dir_all(&folder)?;
    for file in PACKED_CALIBRATIONS.iter().filter(|file| file.name != "all_chips") {
        std::fs::write(folder.join(file.stored_as()), calibration_bytes(file).unwrap_or_default())?;
    }
    Ok(())
}
