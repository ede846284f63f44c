//! Steps that two H200s share through PyTorch's DistributedDataParallel, beside what is predicted:
//! `cargo test -p joulecast-model --test parallel -- --nocapture` prints every run. Nothing was fitted to them.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::parallel::{Fabric, Share, combine};
use joulecast_model::step::predict::Predictor;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;

type Run = BTreeMap<String, String>;

fn number(run: &Run, column: &str) -> Result<f64, Box<dyn Error>> {
    Ok(run.get(column).ok_or(column)?.parse()?)
}

/// Absolute errors of a group: the time of a step of two, its energy, and how much longer than alone it takes.
#[derive(Default)]
struct Errors {
    runs: f64,
    time: f64,
    energy: f64,
    longer: f64,
}

#[test]
fn two_h200s() -> Result<(), Box<dyn Error>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/measurements/h200/torch_ddp.csv");
    let runs: Vec<Run> = csv::Reader::from_path(path)?.deserialize().collect::<Result<_, _>>()?;
    let (gpu, framework) = (catalog::gpu("h200")?, catalog::framework("pytorch")?);
    let predictor = Predictor::shipped(gpu.clone(), framework.clone());
    let mut groups: BTreeMap<&str, Errors> = BTreeMap::new();
    for two in runs.iter().filter(|r| r["gpus"] == "2") {
        let same = |r: &&Run| r["gpus"] == "1" && ["network", "precision", "batch"].iter().all(|c| r[*c] == two[*c]);
        let one = runs.iter().find(same).ok_or("no run of one GPU")?;
        let precision = Precision::from_name(&two["precision"]).ok_or("precision")?;
        let network = catalog::network(&two["network"])?;
        let network = ShapedNetwork::new(&network, number(two, "batch")? as u64, precision, &[])?;
        let alone = predictor.predict(&network, Mode::Training)?;
        let shares = vec![Share { count: 2, gpu: &gpu, alone: alone.clone() }];
        let both = combine(shares, &network, &Fabric::of(&catalog::interconnects()?, &[&gpu], 2, None)?, &framework)
            .ok_or("no GPU")?;
        let error = |predicted: f64, measured: f64| predicted / measured - 1.0;
        let time = error(both.time.value.to_ms(), number(two, "ms_per_iter")?);
        let energy = error(both.energy.value.get(), number(two, "joules_per_iter")?);
        let measured = number(two, "ms_per_iter")? / number(one, "ms_per_iter")?;
        let longer = error(both.time.value / alone.time.value, measured);
        let group = if alone.launch_bound { "launch-bound" } else { "GPU-bound" };
        println!(
            "{group}: {} {} {}: {} ms, {:+.0} %; energy {:+.0} %; {measured:.2} times as long as alone, {:+.0} %",
            two["network"],
            two["precision"],
            two["batch"],
            two["ms_per_iter"],
            100.0 * time,
            100.0 * energy,
            100.0 * longer
        );
        let sum = groups.entry(group).or_default();
        sum.runs += 1.0;
        sum.time += 100.0 * time.abs();
        sum.energy += 100.0 * energy.abs();
        sum.longer += 100.0 * longer.abs();
    }
    for (group, e) in &groups {
        println!(
            "{group}: {} runs, mean error of the time {:.1} %, energy {:.1} %, times as long {:.1} %",
            e.runs,
            e.time / e.runs,
            e.energy / e.runs,
            e.longer / e.runs
        );
    }
    let bound = groups.get("GPU-bound").ok_or("no GPU-bound run")?;
    assert!(bound.longer / bound.runs < 10.0, "{}", bound.longer / bound.runs);
    Ok(())
}
