//! Steps that wait for their samples: `--input-rate`.

use crate::commands::Failure;
use anyhow::anyhow;
use clap::Args;
use joulecast_model::step::framework::Framework;

#[derive(Args)]
pub struct InputArgs {
    /// Samples per second that the host feeds to all GPUs together, or an input pipeline of the framework profile
    /// (`predict list inputs`); GPUs wait for it (default: as many as they take)
    #[arg(long, value_name = "N|NAME", allow_negative_numbers = true)]
    pub input_rate: Option<String>,
}

impl InputArgs {
    /// Samples per second, where they are bounded.
    ///
    /// # Errors
    /// When what was typed is neither a number above 0 nor a name that the profile knows.
    pub fn samples_per_second(&self, framework: &Framework) -> Result<Option<f64>, Failure> {
        let Some(text) = &self.input_rate else { return Ok(None) };
        let found = match text.parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
            Ok(_) => Err(format!("--input-rate {text}: must be a number above 0")),
            Err(_) => framework.input(text).map(|i| i.samples_per_second).map_err(|e| format!("--input-rate: {e}")),
        };
        found.map(Some).map_err(|e| Failure::Usage(anyhow!(e)))
    }
}
