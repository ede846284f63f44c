//! Repeats one operation of the library so often, for whoever counts instructions (`.ci/instructions`): the difference between
//! two numbers of repetitions is the operation's own.
//!
//! ```text
//! steps           names the operations
//! steps NAME N    runs one N times
//! ```

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Hertz, Watts};
use joulecast_model::catalog;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::OperatingPoint;
use std::error::Error;
use std::hint::black_box;
use std::process::ExitCode;

/// GPU and precision.
const STEPS: [(&str, Precision); 2] = [("v100", Precision::Fp32), ("h200", Precision::Fp16)];
const OPERATIONS: [&str; 7] = ["network", "shapes", "step", "compile", "batch", "clock", "limit"];
/// As many batches are asked for at once as a sweep asks for.
const BATCHES: u64 = 64;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        [] => {
            for (gpu, _) in STEPS {
                OPERATIONS.iter().for_each(|operation| println!("{operation}-{gpu}"));
            }
            Ok(())
        }
        [name, count] => run(name, count),
        _ => Err("steps [NAME N]".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

fn run(name: &str, count: &str) -> Result<(), Box<dyn Error>> {
    let count: u64 = count.parse()?;
    let (operation, gpu) = name.split_once('-').ok_or("an operation is like step-v100")?;
    let (gpu, precision) = *STEPS.iter().find(|(name, _)| *name == gpu).ok_or("no such step")?;
    let mode = Mode::Inference;
    let network = catalog::network("resnet50")?;
    let shaped = ShapedNetwork::new(&network, 64, precision, &[])?;
    let predictor = Predictor::shipped(catalog::gpu(gpu)?, catalog::framework("cudnn")?);
    let one = predictor.step(&shaped, mode)?;
    let prepared = one.prepare();
    let over = predictor.over_batches(&shaped, mode)?.ok_or("other batches run other kernels")?;
    for i in 0..count {
        match operation {
            "network" => {
                let shaped = ShapedNetwork::new(black_box(&network), 64, precision, &[])?;
                black_box(predictor.predict(&shaped, mode)?);
            }
            "shapes" => {
                black_box(predictor.predict(black_box(&shaped), mode)?);
            }
            "step" => {
                black_box(predictor.step(black_box(&shaped), mode)?.prepare().cost);
            }
            "compile" => {
                black_box(predictor.over_batches(black_box(&shaped), mode)?);
            }
            "batch" if i % BATCHES == 0 => {
                let batches: Vec<u64> = (0..BATCHES.min(count - i)).map(|j| black_box(1 + j)).collect();
                for summary in over.each(&batches, |_, prepared| prepared.at(OperatingPoint::default()))? {
                    black_box(summary?);
                }
            }
            "batch" => {}
            "clock" => {
                let core_clock = Some(Hertz::from_mhz(black_box(900.0 + (i % 31) as f64)));
                black_box(prepared.at(OperatingPoint { core_clock, ..OperatingPoint::default() })?);
            }
            "limit" => {
                let power_cap = Some(Watts::new(black_box(220.0 + (i % 31) as f64)));
                black_box(prepared.at(OperatingPoint { power_cap, ..OperatingPoint::default() })?);
            }
            other => return Err(format!("no operation {other}").into()),
        }
    }
    Ok(())
}
