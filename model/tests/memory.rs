//! Peaks of device memory as measured on an H200 and an H100, beside what the walk over a step's buffers foresees:
//! `cargo test -p joulecast-model --test memory -- --nocapture` prints every run.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::framework::Framework;
use joulecast_model::step::memory::{MemoryFootprint, footprint};
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

type Run = BTreeMap<String, String>;

fn runs(file: &str) -> Result<Vec<Run>, Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/measurements").join(file);
    let rows: Vec<Run> = csv::Reader::from_path(path)?.deserialize().collect::<Result<_, _>>()?;
    Ok(rows.into_iter().filter(|r| number(r, "batch").is_some_and(|b| b >= 16.0)).collect())
}

fn number(run: &Run, column: &str) -> Option<f64> {
    run.get(column)?.parse().ok()
}

fn foreseen(run: &Run, framework: &Framework) -> Result<Option<MemoryFootprint>, Box<dyn Error>> {
    // torchvision's GoogLeNet has batch norm.
    let name = if run["network"] == "googlenet" { "googlenet_bn" } else { &run["network"] };
    if !catalog::network_names().any(|n| n == name) {
        return Ok(None);
    }
    let mode = if run["mode"] == "train" { Mode::Training } else { Mode::Inference };
    let precision = Precision::from_name(&run["precision"]).unwrap_or(Precision::Fp16);
    let batch = number(run, "batch").unwrap_or_default() as u64;
    let mut network = catalog::network(name)?;
    if let Some(tokens) = number(run, "sequence") {
        network.bind("sequence", tokens as u64)?;
    }
    if let Some(side) = number(run, "side") {
        network.bind_side(side as u64)?;
    }
    let network = ShapedNetwork::new(&network, batch, precision, &[])?;
    Ok(Some(footprint(&network, mode, &framework.memory, &[])))
}

/// Mean absolute error in percent, each run printed.
fn errors(
    title: &str,
    runs: &[Run],
    framework: &str,
    of: impl Fn(&Run, &MemoryFootprint) -> (f64, f64),
) -> Result<f64, Box<dyn Error>> {
    let framework = catalog::framework(framework)?;
    let (mut sum, mut count) = (0.0, 0);
    for run in runs {
        let Some(memory) = foreseen(run, &framework)? else { continue };
        let (measured, predicted) = of(run, &memory);
        let error = 100.0 * (predicted / measured - 1.0);
        let what = ["network", "mode", "precision", "batch"].map(|c| run[c].as_str()).join(" ");
        println!("{title}: {what}: {measured:.0} MiB, foreseen {predicted:.0}, {error:+.1} %");
        sum += error.abs();
        count += 1;
    }
    let mean = sum / f64::from(count);
    println!("{title}: {count} runs, mean {mean:.1} %\n");
    Ok(mean)
}

const MIB: f64 = (1u64 << 20) as f64;

fn peak(run: &Run) -> f64 {
    number(run, "peak_mem_mib").unwrap_or(f64::NAN)
}

#[test]
fn our_runner_without_workspace() -> Result<(), Box<dyn Error>> {
    let without = |run: &Run, memory: &MemoryFootprint| {
        let own = memory.allocated().to_f64() - memory.workspace.to_f64();
        (peak(run) - number(run, "workspace_mib").unwrap_or_default(), own / MIB)
    };
    let mean = errors("own runner, without workspace", &runs("h200/networks.csv")?, "cudnn", without)?;
    assert!(mean < 1.0, "{mean}");
    Ok(())
}

#[test]
fn our_runner() -> Result<(), Box<dyn Error>> {
    let whole = |run: &Run, memory: &MemoryFootprint| (peak(run), memory.allocated().to_f64() / MIB);
    let mean = errors("own runner", &runs("h200/networks.csv")?, "cudnn", whole)?;
    assert!(mean < 10.0, "{mean}");
    Ok(())
}

/// Peaks of single steps, each from an empty allocator; those of the other files hold what earlier runs left behind.
fn pytorch(file: &str, mode: &str) -> Result<f64, Box<dyn Error>> {
    let whole = |run: &Run, memory: &MemoryFootprint| (peak(run), memory.allocated().to_f64() / MIB);
    let alike = |r: &Run| r["mode"] == mode && peak(r).is_finite();
    let runs: Vec<Run> = runs(file)?.into_iter().filter(alike).collect();
    errors(&format!("PyTorch, {mode}, {file}"), &runs, "pytorch", whole)
}

/// The rows on which PyTorch's rules were found (H200), and twelve other networks that were foreseen before they were
/// measured (H100; `torch_memory_foreseen.csv` has what was foreseen then).
const FOUND_ON: &str = "h200/torch_memory.csv";
const FORESEEN: &str = "h100/torch_memory.csv";

#[test]
fn networks_that_were_foreseen() -> Result<(), Box<dyn Error>> {
    for (mode, most) in [("infer", 6.0), ("train", 6.0)] {
        let mean = pytorch(FORESEEN, mode)?;
        assert!(mean < most, "{mode}: {mean}");
    }
    Ok(())
}

#[test]
fn pytorch_training() -> Result<(), Box<dyn Error>> {
    let mean = pytorch(FOUND_ON, "train")?;
    assert!(mean < 5.0, "{mean}");
    Ok(())
}

#[test]
fn pytorch_inference() -> Result<(), Box<dyn Error>> {
    let mean = pytorch(FOUND_ON, "infer")?;
    assert!(mean < 8.0, "{mean}");
    Ok(())
}
