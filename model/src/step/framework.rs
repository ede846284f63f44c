//! Framework profiles: what a framework adds to the kernels. `data/frameworks/*.toml`, `framework/1`.

mod activity;
mod bias;
mod host;
mod input;
mod kernels;
mod products;
mod rows;
mod serving;
mod speed;
mod sums;

pub use activity::{Activity, TRAITS as ACTIVITY_TRAITS};
pub use host::{Costs, Cut, Host, HostKind, OfNetworks, Stages};
pub use input::Input;
pub use kernels::{Broadcast, Maps, Sequences};
pub use products::RowsApart;
pub use rows::{Columns, Gather, NarrowProducts, RowByRow, Windows};
pub use serving::{Scheduling, Serving};
pub use speed::{ByGroup, Group, HostRecord, HostSpeed};
pub use sums::Sums;

use activity::ActivityFile;
use input::InputFile;

use crate::base::file::{FileError, check_schema, quantity, within};
use crate::base::packed::{from_packed, from_toml};
use crate::base::precision::{Mode, Phase, Precision, named_enum};
use crate::base::text::{names, shown};
use crate::base::units::{Bytes, Dimension, Seconds};
use crate::device::gpu::{Device, Gpu};
use crate::kernel::library::{self, Rule};
use crate::kernel::load::Load;
use crate::kernel::setting::{Algorithm, Layout};
use crate::kernel::work::Work;
use crate::net::layer::{Layer, Optimizer};
use crate::net::network::ShapedNetwork;
use crate::step::autocast::Mixed;
use crate::step::memory::{Activations, InPlace, MemoryPolicy};
use host::HostFile;
use kernels::{BroadcastFile, MapsFile, SequencesFile};
use products::RowsApartFile;
use rows::{ColumnsFile, GatherFile, NarrowProductsFile, RowByRowFile, WindowsFile};
use serde::{Deserialize, Serialize};
use serving::ServingFile;
use std::ops::RangeInclusive;
use sums::SumsFile;

named_enum!(
    /// How a step is launched.
    Launch {
        /// Operation by operation, from the host.
        Eager = "eager",
        /// As one CUDA graph.
        Graph = "graph",
    }
);

named_enum!(
    /// Whether a training in 16 bits multiplies its loss so that small gradients do not vanish.
    LossScaling {
        /// As it is.
        None = "none",
        /// By a factor that grows until a gradient is infinite: gradients are divided and looked at before each update.
        Dynamic = "dynamic",
    }
);

impl LossScaling {
    /// Whether a loss is scaled in a precision: as it is asked for, else in fp16 alone, whose range is short. In 32 bits
    /// there is nothing to scale.
    pub fn acts(asked: Option<Self>, precision: Precision) -> bool {
        match asked {
            _ if precision.bytes() >= Precision::Fp32.bytes() => false,
            Some(asked) => asked == Self::Dynamic,
            None => precision == Precision::Fp16,
        }
    }
}

/// How many times as much as ours a framework's kernels can take or draw.
const FACTORS: RangeInclusive<f64> = 0.001..=1000.0;
/// Passes over all parameters of one update or copy.
const PASSES: RangeInclusive<f64> = 0.0..=1000.0;
/// Shares of a time.
const SHARE: RangeInclusive<f64> = 0.0..=1.0;

