//! Convolutions as networks have them: sides, channels, windows and groups that occur in published networks, each shape
//! at a whole row of batches. Engines change from batch to batch, so that the batches of a shape stand together.

use super::count::{Count, bounded};
use anyhow::{Context, Result, ensure};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::kernel::setting::Layout;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{Conv2d, Groups, Layer, Pair};
use rand::Rng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::Deserialize;

/// Share of the convolutions that add a bias, and of those that keep the side at stride 1.
const BIAS: f64 = 0.2;
const SAME: f64 = 0.9;

/// A lattice of convolutions.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lattice {
    /// Name of its trials' stratum.
    pub name: String,
    /// Height and width of the input; its width where there is a `height`.
    pub sides: Vec<u64>,
    /// Height of the input where it is not its width: 1 for sequences.
    pub height: Option<u64>,
    /// Channels of the input; of one group, where `groups` counts them.
    pub channels: Vec<u64>,
    /// Channels of the output where they do not follow from the input's.
    #[serde(default)]
    pub outputs: Vec<u64>,
    /// Channels of the output over those of the input, snapped to `channels`; each as often as it stands here.
    #[serde(default)]
    pub ratios: Vec<f64>,
    /// Windows and strides, each as often as its weight says.
    pub windows: Vec<Window>,
    /// How the channels are grouped.
    pub groups: Grouping,
    /// Order of dimensions, where it is not the precision's usual one.
    pub layout: Option<Layout>,
    /// Fewest and most values of an input map: networks are wide where their maps are small.
    pub values: [u64; 2],
    /// Rows of batches; the shapes take them in turn.
    pub batches: Vec<Vec<u64>>,
    /// Phases and precisions that a shape is measured in.
    pub measured: Vec<Measured>,
    /// Shapes per level.
    pub shapes: Count,
}

/// A window of a lattice.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Height and width.
    pub kernel: [u64; 2],
    /// Step in both directions.
    pub stride: u64,
    /// Distance of the values that it reads, in both directions.
    #[serde(default = "one")]
    pub dilation: u64,
    /// How often it is drawn, relative to the others.
    pub weight: u32,
}

fn one() -> u64 {
    1
}

/// How the channels of a lattice are grouped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Grouping {
    /// One group.
    One,
    /// A group per channel.
    Depthwise,
    /// So many groups, whose channels `channels` counts.
    Count(Vec<u64>),
}

/// Some phases and precisions of a lattice.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// All of these phases.
    pub phases: Vec<Phase>,
    /// In these precisions ...
    pub precisions: Vec<Precision>,
    /// ... or in so many of them, drawn for each shape.
    pub pick: Option<usize>,
    /// Share of the shapes that are measured so.
    pub share: f64,
}

impl Lattice {
    /// Whether there is anything to draw from.
    ///
    /// # Errors
    /// One line that says what is missing or out of bounds.
    pub(super) fn check(&self) -> Result<()> {
        let at = || format!("lattice \"{}\"", self.name);
        for (what, list) in [("sides", &self.sides), ("channels", &self.channels), ("outputs", &self.outputs)] {
            ensure!(what == "outputs" || !list.is_empty(), "{}: no {what}", at());
            list.iter().try_for_each(|&v| bounded(what, v)).with_context(at)?;
        }
        self.height.iter().try_for_each(|&v| bounded("height", v)).with_context(at)?;
        ensure!(self.outputs.is_empty() != self.ratios.is_empty(), "{}: either outputs or ratios", at());
        ensure!(self.ratios.iter().all(|r| (0.01..=100.0).contains(r)), "{}: ratios from 0.01 to 100", at());
        ensure!(self.windows.iter().map(|w| u64::from(w.weight)).sum::<u64>() > 0, "{}: no windows", at());
        let mut windows = self.windows.iter().flat_map(|w| [w.kernel[0], w.kernel[1], w.stride, w.dilation]);
        windows.try_for_each(|v| bounded("windows", v)).with_context(at)?;
        if let Grouping::Count(counts) = &self.groups {
            ensure!(!counts.is_empty(), "{}: no groups", at());
            counts.iter().try_for_each(|&v| bounded("groups", v)).with_context(at)?;
        }
        ensure!(self.values[0] <= self.values[1], "{}: values are [fewest, most]", at());
        ensure!(!self.batches.is_empty() && self.batches.iter().all(|b| !b.is_empty()), "{}: no batches", at());
        self.batches.iter().flatten().try_for_each(|&b| bounded("batches", b)).with_context(at)?;
        for measured in &self.measured {
            ensure!((0.0..=1.0).contains(&measured.share), "{}: share is {}", at(), measured.share);
            ensure!(!measured.phases.contains(&Phase::Update), "{}: a convolution has no update of its own", at());
        }
        self.shapes.check().with_context(at)
    }

