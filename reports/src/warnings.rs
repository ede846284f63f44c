//! What to tell of a prediction, in words.

use crate::table::significant;
use joulecast_model::base::units::Bytes;
use joulecast_model::law::lookup::Substitute;
use joulecast_model::step::predictor::Warning;

/// The profile whose table of host times `calibrate host` compares a machine with.
const CALIBRATED: &str = "pytorch";

/// A warning in one line without a full stop.
pub fn words(warning: &Warning) -> String {
    let percent = |share: &f64| 100.0 * share;
    match warning {
        Warning::Network(words) => words.clone(),
        Warning::OffGrid { asked, nearest } => {
            let (asked, nearest) = (asked.to_mhz(), nearest.to_mhz());
            format!("{asked:.0} MHz is not on the clock grid: the nearest is {nearest:.1} MHz")
        }
        Warning::LowestLimit { gpu } => format!("the lowest power limit that {gpu} takes is not known"),
        Warning::BeyondLimit { cap, lowest, all } => format!(
            "{} draw more than {:.0} W at the lowest clock of {:.0} MHz: the board will exceed its limit",
            if *all { "the kernels" } else { "some layers, for longer than the limit takes to act," },
            cap.get(),
            lowest.to_mhz()
        ),
        Warning::Held { cap, kept, clock, ceiling } => {
            let kept = kept.map_or(String::new(), |w| format!(", of which the board keeps to {:.0},", w.get()));
            let (cap, clock, ceiling) = (cap.get(), clock.to_mhz(), ceiling.to_mhz());
            format!("the power limit of {cap:.0} W{kept} holds the clock at {clock:.0} of {ceiling:.0} MHz")
        }
        Warning::EnginesBeside { share, batches: [below, above] } => format!(
            "from batch {below} to {above} the library is expected to change the engine of convolutions that take {:.0} % of the \
             time: it jumps there, up or down",
            100.0 * share
        ),
        Warning::LayersBeyondLimit { most, cap, over } => format!(
            "single layers draw up to {:.0} W: the limit of {:.0} W holds the mean over about {:.0} ms",
            most.get(),
            cap.get(),
            over.to_ms()
        ),
        Warning::OutsideClocks { low, high } => {
            format!("outside of the clocks that were measured: {:.0} to {:.0} MHz", low.to_mhz(), high.to_mhz())
        }
        Warning::ClocksByLaw => "clocks and limits other than the default ones were not measured on this GPU: laws of \
                                 clock, voltage and power carry them there"
            .into(),
        Warning::Voltage { gpu } => {
            format!("the voltage of {gpu} over its clock is not known: taken as that of other GPUs")
        }
        Warning::ByAlgorithm { by, all, algorithm } => {
            format!("{by} of {all} kernels of convolutions run by {algorithm}, the others as usual")
        }
        Warning::LibraryUnknown { gpu } => {
            format!("--cudnn changes nothing: the layer models of {gpu} do not know how old their libraries were")
        }
        Warning::LibraryOutside { asked, known: (old, new), gpu } => format!(
            "cuDNN {asked:.1} is taken as the nearest that the layer models of {gpu} saw: they know {old:.1} to {new:.1}"
        ),
        Warning::NoRows { gpu } => {
            format!("no measured layer of {gpu} is used: times are those that measured GPUs would take with its peaks")
        }
        Warning::OtherVendor { vendor } => format!(
            "no GPU of {} was measured: its libraries are taken to reach what others do, and intervals are half as wide again",
            vendor.title()
        ),
        Warning::StoredHalves { gpu } => format!(
            "{gpu} has no fast fp16: values are stored in 16 bits and computed in fp32, as cuDNN and cuBLAS do there"
        ),
        Warning::OtherBoard { boards, gpu } => {
            format!("the calibration was measured on {}, not on {gpu}: same chip, other board", boards.join(", "))
        }
        Warning::InFp8 { products, of } => format!(
            "{products} of {of} products run in fp8, their inputs converted before each; all other layers in bf16, as in \
             PyTorch"
        ),
        Warning::Simulated => "the calibration has rows of a simulated device: its figures are no measurements".into(),
        Warning::Substituted { kinds, share, by } => format!(
            "{} ({:.0} % of the time): no rows on this GPU; {}",
            kinds.join(", "),
            percent(share),
            substitute(*by)
        ),
        Warning::Outside { share } => {
            format!("{:.0} % of the time is in layers outside of what was measured", percent(share))
        }
        Warning::WaitsForHost { share } => {
            format!("the GPU waits {:.0} % of the step for the host to launch operations", percent(share))
        }
        Warning::UnknownHost { framework, spread } => {
            let how = match &framework[..] {
                CALIBRATED => "`calibrate host` measures this machine's".into(),
                other => format!("--host FACTOR says how much longer than the {other} profile says this one takes"),
            };
            format!(
                "the host decides how long the step takes, and hosts differ: 90 % of such steps lie within a factor of \
                 {spread:.1} of the prediction; {how}"
            )
        }
        Warning::KnownHost { framework, factor, source } => {
            let factor = significant(*factor, 3);
            format!("launches take the host {factor} times as long as the {framework} profile says: {source}")
        }
        Warning::NoHost { framework } => {
            format!("the {framework} profile has no host: eager is predicted as a graph is")
        }
        Warning::OtherPower { sibling, idle_known } => {
            let whose = if *sibling { "the law of another board of its chip" } else { "another GPU's law" };
            let idle = if *idle_known { "" } else { "; idle power taken as 10 % of the limit" };
            format!("power was not measured on this GPU: {whose} with this one's idle and limit{idle}")
        }
        Warning::Memory { needed, gpu, has } => {
            let (needed, has) = (needed.to_gib(), has.to_gib());
            // As many places as tell them apart.
            let places = (1..6).find(|&places| format!("{needed:.places$}") != format!("{has:.places$}")).unwrap_or(1);
            format!("needs about {needed:.places$} GiB of memory; {gpu} has {has:.places$} GiB")
        }
        Warning::OneNode { network, node, most } => {
            format!("{network} joins all GPUs, one of a node each; {node} would join {most}")
        }
        Warning::Stored { weights, cache } => {
            let weights = weights.map(|w| format!("weights in {w}"));
            let parts = weights.into_iter().chain(cache.map(|c| format!("cache in {c}"))).collect::<Vec<_>>().join(", ");
            format!("{parts}: fewer bytes in memory and read, multiplied in 16 bits; products take what TensorRT-LLM's of int8 weights do, of other weights, of experts and of a cache converting was not measured")
        }
        Warning::Published { precision } => {
            format!("in {precision}, as the network's config.json says (torch_dtype): --precision for another")
        }
        Warning::Positions { tokens, positions } => format!(
            "sequences of {tokens} tokens: the network's config.json says that it was made for {positions} (max_position_embeddings)"
        ),
        Warning::Exchanges { interconnect } => {
            format!("what GPUs exchange was not measured over {interconnect}: by the ring of its sums of gradients")
        }
        Warning::Handing => {
            "what stages hand on to each other was not measured: taken as gathering among two GPUs".to_string()
        }
        Warning::LaunchedExchanges => {
            "the host's launches of what GPUs exchange are left out: 20 to 45 us each, measured; --launch graph has none".to_string()
        }
        Warning::BeyondNode { interconnect, gpus, most } => {
            format!("{interconnect} joins {gpus} GPUs as if they were in one node; it is known of {most}")
        }
        Warning::Leftover { only, left, batch, share } => {
            let which = if *only { "the only step" } else { "the last step" };
            let share = percent(share);
            format!(
                "{which} of an epoch has {left} samples and is charged as one of {batch}: {share:.0} % of the training"
            )
        }
        Warning::OfAllChips { file, gpu } => format!(
            "{file} holds efficiencies over all measured GPUs: predicted as if no layer of {gpu} had been measured"
        ),
        Warning::LargestTried { batch } => {
            format!("--batch max looks no further than {batch} samples on each GPU: more may fit")
        }
        Warning::OneStep { network } => format!(
            "{network} is a language model: as a [[network]] a request is one step over its input and generates nothing; a [[service]] has prompts and answers"
        ),
        Warning::NoBatch { network, needed, has } => {
            let gib = |bytes: &Bytes| bytes.to_gib();
            format!("{network} takes {:.1} GiB at batch 1, of {:.1} GiB", gib(needed), gib(has))
        }
        Warning::Of { part, warning } => format!("{part}: {}", words(warning)),
    }
}

