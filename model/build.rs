//! Bakes the files under `data/` into the library: one table per folder, so that adding a file needs no code.

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// Table, folder, extension.
const FOLDERS: [(&str, &str, &str); 6] = [
    ("NETS", "nets", "toml"),
    ("GPUS", "gpus", "toml"),
    ("CALIBRATIONS", "calibrations", "toml"),
    ("FRAMEWORKS", "frameworks", "toml"),
    ("INTERCONNECTS", "interconnects", "toml"),
    ("PAPERS", "published/papers", "csv"),
];
const FILES: [(&str, &str); 3] =
    [("SPLITS", "splits.toml"), ("PAPERS_MAPPING", "published/papers/papers.toml"), ("CUDNN", "libraries/cudnn.toml")];

fn main() -> io::Result<()> {
    let data = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).join("../data");
    let mut code = String::new();
    for (constant, folder, extension) in FOLDERS {
        let folder = data.join(folder);
        println!("cargo::rerun-if-changed={}", folder.display());
        let mut files: Vec<_> =
            fs::read_dir(&folder)?.collect::<io::Result<Vec<_>>>()?.iter().map(|e| e.path()).collect();
        files.retain(|path| path.extension().is_some_and(|e| e == extension));
        files.sort();
        let _ = writeln!(code, "const {constant}: &[(&str, &str)] = &[");
        for path in files {
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let path = path.canonicalize()?;
            println!("cargo::rerun-if-changed={}", path.display());
            let _ = writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string());
        }
        code.push_str("];\n");
    }
    for (constant, file) in FILES {
        let file = data.join(file).canonicalize()?;
        println!("cargo::rerun-if-changed={}", file.display());
        let _ = writeln!(code, "const {constant}: &str = include_str!({:?});", file.display().to_string());
    }
    fs::write(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("catalog.rs"), code)
}
