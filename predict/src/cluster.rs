//! Steps that one GPU runs, or several share.

use crate::failure::Failure;
use crate::request::{Batch, Request, Team};
use crate::source::Source;
use anyhow::anyhow;
use joulecast_ask::serving::MOST_TOKENS;
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::Watts;
use joulecast_model::catalog;
use joulecast_model::device::gpu::{Device, Gpu};
use joulecast_model::device::interconnect::Interconnect;
use joulecast_model::law::power::waiting;
use joulecast_model::net::layer::Optimizer;
use joulecast_model::net::network::{Network, ShapedNetwork, Stored};
use joulecast_model::net::share::{Layout, ShareError};
use joulecast_model::step::framework::Framework;
use joulecast_model::step::generation::{self, Generation, GenerationError};
use joulecast_model::step::input::fed;
use joulecast_model::step::layout::{Deployment, Flow, LayoutError};
use joulecast_model::step::memory::{MOST_UNITS, largest_batch};
use joulecast_model::step::parallel::{Fabric, Share, combine};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, Warning};
use std::sync::Arc;

/// A kind of GPU.
#[derive(Clone, Debug)]
pub struct Member {
    /// What predicts on it.
    pub predictor: Predictor,
    /// What to tell of its calibration.
    pub note: Option<Warning>,
}

/// GPUs that run a step together, in a precision and mode.
#[derive(Debug)]
pub struct Cluster {
    /// What it is called.
    pub name: String,
    /// How many of each kind; at least one.
    pub members: Vec<(u64, Member)>,
    /// Precision.
    pub precision: Precision,
    /// Mode.
    pub mode: Mode,
    optimizer: Option<Optimizer>,
    weak: bool,
    interconnect: Option<Interconnect>,
    layout: Option<Layout>,
    stored: Stored,
    /// What to tell of the request.
    told: Vec<Warning>,
    /// Samples per second that the host feeds to all of them.
    rate: Option<f64>,
}

impl Cluster {
    pub(crate) fn new(
        request: &Request,
        team: &Team,
        members: Vec<(u64, Member)>,
        precision: Precision,
        mode: Mode,
    ) -> Result<Self, Failure> {
        let Some((_, Member { predictor, .. })) = members.first() else {
            return Err(Failure::usage("--gpus names no GPU"));
        };
        let framework = predictor.framework();
        if mode != Mode::Training && request.optimizer.is_some() && !request.modes.contains(&Mode::Training) {
            return Err(Failure::usage("--optimizer is of a training: --mode training"));
        }
        let scaling = request.runner.loss_scaling.is_some();
        if scaling && mode != Mode::Training && !request.modes.contains(&Mode::Training) {
            return Err(Failure::usage("--loss-scaling is of a training: --mode training"));
        }
        match precision {
            Precision::Int8 if mode == Mode::Training => {
                return Err(Failure::usage("no framework trains in int8: --precision fp16, bf16, tf32 or fp32"));
            }
            Precision::Fp8 if mode == Mode::Training => {
                return Err(Failure::usage(
                    "fp8 is predicted in inference only, gradients in fp8 (e5m2) are not: --precision bf16",
                ));
            }
            _ => {}
        }
        if framework.fusion.is_some() && mode == Mode::Training {
            return Err(Failure::usage(format_args!("the {} profile is of inference only", framework.name)));
        }
        let cpu = members.iter().map(|(_, m)| m.predictor.gpu()).find(|gpu| gpu.device == Device::Cpu);
        if let (Some(cpu), true) = (cpu, team.gpus() > 1) {
            return Err(Failure::usage(format_args!("{} is a processor: --gpus shares a step among GPUs", cpu.name)));
        }
        let rate = request.input_rate.as_deref().map(|text| samples_per_second(text, framework)).transpose()?;
        let optimizer = request.optimizer.filter(|_| mode == Mode::Training);
        let interconnect = request.interconnect.as_deref().map(catalog::interconnect).transpose();
        let interconnect = interconnect.map_err(|e| Failure::Usage(e.into()))?;
        if request.layout.is_some() && mode == Mode::Training {
            return Err(Failure::usage("--tensor-parallel and the like are of inference: trainings take --gpus"));
        }
        if request.layout.is_some() && rate.is_some() {
            return Err(Failure::usage("--input-rate is of steps over samples, not of a language model's layout"));
        }
        if request.stored.weights.is_some() && !matches!(precision, Precision::Bf16 | Precision::Fp16) {
            return Err(Failure::usage("--weights are multiplied in 16 bits: --precision bf16 or fp16"));
        }
        if request.stored.cache.is_some() && precision.result_bytes() != Precision::Bf16.bytes() {
            return Err(Failure::usage("--cache is of attention in 16 bits: --precision bf16, fp16 or fp8"));
        }
        let (name, layout, stored) = (team.name.clone(), request.layout, request.stored);
        let (weak, told) = (request.weak, request.told.clone());
        Ok(Self { name, members, precision, mode, optimizer, weak, interconnect, layout, stored, told, rate })
    }