/// A framework profile.
#[derive(Clone, Debug, PartialEq)]
pub struct Framework {
    /// Name on the command line.
    pub name: String,
    /// In words.
    pub title: String,
    /// Gap after every kernel.
    pub dispatch: Seconds,
    /// Power of its kernels above waiting, relative to kernels of random operands.
    pub activity: Activity,
    /// Kinds of layers that it folds into the kernel of the convolution before them, in inference; none where it runs a
    /// kernel for each.
    pub fusion: Option<Vec<String>>,
    /// Whether it runs a model's modules one after the other as they are written, so that a batch norm that an export
    /// folded is a kernel all the same.
    pub runs_modules: bool,
    /// Whether it computes the groups of a convolution one after the other, each as a convolution of its own.
    pub groups_apart: bool,
    /// Whether heads that share keys and values are attended to by one kernel in 16 bits and step by step in 32.
    pub groups_heads: bool,
    /// What the host does in an eager step; without it the GPU never waits for the host.
    pub host: Option<Host>,
    /// Kernels of its own that take longer than the library's, for GPUs on which they were not measured.
    pub slower: Vec<Slower>,
    /// How fast its kernels are that repeat an operand, where that bounds them: those that add a convolution's bias.
    pub broadcast: Option<Broadcast>,
    /// How it sums rows: gradients of biases and of learned factors.
    pub sums: Option<Sums>,
    /// What maps in an order that is not the usual one take, where that is known.
    pub maps: Option<Maps>,
    /// How it runs convolutions over sequences, where that differs from those over maps.
    pub sequences: Option<Sequences>,
    /// How it multiplies rows of samples that lie apart, where not as one product.
    pub rows_apart: Option<RowsApart>,
    /// How it normalizes rows, where their number bounds that.
    pub layer_norm: Option<RowByRow>,
    /// How it takes softmaxes whose rows lie across memory, where that bounds them.
    pub softmax_columns: Option<Columns>,
    /// How it fetches rows of a table, where their number bounds that.
    pub gather: Option<Gather>,
    /// How it lays windows of maps side by side and adds them up.
    pub windows: Option<Windows>,
    /// How it multiplies a few columns, where rows bound that.
    pub narrow_products: Option<NarrowProducts>,
    /// What counting the steps takes each batch norm that is trained.
    pub counter: Seconds,
    /// Jumps of its libraries' times by version.
    pub rules: Vec<Rule>,
    /// How it updates all parameters at once; without it, layer by layer.
    pub fused_update: Option<FusedUpdate>,
    /// How it sums gradients over several GPUs.
    pub parallel: Parallel,
    /// Whether trainings in 16 bits scale their loss, where that was asked for.
    pub loss_scaling: Option<LossScaling>,
    /// What it does with device memory.
    pub memory: MemoryPolicy,
    /// Input pipelines whose rate is known; no step waits for one unless it is named.
    pub inputs: Vec<Input>,
    /// What a program takes before its first step, where that is known.
    pub start: Option<Seconds>,
    /// What it adds to steps that serve language models, where that is known.
    pub serving: Option<Serving>,
}

/// How a framework updates all parameters by few kernels.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FusedUpdate {
    /// Passes over the parameters or tensors of their size, per optimizer.
    sgd: u64,
    momentum: u64,
    adam: u64,
    /// Further passes in mixed precision, whose loss is scaled.
    scaled: u64,
    /// What each layer with parameters takes besides.
    pub per_layer: Seconds,
}

impl FusedUpdate {
    /// Passes over tensors of the parameters' size, of a loss that is scaled or not.
    pub fn passes(&self, optimizer: Optimizer, scaled: bool) -> u64 {
        u64::from(scaled) * self.scaled
            + match optimizer {
                Optimizer::Sgd => self.sgd,
                Optimizer::Momentum => self.momentum,
                Optimizer::Adam => self.adam,
            }
    }
}

/// How a framework sums gradients over several GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Parallel {
    /// Passes over all gradients that copying them into buckets and back takes.
    pub copy_passes: u64,
    /// What that takes besides for each layer with parameters, however small.
    pub copy_per_layer: Seconds,
    /// By which share of a GPU's own step two GPUs take longer than one: the slower of both decides.
    pub slower_of_two: f64,
    /// By which share of the time of sums the kernels that run beside them take longer.
    pub slowed_by_sums: f64,
    /// What it takes the host for each layer with parameters: hooks of gradients, sums of buckets, buffers that are brought
    /// in line, and that the processes slow each other.
    pub host_per_layer: Seconds,
    /// Whether gradients are summed while backward goes on.
    pub overlaps: bool,
    /// Gradients are summed once there are so many bytes of them; without it, all at once.
    pub bucket: Option<Bytes>,
}

