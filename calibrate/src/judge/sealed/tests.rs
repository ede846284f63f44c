//! A small round, made up, through all of its steps: sealed, committed, measured, compared.

use super::compare::{Group, outcome, verify};
use super::history::{LOST, history};
use super::page::page;
use super::round::load;
use super::seal::{Models, Predicted, Provenance, SIDECAR, Sealed, rows, seal};
use crate::system::git;
use anyhow::{Context, Result};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::net::network::Network;
use joulecast_model::step::framework::Launch;
use joulecast_model::step::generation;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::OperatingPoint;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const ROUND: &str = r#"
schema = "sealed/1"
round = 7
seed = "a seed"
role = "test"
boards = ["h200", "h100"]
framework = "pytorch"
exported = "nothing"

[[network]]
name = "wide"
library = "written"
inputs = "3x64x64"
export = "none"
parameters = 1
macs = 1
rows = [
  { mode = "infer", precision = "fp32", batch = 256, launch = "graph" },
  { mode = "infer", precision = "fp16", batch = 1, launch = "eager" },
  { mode = "train", precision = "bf16", batch = 256, launch = "graph" },
]

[[network]]
name = "flat"
library = "written"
inputs = "512"
export = "none"
parameters = 1
macs = 1
rows = [ { mode = "train", precision = "fp32", batch = 2, launch = "eager" } ]

[[refused]]
name = "odd"
reason = "it is odd"
"#;

fn network(name: &str, shape: &str, layers: &str) -> String {
    format!(
        "schema = \"network/1\"\nname = \"{name}\"\ntitle = \"{name}\"\nlayers = [\n{layers}]\n\n[inputs]\nimage = {{ shape = [{shape}] }}\n"
    )
}