    /// A shape; `None` where the sizes drawn do not fit together.
    pub(super) fn shape(&self, random: &mut Xoshiro256PlusPlus) -> Option<LayerCase> {
        let side = *self.sides.choose(random)?;
        let per_group = *self.channels.choose(random)?;
        let window = self.windows.choose_weighted(random, |w| w.weight).ok()?;
        let count = match &self.groups {
            Grouping::Count(counts) => *counts.choose(random)?,
            Grouping::One | Grouping::Depthwise => 1,
        };
        let channels_in = per_group * count;
        let wanted = match self.outputs.choose(random) {
            Some(&outputs) => outputs,
            None => self.snapped(per_group as f64 * self.ratios.choose(random)?) * count,
        };
        let [h, w] = window.kernel;
        // Patches lie side by side.
        let patches = h > 1 && [h, w] == [window.stride; 2];
        let (bias, same) = (random.gen_bool(BIAS), !patches && (window.stride > 1 || random.gen_bool(SAME)));
        let dilation = window.dilation;
        let height = self.height.unwrap_or(side);
        if !(self.values[0]..=self.values[1]).contains(&(channels_in * height * side)) || height < h || side < w {
            return None;
        }
        let (groups, channels) = match self.groups {
            Grouping::One => (Groups::Count(1), wanted),
            Grouping::Depthwise => (Groups::Depthwise, wanted.div_ceil(channels_in) * channels_in),
            Grouping::Count(_) => (Groups::Count(count), wanted),
        };
        let case = LayerCase {
            inputs: vec![Shape::map(channels_in, height, side).ok()?],
            layer: Layer::Conv2d(Conv2d {
                channels,
                kernel: Pair { h, w },
                stride: Pair::square(window.stride),
                padding: if same { Pair { h: dilation * (h / 2), w: dilation * (w / 2) } } else { Pair::square(0) },
                dilation: Pair::square(dilation),
                groups,
                bias,
            }),
        };
        case.output().is_ok().then_some(case)
    }

    /// The nearest of the channels, by ratio.
    fn snapped(&self, wanted: f64) -> u64 {
        let far = |c: &&u64| ((**c as f64 / wanted).ln().abs() * 1e9) as u64;
        self.channels.iter().min_by_key(far).copied().unwrap_or(1)
    }

    /// The trials of the n-th shape: every phase and precision that it is measured in, at a row of batches.
    ///
    /// # Errors
    /// When the layer does not take its input.
    pub(super) fn trials(&self, case: &LayerCase, n: usize, random: &mut Xoshiro256PlusPlus) -> Result<Vec<Trial>> {
        let batches = &self.batches[n % self.batches.len()];
        let mut trials = Vec::new();
        for measured in &self.measured {
            if !random.gen_bool(measured.share) {
                continue;
            }
            let most = measured.pick.unwrap_or(measured.precisions.len());
            let precisions: Vec<Precision> = measured.precisions.choose_multiple(random, most).copied().collect();
            for &phase in &measured.phases {
                let mode = if phase == Phase::Forward { Mode::Inference } else { Mode::Training };
                for &precision in &precisions {
                    for &batch in batches {
                        let usual = Trial::usual(case.clone(), phase, batch, precision, mode)?;
                        trials.push(Trial { layout: self.layout.unwrap_or(usual.layout), ..usual });
                    }
                }
            }
        }
        Ok(trials)
    }
}
