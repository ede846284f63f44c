//! Bakes the files under `data/` into the library: one table per folder, so that adding a file needs no code. And a
//! fingerprint of the code itself: two builds of one version may predict differently.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
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
    let _ = writeln!(
        code,
        "/// A fingerprint of the code that predicts.\npub const SOURCES: &str = \"{:016x}\";",
        sources(Path::new("src"))?
    );
    fs::write(Path::new(&env::var("OUT_DIR").unwrap_or_default()).join("catalog.rs"), code)
}

/// FNV-1a over the names and contents of all files of a folder.
fn sources(folder: &Path) -> io::Result<u64> {
    println!("cargo::rerun-if-changed={}", folder.display());
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = vec![folder.into()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { folders.push(path) } else { files.push(path) }
        }
    }
    files.sort();
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for path in files {
        let name = path.to_string_lossy().into_owned().into_bytes();
        for byte in name.into_iter().chain(fs::read(&path)?) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(hash)
}
