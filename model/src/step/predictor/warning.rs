//! What a reader of a prediction should know of it, as values; the words are in `joulecast_reports::warnings`.

use crate::base::precision::Precision;
use crate::base::units::{Bytes, Hertz, Seconds, Watts};
use crate::device::gpu::Vendor;
use crate::kernel::setting::Algorithm;
use crate::law::lookup::Substitute;
use crate::net::network::{Kept, Weights};

/// What a reader of a prediction should know. Shares are of the step's time, from 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// What a network's file holds otherwise than it was read, in the words of its reader.
    Network(String),
    /// A core clock that the device cannot be set to, and the one that was taken.
    OffGrid {
        /// As `--clock` says.
        asked: Hertz,
        /// On the device's grid.
        nearest: Hertz,
    },
    /// The device's file does not say how low its power limit can be set.
    LowestLimit {
        /// The device's name.
        gpu: String,
    },
    /// Kernels draw more than the limit even at the lowest clock.
    BeyondLimit {
        /// The limit.
        cap: Watts,
        /// The lowest core clock.
        lowest: Hertz,
        /// That all of the step is at that clock: else some stretches keep the limit at a higher one.
        all: bool,
    },
    /// The limit, not what was asked for, decides the clock.
    Held {
        /// The limit.
        cap: Watts,
        /// What the board keeps to, where that is less than 98 % of the limit.
        kept: Option<Watts>,
        /// Mean core clock.
        clock: Hertz,
        /// The clock that was asked for, or the boost clock.
        ceiling: Hertz,
    },
    /// Single layers draw more than the limit, which holds a mean.
    LayersBeyondLimit {
        /// Of the layer that draws most.
        most: Watts,
        /// The limit.
        cap: Watts,
        /// Over how long the limit holds the mean.
        over: Seconds,
    },
    /// Some kernel runs at a core clock outside of those that the calibration's rows ran at.
    OutsideClocks {
        /// The lowest of those.
        low: Hertz,
        /// The highest of those.
        high: Hertz,
    },
    /// Clocks or limits other than the default ones, on a device of which only those were measured.
    ClocksByLaw,
    /// The device's file has no voltage over its clock.
    Voltage {
        /// The device's name.
        gpu: String,
    },
    /// Convolutions run other engines near the batch, as far as is foreseen, so that times jump there.
    EnginesBeside {
        /// Their share of the step's time.
        share: f64,
        /// The batches below and above at which some do.
        batches: [u64; 2],
    },
    /// Not all convolutions can run by the algorithm that was asked for.
    ByAlgorithm {
        /// Kernels that do.
        by: u32,
        /// Kernels of convolutions.
        all: u32,
        /// What was asked for.
        algorithm: Algorithm,
    },
    /// A version of cuDNN was asked for, and no model knows how old its libraries were.
    LibraryUnknown {
        /// The device's name.
        gpu: String,
    },
    /// A version of cuDNN was asked for that is older or newer than those of the models' rows.
    LibraryOutside {
        /// The version, such as 7.6.
        asked: f64,
        /// Oldest and newest version of the rows.
        known: (f64, f64),
        /// The device's name.
        gpu: String,
    },
    /// No rows of the device's chip.
    NoRows {
        /// The device's name.
        gpu: String,
    },
    /// No rows of any GPU of the device's vendor.
    OtherVendor {
        /// Who makes the device.
        vendor: Vendor,
    },
    /// Values are stored in 16 bits and computed in fp32: the device has no fast fp16.
    StoredHalves {
        /// The device's name.
        gpu: String,
    },
    /// Rows of other boards of the device's chip.
    OtherBoard {
        /// Those boards.
        boards: Vec<String>,
        /// The device's name.
        gpu: String,
    },
    /// In fp8, not all layers are.
    InFp8 {
        /// Products that run in fp8.
        products: usize,
        /// Layers whose kernels multiply matrices.
        of: usize,
    },
    /// A language model whose request is taken to be one step over its input, as any other network's.
    OneStep {
        /// The network.
        network: String,
    },
    /// Rows of a simulated device are among those that were fitted.
    Simulated,
    /// Kernels without a model of their own.
    Substituted {
        /// Their layer kinds.
        kinds: Vec<&'static str>,
        /// Of the time.
        share: f64,
        /// What stands in.
        by: Substitute,
    },
    /// Layers larger, smaller or shorter than those that were measured.
    Outside {
        /// Of the time.
        share: f64,
    },
    /// The host launches operations more slowly than the GPU runs them.
    WaitsForHost {
        /// Of the time.
        share: f64,
    },
    /// The host decides how long the step takes, and nobody says how fast it is.
    UnknownHost {
        /// The profile's name.
        framework: String,
        /// 90 % of steps that hosts decide lie within this factor.
        spread: f64,
    },
    /// How fast the host is, as it was said.
    KnownHost {
        /// The profile's name.
        framework: String,
        /// How many times as long as its table says launches take.
        factor: f64,
        /// Who says so.
        source: String,
    },
    /// An eager step was asked for, and the profile does not say what the host takes.
    NoHost {
        /// The profile's name.
        framework: String,
    },
    /// Energy was not measured on the device.
    OtherPower {
        /// Whether the law is of another board of the same chip, not of another chip.
        sibling: bool,
        /// Whether the device's file says what it draws idle.
        idle_known: bool,
    },
    /// The step needs more memory than the device has.
    Memory {
        /// What it needs.
        needed: Bytes,
        /// The device's name.
        gpu: String,
        /// What it has.
        has: Bytes,
    },
    /// A network between nodes joins GPUs that a node would hold.
    OneNode {
        /// The network that joins them.
        network: String,
        /// What would join them in a node.
        node: String,
        /// How many that joins.
        most: u64,
    },
    /// Values are stored in fewer bits; what that takes besides fewer bytes is left out.
    Stored {
        /// Learned values.
        weights: Option<Weights>,
        /// Keys and values.
        cache: Option<Kept>,
    },
    /// Nobody asked for a precision: that in which the network's file says that its weights are published.
    Published {
        /// Which.
        precision: Precision,
    },
    /// Sequences are longer than those that the network was made for, as its file says.
    Positions {
        /// Tokens of the longest.
        tokens: u64,
        /// Of the file.
        positions: u64,
    },
    /// What GPUs exchange in serving was not measured over it.
    Exchanges {
        /// The interconnect.
        interconnect: String,
    },
    /// What stages of a pipeline hand on to each other was not measured.
    Handing,
    /// A host launches what GPUs exchange, which no profile's table has.
    LaunchedExchanges,
    /// More GPUs than the interconnect is known to join.
    BeyondNode {
        /// The interconnect.
        interconnect: String,
        /// GPUs of the step.
        gpus: u64,
        /// How many it is known to join.
        most: u64,
    },
    /// The last step of an epoch has fewer samples than it is charged for.
    Leftover {
        /// Whether it is the only step.
        only: bool,
        /// Samples that it has.
        left: u64,
        /// Samples that it is charged for.
        batch: u64,
        /// Missing samples, of all that the training is charged for.
        share: f64,
    },
    /// A calibration file of models over all chips was asked for.
    OfAllChips {
        /// The file's name.
        file: String,
        /// The device's name.
        gpu: String,
    },
    /// The largest batch was asked for, and no larger one was tried.
    LargestTried {
        /// Samples on each GPU.
        batch: u64,
    },
    /// Not even one sample fits in the device's memory.
    NoBatch {
        /// The network.
        network: String,
        /// What it needs at batch 1.
        needed: Bytes,
        /// What the device has.
        has: Bytes,
    },
    /// Of one part of the prediction: a kind of GPU, or the prompt's and the tokens' steps.
    Of {
        /// Which.
        part: String,
        /// What to know of it.
        warning: Box<Warning>,
    },
}

impl Warning {
    /// Of a part of the prediction.
    pub fn of(self, part: &str) -> Self {
        Self::Of { part: part.into(), warning: Box::new(self) }
    }

    /// Whether another step of the same network, device and framework is told the same, with whatever figures.
    pub fn repeats(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Network(a), Self::Network(b)) => a == b,
            (Self::Substituted { kinds: a, by: x, .. }, Self::Substituted { kinds: b, by: y, .. }) => a == b && x == y,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }
}
