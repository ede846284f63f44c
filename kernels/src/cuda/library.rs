//! Finding NVIDIA's libraries before anything opens them.
//!
//! They may lie in a Python environment, beside a system-wide copy of another version. cudarc asks the loader for
//! unversioned names first, so that a system's `libcudnn.so` would win over a newer `libcudnn.so.9`. A folder of
//! unversioned links, first in `LD_LIBRARY_PATH`, makes both names one file; the loader reads that variable only at
//! the start of a program, hence the one re-execution.

use crate::DeviceError;
use std::env;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Set in the re-executed program: the folder of links it removes at its start.
const LINKS: &str = "JOULECAST_LIBRARY_LINKS";

/// Libraries wanted: the unversioned name, and versioned names, newest first.
const WANTED: [(&str, &[&str]); 4] = [
    ("libcudnn.so", &["libcudnn.so.9", "libcudnn.so.8"]),
    ("libcublasLt.so", &["libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so.11"]),
    ("libnvrtc.so", &["libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"]),
    ("libcuda.so", &["libcuda.so.1"]),
];

/// Folders of a Python package tree that hold libraries.
const PACKAGES: [&str; 6] = ["cudnn/lib", "cu13/lib", "cublas/lib", "cuda_nvrtc/lib", "cuda_runtime/lib", "cu12/lib"];

/// A library that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Unversioned name.
    pub name: &'static str,
    /// Where it lies.
    pub path: PathBuf,
}

/// Folders that may hold the libraries, in the order of preference: the one given, the Python environment in use,
/// other Python environments, the toolkit.
fn folders(given: Option<&Path>) -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    let mut environments: Vec<PathBuf> = Vec::new();
    if let Some(folder) = given {
        roots.push(folder.to_path_buf());
        roots.extend(PACKAGES.iter().map(|p| folder.join(p)));
    }
    for variable in ["VIRTUAL_ENV", "CONDA_PREFIX"] {
        environments.extend(env::var_os(variable).map(PathBuf::from));
    }
    // The environment of the `python3` on the path, where it is one.
    let path = env::var_os("PATH").unwrap_or_default();
    for folder in env::split_paths(&path).filter(|p| p.is_absolute()) {
        let python = folder.join("python3");
        if let (true, Ok(target)) = (python.exists(), fs::canonicalize(&folder)) {
            environments.extend(target.parent().map(Path::to_path_buf));
        }
    }
    environments.extend(["/opt/venv", "/opt/conda", "/usr/local", "/usr"].map(PathBuf::from));
    for environment in environments {
        let Ok(entries) = fs::read_dir(environment.join("lib")) else { continue };
        for entry in entries.flatten() {
            if entry.file_name().to_string_lossy().starts_with("python3") {
                for packages in ["site-packages", "dist-packages"] {
                    roots.extend(PACKAGES.iter().map(|p| entry.path().join(packages).join("nvidia").join(p)));
                }
            }
        }
    }
    roots.extend(
        [
            "/usr/local/nvidia/lib64",
            "/usr/local/nvidia/lib",
            "/usr/local/cuda/lib64",
            "/usr/lib/x86_64-linux-gnu",
            "/usr/lib/aarch64-linux-gnu",
            "/usr/lib64",
        ]
        .map(PathBuf::from),
    );
    roots.retain(|r| r.is_absolute() && r.is_dir());
    roots.dedup();
    roots
}

/// The libraries that are there, each from the first folder that has it.
pub fn find(given: Option<&Path>) -> Vec<Found> {
    let folders = folders(given);
    let first =
        |names: &[&str]| names.iter().find_map(|name| folders.iter().map(|f| f.join(name)).find(|path| path.exists()));
    WANTED.iter().filter_map(|(name, versions)| first(versions).map(|path| Found { name, path })).collect()
}

/// Makes the loader find the libraries, re-executing this program once. Returns what was found; call it before any
/// thread starts and before CUDA is touched.
///
/// # Errors
/// When no CUDA driver is there, or the program cannot be re-executed.
pub fn prepare(given: Option<&Path>) -> Result<Vec<Found>, DeviceError> {
    let found = find(given);
    if let Some(links) = env::var_os(LINKS) {
        // Opened by now or opened later through the paths in LD_LIBRARY_PATH: only the links themselves must stay.
        return if Path::new(&links).is_dir() { Ok(found) } else { Err(unavailable("its library links are gone")) };
    }
    if !found.iter().any(|f| f.name == "libcuda.so") {
        return Err(unavailable("no libcuda.so.1 in the usual places"));
    }
    let links = env::temp_dir().join(format!("joulecast-libraries-{}", std::process::id()));
    fs::DirBuilder::new().mode(0o700).create(&links).map_err(|e| unavailable(&format!("{}: {e}", links.display())))?;
    let mut search = vec![links.clone()];
    for library in &found {
        std::os::unix::fs::symlink(&library.path, links.join(library.name))
            .map_err(|e| unavailable(&format!("{}: {e}", links.display())))?;
        search.extend(library.path.parent().map(Path::to_path_buf));
    }
    search.dedup();
    search.extend(env::var_os("LD_LIBRARY_PATH").iter().flat_map(env::split_paths).filter(|p| p.is_absolute()));
    let search = env::join_paths(search).map_err(|e| unavailable(&e.to_string()))?;
    let program = env::current_exe().map_err(|e| unavailable(&e.to_string()))?;
    let error =
        Command::new(program).args(env::args_os().skip(1)).env("LD_LIBRARY_PATH", search).env(LINKS, &links).exec();
    Err(unavailable(&format!("cannot start again with the libraries' folders: {error}")))
}

/// Removes the folder of links, once every library is open.
pub fn clean() {
    if let Some(links) = env::var_os(LINKS) {
        // Only what `prepare` made is removed: links with the wanted names, then the empty folder.
        for (name, _) in WANTED {
            let _ = fs::remove_file(Path::new(&links).join(name));
        }
        let _ = fs::remove_dir(&links);
    }
}

fn unavailable(why: &str) -> DeviceError {
    DeviceError::Unavailable { what: "CUDA".into(), why: why.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_given_folder_comes_first_and_relative_ones_never() -> std::io::Result<()> {
        let folder = env::temp_dir().join(format!("joulecast-test-{}", std::process::id()));
        fs::create_dir_all(folder.join("cudnn/lib"))?;
        fs::write(folder.join("cudnn/lib/libcudnn.so.9"), b"")?;
        let found = find(Some(&folder));
        let cudnn = found.iter().find(|f| f.name == "libcudnn.so").map(|f| f.path.clone());
        assert_eq!(cudnn, Some(folder.join("cudnn/lib/libcudnn.so.9")));
        assert!(folders(Some(Path::new("."))).iter().all(|f| f.is_absolute()));
        fs::remove_dir_all(folder)
    }
}
