//! Weights that are published in fewer bits than a model computes in: `quantization_config`.

use super::config::{Config, Outcome};
use joulecast_model::base::text::shown;
use joulecast_model::net::network::{Stated, Weights};

/// The option that asks for weights as a file publishes them, as far as it says how.
fn asking(config: &Config<'_>, method: &str) -> Outcome<&'static str> {
    let of_bits = |bits| match bits {
        4 => "--weights int4",
        8 => "--weights int8",
        _ => "--weights fp8, int8 or int4",
    };
    Ok(match method {
        "fp8" | "fbgemm_fp8" => "--precision fp8",
        "mxfp4" => of_bits(4),
        "awq" | "gptq" => of_bits(config.count("bits", 4)?),
        "bitsandbytes" if config.truth("load_in_4bit", false)? => of_bits(4),
        "bitsandbytes" if config.truth("load_in_8bit", false)? => of_bits(8),
        "compressed-tensors" => {
            let first = config.part("config_groups").and_then(|groups| groups.part("group_0"));
            match first.and_then(|group| group.part("weights")) {
                Some(weights) if weights.text("type")? == Some("float") => "--precision fp8",
                Some(weights) => of_bits(weights.count("num_bits", 0)?),
                None => of_bits(0),
            }
        }
        _ => of_bits(0),
    })
}

/// What of it is done, and what is not. `experts`: whether the model has any.
pub(super) fn tell(config: &Config<'_>, experts: bool, stated: &mut Stated) -> Outcome<Option<String>> {
    let Some(part) = config.part("quantization_config") else { return Ok(None) };
    let method = part.text("quant_method")?;
    if method == Some("mxfp4") && experts {
        // Attention, routers, embedding and logits stay as they are: `modules_to_not_convert`.
        stated.experts = Some(Weights::Int4);
        return Ok(Some("its experts are published in mxfp4: stored as int4 is, in 4.16 bits a value instead of 4.25, and multiplied in 16 bits".into()));
    }
    let width = stated.precision.map_or("16 bits".into(), |precision| precision.to_string());
    let option = asking(&part, method.unwrap_or_default())?;
    let method = shown(method.unwrap_or("another form"));
    Ok(Some(format!(
        "its weights are published in {method}: taken in {width} where nothing else is asked for; {option} asks for what is published"
    )))
}
