//! Language models from Hugging Face's `config.json`.
//!
//! [`config`] reads keys and refuses what is missing or absurd by name, [`architectures`] says what the keys of each
//! architecture mean, as a [`decoder`]; [`lower`] writes that as layers. What is not known is refused: a file of another
//! architecture, or one that changes a known one in a way that is not known.

mod architectures;
mod config;
mod decoder;
mod lower;
mod quantization;

use config::{Config, Outcome};
use decoder::Feed;
use joulecast_model::base::precision::Precision;
use joulecast_model::base::shape::Shape;
use joulecast_model::base::text::{Names, closest, in_short, shown};
use joulecast_model::net::network::{Input, Network, Published, SEQUENCE, ShapedNetwork, Stated};
use serde_json::Value;

/// Tokens of a prompt unless somebody says otherwise, as in the zoo; of learned positions no more than there are.
const TOKENS: u64 = 1024;

/// Reads a `config.json`. What the network does not hold of it is in its notes.
///
/// # Errors
/// One line that names the key, or the architecture that is not known.
pub fn read(text: &str, name: &str) -> Result<Network, String> {
    let file: Value = serde_json::from_str(text).map_err(|e| in_short(&format!("not JSON: {e}")))?;
    let whole = Config::of(&file).ok_or("not a config.json: it is no object")?;
    let mut notes = Vec::new();
    let ((kind, read), config) = architecture(whole, &mut notes)?;
    let mut stated = Stated::default();
    for config in [whole, config] {
        tell(&config, &mut notes, &mut stated)?;
    }
    stated.is_silent = stated.precision.is_none();
    let model = read(config)?;
    let experts = model.blocks.iter().any(|block| matches!(block.feed, Feed::Experts(_)));
    for config in [whole, config] {
        let told = quantization::tell(&config, experts, &mut stated)?;
        notes.extend(told.filter(|told| !notes.contains(told)));
    }
    if let Some(cross) = model.blocks.first().and_then(|block| block.cross) {
        let positions = cross.positions;
        notes.push(format!("of an encoder and a decoder the latter: what the encoder made, {positions} positions, comes with the prompt"));
    }
    let tokens = Shape::new(&[model.positions.unwrap_or(TOKENS).min(TOKENS)]).map_err(|e| e.to_string())?;
    let nodes = lower::lower(&model, tokens)?;
    let symbols = vec![Some(SEQUENCE.to_string())];
    let network = Network {
        name: Names::default().unique(name),
        title: shown(name),
        source: format!("Hugging Face config.json, architecture {kind}"),
        aliases: vec![],
        published: Published::default(),
        inputs: vec![Input { name: "tokens".into(), shape: tokens, symbols, integer: true }],
        nodes,
        outputs: vec![],
        derived: vec![],
        notes,
        stated,
    };
    // Sizes that cannot be counted together are the file's fault, whatever is asked of it.
    ShapedNetwork::new(&network, 1, Precision::Fp32, &[]).map_err(|e| e.to_string())?;
    Ok(network)
}

/// What reads an architecture, with its name.
type Known = (&'static str, architectures::Read);

/// The architecture of a file, and the part of it that describes a language model: of models that read images as well that is
/// `text_config`.
fn architecture<'j>(whole: Config<'j>, notes: &mut Vec<String>) -> Outcome<(Known, Config<'j>)> {
    let known = |config: &Config<'j>| -> Outcome<Option<Known>> {
        let kind = config.text("model_type")?.unwrap_or_default();
        Ok(architectures::KNOWN.iter().find(|(name, _)| *name == kind).copied())
    };
    if let Some(known) = known(&whole)? {
        return Ok((known, whole));
    }
    if let Some(part) = whole.part("text_config")
        && let Some(known) = known(&part)?
    {
        notes.push("of a model that reads more than text the part that reads text, text_config, is read".into());
        return Ok((known, part));
    }
    let names = || architectures::KNOWN.iter().map(|(name, _)| *name);
    let kind = whole.text("model_type")?.ok_or("model_type is missing: not a config.json of transformers")?;
    let near = closest(kind, names());
    let all = names().collect::<Vec<_>>().join(", ");
    Err(format!("model_type \"{}\" is not known here{near}; known: {all}", shown(kind)))
}

/// The precision of that name of PyTorch's; its formats of 8 bits are how weights are stored, not how all is computed.
fn published_in(name: &str) -> Option<Precision> {
    match name {
        "bfloat16" => Some(Precision::Bf16),
        "float16" => Some(Precision::Fp16),
        "float32" => Some(Precision::Fp32),
        _ => None,
    }
}

/// What of a file is left out, or is not as the network will be.
fn tell(config: &Config<'_>, notes: &mut Vec<String>, stated: &mut Stated) -> Outcome<()> {
    let mut note = |text: String| {
        if !notes.contains(&text) {
            notes.push(text);
        }
    };
    // Releases of transformers since the fifth write the second.
    for key in ["torch_dtype", "dtype"] {
        let Some(name) = config.text(key)? else { continue };
        let precision = published_in(name);
        if precision.is_none() {
            note(format!("{key} {} is unknown", shown(name)));
        }
        stated.precision = stated.precision.or(precision);
    }
    stated.positions = stated.positions.or(config.size_if_any("max_position_embeddings")?);
    let further = config.count("num_nextn_predict_layers", 0)?;
    if further > 0 {
        note(format!("left out: what predicts tokens further ahead (num_nextn_predict_layers, {further})"));
    }
    Ok(())
}