    /// What predicts on the first kind of GPU.
    pub fn first(&self) -> &Predictor {
        &self.members[0].1.predictor
    }

    /// The kinds of GPU.
    pub fn gpus(&self) -> Vec<&Gpu> {
        self.members.iter().map(|(_, m)| m.predictor.gpu()).collect()
    }

    /// How many GPUs.
    pub fn count(&self) -> u64 {
        self.members.iter().map(|(count, _)| count).sum()
    }

    /// Whether one GPU runs whole steps and waits for nobody.
    pub fn is_single(&self) -> bool {
        self.count() == 1 && self.rate.is_none()
    }

    /// Whether one GPU runs whole steps of whole networks and waits for nobody.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_single() && self.layout.is_none()
    }

    /// What to tell of the calibrations and of the request.
    pub fn notes(&self) -> impl Iterator<Item = &Warning> {
        self.members.iter().filter_map(|(_, m)| m.note.as_ref()).chain(&self.told)
    }

    /// What to tell of the request and of a network whose prompt, with so many more tokens, may be longer than it was made for.
    fn told(&self, source: &Source, more: u64) -> impl Iterator<Item = Warning> {
        self.told.iter().cloned().chain(beyond_positions(source, more))
    }

    /// What to tell of a step of a network, in the order of [`Self::step`].
    pub(crate) fn notes_of(&self, source: &Source) -> Vec<Warning> {
        let of_calibrations = self.members.iter().filter_map(|(_, m)| m.note.clone());
        self.told(source, 0).chain(of_calibrations).collect()
    }

    /// What all GPUs together draw with nothing to do.
    pub fn waiting(&self) -> Watts {
        self.members.iter().map(|(n, m)| waiting(m.predictor.gpu()) * *n as f64).sum()
    }

    /// Samples of the whole step, where `batch` is what was asked for.
    pub fn whole(&self, batch: u64) -> u64 {
        if self.weak { batch * self.count() } else { batch }
    }

    /// A network as it runs on each GPU, with so many samples there.
    ///
    /// # Errors
    /// When it cannot have that batch or what was asked for.
    pub fn shape(&self, source: &Source, each: u64) -> Result<ShapedNetwork, Failure> {
        Ok(self.runs(source.shaped(each, self.precision)?))
    }

    /// A network with shapes as it runs here.
    pub fn runs(&self, network: ShapedNetwork) -> ShapedNetwork {
        let network = match self.optimizer {
            Some(optimizer) => network.with_optimizer(optimizer),
            None => network,
        };
        self.first().framework().runs(network)
    }

    /// Samples of each GPU.
    ///
    /// # Errors
    /// When they do not divide, or not even one fits in memory.
    pub fn part(&self, source: &Source, batch: Batch) -> Result<u64, Failure> {
        let gpus = self.count();
        match batch {
            Batch::Samples(n) if self.weak => Ok(n),
            Batch::Samples(n) if n.is_multiple_of(gpus) => Ok(n / gpus),
            Batch::Samples(n) => {
                let near = [n / gpus * gpus, n.div_ceil(gpus) * gpus];
                let near = near.iter().filter(|n| **n > 0).map(u64::to_string).collect::<Vec<_>>().join(" or ");
                Err(Failure::usage(format_args!("a batch of {n} does not divide among {gpus} GPUs: {near} does")))
            }
            Batch::Max => {
                let mut least = None;
                for (_, Member { predictor, .. }) in &self.members {
                    let gpu = predictor.gpu();
                    let needed =
                        |batch| Ok::<_, Failure>(predictor.memory(&self.shape(source, batch)?, self.mode).total());
                    let found = largest_batch(gpu.memory.value, 1, needed)?;
                    let Some(batch) = found else {
                        let why = anyhow!("not even one sample fits in the memory of {}", gpu.name);
                        return Err(Failure::Failed(why));
                    };
                    least = Some(least.map_or(batch, |b: u64| b.min(batch)));
                }
                Ok(least.unwrap_or(1))
            }
        }
    }

    /// A step of a network with shapes, at clocks and under a limit of every GPU.
    ///
    /// # Errors
    /// When nothing can be predicted, or nothing joins the GPUs.
    pub fn at(&self, shaped: &ShapedNetwork, point: OperatingPoint) -> Result<NetworkPrediction, Failure> {
        let mut shares = Vec::new();
        for (count, Member { predictor, note }) in &self.members {
            let mut alone = predictor.step(shaped, self.mode)?.at(point)?;
            alone.warnings.splice(..0, note.clone());
            shares.push(Share { count: *count, gpu: predictor.gpu(), alone });
        }
        let prediction = if self.count() > 1 {
            // Inference sums nothing: no node is too small for it.
            let across = if self.mode == Mode::Training { self.count() } else { 1 };
            combine(shares, shaped, &self.fabric(across)?, self.first().framework())
        } else {
            shares.pop().map(|share| share.alone)
        };
        prediction.ok_or_else(|| Failure::usage("--gpus names no GPU"))
    }

    /// Whether convolutions change their engines near the batch, on one GPU.
    pub(crate) fn engines_beside(&self, shaped: &ShapedNetwork, step: &NetworkPrediction) -> Option<Warning> {
        let alone = self.members.first().filter(|_| self.count() == 1);
        alone.and_then(|(_, member)| member.predictor.engines_beside(shaped, self.mode, step))
    }

    /// What joins so many GPUs of its kinds.
    ///
    /// # Errors
    /// When nothing does, or not what was asked for.
    pub fn fabric(&self, gpus: u64) -> Result<Fabric, Failure> {
        let known = catalog::interconnects().map_err(Failure::failed)?;
        Fabric::of(&known, &self.gpus(), gpus, self.interconnect.clone()).map_err(Failure::usage)
    }

    /// A step that waits for its samples, where the host feeds them.
    pub fn fed(&self, prediction: NetworkPrediction) -> NetworkPrediction {
        match self.rate {
            Some(rate) => fed(prediction, rate, &self.gpus()),
            None => prediction,
        }
    }

    /// GPUs of the first kind that serve a language model.
    ///
    /// # Errors
    /// When nothing joins so many, or they are processors.
    pub fn deployment(&self, layout: Layout, point: OperatingPoint) -> Result<Deployment<'_>, Failure> {
        let gpu = self.first().gpu();
        if gpu.device == Device::Cpu && layout.gpus() > 1 {
            return Err(Failure::usage(format_args!("{} is a processor: layouts are of GPUs", gpu.name)));
        }
        let known = catalog::interconnects().map_err(Failure::failed)?;
        let asked = self.interconnect.clone();
        // What joins one GPU with itself is nobody's business.
        let joined = match Interconnect::serving(&known, gpu, layout.gpus(), asked) {
            Err(_) if layout.gpus() == 1 => {
                known.first().cloned().ok_or_else(|| Failure::usage("no interconnect is known"))
            }
            other => other.map_err(Failure::usage),
        };
        Ok(Deployment {
            predictor: self.first(),
            layout,
            interconnect: joined?,
            precision: self.precision,
            stored: self.stored,
            point,
        })
    }

    /// The step of a network on a layout.
    fn laid_out(
        &self,
        layout: Layout,
        source: &Source,
        batch: Batch,
        point: OperatingPoint,
    ) -> Result<NetworkPrediction, Failure> {
        if !source.bindings.is_empty() {
            return Err(Failure::usage(
                "a language model's layout reads tokens: --sequence N says how many, not --input",
            ));
        }
        let deployment = self.deployment(layout, point)?;
        let Some(batch) = batch.samples() else {
            return Err(Failure::usage("--batch max is of one GPU: --layouts says how much fits where"));
        };
        let mut prediction = deployment.step(&source.network, batch, Flow::Alone).map_err(of_layout)?;
        prediction.warnings.splice(..0, self.notes().cloned().chain(beyond_positions(source, 0)));
        Ok(prediction)
    }

    /// The step of a network.
    ///
    /// # Errors
    /// When it cannot have that batch, or nothing can be predicted.
    pub fn step(&self, source: &Source, batch: Batch, point: OperatingPoint) -> Result<NetworkPrediction, Failure> {
        self.step_by(source, batch, point, |each| self.shape(source, each).map(Arc::new))
    }

    /// The step of a network; `shape` makes it run with so many samples on each GPU, unless a layout divides it.
    ///
    /// # Errors
    /// As [`Self::step`].
    pub(crate) fn step_by(
        &self,
        source: &Source,
        batch: Batch,
        point: OperatingPoint,
        shape: impl FnOnce(u64) -> Result<Arc<ShapedNetwork>, Failure>,
    ) -> Result<NetworkPrediction, Failure> {
        if let Some(layout) = self.layout {
            return self.laid_out(layout, source, batch, point);
        }
        let each = self.part(source, batch)?;
        let shaped = shape(each)?;
        let mut prediction = self.at(&shaped, point)?;
        prediction.warnings.extend(self.engines_beside(&shaped, &prediction));
        prediction.warnings.splice(..0, self.told(source, 0));
        prediction.warnings.extend(largest_tried(batch, each));
        Ok(self.fed(prediction))
    }

    /// A language model's answer of so many tokens per sample to a prompt of the network's sequence.
    ///
    /// # Errors
    /// When the network does not generate, several GPUs are asked, or a step cannot be predicted.
    pub fn answer(
        &self,
        source: &Source,
        tokens: u64,
        batch: u64,
        point: OperatingPoint,
    ) -> Result<Generation, Failure> {
        let network = &source.network;
        if self.mode == Mode::Training {
            return Err(Failure::usage("--generate is of inference"));
        }
        if self.count() > 1 {
            return Err(Failure::usage(
                "--gpus share a step's samples; of --generate --tensor-parallel N and the like are",
            ));
        }
        if self.rate.is_some() {
            return Err(Failure::usage("--input-rate is of steps over samples, not of --generate"));
        }
        if !source.bindings.is_empty() {
            return Err(Failure::usage("--generate reads tokens: --sequence N says how many, not --input"));
        }
        let prompt = network.inputs.first().map_or(1, |input| input.shape.dims()[0]);
        let length = (prompt, tokens);
        check_length(network, prompt, tokens)?;
        let answer = match self.layout {
            None => generation::predict(self.first(), network, length, (batch, self.precision), point),
            Some(layout) => generation::predict_on(&self.deployment(layout, point)?, network, length, batch),
        };
        let mut answer = answer.map_err(of_generation)?;
        if [answer.total.ops.get(), answer.total.read.get()].contains(&u64::MAX) {
            return Err(Failure::usage(format_args!(
                "--generate {tokens} at batch {batch}: operations of so long an answer are more than 2^64; fewer tokens or samples"
            )));
        }
        tell_the_end(&mut answer);
        answer.total.warnings.splice(..0, self.notes().cloned().chain(beyond_positions(source, tokens)));
        Ok(answer)
    }

    /// Fails where the step does not fit in memory and that was asked for.
    ///
    /// # Errors
    /// Just then.
    pub fn check_fit(&self, request: &Request, prediction: &NetworkPrediction) -> Result<(), Failure> {
        if request.require_fit && !prediction.fits_in_memory {
            let (network, batch, gpu) = (&prediction.network, prediction.batch, &self.name);
            return Err(Failure::Failed(anyhow!("{network} at batch {batch} does not fit in the memory of {gpu}")));
        }
        Ok(())
    }
}