/// A kernel of the framework beside the library's.
#[derive(Clone, Debug, PartialEq)]
pub struct Slower {
    /// Layer kind, or `bias` for the kernel that adds a convolution's bias.
    pub kind: String,
    /// In this order of dimensions; in both without it.
    pub layout: Option<Layout>,
    /// In these phases; in all without it.
    pub phases: Option<Vec<Phase>>,
    /// Pooling with this window and step, both directions alike; with any without it.
    pub window: Option<[u64; 2]>,
    /// How many times as long it takes.
    pub factor: f64,
    /// What it takes on top, however small the layer: launches of further kernels.
    pub extra: Seconds,
    /// The same per sample of the batch: kernels launched once per sample.
    pub extra_per_sample: Seconds,
}

/// A kernel, as far as a profile tells kernels apart.
#[derive(Clone, Copy, Debug)]
pub struct KernelOf<'a> {
    /// Layer kind, or `bias`, or that of the update.
    pub kind: &'a str,
    /// The layer.
    pub layer: &'a Layer,
    /// Its phase.
    pub phase: Phase,
    /// Order of its maps' dimensions; sequences have none.
    pub layout: Option<Layout>,
}

impl Slower {
    fn is_of(&self, kernel: &KernelOf<'_>) -> bool {
        let window = match kernel.layer {
            Layer::Pool2d(pool) => {
                let stride = pool.stride.unwrap_or(pool.kernel);
                Some((pool.kernel, stride))
            }
            _ => None,
        };
        self.kind == kernel.kind
            && self.layout.is_none_or(|l| kernel.layout == Some(l))
            && self.phases.as_ref().is_none_or(|p| p.contains(&kernel.phase))
            && self.window.is_none_or(|[k, s]| window.is_some_and(|(kernel, step)| kernel.is(k) && step.is(s)))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    schema: String,
    #[serde(deserialize_with = "names")]
    name: String,
    #[serde(deserialize_with = "names")]
    title: String,
    dispatch: Entry,
    activity: Option<ActivityFile>,
    fusion: Option<FusionFile>,
    modules: Option<ModulesFile>,
    autocast: Option<AutocastFile>,
    groups: Option<GroupsFile>,
    grouped_heads: Option<GroupedHeadsFile>,
    host: Option<HostFile>,
    #[serde(default)]
    slower: Vec<SlowerFile>,
    broadcast: Option<BroadcastFile>,
    sums: Option<SumsFile>,
    sequences: Option<SequencesFile>,
    rows_apart: Option<RowsApartFile>,
    maps: Option<MapsFile>,
    layer_norm: Option<RowByRowFile>,
    softmax_columns: Option<ColumnsFile>,
    gather: Option<GatherFile>,
    windows: Option<WindowsFile>,
    narrow_products: Option<NarrowProductsFile>,
    batch_norm: Option<BatchNormFile>,
    fused_update: Option<FusedUpdateFile>,
    parallel: Option<ParallelFile>,
    memory: Option<MemoryFile>,
    #[serde(default, rename = "input")]
    inputs: Vec<InputFile>,
    start: Option<Entry>,
    serving: Option<ServingFile>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FusedUpdateFile {
    sgd: u64,
    momentum: u64,
    adam: u64,
    scaled: u64,
    per_layer: Entry,
    #[serde(rename = "source")]
    _source: String,
}

impl FusedUpdateFile {
    fn read(self) -> Result<FusedUpdate, FileError> {
        let Self { sgd, momentum, adam, scaled, .. } = self;
        for (optimizer, passes) in [("sgd", sgd), ("momentum", momentum), ("adam", adam), ("scaled", scaled)] {
            within(&format!("fused_update {optimizer}"), passes as f64, PASSES)?;
        }
        Ok(FusedUpdate { sgd, momentum, adam, scaled, per_layer: self.per_layer.time("fused_update per_layer")? })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MemoryFile {
    activations: Activations,
    in_place: InPlace,
    #[serde(default)]
    narrow_gradients: bool,
    #[serde(default)]
    clipped_in_place: bool,
    #[serde(default)]
    modules_hold_input: bool,
    pooling_index: Option<u64>,
    library_workspace: Option<Entry>,
    context: Option<Entry>,
    #[serde(rename = "source")]
    _source: String,
}

impl MemoryFile {
    fn read(self) -> Result<MemoryPolicy, FileError> {
        let bytes = |what: &str, entry: Option<Entry>| {
            let bytes = entry.map(|e| quantity(&format!("memory {what}"), &e.value, Dimension::Memory)).transpose();
            Ok::<_, FileError>(Bytes::new(bytes?.unwrap_or(0.0) as u64))
        };
        Ok(MemoryPolicy {
            algorithm: None,
            autocasts: false,
            activations: self.activations,
            in_place: self.in_place,
            narrow_gradients: self.narrow_gradients,
            clipped_in_place: self.clipped_in_place,
            modules_hold_input: self.modules_hold_input,
            pooling_index: self.pooling_index,
            library_workspace: bytes("library_workspace", self.library_workspace)?,
            context: bytes("context", self.context)?,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ParallelFile {
    overlaps: bool,
    bucket: Option<String>,
    host: Option<Entry>,
    copies: Option<CopiesFile>,
    waits: Option<WaitsFile>,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WaitsFile {
    of_step: f64,
    of_sums: f64,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CopiesFile {
    passes: u64,
    per_layer: String,
    #[serde(rename = "source")]
    _source: String,
}

impl ParallelFile {
    fn read(self) -> Result<Parallel, FileError> {
        let bucket = self.bucket.map(|b| quantity("parallel bucket", &b, Dimension::Memory)).transpose()?;
        let per_layer =
            self.copies.as_ref().map(|c| quantity("parallel copies", &c.per_layer, Dimension::Time)).transpose();
        within("parallel copies: passes", self.copies.as_ref().map_or(0, |c| c.passes) as f64, PASSES)?;
        let (of_step, of_sums) = self.waits.map_or((0.0, 0.0), |w| (w.of_step, w.of_sums));
        within("parallel waits: of_step", of_step, SHARE)?;
        within("parallel waits: of_sums", of_sums, SHARE)?;
        Ok(Parallel {
            copy_passes: self.copies.as_ref().map_or(0, |c| c.passes),
            copy_per_layer: Seconds::new(per_layer?.unwrap_or(0.0)),
            slower_of_two: of_step,
            slowed_by_sums: of_sums,
            host_per_layer: self.host.map_or(Ok(Seconds::ZERO), |h| h.time("parallel host"))?,
            overlaps: self.overlaps,
            bucket: bucket.map(|b| Bytes::new(b as u64)),
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchNormFile {
    counter: Entry,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct FusionFile {
    into_convolution: Vec<String>,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ModulesFile {
    as_written: bool,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AutocastFile {
    training: bool,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupsFile {
    apart: bool,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupedHeadsFile {
    in_steps_in_32_bits: bool,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SlowerFile {
    kind: String,
    layout: Option<Layout>,
    phases: Option<Vec<Phase>>,
    window: Option<[u64; 2]>,
    factor: f64,
    extra: Option<String>,
    extra_per_sample: Option<String>,
    #[serde(rename = "source")]
    _source: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    value: String,
    #[serde(rename = "source")]
    _source: String,
}

impl Entry {
    fn time(&self, what: &str) -> Result<Seconds, FileError> {
        quantity(what, &self.value, Dimension::Time).map(Seconds::new)
    }
}

/// A profile has no input pipeline of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {profile} profile has no input named \"{name}\"; it has {}",
    if .known.is_empty() { "none".into() } else { .known.join(", ") }
)]
pub struct NoInput {
    profile: String,
    name: String,
    known: Vec<String>,
}

impl Framework {
    /// Reads a profile.
    ///
    /// # Errors
    /// One line that says where it is malformed.
    pub fn from_toml(text: &str) -> Result<Self, FileError> {
        Self::of(from_toml(text)?)
    }

    /// Reads a profile that is shipped.
    ///
    /// # Errors
    /// As [`Self::from_toml`].
    pub(crate) fn from_packed(bytes: &'static [u8]) -> Result<Self, FileError> {
        Self::of(from_packed(bytes)?)
    }

    fn of(file: File) -> Result<Self, FileError> {
        check_schema(&file.schema, "framework/1")?;
        let activity = file.activity.map(|a| a.read(FACTORS)).transpose()?.unwrap_or_default();
        let fusion = file.fusion.map(|f| f.into_convolution);
        if let Some(kind) = fusion.iter().flatten().find(|k| !Layer::KINDS.contains(&k.as_str())) {
            return Err(FileError::value("fusion", format!("{} is no layer kind", shown(kind))));
        }
        let slower: Vec<Slower> = file
            .slower
            .into_iter()
            .map(|s| {
                let time = |text: &Option<String>| {
                    let field = format!("slower {}", s.kind);
                    let seconds = text.as_deref().map(|t| quantity(&field, t, Dimension::Time)).transpose();
                    Ok::<_, FileError>(Seconds::new(seconds?.unwrap_or(0.0)))
                };
                Ok(Slower {
                    extra: time(&s.extra)?,
                    extra_per_sample: time(&s.extra_per_sample)?,
                    kind: s.kind,
                    layout: s.layout,
                    phases: s.phases,
                    window: s.window,
                    factor: s.factor,
                })
            })
            .collect::<Result<_, FileError>>()?;
        for entry in &slower {
            within(&format!("slower {}: factor", shown(&entry.kind)), entry.factor, FACTORS)?;
        }
        let autocasts = file.autocast.is_some_and(|a| a.training);
        let memory = file.memory.map(MemoryFile::read).transpose()?.unwrap_or_default();
        Ok(Self {
            name: file.name,
            title: file.title,
            dispatch: file.dispatch.time("dispatch")?,
            activity,
            fusion,
            runs_modules: file.modules.is_some_and(|m| m.as_written),
            groups_apart: file.groups.is_some_and(|g| g.apart),
            groups_heads: file.grouped_heads.is_some_and(|g| g.in_steps_in_32_bits),
            host: file.host.map(HostFile::read).transpose()?,
            slower,
            broadcast: file.broadcast.map(BroadcastFile::read).transpose()?,
            sums: file.sums.map(SumsFile::read).transpose()?,
            layer_norm: file.layer_norm.map(RowByRowFile::read).transpose()?,
            softmax_columns: file.softmax_columns.map(ColumnsFile::read).transpose()?,
            gather: file.gather.map(GatherFile::read).transpose()?,
            windows: file.windows.map(WindowsFile::read).transpose()?,
            narrow_products: file.narrow_products.map(NarrowProductsFile::read).transpose()?,
            sequences: file.sequences.map(SequencesFile::read).transpose()?,
            rows_apart: file.rows_apart.map(RowsApartFile::read).transpose()?,
            counter: file.batch_norm.map_or(Ok(Seconds::ZERO), |b| b.counter.time("batch_norm counter"))?,
            maps: file.maps.map(MapsFile::read).transpose()?,
            rules: library::shipped()?,
            fused_update: file.fused_update.map(FusedUpdateFile::read).transpose()?,
            parallel: file.parallel.map(ParallelFile::read).transpose()?.unwrap_or_default(),
            loss_scaling: None,
            memory: MemoryPolicy { autocasts, ..memory },
            inputs: file.inputs.into_iter().map(InputFile::read).collect::<Result<_, _>>()?,
            start: file.start.map(|s| s.time("start")).transpose()?,
            serving: file.serving.map(|s| s.read()).transpose()?,
        })
    }

    /// How much longer than ours its kernel takes for a batch: a factor and a time. The first entry that fits holds.
    pub fn slower(&self, kernel: &KernelOf<'_>, batch: u64) -> (f64, Seconds) {
        let entry = self.slower.iter().find(|s| s.is_of(kernel));
        entry.map_or((1.0, Seconds::ZERO), |s| (s.factor, s.extra + s.extra_per_sample * batch as f64))
    }

    /// Whether [`Self::slower`] or a bias may make such a kernel another one, at any batch.
    pub(crate) fn may_be_slower(&self, kernel: &KernelOf<'_>, load: &Load<'_>) -> bool {
        let adds_bias = load.roofline.second > Seconds::ZERO && !(self.slower.is_empty() && self.broadcast.is_none());
        adds_bias || self.slower.iter().any(|s| s.is_of(kernel))
    }

    /// What a kernel takes at least that one of its own bounds, at a board's highest clock; `parted`: an operand repeats in parts.
    pub(crate) fn least(&self, work: &Work<'_>, parted: bool, gpu: &Gpu) -> Seconds {
        [
            self.layer_norm.map(|rows| rows.least(work, gpu)),
            self.softmax_columns.map(|columns| columns.least(work, gpu)),
            self.gather.map(|gather| gather.least(work, gpu)),
            self.windows.map(|windows| windows.least(work, gpu)),
            self.narrow_products.map(|narrow| narrow.least(work, gpu)),
            self.broadcast.map(|broadcast| broadcast.least(work, parted, gpu)),
            self.maps.map(|maps| maps.least(work, gpu)),
            self.sums.map(|sums| sums.least(work, gpu)),
        ]
        .into_iter()
        .flatten()
        .fold(Seconds::ZERO, Seconds::max)
    }

    /// Whether it has kernels that take longer than their traffic, however many samples there are.
    pub(crate) fn bounds_kernels(&self) -> bool {
        let Self { layer_norm, softmax_columns, gather, windows, narrow_products, .. } = self;
        let Self { broadcast, maps, sums, sequences, .. } = self;
        let rows =
            [layer_norm.is_some(), softmax_columns.is_some(), gather.is_some(), windows.is_some()].contains(&true);
        let values = [broadcast.is_some(), maps.is_some(), sums.is_some(), sequences.is_some()].contains(&true);
        rows || narrow_products.is_some() || values
    }

    /// What a layer takes to count the step, beside its kernels.
    pub(crate) fn counter(&self, layer: &Layer, phase: Phase, mode: Mode) -> Seconds {
        let counts = matches!(layer, Layer::BatchNorm(_)) && phase == Phase::Forward && mode == Mode::Training;
        if counts { self.counter } else { Seconds::ZERO }
    }

    /// How the layers of a network run where that is mixed; `None` where all of them have the network's precision.
    pub fn mixed(&self, network: &ShapedNetwork, mode: Mode) -> Option<Mixed> {
        self.memory.mixed(network, mode)
    }

    /// The input pipeline of a name.
    ///
    /// # Errors
    /// When the profile has none of that name.
    pub fn input(&self, name: &str) -> Result<&Input, NoInput> {
        let known = || self.inputs.iter().map(|i| i.name.clone()).collect();
        let none = || NoInput { profile: self.name.clone(), name: name.into(), known: known() };
        self.inputs.iter().find(|i| i.name == name).ok_or_else(none)
    }

    /// With convolutions by an algorithm.
    #[must_use]
    pub fn by(mut self, algorithm: Option<Algorithm>) -> Self {
        self.memory.algorithm = algorithm;
        self
    }

    /// With the loss of trainings in 16 bits scaled or not; as [`LossScaling::acts`] says without.
    #[must_use]
    pub fn scaling_loss(mut self, asked: Option<LossScaling>) -> Self {
        self.loss_scaling = asked;
        self
    }

    /// Whether the profile says what scaling a loss takes.
    pub fn scales_losses(&self) -> bool {
        self.fused_update.is_some_and(|u| u.scaled > 0) || self.host.as_ref().is_some_and(|h| h.scaled_loss.is_some())
    }

    /// Whether a training in a precision scales its loss.
    pub fn scales_loss_in(&self, precision: Precision) -> bool {
        LossScaling::acts(self.loss_scaling, precision)
    }

    /// On a machine of another host's speed, where the profile says what a host does.
    #[must_use]
    pub fn on_host(mut self, speed: HostSpeed) -> Self {
        self.host = self.host.map(|host| host.of(speed));
        self
    }

    /// What convolutions are computed by, where it can be; the library's choice without.
    pub fn algorithm(&self) -> Option<Algorithm> {
        self.memory.algorithm
    }

    /// A network as it runs through the profile: with what follows convolutions folded into them where it does that, with
    /// batch norms that an export folded as kernels of their own where it runs modules as they are written, and with heads that
    /// share keys in groups where it takes those so.
    pub fn runs(&self, network: ShapedNetwork) -> ShapedNetwork {
        let network = if self.groups_heads { network.grouping_heads() } else { network };
        match &self.fusion {
            Some(absorbed) => network.without_derived().fused(absorbed),
            None if self.runs_modules => network.unfolded(),
            None => network.without_derived(),
        }
    }

    /// How a step is launched unless somebody says otherwise.
    pub fn usual_launch(&self) -> Launch {
        if self.host.is_some() { Launch::Eager } else { Launch::Graph }
    }

    /// The same on a device: a processor has no CUDA graphs.
    pub fn usual_launch_on(&self, gpu: &Gpu) -> Launch {
        if gpu.device == Device::Cpu { Launch::Eager } else { self.usual_launch() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::shape::Shape;
    use crate::catalog;
    use crate::net::layer::LayerOp as _;

    fn pool(kernel: u64, stride: u64) -> Layer {
        let fields = format!("kernel = {kernel}\nstride = {stride}").parse().expect("a table");
        Layer::from_table("max_pool2d", fields).expect("a kind").expect("fields")
    }

    #[test]
    fn an_entry_holds_for_its_phases_and_windows() {
        let caffe = catalog::framework("caffe").expect("shipped");
        let of = |layer: &Layer, phase| {
            let kernel = KernelOf { kind: layer.kind(), layer, phase, layout: Some(Layout::Nchw) };
            caffe.slower(&kernel, 1).0
        };
        let (dense, strided, disjoint) = (pool(3, 1), pool(3, 2), pool(2, 2));
        assert!(of(&dense, Phase::Forward) > of(&strided, Phase::Forward));
        assert!(of(&strided, Phase::Forward) > of(&disjoint, Phase::Forward));
        assert_eq!(of(&dense, Phase::BackwardData), of(&disjoint, Phase::BackwardData));
        assert_eq!(of(&pool(7, 7), Phase::Forward), 1.0);
    }

    #[test]
    fn kernels_launched_per_sample_cost_time_per_sample() {
        let caffe = catalog::framework("caffe").expect("shipped");
        let fields = "bias = true".parse().expect("a table");
        let layer = Layer::from_table("scale", fields).expect("a kind").expect("fields");
        assert!(layer.output(&[Shape::new(&[4, 2, 2]).expect("shape")]).is_ok());
        let extra = |batch| {
            let kernel =
                KernelOf { kind: "scale", layer: &layer, phase: Phase::BackwardWeights, layout: Some(Layout::Nchw) };
            caffe.slower(&kernel, batch).1
        };
        assert!((extra(64) / extra(1) - 64.0).abs() < 1e-9);
    }

    #[test]
    fn a_wrong_time_or_factor_names_its_entry() {
        let text = |entry: &str| {
            format!(
                "schema = \"framework/1\"\nname = \"x\"\ntitle = \"x\"\n\
                 dispatch = {{ value = \"0 us\", source = \"x\" }}\n[[slower]]\nsource = \"x\"\n{entry}\n"
            )
        };
        for (entry, expected) in [
            ("kind = \"add\"\nfactor = 0", "slower add: factor is 0"),
            ("kind = \"add\"\nfactor = 1e308", "slower add: factor is 1e308"),
            ("kind = \"add\"\nfactor = 1e-320", "slower add: factor is 1e-320"),
            ("kind = \"add\"\nfactor = inf", "slower add: factor is inf"),
            ("kind = \"add\"\nfactor = 1\n[activity]\nfactor = 6e99\nsource = \"x\"", "factor of activity is 6e99"),
            (
                "kind = \"add\"\nfactor = 1\n[fused_update]\nsgd = 1\nmomentum = 1\nadam = 99999\nscaled = 1\nsource = \"x\"\nper_layer = { value = \"1 us\", source = \"x\" }",
                "fused_update adam is 99999",
            ),
            (
                "kind = \"add\"\nfactor = 1\n[[input]]\nname = \"i\"\ntitle = \"i\"\nsamples_per_s = 1e-320\nsource = \"x\"",
                "input i: samples_per_s is 1e-320",
            ),
            ("kind = \"add\"\nfactor = 1\nextra_per_sample = \"4 W\"", "slower add"),
            (
                "kind = \"add\"\nfactor = 1\n[broadcast]\nper_cycle = [0, 1]\nlatency = [1, 1]\nfilled = { latency = \"1 us\", of_bandwidth = 1, per_cycle = 1 }\nsource = \"x\"",
                "broadcast per_cycle is 0",
            ),
            (
                "kind = \"add\"\nfactor = 1\n[broadcast]\nper_cycle = [1, 1]\nlatency = [1, 1]\nfilled = { latency = \"1 us\", of_bandwidth = 2, per_cycle = 1 }\nsource = \"x\"",
                "broadcast filled of_bandwidth is 2",
            ),
            (
                "kind = \"add\"\nfactor = 1\n[gather]\ncycles_per_row = 0\nlatency = 1\ngradient = [1, 1]\nsource = \"x\"",
                "gather cycles_per_row is 0",
            ),
            ("kind = \"add\"\nfactor = 1\n[rows_apart]\nbandwidth = 0\nsource = \"x\"", "rows_apart bandwidth is 0"),
            ("kind = \"add\"\nfactor = 1\n[sequences]\nreordered = 2\nsource = \"x\"", "sequences reordered is 2"),
            (
                "kind = \"add\"\nfactor = 1\n[maps]\ncopied_per_cycle = { narrow = [1, 1], short = [1, 1], even = 1, long = [1, 1] }\nreordered = 1\nnormalized = [1, 1]\nconcatenated_per_cycle = 1\ninterpolated_per_cycle = [1, 0]\nmirrored_per_cycle = [1, 1]\ncycles_per_plane = [2, 2]\nsource = \"x\"",
                "maps interpolated_per_cycle is 0",
            ),
            (
                "kind = \"add\"\nfactor = 1\n[maps]\ncopied_per_cycle = { narrow = [1, 1], short = [1, 1], even = 1, long = [0, 1] }\nreordered = 1\nnormalized = [1, 1]\nconcatenated_per_cycle = 1\ninterpolated_per_cycle = [1, 1]\nmirrored_per_cycle = [1, 1]\ncycles_per_plane = [2, 2]\nsource = \"x\"",
                "maps copied_per_cycle long is 0",
            ),
            (
                "kind = \"add\"\nfactor = 1\n[layer_norm]\ncycles_per_row = [1, 0]\nlatency = [1, 1]\nrms_latency = [1, 1]\nsource = \"x\"",
                "layer_norm cycles_per_row is 0",
            ),
            ("kind = \"add\"\nfactor = 1\nphases = [\"sideways\"]", "sideways"),
        ] {
            let error = Framework::from_toml(&text(entry)).expect_err("wrong");
            assert!(error.to_string().contains(expected), "{error}");
        }
    }
}
