//! What the commands over several networks and GPUs share: how a step is run, and a GPU with what is known of it.

use crate::cli::{parse_algorithm, parse_cudnn, parse_launch};
use crate::commands::{Calibrations, Failure, asked_algorithm, check_algorithm, gpu, is_file};
use clap::Args;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::step::framework::{Framework, Launch};
use joulecast_model::step::predictor::Setup;
use joulecast_reports::say;
use std::collections::HashMap;

#[derive(Args)]
pub struct FrameworkArgs {
    /// Framework profile
    #[arg(long, value_name = "NAME", default_value = "cudnn")]
    pub framework: String,
    /// eager: operation by operation from the host; graph: as one CUDA graph (default: eager, for cudnn graph)
    #[arg(long, value_name = "HOW", value_parser = parse_launch)]
    pub launch: Option<Launch>,
    /// Version of the framework's cuDNN, such as 6.0, where the layer models know how old their libraries were
    #[arg(long, value_name = "VERSION", value_parser = parse_cudnn)]
    pub cudnn: Option<f64>,
    /// What computes convolutions where it can: gemm, implicit_gemm, fft, fft_tiling or winograd_nonfused, in fp32
    /// (default: the library's choice)
    #[arg(long, value_name = "NAME", value_parser = parse_algorithm)]
    pub conv_algorithm: Option<Algorithm>,
}

/// What was typed, where it is `all` every name that is built in.
pub fn names(typed: &[String], all: impl Iterator<Item = &'static str>) -> Vec<String> {
    if typed == ["all"] { all.map(str::to_string).collect() } else { typed.to_vec() }
}

/// A list without repetitions, each told once on standard error. `name`: what two of the same share.
pub fn once<T>(list: Vec<T>, option: &str, name: impl Fn(&T) -> String) -> Vec<T> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let first = |item: &T| {
        let name = name(item);
        let times = seen.entry(name.clone()).or_default();
        *times += 1;
        if *times == 2 {
            say(format_args!("note: {option} names {name} more than once: taken once"));
        }
        *times == 1
    };
    list.into_iter().filter(first).collect()
}

/// How a step is run, whatever the network and GPU.
pub struct How {
    pub precision: Precision,
    pub mode: Mode,
    pub framework: Framework,
    asked: Option<Launch>,
    pub library: Option<f64>,
}

impl How {
    pub fn new(args: &FrameworkArgs, precision: Precision, mode: Mode) -> Result<Self, Failure> {
        let framework = catalog::framework(&args.framework).map_err(|e| Failure::Usage(e.into()))?;
        let framework = framework.by(asked_algorithm(args.conv_algorithm, precision)?);
        Ok(Self { precision, mode, framework, asked: args.launch, library: args.cudnn })
    }

    /// As asked for; where nobody asked, as the profile usually does.
    pub fn launch(&self) -> Launch {
        self.asked.unwrap_or_else(|| self.framework.usual_launch())
    }

    /// As asked for; where nobody asked, as the profile usually does on a device.
    pub fn launch_on(&self, gpu: &Gpu) -> Launch {
        self.asked.unwrap_or_else(|| self.framework.usual_launch_on(gpu))
    }
}

/// A GPU with what its predictions rest on.
pub struct Device {
    pub gpu: Gpu,
    calibrations: Calibrations,
}

impl Device {
    pub fn read(name: &str, how: &How) -> Result<Self, Failure> {
        Self::of(gpu(name)?, how)
    }

    pub fn of(gpu: Gpu, how: &How) -> Result<Self, Failure> {
        check_algorithm(&gpu, &how.framework)?;
        let calibrations = Calibrations::built_in(&gpu, how.precision, how.mode, &how.framework)?;
        Ok(Self { gpu, calibrations })
    }

    pub fn setup<'a>(&'a self, how: &'a How) -> Setup<'a> {
        Setup {
            gpu: &self.gpu,
            calibration: self.calibrations.chip.as_ref(),
            all_chips: &self.calibrations.all_chips,
            framework: &how.framework,
            launch: how.launch_on(&self.gpu),
            mode: how.mode,
            phases: how.mode.phases(),
            library: how.library,
        }
    }
}

/// Where a path leads, however it is written; as it is written where it leads nowhere.
pub fn place(path: &str) -> String {
    std::fs::canonicalize(path).map_or_else(|_| path.to_string(), |p| p.display().to_string())
}

/// What a typed GPU is, however it is written: a built-in one by its own name, a file by where it is.
///
/// # Errors
/// When no such GPU is built in.
pub fn identity(typed: &str) -> Result<String, Failure> {
    if is_file(typed) { Ok(place(typed)) } else { Ok(gpu(typed)?.name) }
}

/// GPUs as typed, each once: by its own name where it is built in, by its file otherwise.
pub fn gpus(typed: &[String]) -> Result<Vec<(String, Gpu)>, Failure> {
    let read = typed.iter().map(|name| Ok((name.clone(), gpu(name)?))).collect::<Result<Vec<_>, Failure>>()?;
    Ok(once(read, "--gpu", |(typed, gpu)| if is_file(typed) { place(typed) } else { gpu.name.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_named_twice_is_taken_once() {
        assert_eq!(once(vec![3, 1, 3, 2, 1], "--batch", u64::to_string), [3, 1, 2]);
        let typed = ["v100-sxm2", "t4", "v100"].map(String::from);
        let read = gpus(&typed).ok().expect("known");
        assert_eq!(read.iter().map(|(typed, _)| typed.as_str()).collect::<Vec<_>>(), ["v100-sxm2", "t4"]);
        let same = |a: &str, b: &str| identity(a).ok().expect("known") == identity(b).ok().expect("known");
        assert!(same("v100-sxm2", "V100") && !same("v100", "t4"));
        assert!(same("./Cargo.toml", "src/../Cargo.toml") && !same("./Cargo.toml", "./none.toml"));
    }
}