/// What to tell where the largest batch was asked for and no larger one was tried.
pub(crate) fn largest_tried(asked: Batch, each: u64) -> Option<Warning> {
    (asked == Batch::Max && each == MOST_UNITS).then_some(Warning::LargestTried { batch: MOST_UNITS })
}

/// What to tell where the prompt of a network's sequence and so many more tokens are longer than it was made for.
pub(crate) fn beyond_positions(source: &Source, more: u64) -> Option<Warning> {
    let network = &source.network;
    let prompt = network.inputs.first().and_then(|input| input.shape.dims().first().copied()).unwrap_or(0);
    longer_than_made_for(network, prompt.saturating_add(more))
}

/// Refuses sequences that no model is made for: what attention to them takes was measured by nobody, and comes out below what
/// reading the cache takes.
///
/// # Errors
/// Just then.
pub(crate) fn check_length(network: &Network, prompt: u64, tokens: u64) -> Result<(), Failure> {
    let most = network.stated.positions.unwrap_or(0).max(MOST_TOKENS);
    match prompt.saturating_add(tokens) {
        length if length > most => Err(Failure::usage(format_args!(
            "a prompt of {prompt} tokens and an answer of {tokens} are a sequence of {length}; at most {most}: a shorter --generate or --sequence"
        ))),
        _ => Ok(()),
    }
}