/// How a kernel without a model of its own is predicted, after "no rows on this GPU; ".
fn substitute(by: Substitute) -> &'static str {
    match by {
        Substitute::Precision => "predicted by the fp32 model with its own traffic",
        Substitute::Half => "predicted by the 16-bit model with the peak and the traffic of 8 bits",
        Substitute::Product => "predicted as matrix products",
        Substitute::Shared => "predicted by the model that kinds like it share",
        Substitute::Bandwidth => "roofline with the bandwidth efficiency of its element-wise rows",
        Substitute::Universal => "predicted by the model of all measured GPUs",
        Substitute::OneChip => {
            "predicted by the law of the one chip that was measured with several results of every channel, whose library \
             may run them otherwise"
        }
        Substitute::Efficiency => "roofline with the efficiency that measured GPUs reach",
        Substitute::Algorithm => "predicted by that algorithm's model of the GPU on which algorithms were measured",
        Substitute::Processor => "roofline with three quarters of the processor's peaks, as tuned libraries reach",
        Substitute::Frames => "predicted as convolutions over maps with as many products",
        Substitute::Statement => "depthwise or narrow groups, a stated multiple of the roofline",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::units::{Hertz, Watts};
    use joulecast_model::device::gpu::Vendor;

    #[test]
    fn figures_are_rounded_and_parts_named() {
        let held = Warning::Held {
            cap: Watts::new(300.0),
            kept: Some(Watts::new(289.6)),
            clock: Hertz::from_mhz(1210.4),
            ceiling: Hertz::from_mhz(1530.0),
        };
        assert_eq!(
            words(&held.of("v100")),
            "v100: the power limit of 300 W, of which the board keeps to 290, holds the clock at 1210 of 1530 MHz"
        );
        let substituted = Warning::Substituted { kinds: vec!["add", "relu"], share: 0.156, by: Substitute::Product };
        assert_eq!(
            words(&substituted),
            "add, relu (16 % of the time): no rows on this GPU; predicted as matrix products"
        );
        assert_eq!(
            words(&Warning::InFp8 { products: 72, of: 86 }),
            "72 of 86 products run in fp8, their inputs converted before each; all other layers in bf16, as in PyTorch"
        );
        let amd = words(&Warning::OtherVendor { vendor: Vendor::Amd });
        assert!(amd.starts_with("no GPU of AMD was measured"), "{amd}");
    }
}
