//! Generation with a language model: a step over the prompt that fills a cache of keys and values, then one step per
//! token, each of which reads a cache that is longer by one.

use crate::base::precision::{Mode, Precision};
use crate::base::units::{Bytes, Hertz, Joules, Ops, Seconds, Watts};
use crate::net::layer::{Layer, Slice};
use crate::net::network::Folded;
pub use crate::net::network::SEQUENCE;
use crate::net::network::{Network, NetworkError, Node, ShapingError, Source};
use crate::step::layout::{Deployment, Flow, LayoutError, LayoutOf};
use crate::step::predict::Predictor;
use crate::step::predictor::{
    Doubts, Estimate, HostOf, LayerPrediction, NetworkPrediction, OperatingPoint, PredictError,
};
use std::sync::Arc;

/// Why a network does not generate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GenerationError {
    /// It is no language model of this kind.
    #[error("{network} does not generate: {why}")]
    NoLanguageModel {
        /// Its name.
        network: String,
        /// What it lacks.
        why: &'static str,
    },
    /// Positions are learned, and too few.
    #[error(
        "{network} has learned {positions} positions; prompt and answer have {tokens} tokens: a shorter prompt is --sequence N"
    )]
    TooLong {
        /// Its name.
        network: String,
        /// Rows of its table.
        positions: u64,
        /// Tokens asked for.
        tokens: u64,
    },
    /// A dimension cannot be bound.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// A step cannot be given shapes.
    #[error(transparent)]
    Shape(#[from] ShapingError),
    /// A step cannot be predicted.
    #[error(transparent)]
    Predict(#[from] PredictError),
    /// It cannot be laid out over GPUs so.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A replica that serves has no groups of GPUs with samples of their own.
    #[error("groups of GPUs with samples of their own are replicas of their own")]
    Grouped,
}

/// Checks that a network generates: one input of tokens, causal attention in every such layer, and positions for
/// `prompt` and `tokens` more.
///
/// # Errors
/// In words, what it lacks.
pub fn check(network: &Network, prompt: u64, tokens: u64) -> Result<(), GenerationError> {
    let lacks = |why| Err(GenerationError::NoLanguageModel { network: network.name.clone(), why });
    if network.inputs.len() != 1 || network.dimensions() != [SEQUENCE] {
        return lacks("it has not one input of a sequence");
    }
    let mut attention = network.nodes.iter().filter_map(|n| n.layer.causal());
    if attention.clone().count() == 0 || !attention.all(|causal| causal) {
        return lacks("its attention is not causal");
    }
    let total = prompt.saturating_add(tokens);
    for node in &network.nodes {
        if let Layer::PositionEmbedding(table) = &node.layer
            && let Some(positions) = table.positions.filter(|p| *p < total)
        {
            return Err(GenerationError::TooLong { network: network.name.clone(), positions, tokens: total });
        }
    }
    Ok(())
}

/// The network over `new` tokens of every sample with `cached` ones in its caches. Only the last token's logits are computed.
///
/// # Errors
/// When it has no dimension of tokens.
pub fn with_cache(network: &Network, new: u64, cached: u64) -> Result<Network, GenerationError> {
    let mut network = network.clone();
    network.bind(SEQUENCE, new)?;
    network.nodes.iter_mut().for_each(|node| node.layer.set_cached(cached));
    if new > 1
        && let Some(at) = network.head().or(network.nodes.len().checked_sub(1))
    {
        let nodes = &mut network.nodes;
        let last = Slice { axis: 0, start: new - 1, size: 1, step: 1, copy: false };
        let (name, from) = (format!("{}.last", nodes[at].name), nodes[at].from.clone());
        nodes.insert(at, Node { name: name.into(), layer: Layer::Slice(last), from, tied: None, folded: Folded::No });
        nodes[at + 1].from = [Source::Node(at)].into();
        for source in nodes[at + 2..].iter_mut().flat_map(|node| Arc::make_mut(&mut node.from)) {
            *source = match *source {
                Source::Node(i) if i >= at => Source::Node(i + 1),
                other => other,
            };
        }
    }
    Ok(network)
}

/// The step over a prompt.
///
/// # Errors
/// As [`check`].
pub fn prefill(network: &Network, prompt: u64) -> Result<Network, GenerationError> {
    check(network, prompt, 1)?;
    with_cache(network, prompt, 0)
}

/// The step for one token, with `cached` tokens before it.
///
/// # Errors
/// As [`check`].
pub fn decode(network: &Network, cached: u64) -> Result<Network, GenerationError> {
    check(network, cached, 1)?;
    with_cache(network, 1, cached)
}

/// Lengths of the cache at which steps are predicted, and for how many steps each stands: `steps` steps, the first with
/// `from` tokens cached. Three points of Gauss and Legendre over the range, which but for rounding are exact for a time
/// that is a polynomial of fifth degree in the length; all of them where there are few.
pub fn nodes(from: u64, steps: u64) -> Vec<(u64, f64)> {
    if steps <= 8 {
        return (0..steps).map(|i| (from + i, 1.0)).collect();
    }
    let (middle, half) = ((steps - 1) as f64 / 2.0, steps as f64 / 2.0);
    let apart = (0.6f64).sqrt() * half;
    let at = |x: f64| from + x.round().clamp(0.0, (steps - 1) as f64) as u64;
    let weight = |share: f64| share / 18.0 * steps as f64;
    vec![(at(middle - apart), weight(5.0)), (at(middle), weight(8.0)), (at(middle + apart), weight(5.0))]
}

/// What generating takes.
#[derive(Clone, Debug, PartialEq)]
pub struct Generation {
    /// Tokens of the prompt, per sample.
    pub prompt: u64,
    /// Tokens of the answer, per sample; the first one comes of the prompt's step.
    pub tokens: u64,
    /// The prompt's step.
    pub prefill: NetworkPrediction,
    /// All steps after it together; none for one token.
    pub decode: Option<NetworkPrediction>,
    /// Keys and values of all samples at the end.
    pub cache: Bytes,
    /// Both together.
    pub total: NetworkPrediction,
}

impl Generation {
    /// Tokens that come per second, of all samples, from the first step to the last.
    pub fn tokens_per_second(&self) -> f64 {
        (self.total.batch * self.tokens) as f64 / self.total.time.value.get()
    }

    /// Energy per token of the answer.
    pub fn energy_per_token(&self) -> Joules {
        self.total.energy.value / (self.total.batch * self.tokens) as f64
    }

    /// Mean time of a step after the first.
    pub fn time_per_step(&self) -> Option<Seconds> {
        self.decode.as_ref().map(|d| d.time.value / (self.tokens - 1) as f64)
    }
}

/// Steps one after the other, each so many times. Their errors are taken as fully dependent: intervals add up. Layers are
/// those of the first, with the time and energy of all.
fn sum(parts: &[(f64, &NetworkPrediction)]) -> Option<NetworkPrediction> {
    let (_, first) = parts.first()?;
    let mut all = (*first).clone();
    let total = |value: &dyn Fn(&NetworkPrediction) -> f64| parts.iter().map(|(w, p)| w * value(p)).sum::<f64>();
    let seconds = |value: &dyn Fn(&NetworkPrediction) -> Seconds| Seconds::new(total(&|p| value(p).get()));
    let joules = |value: &dyn Fn(&NetworkPrediction) -> Joules| Joules::new(total(&|p| value(p).get()));
    all.time =
        Estimate { value: seconds(&|p| p.time.value), p05: seconds(&|p| p.time.p05), p95: seconds(&|p| p.time.p95) };
    all.energy =
        Estimate { value: joules(&|p| p.energy.value), p05: joules(&|p| p.energy.p05), p95: joules(&|p| p.energy.p95) };
    let time = all.time.value;
    let mean = |value: &dyn Fn(&NetworkPrediction) -> f64| total(&|p| value(p) * p.time.value.get()) / time.get();
    let watts = |value: &dyn Fn(&NetworkPrediction) -> f64| Watts::new(mean(value));
    all.power = Estimate {
        value: all.energy.value / time,
        p05: watts(&|p| p.power.p05.get()),
        p95: watts(&|p| p.power.p95.get()),
    };
    if let [device] = &mut all.devices[..] {
        let each = 1.0 / device.count as f64;
        (device.time, device.power, device.energy) = (time, all.power.times(each), all.energy.times(each));
    }
    if let Some(layout) = &mut all.layout {
        let of = |value: &dyn Fn(&LayoutOf) -> f64| total(&|p| p.layout.as_ref().map_or(0.0, value));
        layout.communication = Seconds::new(of(&|l| l.communication.get()));
        layout.communication_energy = Joules::new(of(&|l| l.communication_energy.get()));
        layout.bubble = mean(&|p| p.layout.as_ref().map_or(0.0, |l| l.bubble));
    }
    all.clock = Hertz::new(mean(&|p| p.clock.get()));
    all.waiting = mean(&|p| p.waiting);
    // What hosts and clocks add is that of the part that lasts longest.
    let longest = parts.iter().max_by(|a, b| (a.0 * a.1.time.value.get()).total_cmp(&(b.0 * b.1.time.value.get())));
    let of_longest = longest.map_or(all.doubts, |(_, p)| p.doubts);
    all.doubts = Doubts { kernels: mean(&|p| p.doubts.kernels), power: mean(&|p| p.doubts.power), ..of_longest };
    all.bound = seconds(&|p| p.bound);
    let counted = |value: &dyn Fn(&NetworkPrediction) -> f64| total(value).round() as u64;
    all.ops = Ops::new(counted(&|p| p.ops.to_f64()));
    all.read = Bytes::new(counted(&|p| p.read.to_f64()));
    all.written = Bytes::new(counted(&|p| p.written.to_f64()));
    for (i, phase) in all.phases.iter_mut().enumerate() {
        phase.time = seconds(&|p| p.phases.get(i).map_or(Seconds::ZERO, |t| t.time));
        phase.energy = joules(&|p| p.phases.get(i).map_or(Joules::ZERO, |t| t.energy));
    }
    for (i, layer) in all.layers.iter_mut().enumerate() {
        let of = |value: &dyn Fn(&LayerPrediction) -> f64| total(&|p| p.layers.get(i).map_or(0.0, value));
        layer.time = Estimate {
            value: Seconds::new(of(&|l| l.time.value.get())),
            p05: Seconds::new(of(&|l| l.time.p05.get())),
            p95: Seconds::new(of(&|l| l.time.p95.get())),
        };
        layer.energy = Joules::new(of(&|l| l.energy.get()));
        layer.power = layer.energy / layer.time.value;
        layer.bound = Seconds::new(of(&|l| l.bound.get()));
        layer.ops = Ops::new(of(&|l| l.ops.to_f64()).round() as u64);
        layer.read = Bytes::new(of(&|l| l.read.to_f64()).round() as u64);
        layer.written = Bytes::new(of(&|l| l.written.to_f64()).round() as u64);
        layer.in_domain = parts.iter().all(|(_, p)| p.layers.get(i).is_none_or(|l| l.in_domain));
    }
    all.launch_bound = parts.iter().any(|(_, p)| p.launch_bound);
    if let Some(host) = &mut all.host {
        let any = |flag: fn(&HostOf) -> bool| parts.iter().any(|(_, p)| p.host.as_ref().is_some_and(flag));
        (host.decides, host.may_decide) = (any(|h| h.decides), any(|h| h.may_decide));
    }
    all.fits_in_memory = parts.iter().all(|(_, p)| p.fits_in_memory);
    for (_, part) in parts {
        if part.memory.total() > all.memory.total() {
            all.memory = part.memory;
        }
        for warning in &part.warnings {
            // The same with other shares says nothing new.
            if !all.warnings.iter().any(|w| w.repeats(warning)) {
                all.warnings.push(warning.clone());
            }
        }
    }
    Some(all)
}

/// Predicts a generation of `tokens` tokens after a prompt, for every sample of a batch at once.
///
/// # Errors
/// When the network does not generate, or a step cannot be given shapes or be predicted.
pub fn predict(
    predictor: &Predictor,
    network: &Network,
    length: (u64, u64),
    (batch, precision): (u64, Precision),
    point: OperatingPoint,
) -> Result<Generation, GenerationError> {
    let step = |network: &Network, _| -> Result<NetworkPrediction, GenerationError> {
        let shaped = predictor.shape(network, batch, precision, &[])?;
        Ok(predictor.step(&shaped, Mode::Inference)?.at(point)?)
    };
    of_steps(network, length, step)
}

/// A generation on several GPUs, for all samples of a batch together.
///
/// # Errors
/// As [`predict`]; when the network cannot be laid out so.
pub fn predict_on(
    deployment: &Deployment<'_>,
    network: &Network,
    length: (u64, u64),
    batch: u64,
) -> Result<Generation, GenerationError> {
    of_steps(network, length, |network, flow| Ok(deployment.step(network, batch, flow)?))
}

/// A step of a network that is served on several GPUs, for each sample of a batch over `new` tokens with `cached` ones before
/// them: the prompt's (`cached` 0), a part of it, or that of one token. What simulations of serving ask.
///
/// # Errors
/// As [`predict_on`].
pub fn step_on(
    deployment: &Deployment<'_>,
    network: &Network,
    (new, cached): (u64, u64),
    (batch, flow): (u64, Flow),
) -> Result<NetworkPrediction, GenerationError> {
    check(network, cached, new)?;
    Ok(deployment.step(&with_cache(network, new, cached)?, batch, flow)?)
}

/// A generation by whatever predicts a step of the network as it is given: the prompt's alone, those of tokens one after the other.
///
/// # Errors
/// As [`predict`].
fn of_steps(
    network: &Network,
    (prompt, tokens): (u64, u64),
    step: impl Fn(&Network, Flow) -> Result<NetworkPrediction, GenerationError>,
) -> Result<Generation, GenerationError> {
    check(network, prompt, tokens)?;
    let prefill = step(&self::prefill(network, prompt)?, Flow::Alone)?;
    let steps = tokens.saturating_sub(1);
    let at = |cached| step(&self::decode(network, cached)?, Flow::Steady);
    let parts = nodes(prompt, steps).into_iter().map(|(cached, weight)| Ok((weight, at(cached)?)));
    let parts: Vec<(f64, NetworkPrediction)> = parts.collect::<Result<_, GenerationError>>()?;
    let all: Vec<(f64, &NetworkPrediction)> = parts.iter().map(|(w, p)| (*w, p)).collect();
    let mut decode = sum(&all);
    let mut total = prefill.clone();
    if let Some(decode) = &mut decode {
        let last = at(prompt + steps - 1)?;
        (decode.memory, decode.fits_in_memory) = (last.memory, last.fits_in_memory);
        if let (Some(layout), Some(last)) = (&mut decode.layout, last.layout) {
            layout.stages = last.stages;
        }
        decode.layers.iter_mut().for_each(|layer| layer.name = format!("decode/{}", layer.name).into());
        let layers = prefill.layers.iter().chain(&decode.layers).cloned().collect();
        total = sum(&[(1.0, &prefill), (1.0, decode)]).unwrap_or(total);
        total.layers = layers;
        let of = |part, p: &NetworkPrediction| p.warnings.iter().map(|w| w.clone().of(part)).collect::<Vec<_>>();
        total.warnings = [of("prefill", &prefill), of("decode", decode)].concat();
    }
    let cache = decode.as_ref().unwrap_or(&prefill).memory.cache;
    Ok(Generation { prompt, tokens, prefill, decode, cache, total })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;
    use crate::net::network::ShapedNetwork;

    fn macs(network: &Network) -> u64 {
        ShapedNetwork::new(network, 1, Precision::Fp16, &[]).expect("fits").macs()
    }

    #[test]
    fn weights_stand_for_all_steps() {
        for steps in [0, 1, 2, 8, 9, 100, 1000] {
            let list = nodes(100, steps);
            assert!((list.iter().map(|n| n.1).sum::<f64>() - steps as f64).abs() < 1e-9, "{steps}");
            assert!(list.iter().all(|n| (100..100 + steps).contains(&n.0)), "{steps}: {list:?}");
            // What grows with the square of the length.
            let exact: f64 = (100..100 + steps).map(|n| (n * n) as f64).sum();
            let found: f64 = list.iter().map(|(n, w)| w * (n * n) as f64).sum();
            assert!((found - exact).abs() <= 4e-3 * exact, "{steps}: {found} and {exact}");
        }
    }

    #[test]
    fn a_prompt_token_by_token_costs_what_it_costs_at_once() {
        let gpt2 = catalog::network("gpt2").expect("shipped");
        let logits = 768 * 50257;
        let one_by_one: u64 = (0..16).map(|cached| macs(&decode(&gpt2, cached.max(1)).expect("generates"))).sum();
        // The first token attends to itself alone; here to one more.
        let more = 12 * 2 * 768;
        assert_eq!(one_by_one - 15 * logits - more, macs(&prefill(&gpt2, 16).expect("generates")));
    }

    #[test]
    fn the_cache_grows_by_keys_and_values_of_every_layer() {
        let llama = catalog::network("llama3_8b").expect("shipped");
        let memory = |network: &Network| {
            let shaped = ShapedNetwork::new(network, 2, Precision::Fp16, &[]).expect("fits");
            crate::step::memory::footprint(&shaped, Mode::Inference, &Default::default(), &[]).cache.get()
        };
        assert_eq!(memory(&prefill(&llama, 100).expect("generates")), 2 * 2 * 32 * 2 * 8 * 128 * 100);
        assert_eq!(memory(&decode(&llama, 100).expect("generates")), 2 * 2 * 32 * 2 * 8 * 128 * 101);
        assert_eq!(memory(&llama), 0);
    }

    #[test]
    fn few_points_are_as_good_as_all_steps() {
        let gpt2 = catalog::network("gpt2").expect("shipped");
        let gpu = catalog::gpu("v100").expect("shipped");
        let framework = catalog::framework("cudnn").expect("shipped");
        let predictor = Predictor::shipped(gpu, framework);
        let generate = |tokens| {
            predict(&predictor, &gpt2, (64, tokens), (4, Precision::Fp32), OperatingPoint::default()).expect("predicts")
        };
        let whole = generate(33);
        let decode = whole.decode.as_ref().expect("steps");
        let each: f64 = (0..32)
            .map(|i| {
                let network = self::decode(&gpt2, 64 + i).expect("generates");
                let shaped = ShapedNetwork::new(&network, 4, Precision::Fp32, &[]).expect("fits");
                predictor.predict(&shaped, Mode::Inference).expect("predicts").time.value.get()
            })
            .sum();
        assert!((decode.time.value.get() / each - 1.0).abs() < 0.01, "{} and {each}", decode.time.value.get());
        let parts = whole.prefill.time.value + decode.time.value;
        assert!((whole.total.time.value / parts - 1.0).abs() < 1e-9);
        let layers: f64 = whole.total.layers.iter().map(|l| l.time.value.get()).sum();
        let waiting = whole.total.waiting * whole.total.time.value.get();
        assert!(((layers + waiting) / whole.total.time.value.get() - 1.0).abs() < 1e-9);
        assert_eq!(generate(1).decode, None);
    }

    #[test]
    fn what_does_not_generate_says_why() {
        let network = |name| catalog::network(name).expect("shipped");
        let why = |name, prompt, tokens| check(&network(name), prompt, tokens).expect_err(name).to_string();
        assert!(why("bert_base", 8, 8).contains("sequence"));
        assert!(why("vit_b_16", 8, 8).contains("sequence"));
        assert!(why("gpt2", 1000, 25).contains("1024"));
        assert_eq!(check(&network("gpt2"), 1000, 24), Ok(()));
        assert_eq!(check(&network("llama_7b"), 8000, 24), Ok(()));
    }
}
