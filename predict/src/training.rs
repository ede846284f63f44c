//! Whole trainings: `--optimizer`, `--epochs`, `--dataset-size`, `--price-kwh`.

use crate::cli::{one_of, parse_latency, parse_positive};
use clap::Args;
use joulecast_model::base::units::Seconds;
use joulecast_model::net::layer::Optimizer;
use joulecast_model::step::framework::Framework;
use joulecast_model::step::training::Plan;

/// No dataset has more samples, no training more epochs.
const MOST: u64 = 1 << 48;

#[derive(Args)]
pub struct TrainingArgs {
    /// What updates the parameters in training: sgd, momentum or adam (default: momentum)
    #[arg(long, value_name = "NAME", value_parser = parse_optimizer)]
    pub optimizer: Option<Optimizer>,
    /// Also the whole training: passes over the dataset
    #[arg(long, value_name = "N", requires = "dataset_size", value_parser = parse_count)]
    pub epochs: Option<u64>,
    /// Samples of the dataset
    #[arg(long, value_name = "N", requires = "epochs", value_parser = parse_count)]
    pub dataset_size: Option<u64>,
    /// Price of a kilowatt-hour, for the cost of the whole training
    #[arg(long, value_name = "PRICE", requires = "epochs", value_parser = parse_positive, allow_negative_numbers = true)]
    pub price_kwh: Option<f64>,
    /// What the program takes before the first step of the whole training, in seconds (default: what the framework
    /// profile knows, else nothing)
    #[arg(long, value_name = "S", requires = "epochs", value_parser = parse_latency, allow_negative_numbers = true)]
    pub program_start: Option<f64>,
}

impl TrainingArgs {
    /// What is trained, where that is said.
    pub fn plan(&self, framework: &Framework) -> Option<Plan> {
        let (epochs, dataset_size) = (self.epochs?, self.dataset_size?);
        let start = self.program_start.map(Seconds::new).or(framework.start).unwrap_or(Seconds::ZERO);
        Some(Plan { epochs, dataset_size, price_per_kwh: self.price_kwh, start })
    }
}

fn parse_optimizer(text: &str) -> Result<Optimizer, String> {
    Optimizer::from_name(&text.to_ascii_lowercase()).ok_or_else(|| one_of(Optimizer::ALL.iter().map(|o| o.name())))
}

fn parse_count(text: &str) -> Result<u64, String> {
    let count = text.parse::<u64>().ok().filter(|n| (1..=MOST).contains(n));
    count.ok_or_else(|| format!("must be a whole number from 1 to {MOST}"))
}
