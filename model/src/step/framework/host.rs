//! What the host does in an eager step: it launches operation after operation, and the GPU waits where it is slower.

use super::Entry;
use super::speed::{ByGroup, FACTORS, Group, HostSpeed, MOST_SPREAD};
use crate::base::file::{FileError, quantity, within};
use crate::base::precision::{Mode, Phase, Precision};
use crate::base::shape::Shape;
use crate::base::units::{Dimension, Seconds};
use crate::kernel::key::ModelKey;
use crate::net::case::LayerCase;
use crate::net::layer::{Conv2d, Layer};
use serde::Deserialize;
use std::ops::{Add, Mul};

/// A larger exponent is no law.
const MOST_EXPONENT: f64 = 4.0;

/// Steps of the chains' recurrent layers, of one direction.
const STEPS_OF_CHAINS: u64 = 4;

/// What the host takes for an eager step, however short its kernels are.
#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// Per layer whose kind is not listed.
    pub other: HostKind,
    /// Per layer of a kind.
    pub kinds: Vec<HostKind>,
    /// Per step besides its layers.
    pub step: Costs,
    /// What a kernel of a queue that is full waits for the one before, beyond the gap within a graph.
    pub gap: Seconds,
    /// The same in training.
    pub training_gap: Seconds,
    /// Where training scales its loss: the share of a layer's cost that its forward pass has.
    pub scaled_loss: Option<f64>,
    /// 90 % of steps that hosts decide lie within this factor, whatever the machine.
    pub spread: f64,
    /// 90 % of such steps of one machine, once its speed is known, lie within this factor.
    pub known_spread: f64,
    /// How long launches of networks take where those of chains are known; as long by the same factor without.
    pub networks: Option<OfNetworks>,
    /// The machine whose times these are; those that the profile was measured on without.
    pub speed: Option<HostSpeed>,
}

/// What launches of networks take where chains of layers take `f` times as long as the table says: `constant f^exponent`
/// times what it says. A chain's few operations stay in a processor's caches, a network's do not, so that a slow host is
/// slower still. Learned by `calibrate host --learn`.
#[derive(Clone, Debug, PartialEq)]
pub struct OfNetworks {
    /// On the hosts of the table.
    pub constant: ByGroup,
    /// Of the chains' factor.
    pub exponent: ByGroup,
}

impl OfNetworks {
    /// The factor of networks' launches where chains' is `chains`.
    pub fn factor(&self, group: Group, chains: f64) -> f64 {
        (self.constant[group] * chains.powf(self.exponent[group])).clamp(*FACTORS.start(), *FACTORS.end())
    }
}

/// Times with 32 and with 16 bits.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Costs {
    /// Forward pass of inference.
    pub inference: [Seconds; 2],
    /// Forward and backward pass of training; with 16 bits in mixed precision, whose weights are converted anew.
    pub training: [Seconds; 2],
}

impl Costs {
    fn of(&self, mode: Mode, precision: Precision) -> Seconds {
        let half = usize::from(precision.is_narrow());
        match mode {
            Mode::Inference => self.inference[half],
            Mode::Training => self.training[half],
        }
    }
}

/// What launching a layer costs the host.
#[derive(Clone, Debug, PartialEq)]
pub struct HostKind {
    /// Layer kind or class of convolutions, with `_bias` where a bias is added apart, `_within` for what a network does
    /// around such a layer beyond a chain of them, `conv2d_group` for each group where those are launched one by one; `view` for layers that run no kernel, or their kind with `_view`;
    /// `recurrent_step` for each step of a direction beyond those of the chains; `update` for the optimizer.
    pub kind: String,
    /// Its times.
    pub costs: Costs,
}

/// A step's time by what runs when.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stages {
    /// Forward pass.
    pub forward: Seconds,
    /// Gradients of data and weights.
    pub backward: Seconds,
    /// The optimizer.
    pub update: Seconds,
}

/// A place in a step that begins with an empty queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    /// What the host takes from the forward pass's begin until the kernels there are launched.
    pub launched: Seconds,
    /// The share of the forward pass's kernels that is left there.
    pub forward: f64,
    /// The same of the backward pass's.
    pub backward: f64,
}

