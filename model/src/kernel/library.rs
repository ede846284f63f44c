//! Jumps of a library's times that its version explains. `data/libraries/cudnn.toml`, `library/1`.

use crate::base::file::{FileError, check_schema, quantity, within};
use crate::base::packed::{from_packed, from_toml};
use crate::base::precision::Phase;
use crate::base::text::shown;
use crate::base::units::{Dimension, Seconds};
use crate::device::gpu::Gpu;
use crate::kernel::features::library_age;
use crate::net::layer::Layer;
use crate::net::network::ShapedLayer;
use serde::Deserialize;

/// When a convolution takes another time than its fitted model says.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// First and last age of the library ([`library_age`]).
    ages: (f64, f64),
    condition: Condition,
    /// Times as long.
    factor: f64,
    /// But at least so long.
    at_least: Seconds,
}

/// Convolutions of a rule; what is left out holds for all.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
struct Condition {
    architectures: Vec<String>,
    phases: Option<Vec<Phase>>,
    /// Both sides of the window.
    kernel: Option<u64>,
    /// Channels of the result.
    channels_from: Option<u64>,
    /// Samples of the step.
    batch_below: Option<u64>,
    /// Larger side of the result.
    map_up_to: Option<u64>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[serde(default)]
    rule: Vec<RuleFile>,
}

#[derive(Deserialize)]
struct RuleFile {
    name: String,
    from: String,
    until: String,
    #[serde(flatten)]
    condition: Condition,
    factor: Option<f64>,
    at_least: Option<String>,
    #[serde(rename = "source")]
    _source: String,
}

/// Reads a library's rules.
///
/// # Errors
/// One line that says where the text is malformed.
pub fn rules(text: &str) -> Result<Vec<Rule>, FileError> {
    rules_of(from_toml(text)?)
}

fn rules_of(file: File) -> Result<Vec<Rule>, FileError> {
    check_schema(&file.schema, "library/1")?;
    let read = |rule: RuleFile| {
        let place = format!("rule {}", shown(&rule.name));
        let age = |version: &str| {
            let not = || FileError::value(&place, format!("\"{}\" is not a version", shown(version)));
            library_age(version).ok_or_else(not)
        };
        let at_least = rule.at_least.as_deref().map(|t| quantity(&place, t, Dimension::Time)).transpose();
        let factor = within("factor", rule.factor.unwrap_or(1.0), 0.001..=1000.0).map_err(|e| e.at(&place))?;
        Ok(Rule {
            ages: (age(&rule.from)?, age(&rule.until)?),
            factor,
            at_least: Seconds::new(at_least?.unwrap_or(0.0)),
            name: rule.name,
            condition: rule.condition,
        })
    };
    file.rule.into_iter().map(read).collect()
}

/// The rules that are shipped.
///
/// # Errors
/// Only if the build embedded a malformed file.
pub fn shipped() -> Result<Vec<Rule>, FileError> {
    from_packed(joulecast_data::PACKED_CUDNN.bytes).and_then(rules_of).map_err(|e| e.at("data/libraries/cudnn.toml"))
}

impl Rule {
    /// The time of a kernel under this rule, where it applies and changes it.
    pub fn applied(
        &self,
        time: Seconds,
        layer: &ShapedLayer,
        phase: Phase,
        batch: u64,
        gpu: &Gpu,
        library: Option<f64>,
    ) -> Option<Seconds> {
        let below = self.concerns(layer, phase, gpu, library)?;
        let ruled = (time * self.factor).max(self.at_least);
        (below.is_none_or(|n| batch < n) && ruled != time).then_some(ruled)
    }

