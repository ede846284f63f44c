//! What to make small: energy, time and products of them.

use joulecast_model::base::units::{Joules, Seconds};
use std::fmt;
use std::str::FromStr;

/// A metric of a run; less is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Metric {
    /// Energy.
    Energy,
    /// Time.
    Time,
    /// Energy-delay product E t.
    Edp,
    /// E t^2.
    Ed2p,
    /// Energy-delay sum with weight k > 1: a E + b t, a = (k-1)/(k E_ref), b = 1/(k t_ref); below 1 is better than the
    /// reference (Krzywaniak, Czarnul, Proficz 2022).
    Eds(f64),
}

/// What an energy-delay sum compares with: the default.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reference {
    /// Its time.
    pub time: Seconds,
    /// Its energy.
    pub energy: Joules,
}

impl Metric {
    /// The metric of a run, in SI units; an energy-delay sum is a number.
    pub fn of(self, time: Seconds, energy: Joules, reference: &Reference) -> f64 {
        match self {
            Self::Energy => energy.get(),
            Self::Time => time.get(),
            Self::Edp => (energy * time).get(),
            Self::Ed2p => (energy * time).get() * time.get(),
            Self::Eds(k) => (k - 1.0) / k * (energy / reference.energy) + (time / reference.time) / k,
        }
    }
}

/// Energy-precision ratio of NeuralPower (Cai et al., ACML 2017): error^alpha times the energy of one sample, in joules;
/// less is better. `error`: share of samples classified wrongly; the larger alpha, the more accuracy counts.
pub fn energy_precision_ratio(error: f64, alpha: f64, per_sample: Joules) -> Joules {
    per_sample * error.powf(alpha)
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Energy => f.write_str("energy"),
            Self::Time => f.write_str("time"),
            Self::Edp => f.write_str("edp"),
            Self::Ed2p => f.write_str("ed2p"),
            Self::Eds(k) => write!(f, "eds:{k}"),
        }
    }
}

impl FromStr for Metric {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.to_ascii_lowercase().as_str() {
            "energy" => Ok(Self::Energy),
            "time" => Ok(Self::Time),
            "edp" => Ok(Self::Edp),
            "ed2p" => Ok(Self::Ed2p),
            "cost" => Err("has no cost of a step: compare --price has it, and serve --objective cost for what a language model's users ask".into()),
            other => match other.strip_prefix("eds:").map(str::parse::<f64>) {
                Some(Ok(k)) if k.is_finite() && k > 1.0 => Ok(Self::Eds(k)),
                Some(_) => Err("eds takes a weight above 1, as in eds:1.5".into()),
                None => Err("must be one of energy, time, edp, ed2p, eds:K".into()),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_an_energy_delay_sum_of_one() {
        let reference = Reference { time: Seconds::new(2.0), energy: Joules::new(300.0) };
        assert!((Metric::Eds(1.5).of(reference.time, reference.energy, &reference) - 1.0).abs() < 1e-12);
        // krzywaniak2022, Table 3: Resnet152 at 255 W, 165.032 of 186.948 kJ and 706.2 of 683.0 s, has the least EDS(1.5).
        let reference = Reference { time: Seconds::new(683.0), energy: Joules::new(186.948) };
        let eds = |time, energy| Metric::Eds(1.5).of(Seconds::new(time), Joules::new(energy), &reference);
        assert!(eds(706.2, 165.032) < eds(782.1, 137.879) && eds(706.2, 165.032) < 1.0);
    }

    #[test]
    fn accuracy_counts_the_more_the_larger_alpha_is() {
        let (rough, precise) = ((0.4, Joules::new(1.0)), (0.2, Joules::new(3.0)));
        let better = |alpha| {
            let of = |(error, energy): (f64, Joules)| energy_precision_ratio(error, alpha, energy);
            of(precise) < of(rough)
        };
        assert!(!better(1.0) && better(2.0));
        assert!((energy_precision_ratio(0.5, 2.0, Joules::new(4.0)).get() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn names_are_read_back() {
        for metric in [Metric::Energy, Metric::Time, Metric::Edp, Metric::Ed2p, Metric::Eds(1.5)] {
            assert_eq!(metric.to_string().parse(), Ok(metric));
        }
        for wrong in ["eds:1", "eds:nan", "eds", "joule"] {
            assert!(wrong.parse::<Metric>().is_err(), "{wrong}");
        }
    }
}