fn run(folder: &Path, arguments: &[&str]) -> Result<()> {
    let author = ["-c", "user.name=a", "-c", "user.email=a@b"];
    let output = Command::new("git").arg("-C").arg(folder).args(author).args(arguments).output()?;
    anyhow::ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn commit(folder: &Path) -> Result<()> {
    run(folder, &["add", "-A"])?;
    run(folder, &["commit", "-qm", "x"])
}

fn commit_at(folder: &Path, utc: &str) -> Result<()> {
    let author = ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x"];
    let status = Command::new("git").arg("-C").arg(folder).args(author).env("GIT_COMMITTER_DATE", utc).status()?;
    anyhow::ensure!(status.success(), "git commit");
    Ok(())
}

/// What is wrong, on one line.
fn said(result: Result<()>) -> String {
    result.err().map_or_else(|| "nothing is wrong".to_string(), |error| format!("{error:#}"))
}

/// A repository with the round of above, sealed and committed; `None` where there is no git.
fn sealed() -> Result<Option<(tempfile::TempDir, PathBuf)>> {
    let repository = tempfile::tempdir()?;
    if run(repository.path(), &["init", "-q"]).is_err() {
        return Ok(None);
    }
    let file = repository.path().join("round-7.toml");
    let folder = file.with_extension("");
    fs::create_dir_all(folder.join("nets"))?;
    fs::write(&file, ROUND)?;
    let wide = network(
        "wide",
        "3, 64, 64",
        "  { name = \"conv\", kind = \"conv2d\", channels = 64, kernel = 3, padding = 1 },\n  { name = \"relu\", kind = \"relu\" },\n  { name = \"conv2\", kind = \"conv2d\", channels = 64, kernel = 3, padding = 1 },\n",
    );
    fs::write(folder.join("nets/wide.toml"), wide)?;
    let flat = network("flat", "512", "  { name = \"fc\", kind = \"linear\", features = 512 },\n");
    fs::write(folder.join("nets/flat.toml"), flat)?;
    commit(repository.path())?;
    let from = Provenance { commit: git::head(&folder)?, dirty: false, utc: crate::system::utc::now() };
    let Sealed { files, .. } =
        seal(&load(&file)?, &[catalog::gpu("h200")?, catalog::gpu("h100")?], &Models::shipped(), from)?;
    for (name, text) in files {
        fs::write(folder.join(name), text)?;
    }
    commit(repository.path())?;
    Ok(Some((repository, folder)))
}

/// A prompt and a step of a language model are predicted as `predict --generate` has them.
#[test]
fn prompts_and_steps_of_a_configuration_are_those_of_a_generation() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("round-7.toml");
    fs::create_dir_all(folder.path().join("round-7/nets"))?;
    let config = Path::new(env!("CARGO_MANIFEST_DIR")).join("../model/read/tests/huggingface/pythia_70m.json");
    fs::copy(config, folder.path().join("round-7/nets/small.json"))?;
    let head = &ROUND[..ROUND.find("[[network]]").context("networks")?];
    let member = |rows: &str| {
        format!(
            "{head}[[network]]\nname = \"small\"\nlibrary = \"config\"\ninputs = \"sequence\"\nexport = \"none\"\n\
             parameters = 1\nmacs = 1\nrows = [ {rows} ]\n"
        )
    };
    let of =
        |more: &str| format!("{{ mode = \"infer\", precision = \"bf16\", batch = 2, launch = \"graph\"{more} }}, ");
    fs::write(&file, member(&[of(", sequence = 96"), of(", cached = 96"), of("")].concat()))?;
    let from = Provenance { commit: "x".into(), dirty: false, utc: crate::system::utc::now() };
    let Sealed { files, seal } = seal(&load(&file)?, &[catalog::gpu("h200")?], &Models::shipped(), from)?;
    let found: Vec<Predicted> = rows(&files[0].1, &files[0].0)?;
    let network = &load(&file)?.networks["small"];
    let predictor =
        Predictor::shipped(catalog::gpu("h200")?, catalog::framework("pytorch")?).launched(Some(Launch::Graph));
    let whole = generation::predict(&predictor, network, (96, 2), (2, Precision::Bf16), OperatingPoint::default())?;
    let step = whole.decode.context("a step")?;
    assert_eq!((found[0].sequence, found[0].time_s), (96, whole.prefill.time.value.get()));
    assert_eq!((found[1].cached, found[1].time_s), (96, step.time.value.get()));
    // Without either it is a network like any other.
    assert_eq!((found.len(), seal.unpredicted.len(), found[2].sequence), (3, 0, 0));
    for (rows, says) in [
        (of(", sequence = 9, cached = 9"), "a prompt and a step"),
        (of(", cached = 9").replace("infer", "train"), "only inference generates"),
    ] {
        fs::write(&file, member(&rows))?;
        let error = load(&file).err().map(|e| format!("{e:#}")).unwrap_or_default();
        assert!(error.contains(says), "{error}");
    }
    Ok(())
}

const HEADER: &str = "network,mode,precision,batch,launch,layout,ms_per_iter,watts,peak_mem_mib,error,utc,device,uuid,driver,torch,cudnn,libraries,round_sha256,shard\n";

/// Measured rows: what was sealed for a board, times these factors; the last fails.
fn measured(folder: &Path, board: &str, device: &str, (time, power): (f64, f64), utc: &str) -> Result<()> {
    let sum = &verify(folder)?.seal.round_sha256;
    let name = format!("predicted-{board}.csv");
    let predicted: Vec<Predicted> = rows(&fs::read_to_string(folder.join(&name))?, &name)?;
    let mut text = HEADER.to_string();
    for (i, p) in predicted.iter().enumerate() {
        let (key, last) = (p.key(), i + 1 == predicted.len());
        let (ms, watts) = (p.time_s * 1e3 * time, p.power_w * power);
        let mib = p.allocated_bytes / f64::from(1 << 20);
        let found = if last { ",,,out of memory".to_string() } else { format!("{ms},{watts},{mib},") };
        let step = key.step;
        text += &format!(
            "{},{},{},{},{},nchw,{found},{utc},{device},u,580,2.11,9,none,{sum},1/1\n",
            key.network, step.mode, step.precision, step.batch, step.launch
        );
    }
    Ok(fs::write(folder.join(format!("measured-{board}.csv")), text)?)
}

const LATER: &str = "2095-01-01T00:00:00Z";
const AFTER_THAT: &str = "2096-01-01T00:00:00Z";