impl Stages {
    /// A time in the stage of a phase.
    pub fn of(phase: Phase, time: Seconds) -> Self {
        match phase {
            Phase::Forward => Self { forward: time, ..Self::default() },
            Phase::BackwardData | Phase::BackwardWeights => Self { backward: time, ..Self::default() },
            Phase::Update => Self { update: time, ..Self::default() },
        }
    }

    /// Their sum.
    pub fn total(&self) -> Seconds {
        self.forward + self.backward + self.update
    }
}

impl Add for Stages {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            forward: self.forward + other.forward,
            backward: self.backward + other.backward,
            update: self.update + other.update,
        }
    }
}

impl Mul<f64> for Stages {
    type Output = Self;

    fn mul(self, factor: f64) -> Self {
        Self { forward: self.forward * factor, backward: self.backward * factor, update: self.update * factor }
    }
}

impl Host {
    /// What a kernel of a full queue waits for the one before, beyond the gap within a graph.
    pub fn gap_in(&self, mode: Mode) -> Seconds {
        match mode {
            Mode::Inference => self.gap,
            Mode::Training => self.training_gap,
        }
    }

    /// The times of a machine of another speed.
    #[must_use]
    pub(super) fn of(mut self, speed: HostSpeed) -> Self {
        let costs = self.kinds.iter_mut().map(|k| &mut k.costs);
        for costs in costs.chain([&mut self.other.costs, &mut self.step]) {
            costs.inference = costs.inference.map(|time| time * speed.factors[Group::Inference]);
            let [whole, half] = costs.training;
            costs.training = [whole * speed.factors[Group::Training], half * speed.factors[Group::Autocast]];
        }
        self.speed = Some(speed);
        self
    }

    /// 90 % of times that the host decides lie within this factor of what is predicted.
    pub fn spread(&self, mode: Mode, precision: Precision) -> f64 {
        let Some(speed) = &self.speed else { return self.spread };
        self.known_spread.ln().hypot(speed.spreads[Group::of(mode, precision)].ln()).exp()
    }

    /// What the host takes for a layer's operation in a phase. A layer's backward operation counts with its forward
    /// one, whatever its gradients. An update in mixed precision is that of a scaled loss; without one it is that in 32 bits.
    pub fn launching(
        &self,
        case: &LayerCase,
        key: ModelKey,
        phase: Phase,
        mode: Mode,
        (precision, scaled): (Precision, bool),
    ) -> Seconds {
        let layer = &case.layer;
        let biased = match layer {
            Layer::Conv2d(conv) if conv.bias && phase != Phase::Update => {
                self.listed(&format!("{key}_bias")).or_else(|| self.listed("conv2d_bias"))
            }
            Layer::Scale(scale) if scale.bias && phase != Phase::Update => self.listed("scale_bias"),
            _ => None,
        };
        let kind = biased.or_else(|| self.listed(key.name())).or_else(|| self.listed(layer.kind()));
        let costs = kind.unwrap_or(&self.other).costs;
        match (mode, phase) {
            (Mode::Training, Phase::BackwardData | Phase::BackwardWeights) => Seconds::ZERO,
            (Mode::Training, Phase::Update) if !scaled => costs.training[0],
            (_, Phase::Forward) => costs.of(mode, precision) + self.around(case, mode, precision),
            _ => costs.of(mode, precision),
        }
    }

    /// What a layer costs the host beside what chains of such layers were measured to.
    fn around(&self, case: &LayerCase, mode: Mode, precision: Precision) -> Seconds {
        let of = |kind: &str| self.listed(kind).map_or(Seconds::ZERO, |k| k.costs.of(mode, precision));
        let further = match &case.layer {
            Layer::Recurrent(cells) => {
                let steps = cells.steps(&case.inputs).saturating_mul(cells.directions());
                of("recurrent_step") * steps.saturating_sub(STEPS_OF_CHAINS) as f64
            }
            Layer::Conv2d(conv) => match launched_groups(conv, &case.inputs, precision) {
                0 => Seconds::ZERO,
                groups => of("conv2d_group") * groups as f64,
            },
            _ => Seconds::ZERO,
        };
        of(&format!("{}_within", case.layer.kind())) + further
    }

    /// What the host takes for a layer that runs no kernel: its operation is called nevertheless, in training backward too.
    pub fn viewing(&self, layer: &Layer, mode: Mode, precision: Precision) -> Seconds {
        let kind = self.listed(&format!("{}_view", layer.kind())).or_else(|| self.listed("view"));
        kind.map_or(Seconds::ZERO, |k| k.costs.of(mode, precision))
    }

