//! `calibrate seal` and `calibrate sealed`.

use super::{names, print};
use crate::judge::sealed::compare::{outcome, verify};
use crate::judge::sealed::history::history;
use crate::judge::sealed::page::page;
use crate::judge::sealed::round::load;
use crate::judge::sealed::seal::{Models, Provenance, Sealed, check_embedded, seal};
use crate::system::{git, utc, whole};
use anyhow::{Context, Result, bail};
use clap::Args;
use joulecast_model::device::gpu::Gpu;
use std::fs;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct SealArgs {
    /// The round's file; its networks lie in the folder of its name, under nets
    #[arg(long, value_name = "FILE")]
    round: PathBuf,
    /// A board to predict for; may be repeated
    #[arg(long, value_name = "NAME", value_parser = names::gpu, required = true)]
    gpu: Vec<Gpu>,
    /// Folder to write the predictions and seal.toml into
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// A folder of calibrations instead of the shipped ones
    #[arg(long, value_name = "DIR")]
    calibrations: Option<PathBuf>,
    /// Seal although the working tree has changes; the seal says so
    #[arg(long)]
    dirty: bool,
    /// The commit, where git cannot be asked
    #[arg(long, value_name = "HASH")]
    commit: Option<String>,
}

#[derive(Args)]
pub struct SealedArgs {
    /// Folder of a round, such as data/sealed/round-1
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Only compares the files with the seal's hashes
    #[arg(long)]
    verify: bool,
}

/// At which commit the seal is made.
fn provenance(args: &SealArgs) -> Result<Provenance> {
    let utc = utc::now();
    if let Some(commit) = &args.commit {
        return Ok(Provenance { commit: commit.clone(), dirty: args.dirty, utc });
    }
    let folder = whole::folder(&args.round);
    let changes = git::changes(folder)?;
    if let (Some(first), false) = (changes.first(), args.dirty) {
        bail!("the working tree has {} changes, the first of them {first}: commit them, or --dirty", changes.len());
    }
    check_embedded(Path::new(&git::root(folder)?))?;
    Ok(Provenance { commit: git::head(folder)?, dirty: !changes.is_empty(), utc })
}

/// Writes the predictions of a round and what they were made from; never over a file that is there.
pub fn run_seal(args: &SealArgs) -> Result<()> {
    let loaded = load(&args.round)?;
    let from = provenance(args)?;
    let models = args.calibrations.as_deref().map_or_else(|| Ok(Models::shipped()), Models::of_folder)?;
    let Sealed { files, seal } = seal(&loaded, &args.gpu, &models, from)?;
    for path in files.iter().map(|(name, _)| args.out.join(name)) {
        if path.exists() {
            bail!("{} is there already: a round is sealed once", path.display());
        }
    }
    fs::create_dir_all(&args.out).with_context(|| args.out.display().to_string())?;
    for (name, text) in &files {
        whole::write(&args.out.join(name), text)?;
        print(&format!("{}: written, {} bytes\n", args.out.join(name).display(), text.len()))?;
    }
    for row in &seal.unpredicted {
        print(&format!("not predicted: {} {}: {}\n", row.board, row.row, row.reason))?;
    }
    print(&format!("sealed at {} at commit {}: now commit {}\n", seal.utc, seal.commit, args.out.display()))
}

/// Prints what became of a round.
pub fn run_sealed(args: &SealedArgs) -> Result<()> {
    if args.verify {
        let verified = verify(&args.folder)?;
        let files = verified.seal.predictions.len();
        return print(&format!(
            "round {}: {files} files of predictions are as they were sealed\n",
            verified.seal.round
        ));
    }
    let outcome = outcome(&args.folder)?;
    let history = history(&args.folder, &outcome)?;
    print(&page(&outcome, &history))
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::catalog;
    use std::process::Command;

    #[test]
    fn a_round_is_sealed_once_and_of_a_clean_tree() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let git = |arguments: &[&str]| {
            let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
            Command::new("git").arg("-C").arg(folder.path()).args(author).args(arguments).output()
        };
        if git(&["init", "-q"]).is_err() {
            return Ok(());
        }
        let round = folder.path().join("round-1.toml");
        let text = "schema = \"sealed/1\"\nround = 1\nseed = \"s\"\nrole = \"test\"\nboards = [\"h200\"]\nframework = \"pytorch\"\nexported = \"-\"\n\
                    [[network]]\nname = \"fc\"\nlibrary = \"-\"\ninputs = \"8\"\nexport = \"-\"\nparameters = 1\nmacs = 1\n\
                    rows = [{ mode = \"infer\", precision = \"fp32\", batch = 4, launch = \"graph\" }]\n";
        fs::write(&round, text)?;
        let network = "schema = \"network/1\"\nname = \"fc\"\ntitle = \"fc\"\nlayers = [ { name = \"fc\", kind = \"linear\", features = 8 } ]\n\
                       [inputs]\nimage = { shape = [8] }\n";
        fs::create_dir_all(folder.path().join("round-1/nets"))?;
        fs::write(folder.path().join("round-1/nets/fc.toml"), network)?;
        let args = |out: &Path, commit: Option<&str>| SealArgs {
            round: round.clone(),
            gpu: vec![catalog::gpu("h200").expect("known")],
            out: out.to_path_buf(),
            calibrations: None,
            dirty: false,
            commit: commit.map(str::to_string),
        };
        let said = |args: &SealArgs| run_seal(args).map_or_else(|e| format!("{e:#}"), |()| String::new());
        let out = folder.path().join("round-1");
        assert!(said(&args(&out, None)).contains("changes, the first of them"), "{}", said(&args(&out, None)));
        git(&["add", "-A"])?;
        git(&["commit", "-qm", "x"])?;
        // This repository does not have what the program was built with.
        assert!(said(&args(&out, None)).contains("data/calibrations"), "{}", said(&args(&out, None)));
        assert_eq!(said(&args(&out, Some("abc"))), "");
        assert!(said(&args(&out, Some("abc"))).contains("a round is sealed once"));
        let seal = verify(&out)?.seal;
        assert_eq!((seal.commit.as_str(), seal.dirty, seal.predictions.len()), ("abc", false, 2));
        Ok(())
    }

    /// What a program was built with is compared with the tree that it says it is of.
    #[test]
    fn a_program_of_another_tree_is_found() -> Result<()> {
        let root = tempfile::tempdir()?;
        for (folder, list) in [
            ("calibrations", catalog::calibrations()),
            ("frameworks", catalog::frameworks()),
            ("gpus", joulecast_data::GPUS),
        ] {
            fs::create_dir_all(root.path().join("data").join(folder))?;
            for (name, text) in list {
                fs::write(root.path().join("data").join(folder).join(format!("{name}.toml")), text)?;
            }
        }
        check_embedded(root.path())?;
        fs::write(root.path().join("data/gpus/h200.toml"), "other")?;
        assert!(check_embedded(root.path()).is_err_and(|e| e.to_string().contains("h200.toml is not what")));
        Ok(())
    }
}
