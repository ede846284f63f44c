//! All layouts of a language model over the GPUs of a node: what fits where, and what a token then takes.

use joulecast_model::base::order::sort_by;
use joulecast_model::base::shape::MAX_DIMENSION;
use joulecast_model::base::units::{Bytes, Joules, Seconds, Watts};
use joulecast_model::net::layer::Layer;
use joulecast_model::net::network::Network;
use joulecast_model::net::share::{Layout, ShareError};
use joulecast_model::step::generation::{self, GenerationError};
use joulecast_model::step::layout::{Deployment, Flow, LayoutError};
use joulecast_model::step::memory::{MemoryFootprint, largest};
use joulecast_model::step::predictor::Estimate;

/// What is asked of every layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Samples that are answered at once.
    pub batch: u64,
    /// Tokens of prompt and answer together, per sample.
    pub context: u64,
}

/// A layout under a load.
#[derive(Clone, Debug, PartialEq)]
pub struct LaidOut {
    /// How many GPUs share what.
    pub layout: Layout,
    /// What came out.
    pub outcome: Result<Held, Refused>,
}

/// Why there is nothing to say of a layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The network does not divide so.
    Divides(ShareError),
    /// The batch does not.
    Batch(LayoutError),
}

/// What a layout holds. Prompts are taken to be filled in parts, so that steps of tokens decide the memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Memory of the fullest GPU under the load.
    pub memory: MemoryFootprint,
    /// What a GPU has.
    pub has: Bytes,
    /// The largest batch at the load's context; none where not even one sample of each group of GPUs fits.
    pub largest_batch: Option<u64>,
    /// The longest context at the load's batch; none where not even one token fits.
    pub largest_context: Option<u64>,
    /// A token of every sample at the end of the context; predicted whether or not it fits.
    pub token: Token,
}

/// What a token of every sample takes, as tokens follow tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Token {
    /// From one to the next.
    pub time: Estimate<Seconds>,
    /// Of all GPUs.
    pub power: Estimate<Watts>,
    /// Of all GPUs, per token of one sample.
    pub energy: Estimate<Joules>,
    /// Tokens of all samples per second.
    pub per_second: f64,
}

impl Held {
    /// Whether the load fits.
    pub fn fits(&self) -> bool {
        self.memory.total() <= self.has
    }
}

/// Layouts of a network over up to `gpus` GPUs: powers of two of each, whole experts over all GPUs of a stage or none.
pub fn of_node(network: &Network, gpus: u64) -> Vec<Layout> {
    let powers = |most: u64| (0..).map(|i| 1u64 << i).take_while(move |n| *n <= most);
    let experts = network.nodes.iter().any(|node| matches!(node.layer, Layer::Experts(_)));
    let mut list = Vec::new();
    for tensor in powers(gpus) {
        for pipeline in powers(gpus / tensor) {
            let most = if experts { gpus / pipeline } else { 1 };
            for expert in powers(most).filter(|e| *e == 1 || e.is_multiple_of(tensor)) {
                list.extend(Layout::new(tensor, pipeline, expert, None));
            }
        }
    }
    let costs = |layout: &Layout| (layout.gpus(), layout.pipeline(), layout.expert(), layout.tensor());
    sort_by(&mut list, |a, b| costs(a).cmp(&costs(b)));
    list.dedup();
    list
}

/// What a layout makes of a load.
///
/// # Errors
/// When the network does not generate, or a share of it cannot be predicted.
pub fn laid_out(deployment: &Deployment<'_>, network: &Network, load: Load) -> Result<LaidOut, GenerationError> {
    let layout = deployment.layout;
    let outcome = match held(deployment, network, load) {
        Err(GenerationError::Layout(LayoutError::Share(why))) => Err(Refused::Divides(why)),
        Err(GenerationError::Layout(why @ LayoutError::Groups { .. })) => Err(Refused::Batch(why)),
        other => Ok(other?),
    };
    Ok(LaidOut { layout, outcome })
}

fn held(deployment: &Deployment<'_>, network: &Network, load: Load) -> Result<Held, GenerationError> {
    let gpu = deployment.predictor.gpu();
    // Of the last token all others lie in the cache.
    let at = |context: u64| generation::decode(network, context.saturating_sub(1).max(1));
    let last = at(load.context)?;
    let p = deployment.step(&last, load.batch, Flow::Steady)?;
    let samples = load.batch as f64;
    let token = Token {
        time: p.time,
        power: p.power,
        energy: p.energy.times(1.0 / samples),
        per_second: samples / p.time.value.get(),
    };
    // What has too few positions, or cannot be counted, does not fit either.
    let fits = |context| -> Result<bool, GenerationError> {
        let memory = at(context).ok().and_then(|step| deployment.memory(&step, load.batch).ok());
        Ok(memory.is_some_and(|memory| memory.total() <= gpu.memory.value))
    };
    Ok(Held {
        memory: deployment.memory(&last, load.batch)?,
        has: gpu.memory.value,
        largest_batch: deployment.largest_batch(&last)?,
        largest_context: largest(MAX_DIMENSION >> 1, fits)?,
        token,
    })
}
