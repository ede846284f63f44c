//! Embeds the files of this folder: one table per folder, so that adding a file needs no code; the TOML that programs read
//! at their start also packed.

#[path = "src/fingerprint.rs"]
mod fingerprint;
#[path = "src/pack.rs"]
#[expect(dead_code, reason = "the build marks no places")]
mod form;
use form as pack;
#[path = "build/pack.rs"]
mod packing;
#[path = "src/dense.rs"]
mod dense;
#[path = "build/dense.rs"]
mod laying;

use fingerprint::Fingerprint;
use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs, io};

/// Constant, its documentation, folder, extension, whether it is packed too.
const FOLDERS: [(&str, &str, &str, &str, bool); 6] = [
    ("NETS", "Networks (`net/1`).", "nets", "toml", true),
    ("GPUS", "Devices (`gpu/1`).", "gpus", "toml", true),
    (
        "CALIBRATIONS",
        "Fitted models (`calibration/1`), by chip in lower case, and `all_chips`.",
        "calibrations",
        "toml",
        true,
    ),
    ("FRAMEWORKS", "Framework profiles (`framework/1`).", "frameworks", "toml", true),
    ("INTERCONNECTS", "What joins GPUs (`interconnect/1`).", "interconnects", "toml", true),
    ("PAPERS", "Values that papers printed, by the paper's key, as CSV.", "published/papers", "csv", false),
];
/// Constant, its documentation, file, whether it is packed too.
const FILES: [(&str, &str, &str, bool); 4] = [
    ("SPLITS", "The role of every network (`splits/1`).", "splits.toml", false),
    ("PAPERS_MAPPING", "What the names in [`PAPERS`] mean.", "published/papers/papers.toml", false),
    ("CUDNN", "Jumps of cuDNN's times (`library/1`).", "libraries/cudnn.toml", true),
    ("REFERENCE_PLAN", "The plan that `calibrate plan` expands (`plan/1`).", "plans/reference.toml", false),
];

fn main() -> io::Result<()> {
    let data = Path::new(&env::var("CARGO_MANIFEST_DIR").unwrap_or_default()).canonicalize()?;
    let out = env::var("OUT_DIR").unwrap_or_default();
    let out = Path::new(&out);
    let mut code = String::new();
    for (constant, what, folder, extension, packed) in FOLDERS {
        let path = data.join(folder);
        println!("cargo::rerun-if-changed={}", path.display());
        let mut files: Vec<_> = fs::read_dir(&path)?.map(|e| Ok(e?.path())).collect::<io::Result<_>>()?;
        files.retain(|path| path.extension().is_some_and(|e| e == extension));
        files.sort();
        let _ = writeln!(code, "/// {what}\npub static {constant}: &[(&str, &str)] = &[");
        for path in &files {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            let _ = writeln!(code, "    ({name:?}, include_str!({:?})),", path.display().to_string());
        }
        code.push_str("];\n");
        if packed {
            let _ = writeln!(code, "/// {what} Packed.\npub static PACKED_{constant}: &[Packed] = &[");
            for path in &files {
                let _ = writeln!(code, "    {},", packed_file(path, out)?);
            }
            code.push_str("];\n");
        }
    }
    for (constant, what, file, packed) in FILES {
        let path = data.join(file);
        let shown = path.display().to_string();
        println!("cargo::rerun-if-changed={shown}");
        let _ = writeln!(code, "/// {what}\npub static {constant}: &str = include_str!({shown:?});");
        if packed {
            let file = packed_file(&path, out)?;
            let _ = writeln!(code, "/// {what} Packed.\npub static PACKED_{constant}: Packed = {file};");
        }
    }
    fs::write(out.join("files.rs"), code)
}

/// Packs a file, and says so as an expression.
fn packed_file(path: &Path, out: &Path) -> io::Result<String> {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default().to_string_lossy();
    let text = fs::read_to_string(path)?;
    let mut bytes = packing::pack(&text).map_err(|why| io::Error::other(format!("{}: {why}", path.display())))?;
    if folder == "calibrations" && name != "all_chips" && env::var_os("CARGO_FEATURE_FETCHED").is_some() {
        bytes.clear();
    }
    if folder == "calibrations" && !bytes.is_empty() && env::var_os("CARGO_FEATURE_DENSE").is_some() {
        bytes = laying::dense(&bytes).map_err(|why| io::Error::other(format!("{}: {why}", path.display())))?;
    }
    let to = out.join(format!("{folder}-{name}"));
    fs::write(&to, bytes)?;
    let mut fingerprint = Fingerprint::default();
    let _ = fingerprint.write_str(&text);
    let (bytes, fingerprint) = (to.display().to_string(), fingerprint.to_string());
    Ok(format!("Packed {{ name: {name:?}, bytes: include_bytes!({bytes:?}), fingerprint: {fingerprint:?} }}"))
}
