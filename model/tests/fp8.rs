//! Networks in fp8: which layers change, and by what, with the files that are shipped.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::{Bytes, Hertz, Seconds};
use joulecast_model::catalog;
use joulecast_model::device::gpu::Device;
use joulecast_model::kernel::work::Work;
use joulecast_model::law::lookup::Substitute;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{Layer, Linear};
use joulecast_model::step::generation;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, PredictError, Warning};

fn predicted((net, batch): (&str, u64), gpu: &str, precision: Precision) -> Result<NetworkPrediction, PredictError> {
    let framework = catalog::framework("cudnn").expect("known");
    let predictor = Predictor::shipped(catalog::gpu(gpu).expect("known"), framework);
    let network = catalog::network(net).expect("known");
    let shaped = predictor.shape(&network, batch, precision, &[]).expect("fits");
    // At a clock that no power limit lowers, as it would for some kernels more than for others.
    let point = OperatingPoint { core_clock: Some(Hertz::from_mhz(600.0)), ..OperatingPoint::default() };
    let asked = if predictor.gpu().device == Device::Cpu { OperatingPoint::default() } else { point };
    predictor.step(&shaped, Mode::Inference)?.at(asked)
}

#[test]
fn linear_layers_change_and_nothing_else() -> Result<(), PredictError> {
    let fp8 = predicted(("bert_base", 256), "h200", Precision::Fp8)?;
    let bf16 = predicted(("bert_base", 256), "h200", Precision::Bf16)?;
    assert_eq!(fp8.layers.len(), bf16.layers.len());
    let mut shorter = 0;
    for (a, b) in fp8.layers.iter().zip(&bf16.layers) {
        match a.kind {
            // Narrower products pay more for the quantisation of what they read than they save.
            "linear" if a.name.ends_with("intermediate.dense") => {
                assert!(a.time.value < b.time.value * 0.95, "{}: {} and {}", a.name, a.time.value, b.time.value);
                shorter += 1;
            }
            "linear" => {}
            _ => {
                assert_eq!((a.read, a.written), (b.read, b.written), "{}", a.name);
                assert_eq!(a.time, b.time, "{}", a.name);
            }
        }
    }
    assert_eq!(shorter, 12, "a wide product in each of twelve blocks");
    // At 768 features quantising what each product reads costs more than its shorter arithmetic saves.
    let ratio = fp8.time.value / bf16.time.value;
    assert!((0.5..1.4).contains(&ratio), "{ratio}");
    let said = fp8.warnings.iter().find(|w| matches!(w, Warning::InFp8 { .. }));
    assert!(
        matches!(said, Some(Warning::InFp8 { products, of }) if *products >= shorter && *products < *of),
        "{said:?}"
    );
    assert!(!bf16.warnings.iter().any(|w| matches!(w, Warning::InFp8 { .. })));
    // No chip has rows in fp8 that it could be taken from, so that an interval is wider than that in bf16.
    let substituted = |w: &&Warning| matches!(w, Warning::Substituted { by: Substitute::Half, .. });
    if fp8.warnings.iter().any(|w| substituted(&w)) {
        let relative = |p: &NetworkPrediction| (p.time.p95 - p.time.p05) / p.time.value;
        assert!(relative(&fp8) > relative(&bf16));
    }
    Ok(())
}

#[test]
fn memory_holds_weights_of_one_byte_and_activations_of_two() -> Result<(), PredictError> {
    let of = |precision| predicted(("bert_base", 256), "h200", precision).map(|p| p.memory);
    let (fp8, bf16, int8) = (of(Precision::Fp8)?, of(Precision::Bf16)?, of(Precision::Int8)?);
    assert_eq!(fp8.activations, bf16.activations);
    assert!(fp8.activations > int8.activations);
    // Encoder: 85 million weights and biases in linear layers; the tables of words and positions stay as they are.
    let saved = bf16.weights.get() - fp8.weights.get();
    assert!((84_000_000..87_000_000).contains(&saved), "{saved}");
    Ok(())
}

#[test]
fn convolutions_stay_in_bf16() -> Result<(), PredictError> {
    let of = |precision| predicted(("vgg11", 32), "h100-sxm", precision);
    let (fp8, bf16) = (of(Precision::Fp8)?, of(Precision::Bf16)?);
    let time = |p: &NetworkPrediction, kind: &str| {
        p.layers.iter().filter(|l| l.kind == kind).map(|l| l.time.value).sum::<Seconds>()
    };
    assert_eq!(time(&fp8, "conv2d"), time(&bf16, "conv2d"));
    // The last of three has 1000 results, no multiple of 16.
    assert!(fp8.warnings.contains(&Warning::InFp8 { products: 2, of: 11 }), "{:?}", fp8.warnings);
    Ok(())
}

#[test]
fn chips_without_units_are_refused_with_what_they_have() {
    for (gpu, has) in [("v100", "fp32, fp16"), ("a100-sxm4-80gb", "bf16"), ("i7-6700k", "fp32")] {
        let error = predicted(("lenet5", 8), gpu, Precision::Fp8).expect_err(gpu).to_string();
        assert!(error.contains("has no units that compute in fp8") && error.contains(has), "{error}");
    }
}

/// Inputs come in two bytes and are converted to one, by a kernel of its own, before the product reads them.
#[test]
fn inputs_are_converted_first() {
    let gpu = catalog::gpu("h200").expect("known");
    let layer = Layer::Linear(Linear { features: 64, bias: false });
    let case = LayerCase { inputs: vec![Shape::new(&[7, 128]).expect("a shape")], layer };
    let second = |precision| {
        let work = Work::usual(&case, Phase::Forward, 3, precision, Mode::Inference).expect("fits");
        let load = work.on(&gpu).expect("fits").expect("runs");
        assert_eq!(load.roofline.compute, load.cost.ops / gpu.peak(precision).expect("a peak"));
        load.roofline.second
    };
    let launch = Seconds::from_us(1.8);
    assert_eq!(second(Precision::Fp8), Bytes::new(3 * 3 * 7 * 128) / gpu.bandwidth.value + launch);
    assert_eq!(second(Precision::Bf16), Seconds::ZERO);
}

/// Rows of fp8 that nobody would run were among those that the shipped calibrations are of: on Hopper two to three times as
/// long as in bf16. The import leaves them out.
#[test]
fn experts_take_no_longer_in_fp8_than_in_bf16() -> Result<(), PredictError> {
    let both = |gpu: &'static str| [(gpu, "qwen3_30b_a3b"), (gpu, "mixtral_8x7b")];
    for (gpu, net) in both("h100").into_iter().chain(both("h200")) {
        let framework = catalog::framework("vllm").expect("known");
        let predictor = Predictor::shipped(catalog::gpu(gpu).expect("known"), framework);
        let network = catalog::network(net).expect("known");
        let experts = |tokens: u64, precision| -> Result<f64, PredictError> {
            let network = generation::prefill(&network, tokens).expect("generates");
            let shaped = predictor.shape(&network, 1, precision, &[]).expect("fits");
            let step = predictor.predict(&shaped, Mode::Inference)?;
            Ok(step.layers.iter().filter(|l| l.kind == "experts").map(|l| l.time.value.get()).sum())
        };
        for tokens in [8, 16, 64, 256, 1024, 4096, 8192] {
            let ratio = experts(tokens, Precision::Fp8)? / experts(tokens, Precision::Bf16)?;
            assert!(ratio < 1.0, "{net} on {gpu}, {tokens} tokens: {ratio}");
        }
    }
    Ok(())
}
