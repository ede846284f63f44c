//! How fast a machine's host is beside those that a profile's table was measured on. `host/1`, as `calibrate host` writes it.

use crate::base::file::{FileError, check_schema, within};
use crate::base::packed::from_toml;
use crate::base::precision::{Mode, Precision};
use crate::base::text::names;
use serde::{Deserialize, Serialize};
use std::ops::{Index, IndexMut, RangeInclusive};

/// Times of hosts differ by less.
pub(super) const MOST_SPREAD: f64 = 100.0;

/// Factors beyond which a host is no host.
pub(super) const FACTORS: RangeInclusive<f64> = 0.01..=100.0;

/// Steps whose launches take the host alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Forward pass of inference.
    Inference,
    /// Training in 32 bits.
    Training,
    /// Training in mixed precision, whose casts are launches too.
    Autocast,
}

impl Group {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Inference, Self::Training, Self::Autocast];

    /// That of a step.
    pub fn of(mode: Mode, precision: Precision) -> Self {
        match mode {
            Mode::Inference => Self::Inference,
            Mode::Training if precision.is_narrow() => Self::Autocast,
            Mode::Training => Self::Training,
        }
    }

    /// What it is called in files.
    pub fn name(self) -> &'static str {
        match self {
            Self::Inference => "inference",
            Self::Training => "training",
            Self::Autocast => "autocast",
        }
    }
}

/// A number for each group.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ByGroup {
    /// Forward pass of inference.
    pub inference: f64,
    /// Training in 32 bits.
    pub training: f64,
    /// Training in mixed precision.
    pub autocast: f64,
}

impl ByGroup {
    /// The same number for each.
    pub fn all(number: f64) -> Self {
        Self { inference: number, training: number, autocast: number }
    }

    pub(super) fn within(&self, field: &str, range: RangeInclusive<f64>) -> Result<(), FileError> {
        Group::ALL.iter().try_for_each(|g| within(&format!("{field}: {}", g.name()), self[*g], range.clone()).map(drop))
    }
}

impl Index<Group> for ByGroup {
    type Output = f64;

    fn index(&self, group: Group) -> &f64 {
        match group {
            Group::Inference => &self.inference,
            Group::Training => &self.training,
            Group::Autocast => &self.autocast,
        }
    }
}

impl IndexMut<Group> for ByGroup {
    fn index_mut(&mut self, group: Group) -> &mut f64 {
        match group {
            Group::Inference => &mut self.inference,
            Group::Training => &mut self.training,
            Group::Autocast => &mut self.autocast,
        }
    }
}

/// How fast a host is.
#[derive(Clone, Debug, PartialEq)]
pub struct HostSpeed {
    /// How many times as long as a profile's table says its launches take.
    pub factors: ByGroup,
    /// 90 % of the rounds in which that was measured lie within these factors; 1 where it was not measured.
    pub spreads: ByGroup,
    /// Who says so, for a reader.
    pub source: String,
}

impl HostSpeed {
    /// A host that takes so many times as long, because somebody says so. `None` where no host does.
    pub fn stated(factor: f64, source: &str) -> Option<Self> {
        let factors = ByGroup::all(FACTORS.contains(&factor).then_some(factor)?);
        Some(Self { factors, spreads: ByGroup::all(1.0), source: source.into() })
    }
}

/// A machine's host as it was measured: the file `host/1`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRecord {
    schema: String,
    /// The profile whose table it was compared with.
    #[serde(deserialize_with = "names")]
    pub framework: String,
    /// The processor's name.
    #[serde(deserialize_with = "names")]
    pub cpu: String,
    /// The GPU's name.
    #[serde(deserialize_with = "names")]
    pub device: String,
    /// Version of PyTorch.
    #[serde(deserialize_with = "names")]
    pub torch: String,
    /// When, in UTC.
    #[serde(deserialize_with = "names")]
    pub date: String,
    /// In how many rounds.
    pub rounds: u64,
    /// How many times as long as the profile's table says its launches take, of networks.
    pub factor: ByGroup,
    /// 90 % of the rounds lie within these factors.
    pub spread: ByGroup,
    /// The same of the chains that were measured; older files have these alone, under `factor`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chains: Option<ByGroup>,
}

impl HostRecord {
    const SCHEMA: &str = "host/1";

    /// What was measured with PyTorch `torch` on a machine with `cpu` and the GPU `device` on `date`, beside the table of
    /// the profile `framework`.
    pub fn new(
        framework: &str,
        [cpu, device, torch, date]: [&str; 4],
        rounds: u64,
        (factor, spread): (ByGroup, ByGroup),
        chains: ByGroup,
    ) -> Self {
        let [framework, cpu, device, torch, date] = [framework, cpu, device, torch, date].map(String::from);
        let chains = Some(chains);
        Self { schema: Self::SCHEMA.into(), framework, cpu, device, torch, date, rounds, factor, spread, chains }
    }