#[test]
fn a_round_goes_from_its_file_to_its_page() -> Result<()> {
    let Some((repository, folder)) = sealed()? else { return Ok(()) };
    measured(&folder, "h200", "NVIDIA H200", (1.25, 0.5), LATER)?;
    let verified = verify(&folder)?;
    assert_eq!(
        (verified.seal.networks.len(), verified.seal.predictions.len(), verified.seal.unpredicted.len()),
        (2, 4, 0)
    );
    assert!(verified.seal.calibrations.keys().eq(["all_chips.toml", "gh100.toml"]), "{:?}", verified.seal.calibrations);
    let found = outcome(&folder)?;
    let [h100, h200] = &found.boards[..] else { panic!("two boards") };
    let h100_name = catalog::gpu("h100")?.name;
    assert_eq!((h200.name.as_str(), &h100.name), ("h200", &h100_name));
    assert_eq!((h200.rows.len(), h200.failed.len(), h200.not_reached), (3, 1, 0));
    assert_eq!((h100.rows.len(), h100.not_reached, h100.visit.gpus), (0, 4, 0));
    for row in &h200.rows {
        assert!((row.time.error() + 20.0).abs() < 1e-3, "{}: {}", row.key, row.time.error());
        let (power, energy) = (row.power.context("watts")?, row.energy.context("joules")?);
        assert!((power.error() - 100.0).abs() < 1e-3 && (energy.error() - 60.0).abs() < 1e-3);
        assert!(row.memory.context("memory")?.error().abs() < 1e-3 && row.hosted.is_none());
    }
    let groups: Vec<Group> = h200.rows.iter().map(|r| r.group).collect();
    assert_eq!(groups, [Group::EagerHost, Group::Graph, Group::TrainingGpu], "by name, mode and precision");
    let history = history(&folder, &found)?;
    assert_eq!(history.committed.commit, git::head(&folder)?);
    let text = page(&found, &history);
    for part in [
        "## Round 7",
        "2 networks, 4 rows a board",
        &verified.seal.commit,
        "h200: measured from 2095-01-01T00:00:00Z",
        "3 rows compared, 1 failed, 0 not reached",
        ": not measured.",
        "| graph and GPU-bound eager | all | 1 | 20.0 | 20.0 | -20.0 | -20 |",
        "| eager, host-bound | fp16 | 1 | 20.0 |",
        "| graph | fp32 | 1 | 100.0 | 100.0 | +100.0 | +100 | 0/1 | 0 | 0 to 79 |",
        "| training, GPU-bound | bf16 | 1 | 100.0 | 100.0 | +100.0 | +100 |",
        "| training, GPU-bound | bf16 | 1 | 60.0 | 60.0 | +60.0 | +60 | 0/1 | 0 | 0 to 79 |",
        "| wide | written | 3 | 20.0 | -20.0 | 100.0 | +100.0 | 60.0 | +60.0 | 0.0 |",
        "| flat train fp32 2 eager | out of memory |",
        "| odd | it is odd |",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // Intervals that hold, of a share that is neither none nor all.
    measured(&folder, "h200", "NVIDIA H200", (1.001, 1.0), LATER)?;
    let near = outcome(&folder)?;
    let times = || near.boards.iter().flat_map(|b| &b.rows).map(|r| r.time);
    let width = times().map(|p| 50.0 * (p.p95 - p.p05) / p.predicted).sum::<f64>() / 3.0;
    let (near, line) = (
        page(&near, &history),
        format!("| all | all | 3 | 0.1 | 0.1 | -0.1 | -0 | 3/3 | 100 | 44 to 100 | {width:.0} |"),
    );
    assert!(near.contains(&line), "{line} is not in\n{near}");
    drop(repository);
    Ok(())
}

#[test]
fn a_host_that_was_measured_is_used_beside_the_profile_s() -> Result<()> {
    let Some((_repository, folder)) = sealed()? else { return Ok(()) };
    measured(&folder, "h200", "NVIDIA H200", (1.0, 1.0), LATER)?;
    let host = |name: &str, inference: f64| {
        let text = format!(
            "schema = \"host/1\"\ncpu = \"x\"\nfactor = {{ inference = {inference}, training = 9.0, autocast = 9.0 }}\n"
        );
        fs::write(folder.join(name), text)
    };
    host(&format!("host-{}.toml", catalog::gpu("h100")?.name), 9.0)?;
    host("host-h200-before-1.toml", 1.6)?;
    host("host-h200-after-1.toml", 2.5)?;
    let mut found = outcome(&folder)?;
    let h200 = found.boards.iter().find(|b| b.name == "h200").context("measured")?;
    let eager = h200.rows.iter().find(|r| r.group == Group::EagerHost).context("there is one")?;
    let hosted = eager.hosted.context("its host was measured")?;
    // The step waits for nothing but its host.
    assert!((hosted.predicted / eager.time.predicted - 2.0).abs() < 0.05, "{hosted:?} {:?}", eager.time);
    assert!(h200.rows.iter().filter(|r| r.hosted.is_some()).all(|r| r.key.step.launch == "eager"));
    let text = page(&found, &history(&folder, &found)?);
    assert!(text.contains("with the host as it was measured in the visit"));
    assert!(
        text.contains(
            "h200: the host took 1.60 to 2.50 times as long as the profile's table in inference, 9.00 to 9.00"
        )
    );
    // A step that the profile's host would not have bound is told apart, beside where it is now.
    let sorted = "steps sorted by the profile's host";
    assert!(!text.contains(sorted), "all of them are in the same groups");
    let rows = found.boards.iter_mut().flat_map(|board| &mut board.rows);
    let eager = rows.into_iter().find(|r| r.group == Group::EagerHost).context("there is one")?;
    eager.foreseen = Group::EagerGpu;
    let text = page(&found, &history(&folder, &found)?);
    assert!(text.contains(sorted) && text.contains("| eager, GPU-bound | time | 1 |"), "{text}");
    host("host-h200.toml", 0.0)?;
    assert!(outcome(&folder).is_err_and(|e| e.to_string().contains("not above 0")));
    Ok(())
}

/// Sealed values are those of the program that predicts: as a user asks for them.
#[test]
fn what_is_sealed_is_what_is_predicted() -> Result<()> {
    let Some((_repository, folder)) = sealed()? else { return Ok(()) };
    let text = fs::read_to_string(folder.join("predicted-h200.csv"))?;
    let predicted: Vec<Predicted> = rows(&text, "predicted-h200.csv")?;
    assert_eq!(predicted.len(), 4);
    let predictor = Predictor::shipped(catalog::gpu("h200")?, catalog::framework("pytorch")?);
    let network = Network::from_toml(&fs::read_to_string(folder.join("nets/wide.toml"))?)?;
    for (row, precision, mode, batch, launch) in [
        (&predicted[0], Precision::Fp32, Mode::Inference, 256, Launch::Graph),
        (&predicted[1], Precision::Fp16, Mode::Inference, 1, Launch::Eager),
        (&predicted[2], Precision::Bf16, Mode::Training, 256, Launch::Graph),
    ] {
        let predictor = predictor.clone().launched(Some(launch));
        let p = predictor.predict(&predictor.shape(&network, batch, precision, &[])?, mode)?;
        assert_eq!((row.time_s, row.time_p95_s), (p.time.value.get(), p.time.p95.get()));
        assert_eq!((row.power_p05_w, row.energy_j), (p.power.p05.get(), p.energy.value.get()));
        assert_eq!((row.allocated_bytes, row.host_bound), (p.memory.allocated().to_f64(), p.launch_bound));
    }
    Ok(())
}

#[test]
fn what_breaks_the_protocol_is_refused() -> Result<()> {
    let Some((repository, folder)) = sealed()? else { return Ok(()) };
    let file = folder.with_extension("toml");
    let verified = || said(verify(&folder).map(drop));
    assert_eq!(verified(), "nothing is wrong");
    for (path, from, to, expected) in [
        (folder.join("predicted-h200.csv"), "0.", "1.", "predicted-h200.csv is not the file that was sealed"),
        (folder.join("predicted-h200-hosts.csv"), "0.", "1.", "hosts.csv is not the file that was sealed"),
        (folder.join("nets/wide.toml"), "kernel = 3", "kernel = 1", "network wide is not the one that was sealed"),
        (file.clone(), "batch = 256", "batch = 64", "round-7.toml is not the file that was sealed"),
    ] {
        let text = fs::read_to_string(&path)?;
        fs::write(&path, text.replacen(from, to, 1))?;
        assert!(verified().contains(expected), "{}", verified());
        fs::write(&path, text)?;
    }
    let told = || said(outcome(&folder).and_then(|found| history(&folder, &found).map(drop)));
    measured(&folder, "h200", "NVIDIA H200", (1.0, 1.0), "2000-01-01T00:00:00Z")?;
    assert!(told().contains("before it was sealed"), "{}", told());
    measured(&folder, "h200", "NVIDIA H200", (1.0, 1.0), LATER)?;
    assert_eq!(told(), "nothing is wrong");
    let path = folder.join("measured-h200.csv");
    let text = fs::read_to_string(&path)?;
    fs::copy(&path, folder.join("measured-h200-again.csv"))?;
    assert!(told().contains("was measured twice"), "{}", told());
    fs::remove_file(folder.join("measured-h200-again.csv"))?;
    for (from, to, expected) in [
        (verify(&folder)?.seal.round_sha256.as_str(), "0", "by another round's file"),
        ("wide,infer,fp32,256", "wide,infer,fp32,255", "a row was measured that is not in the round"),
        (",out of memory,", ",,", "either a time or an error"),
        ("NVIDIA H200", "NVIDIA T4", "which nothing was sealed for"),
    ] {
        fs::write(&path, text.replace(from, to))?;
        assert!(told().contains(expected), "{}", told());
    }
    fs::write(&path, &text)?;
    // Predictions that are in no commit, and one that came after the rows.
    let seal = folder.join(SIDECAR);
    let sidecar = fs::read_to_string(&seal)?;
    fs::write(&seal, format!("{sidecar}\n# edited\n"))?;
    assert!(told().contains("is in no commit as it is"), "{}", told());
    fs::write(&seal, &sidecar)?;
    // Committed once more after the rows were measured.
    fs::write(&seal, format!("{sidecar}\n# edited\n"))?;
    run(repository.path(), &["add", "-A"])?;
    commit_at(repository.path(), AFTER_THAT)?;
    assert!(told().contains(&format!("sealed files were committed at {AFTER_THAT}")), "{}", told());
    // A commit that this history does not have.
    fs::write(&seal, sidecar.replace(&verify(&folder)?.seal.commit, &"0".repeat(40)))?;
    commit(repository.path())?;
    assert!(told().contains("on which this history does not rest"), "{}", told());
    Ok(())
}

/// Where the first commits of a round were lost, the boards that had been measured are told, and only these are excused.
#[test]
fn what_a_lost_history_does_not_show_is_told() -> Result<()> {
    let Some((repository, folder)) = sealed()? else { return Ok(()) };
    let lost = folder.join(LOST);
    let write = |boards: &str| {
        fs::write(&lost, format!("schema = \"lost/1\"\nboards = [{boards}]\nwhy = \"The machine broke.\"\n"))
    };
    let shown = || -> Result<String> {
        let found = outcome(&folder)?;
        Ok(page(&found, &history(&folder, &found)?))
    };
    let told = || said(shown().map(drop));
    write("\"h200\"")?;
    measured(&folder, "h200", "NVIDIA H200", (1.0, 1.0), LATER)?;
    assert!(told().contains("this history rests on"), "needs no excuse: {}", told());
    let seal = folder.join(SIDECAR);
    let sidecar = fs::read_to_string(&seal)?;
    fs::write(&seal, sidecar.replace(&verify(&folder)?.seal.commit, &"0".repeat(40)))?;
    run(repository.path(), &["add", "-A"])?;
    commit_at(repository.path(), AFTER_THAT)?;
    let text = shown()?;
    assert!(text.contains("Of h200 this history does not show") && text.contains("The machine broke."), "{text}");
    assert!(!text.contains("rests on both"), "{text}");
    for (boards, expected) in [
        ("", "sealed files were committed at"),
        ("\"h200\", \"h100-sxm\"", "h100-sxm was not measured"),
        ("3", "invalid type"),
    ] {
        write(boards)?;
        assert!(told().contains(expected), "{}", told());
    }
    fs::remove_file(&lost)?;
    assert!(told().contains("on which this history does not rest"), "{}", told());
    Ok(())
}

#[test]
fn a_round_s_file_is_read_strictly() {
    let error = |text: &str| {
        format!("{:#}", super::round::Round::from_toml(text).err().unwrap_or_else(|| anyhow::anyhow!("read")))
    };
    assert_eq!(error(ROUND), "read");
    for (from, to, expected) in [
        ("role = \"test\"", "role = \"layer\"", "the role of sealed networks is test"),
        ("framework = \"pytorch\"", "framework = \"mxnet\"", "is pytorch"),
        ("sealed/1", "sealed/2", "expected \"sealed/1\""),
        ("name = \"flat\"", "name = \"wide\"", "wide is there twice"),
        ("precision = \"bf16\"", "precision = \"bf17\"", "wide: precision \"bf17\""),
        (
            "mode = \"train\", precision = \"bf16\", batch = 256",
            "mode = \"infer\", precision = \"fp32\", batch = 256",
            "a row is there twice",
        ),
        ("seed", "sead", "unknown field `sead`"),
    ] {
        let text = ROUND.replacen(from, to, 1);
        assert!(error(&text).contains(expected), "{}", error(&text));
    }
}

#[test]
fn a_step_that_two_gpus_share_is_a_row_of_its_own() -> Result<()> {
    let repository = tempfile::tempdir()?;
    let file = repository.path().join("round-7.toml");
    let nets = file.with_extension("").join("nets");
    fs::create_dir_all(&nets)?;
    let flat = network("flat", "512", "  { name = \"fc\", kind = \"linear\", features = 512 },\n");
    fs::write(nets.join("wide.toml"), network("wide", "8", "  { name = \"relu\", kind = \"relu\" },\n"))?;
    fs::write(nets.join("flat.toml"), flat)?;
    let one = r#"{ mode = "train", precision = "fp32", batch = 2, launch = "eager" }"#;
    let two = one.replace(" }", ", gpus = 2 }");
    fs::write(&file, ROUND.replace(one, &format!("{one}, {two}")))?;
    let from = Provenance { commit: "none".into(), dirty: true, utc: LATER.into() };
    let Sealed { files, seal: own } = seal(&load(&file)?, &[catalog::gpu("h200")?], &Models::shipped(), from)?;
    assert!(own.unpredicted.is_empty(), "{:?}", own.unpredicted);
    let (name, text) = files.first().context("a board")?;
    let predicted: Vec<Predicted> = rows(text, name)?;
    let of = |gpus: u64| predicted.iter().find(|p| p.network == "flat" && p.gpus == gpus).context("sealed");
    let (alone, pair) = (of(1)?, of(2)?);
    assert_ne!(alone.key(), pair.key());
    assert_eq!(pair.key().to_string(), "flat train fp32 2 eager on 2 GPUs");
    assert!(pair.time_s > alone.time_s && pair.host_bound, "hooks and buckets take the host longer");
    assert!(pair.power_w > 1.5 * alone.power_w && pair.power_w < 3.0 * alone.power_w, "of both");
    // Rows from before say nothing of GPUs.
    let before =
        text.replacen("launch,gpus,", "launch,", 1).replace(",eager,1,", ",eager,").replace(",graph,1,", ",graph,");
    let before: Vec<String> = before.lines().filter(|l| !l.contains(",eager,2,")).map(String::from).collect();
    let before: Vec<Predicted> = rows(&before.join("\n"), name)?;
    assert!(before.len() == predicted.len() - 1 && before.iter().all(|p| p.gpus == 1));
    fs::write(
        &file,
        ROUND.replace(r#"batch = 256, launch = "graph" }"#, r#"batch = 256, launch = "graph", gpus = 2 }"#),
    )?;
    let refused = load(&file).err().map(|e| format!("{e:#}")).unwrap_or_default();
    assert!(refused.contains("only eager training is shared"), "{refused}");
    Ok(())
}
