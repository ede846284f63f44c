//! All layouts of a language model over the GPUs of a node.

use crate::cluster::{Cluster, check_length, longer_than_made_for, of_generation};
use crate::failure::Failure;
use crate::request::{Request, only};
use crate::session::Session;
use joulecast_ask::layouts::{LaidOut, Load, laid_out, of_node};
use joulecast_model::device::interconnect::Interconnect;
use joulecast_model::net::network::{Network, Stored};
use joulecast_model::net::share::Layout;
use joulecast_model::step::generation;
use joulecast_model::step::predictor::{OperatingPoint, Warning};
use joulecast_reports::layouts::Layouts;

/// Layouts of a language model.
#[derive(Debug)]
pub struct Laid {
    /// What they hold.
    pub list: Vec<LaidOut>,
    /// What was asked of each.
    pub load: Load,
    /// What runs a GPU's share.
    pub cluster: Cluster,
    /// What joins the GPUs.
    pub interconnect: String,
    /// The network.
    pub network: String,
    /// What to tell.
    pub warnings: Vec<Warning>,
}

impl Laid {
    /// As it is shown.
    pub fn shown(&self) -> Layouts<'_> {
        let predictor = self.cluster.first();
        Layouts {
            network: &self.network,
            gpu: predictor.gpu(),
            interconnect: &self.interconnect,
            precision: self.cluster.precision.name(),
            framework: &predictor.framework().name,
            load: self.load,
            list: &self.list,
            warnings: &self.warnings,
        }
    }
}

/// What joins the GPUs of a cluster's kind, or what is asked for, and the layouts of a network over a node of them.
pub(super) fn over_node(cluster: &Cluster, network: &Network) -> Result<(Interconnect, Vec<Layout>), Failure> {
    let two = Layout::new(2, 1, 1, None).map_err(Failure::usage)?;
    let joined = cluster.deployment(two, OperatingPoint::default())?.interconnect;
    let layouts = of_node(network, joined.node.unwrap_or(MOST));
    Ok((joined, layouts))
}

/// What the layouts over the GPUs of a node, or over as many as the interconnect that is asked for joins, hold of prompts of the
/// network's sequence and answers of so many tokens.
///
/// # Errors
/// When what is asked is wrong, or nothing can be predicted.
pub fn layouts(session: &Session, request: &Request, tokens: u64) -> Result<Laid, Failure> {
    if request.epochs.is_some() {
        return Err(Failure::usage("--epochs is of a training: leave out --layouts"));
    }
    if request.layout.is_some_and(|layout| layout != Layout::ALONE) {
        return Err(Failure::usage("--layouts are all layouts: leave out --tensor-parallel and the like"));
    }
    let request = &session.settled(request)?;
    let (precision, mode) = (*only(&request.precisions, "precision")?, *only(&request.modes, "mode")?);
    let asked = Request { layout: Some(Layout::ALONE), ..request.clone() };
    let cluster = session.cluster(&asked, only(&request.teams, "GPU or team")?, precision, mode)?;
    let source = session.network(only(&request.networks, "network")?, &request.reading)?;
    let Some(batch) = only(&request.batches, "batch")?.samples() else {
        return Err(Failure::usage("--layouts needs a number as --batch, and says how many fit"));
    };
    if cluster.count() > 1 || !source.bindings.is_empty() {
        return Err(Failure::usage("--layouts are of --gpu NAME and of tokens: without --gpus and --input"));
    }
    let network = &source.network;
    let prompt = network.inputs.first().map_or(1, |input| input.shape.dims()[0]);
    generation::check(network, prompt, tokens).map_err(|e| Failure::Usage(e.into()))?;
    check_length(network, prompt, tokens)?;
    let load = Load { batch, context: prompt.saturating_add(tokens) };
    let (joined, layouts) = over_node(&cluster, network)?;
    let mut list = Vec::new();
    for layout in layouts {
        let deployment = cluster.deployment(layout, request.point)?;
        list.push(laid_out(&deployment, network, load).map_err(of_generation)?);
    }
    let mut warnings: Vec<Warning> = cluster.notes().cloned().collect();
    if joined.collectives.is_none() {
        warnings.push(Warning::Exchanges { interconnect: joined.name.clone() });
    }
    warnings.push(Warning::Handing);
    warnings.extend(longer_than_made_for(network, load.context));
    let Stored { weights, cache } = request.stored;
    if !request.stored.is_usual() {
        warnings.push(Warning::Stored { weights, cache });
    }
    let (interconnect, network) = (joined.name, network.name.clone());
    Ok(Laid { list, load, cluster, interconnect, network, warnings })
}

/// GPUs of a node where the interconnect does not say.
const MOST: u64 = 8;
