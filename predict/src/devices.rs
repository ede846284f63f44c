//! What the commands over several networks and GPUs share: how a step is run, and a GPU with what is known of it.

use crate::cli::{parse_cudnn, parse_launch};
use crate::commands::{Calibrations, Failure, gpu};
use anyhow::anyhow;
use clap::Args;
use joulecast_model::framework::{Framework, Launch};
use joulecast_model::gpu::Gpu;
use joulecast_model::precision::{Mode, Precision};
use joulecast_model::predictor::Setup;

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
        let framework = Framework::named(&args.framework).map_err(|e| Failure::Usage(anyhow!(e)))?;
        Ok(Self { precision, mode, framework, asked: args.launch, library: args.cudnn })
    }

    /// As asked for; where nobody asked, as the profile usually does.
    pub fn launch(&self) -> Launch {
        self.asked.unwrap_or_else(|| self.framework.usual_launch())
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
        let calibrations = Calibrations::built_in(&gpu, how.precision, how.mode, &how.framework)?;
        Ok(Self { gpu, calibrations })
    }

    pub fn setup<'a>(&'a self, how: &'a How) -> Setup<'a> {
        Setup {
            gpu: &self.gpu,
            calibration: self.calibrations.chip.as_ref(),
            roofline: &self.calibrations.roofline,
            framework: &how.framework,
            launch: how.asked.unwrap_or_else(|| how.framework.usual_launch_on(&self.gpu)),
            mode: how.mode,
            phases: how.mode.phases(),
            library: how.library,
        }
    }
}