/// Of an answer's steps the memory that is told is that of the last one, and a device's clock the mean over all.
fn tell_the_end(answer: &mut Generation) {
    let needs = answer.decode.as_ref().map(|decode| decode.memory.total());
    for warning in &mut answer.total.warnings {
        let inner = match warning {
            Warning::Of { part, warning } if part == "decode" => &mut **warning,
            _ => continue,
        };
        if let (Warning::Memory { needed, .. }, Some(all)) = (inner, needs) {
            *needed = all;
        }
    }
    if let [device] = &mut answer.total.devices[..] {
        device.clock = answer.total.clock;
    }
}

/// The same of sequences of so many tokens.
pub(crate) fn longer_than_made_for(network: &Network, tokens: u64) -> Option<Warning> {
    let positions = network.stated.positions.filter(|positions| tokens > *positions)?;
    Some(Warning::Positions { tokens, positions })
}

/// What does not generate is the user's to mend, but for a network's own faults.
pub(crate) fn of_generation(error: GenerationError) -> Failure {
    match error {
        GenerationError::Predict(e) => e.into(),
        GenerationError::Layout(e) => of_layout(e),
        GenerationError::Shape(_) => Failure::failed(error),
        _ => Failure::Usage(error.into()),
    }
}

/// What is asked of a layout is the user's to mend, but for a network's own faults.
fn of_layout(error: LayoutError) -> Failure {
    match error {
        LayoutError::Predict(e) => e.into(),
        LayoutError::Shape(_) | LayoutError::Share(ShareError::Shaping(_)) => Failure::failed(error),
        _ => Failure::Usage(error.into()),
    }
}

/// A rate as a number, or by the name of an input of the profile.
fn samples_per_second(text: &str, framework: &Framework) -> Result<f64, Failure> {
    match text.parse::<f64>() {
        Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
        Ok(_) => Err(Failure::usage(format_args!("--input-rate {text}: must be a number above 0"))),
        Err(_) => {
            let input = framework.input(text).map_err(|e| Failure::usage(format_args!("--input-rate: {e}")))?;
            Ok(input.samples_per_second)
        }
    }
}
