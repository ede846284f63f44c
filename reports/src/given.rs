//! Files that somebody names, read within bounds.

use crate::whole::of;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::step::framework::{HostRecord, HostSpeed};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// No network, device or calibration file is larger.
const MOST_BYTES: u64 = 16 << 20;

fn wrong(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, text)
}

/// The text of a file.
///
/// # Errors
/// When it is none, is too large, or cannot be read; the message names it.
pub fn text(path: &Path) -> io::Result<String> {
    let (shown, failed) = (path.display(), of(path));
    if !fs::metadata(path).map_err(&failed)?.is_file() {
        return Err(wrong(format!("{shown} is not a regular file")));
    }
    let mut text = String::new();
    File::open(path).map_err(&failed)?.take(MOST_BYTES + 1).read_to_string(&mut text).map_err(&failed)?;
    if text.len() as u64 > MOST_BYTES {
        return Err(wrong(format!("{shown}: more than {MOST_BYTES} bytes, which no such file has")));
    }
    Ok(text)
}

/// Where a user keeps how fast the machine's host is (`host/1`): `joulecast/host.toml` in the configuration folder. `None`
/// without a home. For programs alone: what a library answers depends on nobody's home.
pub fn host_file() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let folder = absolute("XDG_CONFIG_HOME").or_else(|| absolute("HOME").map(|home| home.join(".config")));
    folder.map(|folder| folder.join("joulecast/host.toml"))
}

/// The host of a file `host/1`, and the framework profile that it is of.
///
/// # Errors
/// When it cannot be read; the message names it.
pub fn host(path: &Path) -> io::Result<(HostSpeed, String)> {
    let record = HostRecord::from_toml(&text(path)?).map_err(|e| wrong(format!("{}: {e}", path.display())))?;
    Ok((record.speed(&path.display().to_string()), record.framework))
}

/// The TOML files of a folder, by name, and their texts.
///
/// # Errors
/// As [`text`].
pub fn tomls(folder: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder).map_err(of(folder))? {
        paths.push(entry.map_err(of(folder))?.path());
    }
    paths.retain(|path| path.extension().is_some_and(|e| e == "toml"));
    paths.sort();
    paths.into_iter().map(|path| text(&path).map(|text| (path, text))).collect()
}

fn parsed((path, text): (PathBuf, String)) -> io::Result<Calibration> {
    Calibration::from_toml(&text).map_err(|e| wrong(format!("{}: {e}", path.display())))
}

/// The calibration of a file, or those of a folder as `calibrate fit` writes them, by name.
///
/// # Errors
/// When one cannot be read, or the folder has none; the message names it.
pub fn calibrations(path: &Path) -> io::Result<Vec<Calibration>> {
    if !path.is_dir() {
        return Ok(vec![parsed((path.to_path_buf(), text(path)?))?]);
    }
    let mut list: Vec<Calibration> = Vec::new();
    for file in tomls(path)? {
        let name = file.0.display().to_string();
        let calibration = parsed(file)?;
        if let Some(other) = list.iter().find(|other| other.chip == calibration.chip) {
            let chip = &calibration.chip;
            return Err(wrong(format!("{name} is of chip {chip}, as is {}: one file per chip", other.id)));
        }
        list.push(calibration);
    }
    if list.is_empty() {
        return Err(wrong(format!("{} holds no calibration (*.toml)", path.display())));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::catalog;

    #[test]
    fn a_folder_is_read_by_name_and_what_is_wrong_is_named() -> io::Result<()> {
        let folder = tempfile::tempdir()?;
        let error = |path: &Path| calibrations(path).map(|l| l.len()).expect_err("wrong").to_string();
        assert!(error(folder.path()).ends_with("holds no calibration (*.toml)"));
        assert!(error(&folder.path().join("none.toml")).contains("none.toml: "));
        for (name, text) in catalog::calibrations().iter().rev() {
            fs::write(folder.path().join(format!("{name}.toml")), text)?;
        }
        fs::write(folder.path().join("README.md"), "not one of them")?;
        let chips = |list: Vec<Calibration>| list.into_iter().map(|c| c.chip.to_lowercase()).collect::<Vec<_>>();
        let read = chips(calibrations(folder.path())?);
        assert_eq!(read.len(), catalog::calibrations().len());
        let (last, of_chips) = (read.iter().position(|c| c == "any"), read.iter().filter(|c| *c != "any"));
        assert!(of_chips.is_sorted() && last.is_some(), "{read:?}");
        assert_eq!(chips(calibrations(&folder.path().join("gv100.toml"))?), ["gv100"]);
        fs::copy(folder.path().join("gv100.toml"), folder.path().join("zz.toml"))?;
        let twice = error(folder.path());
        assert!(twice.contains("zz.toml is of chip GV100, as is gv100-"), "{twice}");
        fs::remove_file(folder.path().join("zz.toml"))?;
        fs::write(folder.path().join("a.toml"), "schema = 3")?;
        assert!(error(folder.path()).contains("a.toml: "));
        fs::write(folder.path().join("a.toml"), vec![b'#'; MOST_BYTES as usize + 1])?;
        assert!(error(folder.path()).contains("more than"));
        fs::remove_file(folder.path().join("a.toml"))?;
        fs::create_dir(folder.path().join("a.toml"))?;
        assert!(error(folder.path()).contains("not a regular file"));
        Ok(())
    }
}
