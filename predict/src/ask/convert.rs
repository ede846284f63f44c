//! A network in another format.

use crate::failure::Failure;
use crate::request::Reading;
use crate::session::Session;
use anyhow::Context;
use joulecast_model::base::precision::Precision;
use joulecast_model::net::network::Network;
use joulecast_read::onnx;

/// The network with its inputs as they are asked for.
fn bound(session: &Session, net: &str, reading: &Reading) -> Result<Network, Failure> {
    let source = session.network(net, reading)?;
    let mut network = source.network.clone();
    source.shaped(1, Precision::Fp32).map_err(|e| match e {
        Failure::Usage(e) | Failure::Failed(e) => Failure::Usage(e),
    })?;
    for input in &mut network.inputs {
        if let Some((_, shape)) = source.bindings.iter().find(|(name, _)| *name == input.name) {
            (input.shape, input.symbols) = (*shape, vec![None; shape.dims().len()]);
        }
    }
    Ok(network)
}

/// The project's own network file, to be edited.
///
/// # Errors
/// When the network cannot be read, or not with those inputs.
pub fn to_toml(session: &Session, net: &str, reading: &Reading) -> Result<String, Failure> {
    Ok(bound(session, net, reading)?.to_toml())
}

/// An ONNX file without weights, and how many layers hold a folded batch norm, which it cannot say.
///
/// # Errors
/// When the network cannot be read, not with those inputs, or has a layer that ONNX has not.
pub fn to_onnx(session: &Session, net: &str, reading: &Reading) -> Result<(Vec<u8>, usize), Failure> {
    let network = bound(session, net, reading)?;
    let bytes = onnx::write(&network).with_context(|| network.name.clone()).map_err(Failure::Failed)?;
    Ok((bytes, network.folded()))
}