    /// Of a kernel that it holds for at some batch: below which, where not at all. `None` of all others.
    pub(crate) fn concerns(
        &self,
        layer: &ShapedLayer,
        phase: Phase,
        gpu: &Gpu,
        library: Option<f64>,
    ) -> Option<Option<u64>> {
        let Layer::Conv2d(conv) = &layer.case.layer else { return None };
        let c = &self.condition;
        let age = library?;
        // Versions are read to one decimal.
        let within = age > self.ages.0 - 0.05 && age < self.ages.1 + 0.05;
        let (channels, height, width) = layer.output.as_map()?;
        let holds = within
            && phase != Phase::Update
            && c.architectures.contains(&gpu.architecture)
            && c.phases.as_ref().is_none_or(|p| p.contains(&phase))
            && c.kernel.is_none_or(|k| conv.kernel.is(k))
            && c.channels_from.is_none_or(|n| channels >= n)
            && c.map_up_to.is_none_or(|n| height.max(width) <= n);
        holds.then_some(c.batch_below)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::precision::Precision;
    use crate::catalog;
    use crate::net::network::ShapedNetwork;

    #[test]
    fn a_rule_holds_for_its_version_architecture_batch_and_layers() -> Result<(), Box<dyn std::error::Error>> {
        let rules = shipped()?;
        let slow = rules.iter().find(|r| r.name == "slow-weight-gradient").ok_or("shipped")?;
        let network = ShapedNetwork::new(&catalog::network("gait_resnet_text")?, 64, Precision::Fp32, &[])?;
        let (pascal, maxwell) = (catalog::gpu("titan-x-pascal")?, catalog::gpu("titan-x-maxwell")?);
        let time = Seconds::from_us(100.0);
        let applied = |gpu: &Gpu, phase, batch, version: Option<&str>| {
            let library = version.and_then(library_age);
            let of = |layer| slow.applied(time, layer, phase, batch, gpu, library);
            network.layers().iter().filter_map(of).map(|t| (t / time).round() as u64).collect::<Vec<_>>()
        };
        assert_eq!(applied(&pascal, Phase::BackwardWeights, 64, Some("6.0")), [25, 25, 25, 25]);
        assert!(applied(&pascal, Phase::BackwardWeights, 256, Some("6.0")).is_empty());
        assert!(applied(&pascal, Phase::BackwardWeights, 64, Some("7.0")).is_empty());
        assert!(applied(&pascal, Phase::BackwardWeights, 64, None).is_empty());
        assert!(applied(&pascal, Phase::Forward, 64, Some("6.0")).is_empty());
        assert!(applied(&maxwell, Phase::BackwardWeights, 64, Some("6.0")).is_empty());
        Ok(())
    }

    #[test]
    fn a_floor_changes_only_what_is_shorter() -> Result<(), Box<dyn std::error::Error>> {
        let rules = shipped()?;
        let floor = rules.iter().find(|r| r.name == "launch-floor").ok_or("shipped")?;
        let network = ShapedNetwork::new(&catalog::network("googlenet")?, 1, Precision::Fp32, &[])?;
        let conv = network.layers().iter().find(|l| l.case.layer.kind() == "conv2d").ok_or("a convolution")?;
        let gpu = catalog::gpu("titan-x-maxwell")?;
        let at = |us| floor.applied(Seconds::from_us(us), conv, Phase::Forward, 1, &gpu, library_age("4"));
        assert_eq!(at(10.0).map(Seconds::to_us), Some(61.0));
        assert_eq!(at(100.0), None);
        Ok(())
    }

    #[test]
    fn a_wrong_rule_is_named() {
        let text = |line: &str| {
            format!(
                "schema = \"library/1\"\n[[rule]]\nname = \"x\"\nfrom = \"6.0\"\nuntil = \"6.0\"\narchitectures = []\n\
                 source = \"\"\n{line}\n"
            )
        };
        for (line, expected) in [
            ("factor = -1", "rule x: factor is -1"),
            ("factor = 6e99", "rule x: factor is 6e99"),
            ("at_least = \"4 W\"", "rule x:"),
        ] {
            let error = rules(&text(line)).expect_err("wrong");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