    fn listed(&self, kind: &str) -> Option<&HostKind> {
        self.kinds.iter().find(|k| k.kind == kind)
    }

    /// What the host takes for a whole step, of which `host` is for its layers.
    pub fn launches(&self, host: Stages, mode: Mode, precision: Precision) -> Seconds {
        self.step.of(mode, precision) + host.total()
    }

    /// Whether a step whose kernels take `gpu`, and whose launches take `host` on a host of this speed, lasts as long as a host
    /// takes that is so many times slower.
    pub fn decides(&self, gpu: Stages, host: Stages, slower: f64, mode: Mode, precision: Precision) -> bool {
        self.launches(host, mode, precision) * slower > gpu.total()
    }

    /// How long the GPU waits in a step whose kernels take `gpu`, where launching takes `host`, for a host that is so many times
    /// slower.
    ///
    /// The host runs ahead of the GPU from step to step, so that the slower of the two decides. A scaled loss ends that:
    /// the host reads back whether a gradient is infinite, and begins the next step's launches with an idle GPU. A step
    /// then lasts as long as the longest way through both: launches until an operation, kernels from there on; `cuts` are the
    /// operations that may be those.
    pub fn waited_for(
        &self,
        gpu: Stages,
        (host, cuts): (Stages, &[Cut]),
        slower: f64,
        mode: Mode,
        (precision, scaled): (Precision, bool),
    ) -> Seconds {
        let (step, host) = (self.step.of(mode, precision) * slower, host * slower);
        let launches = step + host.total();
        let drained = self.scaled_loss.filter(|_| mode == Mode::Training && scaled);
        let longest = match drained {
            None => launches,
            Some(_) => {
                let begun = step + host.update;
                let from =
                    |cut: &Cut| begun + cut.launched * slower + gpu.forward * cut.forward + gpu.backward * cut.backward;
                let longest = launches.max(step + gpu.total()).max(begun + gpu.forward + gpu.backward);
                cuts.iter().map(from).fold(longest, Seconds::max)
            }
        };
        (longest - gpu.total()).max(Seconds::ZERO)
    }
}

