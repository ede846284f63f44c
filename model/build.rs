//! A fingerprint of the code that predicts: two builds of one version may predict differently.

use std::path::{Path, PathBuf};
use std::{fs, io};

/// FNV-1a over the names and contents of all sources.
fn main() -> io::Result<()> {
    println!("cargo::rerun-if-changed=src");
    let mut files = Vec::new();
    let mut folders: Vec<PathBuf> = vec![Path::new("src").into()];
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
    println!("cargo::rustc-env=JOULECAST_SOURCES={hash:016x}");
    Ok(())
}
