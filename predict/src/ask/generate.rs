//! A language model's answer: the prompt's step and those of every token.

use crate::cluster::Cluster;
use crate::failure::Failure;
use crate::request::{Request, only};
use crate::session::Session;
use joulecast_model::step::generation::Generation;
use std::sync::Arc;

/// A language model's answer.
#[derive(Debug)]
pub struct Generated {
    /// What is predicted.
    pub generation: Generation,
    /// What runs it.
    pub cluster: Arc<Cluster>,
    /// Where the network came from, as [`joulecast_read::Format::source`] says it.
    pub source: &'static str,
}

/// An answer of so many tokens per sample; the prompt has the tokens of the network's sequence.
///
/// # Errors
/// When what is asked is wrong, or nothing can be predicted.
pub fn generate(session: &Session, request: &Request, tokens: u64) -> Result<Generated, Failure> {
    if request.epochs.is_some() {
        return Err(Failure::usage("--epochs is of a training: leave out --generate"));
    }
    let request = &session.settled(request)?;
    let (precision, mode) = (*only(&request.precisions, "precision")?, *only(&request.modes, "mode")?);
    let cluster = session.cluster(request, only(&request.teams, "GPU or team")?, precision, mode)?;
    let source = session.network(only(&request.networks, "network")?, &request.reading)?;
    let Some(batch) = only(&request.batches, "batch")?.samples() else {
        return Err(Failure::usage("--generate needs a number as --batch"));
    };
    let generation = cluster.answer(&source, tokens, batch, request.point)?;
    cluster.check_fit(request, &generation.total)?;
    Ok(Generated { generation, cluster: Arc::new(cluster), source: source.kind })
}