/// Groups that cuDNN launches kernels for one by one: of several results of each channel in 16 bits, where windows do not lie side
/// by side.
fn launched_groups(conv: &Conv2d, inputs: &[Shape], precision: Precision) -> u64 {
    let channels = inputs.first().map_or(0, Shape::axis);
    let several = conv.groups(channels) == channels && conv.channels > channels;
    let strided = !conv.stride.is(1);
    if several && strided && precision.channels_last() { channels } else { 0 }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HostFile {
    step: StepFile,
    gap: Option<Entry>,
    training_gap: Option<Entry>,
    scaled_loss: Option<ScaledLossFile>,
    spread: SpreadFile,
    networks: Option<NetworksFile>,
    other: CostsFile,
    #[serde(default, rename = "kind")]
    kinds: Vec<KindFile>,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct StepFile {
    inference: [String; 2],
    training: [String; 2],
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpreadFile {
    factor: f64,
    known: Option<f64>,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworksFile {
    constant: ByGroup,
    exponent: ByGroup,
    #[serde(rename = "source")]
    _source: String,
}

impl NetworksFile {
    fn read(self) -> Result<OfNetworks, FileError> {
        self.constant.within("host networks: constant", FACTORS)?;
        self.exponent.within("host networks: exponent", 0.0..=MOST_EXPONENT)?;
        Ok(OfNetworks { constant: self.constant, exponent: self.exponent })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ScaledLossFile {
    forward: f64,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CostsFile {
    inference: [String; 2],
    training: [String; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KindFile {
    name: String,
    inference: [String; 2],
    training: [String; 2],
    #[serde(rename = "source")]
    _source: Option<String>,
}

fn costs(what: &str, inference: &[String; 2], training: &[String; 2]) -> Result<Costs, FileError> {
    let time = |text: &String| quantity(&format!("host {what}"), text, Dimension::Time).map(Seconds::new);
    let both = |texts: &[String; 2]| Ok::<_, FileError>([time(&texts[0])?, time(&texts[1])?]);
    Ok(Costs { inference: both(inference)?, training: both(training)? })
}

fn kind(kind: String, inference: &[String; 2], training: &[String; 2]) -> Result<HostKind, FileError> {
    Ok(HostKind { costs: costs(&kind, inference, training)?, kind })
}

impl HostFile {
    pub(super) fn read(self) -> Result<Host, FileError> {
        let spread = within("host spread", self.spread.factor, 1.0..=MOST_SPREAD)?;
        let known_spread = within("host spread: known", self.spread.known.unwrap_or(spread), 1.0..=spread)?;
        let scaled_loss = self.scaled_loss.map(|s| s.forward);
        if let Some(share) = scaled_loss.filter(|s| !(0.0..=1.0).contains(s)) {
            return Err(FileError::value("host scaled_loss", format!("forward = {share} is no share")));
        }
        let gap = self.gap.map_or(Ok(Seconds::ZERO), |g| g.time("host gap"))?;
        Ok(Host {
            other: kind("other".into(), &self.other.inference, &self.other.training)?,
            kinds: self.kinds.into_iter().map(|k| kind(k.name, &k.inference, &k.training)).collect::<Result<_, _>>()?,
            step: costs("step", &self.step.inference, &self.step.training)?,
            gap,
            training_gap: self.training_gap.map_or(Ok(gap), |g| g.time("host training_gap"))?,
            scaled_loss,
            spread,
            known_spread,
            networks: self.networks.map(NetworksFile::read).transpose()?,
            speed: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(scaled_loss: Option<f64>) -> Host {
        let times = |ms: f64| [Seconds::from_ms(ms); 2];
        let costs = Costs { inference: times(0.1), training: times(1.0) };
        let other = HostKind { kind: "other".into(), costs };
        Host {
            other,
            kinds: Vec::new(),
            step: costs,
            gap: Seconds::ZERO,
            training_gap: Seconds::ZERO,
            scaled_loss,
            spread: 1.5,
            known_spread: 1.2,
            networks: None,
            speed: None,
        }
    }

    fn stages(forward: f64, backward: f64, update: f64) -> Stages {
        let ms = Seconds::from_ms;
        Stages { forward: ms(forward), backward: ms(backward), update: ms(update) }
    }

    #[test]
    fn a_slow_host_is_slower_still_for_networks() {
        let mut exponent = ByGroup::all(1.0);
        exponent[Group::Training] = 2.0;
        let law = OfNetworks { constant: ByGroup::all(1.25), exponent };
        assert!((law.factor(Group::Training, 1.2) - 1.25 * 1.44).abs() < 1e-12);
        assert!((law.factor(Group::Autocast, 1.2) - 1.5).abs() < 1e-12);
        assert_eq!(law.factor(Group::Training, 50.0), *FACTORS.end());
    }

    #[test]
    fn what_chains_lack_is_added_where_networks_have_it() {
        let times = |ms: f64| [Seconds::from_ms(ms); 2];
        let kinds = [
            ("attention", 0.2),
            ("attention_within", 0.5),
            ("lstm", 0.3),
            ("recurrent_step", 0.01),
            ("scale_bias", 0.4),
            ("view", 0.05),
            ("slice_view", 0.07),
            ("conv2d", 0.3),
            ("conv2d_group", 0.01),
        ];
        let kinds = kinds.map(|(kind, ms)| HostKind {
            kind: kind.into(),
            costs: Costs { inference: times(ms), training: times(4.0 * ms) },
        });
        let host = Host { kinds: kinds.into(), ..host(None) };
        let layer = |kind: &str, fields: &str| {
            Layer::from_table(kind, fields.parse().expect("a table")).expect("a kind").expect("fields")
        };
        let launch = |layer: Layer, phase, mode| {
            let case = LayerCase { inputs: vec![Shape::new(&[32, 8]).expect("a shape")], layer };
            let key = ModelKey::Kind(case.layer.kind());
            host.launching(&case, key, phase, mode, (Precision::Fp16, false)).to_ms()
        };
        let near = |ms: f64, expected: f64| assert!((ms - expected).abs() < 1e-9, "{ms} {expected}");
        let forward = |layer: Layer| launch(layer, Phase::Forward, Mode::Inference);
        near(forward(layer("attention", "heads = 2")), 0.7);
        near(launch(layer("attention", "heads = 2"), Phase::Forward, Mode::Training), 2.8);
        near(launch(layer("attention", "heads = 2"), Phase::BackwardData, Mode::Training), 0.0);
        // A chain's four steps are in the layer's own cost.
        near(forward(layer("lstm", "hidden = 4")), 0.3 + 28.0 * 0.01);
        near(forward(layer("lstm", "hidden = 4\nbidirectional = true")), 0.3 + 60.0 * 0.01);
        near(forward(layer("scale", "")), 0.4);
        near(forward(layer("scale", "bias = false")), 0.1);
        near(launch(layer("scale", ""), Phase::Update, Mode::Inference), 0.1);
        let views = |layer: Layer, mode| host.viewing(&layer, mode, Precision::Fp16).to_ms();
        near(views(layer("flatten", ""), Mode::Inference), 0.05);
        near(views(layer("slice", "axis = 0\nsize = 4"), Mode::Training), 0.28);
        let depthwise = |channels: u64, stride: u64, precision| {
            let fields = format!(
                "channels = {channels}\nkernel = 3\nstride = {stride}\npadding = 1\ngroups = \"depthwise\"\nbias = false"
            );
            let inputs = vec![Shape::new(&[32, 8, 8]).expect("a shape")];
            let case = LayerCase { inputs, layer: layer("conv2d", &fields) };
            host.launching(&case, ModelKey::Kind("conv2d"), Phase::Forward, Mode::Inference, (precision, false)).to_ms()
        };
        near(depthwise(64, 2, Precision::Bf16), 0.3 + 32.0 * 0.01);
        for (channels, stride, precision) in
            [(64, 1, Precision::Bf16), (32, 2, Precision::Fp16), (64, 2, Precision::Tf32)]
        {
            near(depthwise(channels, stride, precision), 0.3);
        }
        let silent = Host { kinds: Vec::new(), ..host.clone() };
        assert_eq!(silent.viewing(&layer("flatten", ""), Mode::Inference, Precision::Fp16), Seconds::ZERO);
    }

    #[test]
    fn the_slower_of_both_decides_unless_a_scaled_loss_drains_the_queue() {
        let (gpu, launches) = (stages(3.0, 6.0, 1.0), stages(8.0, 0.0, 0.5));
        let waits = |host: &Host, mode, precision| {
            let scaled = precision == Precision::Fp16;
            let between = host.scaled_loss.unwrap_or_default();
            let cut = Cut { launched: launches.forward * between, forward: 0.0, backward: 1.0 };
            host.waited_for(gpu, (launches, &[cut]), 1.0, mode, (precision, scaled)).to_ms()
        };
        let (ahead, scaled) = (host(None), host(Some(0.25)));
        // 9.5 of launches behind 10 of kernels.
        assert_eq!(waits(&ahead, Mode::Training, Precision::Fp16), 0.0);
        // The step's 1 ms before any kernel: 1 + 10.
        assert!((waits(&scaled, Mode::Training, Precision::Fp16) - 1.0).abs() < 1e-9);
        assert_eq!(waits(&scaled, Mode::Training, Precision::Bf16), 0.0);
        assert_eq!(waits(&scaled, Mode::Inference, Precision::Fp16), 0.0);
        // A long forward pass of launches before a long backward pass of kernels: 1 + 0.5 + 0.75 x 8 + 6.
        assert!((waits(&host(Some(0.75)), Mode::Training, Precision::Fp16) - 3.5).abs() < 1e-9);
        // The host alone decides where it is slowest: 1 + 20.5 of launches, 10 of kernels.
        let slow =
            ahead.waited_for(gpu, (stages(20.0, 0.0, 0.5), &[]), 1.0, Mode::Training, (Precision::Fp32, false)).to_ms();
        assert!((slow - 11.5).abs() < 1e-9);
        // Twice as slow a host is so in all that it does: 2 (1 + 8.5) of launches, 10 of kernels.
        let slow = ahead.waited_for(gpu, (launches, &[]), 2.0, Mode::Training, (Precision::Fp32, false)).to_ms();
        assert!((slow - 9.0).abs() < 1e-9);
        let decides = |slower| ahead.decides(gpu, launches, slower, Mode::Training, Precision::Fp32);
        assert!(!decides(1.05) && decides(1.06), "9.5 of launches, 10 of kernels");
    }
}