    /// What chains took, over what the table says.
    pub fn of_chains(&self) -> ByGroup {
        self.chains.unwrap_or(self.factor)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// One line that says where it is malformed, or which number is no host's.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        let record: Self = from_toml(text)?;
        check_schema(&record.schema, Self::SCHEMA)?;
        record.factor.within("factor", FACTORS)?;
        record.spread.within("spread", 1.0..=MOST_SPREAD)?;
        record.of_chains().within("chains", FACTORS)?;
        Ok(record)
    }

    /// The speed, said to be of `place`.
    pub fn speed(&self, place: &str) -> HostSpeed {
        let day = self.date.split('T').next().unwrap_or_default();
        let source = format!("{place} ({}, {day})", self.cpu);
        HostSpeed { factors: self.factor, spreads: self.spread, source }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Phase;
    use crate::base::units::Seconds;
    use crate::catalog;
    use crate::kernel::key::ModelKey;
    use crate::net::case::LayerCase;
    use crate::net::layer::Layer;

    const FILE: &str = "schema = \"host/1\"\nframework = \"pytorch\"\ncpu = \"A\"\ndevice = \"B\"\ntorch = \"2.11\"\n\
        date = \"2026-11-22T20:00:00Z\"\nrounds = 12\nfactor = { inference = 0.5, training = 2.0, autocast = 3.0 }\n\
        spread = { inference = 1.1, training = 1.0, autocast = 1.3 }\n";

    #[test]
    fn a_file_is_read_and_its_numbers_are_bounded() {
        let speed = HostRecord::from_toml(FILE).expect("whole").speed("there");
        assert_eq!((speed.factors[Group::Autocast], speed.spreads[Group::Inference]), (3.0, 1.1));
        assert_eq!(speed.source, "there (A, 2026-11-22)");
        for (from, to, field) in [
            ("inference = 0.5", "inference = 0", "factor: inference"),
            ("autocast = 3.0", "autocast = 1e9", "factor: autocast"),
            ("inference = 1.1", "inference = 0.9", "spread: inference"),
            ("host/1", "host/2", "host/2"),
        ] {
            let error = HostRecord::from_toml(&FILE.replace(from, to)).expect_err(to).to_string();
            assert!(error.contains(field), "{error}");
        }
        assert!(HostSpeed::stated(0.0, "x").is_none() && HostSpeed::stated(f64::NAN, "x").is_none());
    }

    #[test]
    fn every_group_has_its_factor_and_the_gap_between_kernels_none() {
        let profile = catalog::framework("pytorch").expect("shipped");
        let speed = HostRecord::from_toml(FILE).expect("whole").speed("there");
        let (own, other) = (profile.clone().host.expect("has one"), profile.on_host(speed).host.expect("has one"));
        let layer = Layer::from_table("relu", toml::Table::new()).expect("a kind").expect("fields");
        let case = LayerCase { inputs: Vec::new(), layer };
        for (mode, precision, factor) in [
            (Mode::Inference, Precision::Fp32, 0.5),
            (Mode::Inference, Precision::Fp16, 0.5),
            (Mode::Training, Precision::Tf32, 2.0),
            (Mode::Training, Precision::Bf16, 3.0),
        ] {
            let takes = |host: &super::super::Host| {
                let key = ModelKey::Kind("relu");
                let launch = host.launching(&case, key, Phase::Forward, mode, (precision, false));
                let waits =
                    host.waited_for(Default::default(), (Default::default(), &[]), 1.0, mode, (precision, false));
                [launch, waits].map(Seconds::get)
            };
            for (ours, theirs) in takes(&own).into_iter().zip(takes(&other)) {
                assert!(ours > 0.0 && (theirs / ours / factor - 1.0).abs() < 1e-9, "{mode} {precision}");
            }
        }
        assert_eq!((own.gap, own.training_gap), (other.gap, other.training_gap));
        // What is known narrows, what rounds differ by widens again.
        let (inference, training) = (Mode::Inference, Mode::Training);
        assert_eq!(own.spread(inference, Precision::Fp32), own.spread);
        assert!((other.spread(training, Precision::Fp32) - own.known_spread).abs() < 1e-12);
        let both = own.known_spread.ln().hypot(1.3f64.ln()).exp();
        assert!((other.spread(training, Precision::Fp16) - both).abs() < 1e-12 && both < own.spread);
    }
}
