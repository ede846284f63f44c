//! Steps of language models on several GPUs: time, power and energy of all of them, against steps on one.

mod deployed;

use deployed::{Outcome, near, on, predictor, step};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::{Joules, Seconds};
use joulecast_model::catalog;
use joulecast_model::law::power::Waits;
use joulecast_model::net::network::{Kept, Stored, Weights};
use joulecast_model::net::share::{Layout, shares};
use joulecast_model::step::generation;
use joulecast_model::step::layout::{Deployment, Flow, LayoutError};
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint, Warning};

/// Intervals hold values, energy is power over time, and layers and waiting are the time of one microbatch.
fn consistent(p: &NetworkPrediction) {
    assert!(p.time.p05 < p.time.value && p.time.value < p.time.p95, "{:?}", p.time);
    assert!(p.energy.p05 < p.energy.value && p.energy.value < p.energy.p95, "{:?}", p.energy);
    assert!(p.power.p05 <= p.power.value && p.power.value <= p.power.p95, "{:?}", p.power);
    near((p.power.value * p.time.value).get(), p.energy.value.get(), "energy");
    let layers: Seconds = p.layers.iter().map(|l| l.time.value).sum();
    near(layers.get() + p.waiting * p.time.value.get(), p.time.value.get(), "layers and waiting");
    let devices: Joules = p.devices.iter().map(|d| d.energy.value * d.count as f64).sum();
    near(devices.get(), p.energy.value.get(), "devices");
}

#[test]
fn a_layout_of_one_gpu_is_the_gpu() -> Outcome<()> {
    let predictor = predictor("h100")?;
    for (net, tokens) in [("llama3_8b", (1, 1023)), ("qwen3_30b_a3b", (256, 0))] {
        let network = generation::with_cache(&catalog::network(net)?, tokens.0, tokens.1)?;
        let alone = predictor.predict(&predictor.shape(&network, 4, Precision::Bf16, &[])?, Mode::Inference)?;
        for flow in [Flow::Alone, Flow::Steady] {
            let one = step(&on(&predictor, (1, 1, 1, None))?, net, tokens, 4, flow)?;
            assert_eq!((one.time, one.energy, one.memory), (alone.time, alone.energy, alone.memory), "{net}");
            assert_eq!((one.ops, one.read, one.parameters), (alone.ops, alone.read, alone.parameters), "{net}");
            assert_eq!(one.layers, alone.layers, "{net}");
        }
        let whole = generation::predict(
            &predictor,
            &catalog::network(net)?,
            (64, 40),
            (4, Precision::Bf16),
            OperatingPoint::default(),
        )?;
        let one = generation::predict_on(&on(&predictor, (1, 1, 1, None))?, &catalog::network(net)?, (64, 40), 4)?;
        assert_eq!((whole.total.time, whole.total.energy, whole.cache), (one.total.time, one.total.energy, one.cache));
    }
    Ok(())
}

#[test]
fn gpus_that_divide_blocks_are_faster_and_draw_more() -> Outcome<()> {
    let predictor = predictor("h100")?;
    for tokens in [(1, 1023), (1024, 0)] {
        let of = |t| step(&on(&predictor, (t, 1, 1, None))?, "llama3_8b", tokens, 8, Flow::Alone);
        let all = [1, 2, 4, 8].map(of);
        let all: Vec<NetworkPrediction> = all.into_iter().collect::<Outcome<_>>()?;
        for (pair, gpus) in all.windows(2).zip([2, 4, 8]) {
            consistent(&pair[1]);
            let ratio = pair[1].time.value / pair[0].time.value;
            assert!((0.5..1.0).contains(&ratio), "{tokens:?} {gpus}: {ratio}");
            assert!(pair[1].energy.value > pair[0].energy.value, "{tokens:?} {gpus}");
            assert!(
                pair[1].memory.weights.to_f64() < 0.51 * pair[0].memory.weights.to_f64()
                    && pair[1].memory.cache < pair[0].memory.cache
            );
            let layout = pair[1].layout.as_ref().ok_or("a layout")?;
            let exchanged: Seconds = pair[1]
                .layers
                .iter()
                .filter(|l| l.kind == "all_reduce" || l.kind == "all_gather")
                .map(|l| l.time.value)
                .sum();
            near(exchanged.get(), layout.communication.get(), "exchanges");
            let spinning = Waits::spinning(predictor.gpu()).value * exchanged * gpus as f64;
            near(layout.communication_energy.get(), spinning.get(), "what GPUs draw meanwhile");
            assert_eq!((pair[1].devices[0].count, layout.layout.gpus(), layout.stages.len()), (gpus, gpus, 1));
        }
        // A GPU's own kernels are those of its share alone.
        let network = generation::with_cache(&catalog::network("llama3_8b")?, tokens.0, tokens.1)?;
        let share = shares(&network, &Layout::new(2, 1, 1, None)?)?.remove(0);
        let alone = predictor.predict(&predictor.shape(&share.network, 8, Precision::Bf16, &[])?, Mode::Inference)?;
        let layout = all[1].layout.as_ref().ok_or("a layout")?;
        near((all[1].time.value - layout.communication).get(), alone.time.value.get(), "kernels");
        near((all[1].energy.value - layout.communication_energy).get(), 2.0 * alone.energy.value.get(), "their energy");
    }
    Ok(())
}

#[test]
fn stages_take_turns() -> Outcome<()> {
    let predictor = predictor("h200")?;
    let deployment = on(&predictor, (1, 4, 1, None))?;
    let of = |batch, flow| step(&deployment, "llama3_8b", (1, 511), batch, flow);
    let (one, eight) = (of(1, Flow::Alone)?, of(8, Flow::Alone)?);
    let stages = |p: &NetworkPrediction| -> Outcome<(Seconds, Seconds)> {
        let layout = p.layout.as_ref().ok_or("a layout")?;
        let times = layout.stages.iter().map(|s| s.time);
        Ok((times.clone().sum(), times.fold(Seconds::ZERO, Seconds::max)))
    };
    consistent(&one);
    consistent(&eight);
    let (sum, _) = stages(&one)?;
    near(one.time.value.get(), sum.get(), "one sample through all stages");
    let layout = |p: &NetworkPrediction| p.layout.clone().ok_or("a layout");
    assert!((layout(&one)?.bubble - 0.75).abs() < 1e-9, "three of four stages wait");
    let (sum, slowest) = stages(&eight)?;
    assert_eq!((layout(&eight)?.micro, layout(&eight)?.microbatches), (2, 4));
    near(eight.time.value.get(), (sum + slowest * 3.0).get(), "filling and emptying");
    let steady = of(8, Flow::Steady)?;
    near(steady.time.value.get(), sum.max(slowest * 4.0).get(), "as tokens follow tokens");
    assert!(layout(&steady)?.bubble < 0.25 && layout(&steady)?.bubble < layout(&eight)?.bubble);
    assert!(steady.energy.value < eight.energy.value, "less is drawn waiting");
    // Seven samples: of four stages the last microbatch has one, and is taken as long as the others.
    assert_eq!(deployment.microbatches(7)?, (2, 4));
    assert_eq!(deployment.microbatches(9)?, (3, 3));
    // All samples' keys and values lie there throughout.
    let whole = step(&on(&predictor, (1, 1, 1, None))?, "llama3_8b", (1, 511), 8, Flow::Alone)?;
    let cache: u64 = layout(&eight)?.stages.iter().map(|s| s.memory.cache.get()).sum();
    assert_eq!(cache, whole.memory.cache.get());
    assert!(steady.warnings.contains(&Warning::Handing));
    Ok(())
}

#[test]
fn groups_of_gpus_have_samples_of_their_own() -> Outcome<()> {
    let predictor = predictor("h100")?;
    let part = step(&on(&predictor, (2, 1, 1, None))?, "llama3_8b", (1, 511), 4, Flow::Steady)?;
    let four = step(&on(&predictor, (2, 1, 1, Some(4)))?, "llama3_8b", (1, 511), 16, Flow::Steady)?;
    assert_eq!((four.time, four.batch, four.devices[0].count), (part.time, 16, 8));
    near(four.energy.value.get(), 4.0 * part.energy.value.get(), "energy of four replicas");
    near(four.ops.to_f64(), 4.0 * part.ops.to_f64(), "operations");
    let error =
        step(&on(&predictor, (1, 1, 1, Some(4)))?, "llama3_8b", (1, 511), 6, Flow::Steady).expect_err("6 over 4");
    assert!(error.to_string().contains("a batch of 6 does not divide among the 4 groups"), "{error}");
    let refused = on(&predictor, (1, 1, 1, Some(4)))?.microbatches(0);
    assert_eq!(refused, Err(LayoutError::Groups { batch: 0, groups: 4 }));
    Ok(())
}

/// Experts over all GPUs: with the same tokens, and with tokens of their own.
#[test]
fn experts_are_met_where_they_lie() -> Outcome<()> {
    let predictor = predictor("h200")?;
    let of = |layout, tokens| step(&on(&predictor, layout)?, "qwen3_30b_a3b", tokens, 64, Flow::Alone);
    for tokens in [(1, 511), (512, 0)] {
        let (divided, whole, apart) =
            (of((8, 1, 1, None), tokens)?, of((8, 1, 8, None), tokens)?, of((1, 1, 8, None), tokens)?);
        for p in [&divided, &whole, &apart] {
            consistent(p);
            assert!(p.fits_in_memory);
        }
        let kinds = |p: &NetworkPrediction, kind| p.layers.iter().filter(|l| l.kind == kind).count();
        assert_eq!((kinds(&whole, "all_to_all"), kinds(&apart, "all_to_all"), kinds(&apart, "all_reduce")), (0, 96, 0));
        // As many operations over all GPUs, but for what all of them repeat.
        let ops = |p: &NetworkPrediction| p.ops.to_f64();
        assert!((ops(&divided) / ops(&whole) - 1.0).abs() < 0.01 && ops(&apart) < 1.01 * ops(&divided));
        assert!(apart.memory.weights > whole.memory.weights, "attention's weights lie on every GPU");
    }
    Ok(())
}

/// Every GPU of the catalog that something joins serves a language model on two.
#[test]
fn any_board_that_is_joined_serves() -> Outcome<()> {
    let mut served = 0;
    for name in catalog::gpu_names() {
        let Ok(predictor) = predictor(name) else { continue };
        let Ok(deployment) = on(&predictor, (2, 1, 1, None)) else { continue };
        let precision =
            if predictor.gpu().computes_in(Precision::Bf16).is_some() { Precision::Bf16 } else { Precision::Fp32 };
        let deployment = Deployment { precision, ..deployment };
        let p = step(&deployment, "gpt2", (1, 100), 2, Flow::Steady)?;
        consistent(&p);
        let measured = deployment.interconnect.collectives.is_some();
        assert_eq!(p.warnings.iter().any(|w| matches!(w, Warning::Exchanges { .. })), !measured, "{name}");
        served += 1;
    }
    assert!(served > 30, "{served}");
    Ok(())
}

/// Fewer bits: as many bytes less in memory and read, over one GPU and several, of what recipes store so.
#[test]
fn fewer_bits_are_fewer_bytes() -> Outcome<()> {
    let predictor = predictor("h100")?;
    let with = |numbers, net: &str, tokens, weights, cache| -> Outcome<NetworkPrediction> {
        let deployment = Deployment { stored: Stored { weights, cache }, ..on(&predictor, numbers)? };
        step(&deployment, net, tokens, 16, Flow::Steady)
    };
    let token = (1, 2047);
    for numbers in [(1, 1, 1, None), (2, 1, 1, None), (1, 2, 1, None)] {
        for net in ["llama3_8b", "qwen3_30b_a3b", "deepseek_v3"] {
            let usual = with(numbers, net, token, None, None)?;
            let kept = with(numbers, net, token, None, Some(Kept::Fp8))?;
            assert_eq!(2 * kept.memory.cache.get(), usual.memory.cache.get(), "{net}");
            assert_eq!(kept.memory.weights, usual.memory.weights, "{net}");
            assert!(kept.read < usual.read && kept.time.value < usual.time.value, "{net}");
            let mut before = usual.clone();
            for weights in [Weights::Int8, Weights::Int4] {
                let fewer = with(numbers, net, token, Some(weights), None)?;
                assert!(fewer.memory.weights < before.memory.weights && fewer.read < before.read, "{net} {weights}");
                assert!(
                    fewer.time.value < before.time.value && fewer.energy.value < before.energy.value,
                    "{net} {weights}"
                );
                assert_eq!((fewer.memory.cache, fewer.ops), (usual.memory.cache, usual.ops), "{net} {weights}");
                assert!(fewer.warnings.iter().any(|w| matches!(w, Warning::Stored { .. })));
                before = fewer;
            }
        }
    }
    // Of Llama 3 8B all but the embedding, the logits and norms: 128,256 rows of 4,096 twice, 65 norms.
    let weights = |format| {
        Ok::<_, Box<dyn std::error::Error>>(
            with((1, 1, 1, None), "llama3_8b", token, format, None)?.memory.weights.get(),
        )
    };
    let (beside, all) = (2 * 128_256 * 4096 + 65 * 4096, 8_030_261_248u64);
    assert_eq!(weights(None)?, 2 * all);
    assert_eq!(weights(Some(Weights::Fp8))?, 2 * beside + (all - beside));
    // 4 bits, and 20 for every 128 values.
    assert_eq!(weights(Some(Weights::Int4))?, 2 * beside + (all - beside) / 2 + (all - beside) / 128 * 20 / 8);
    // A prompt reads no cache, but fills it.
    let (usual, kept) = (
        with((1, 1, 1, None), "llama3_8b", (512, 0), None, None)?,
        with((1, 1, 1, None), "llama3_8b", (512, 0), None, Some(Kept::Fp8))?,
    );
    assert_eq!(usual.read, kept.read);
    assert_eq!(usual.written.get() - kept.written.get(), 32 * 2 * 8 * 128 * 512 * 16);
    // A step reads its weights once, each cached key and value once.
    let (usual, kept) = (
        with((1, 1, 1, None), "llama3_8b", token, None, None)?,
        with((1, 1, 1, None), "llama3_8b", token, None, Some(Kept::Fp8))?,
    );
    assert_eq!(usual.read.get() - kept.read.get(), 32 * 2 * 8 * 128 * 2048 * 16);
    Ok(())
}

/// Whole experts on several GPUs wait for the fullest: tokens that prefer some of them never make a step faster, and twice the
/// tokens there take a prompt's experts nearly twice as long. On one GPU fewer experts are read.
#[test]
fn imbalance_slows_whole_experts_on_several_gpus() -> Outcome<()> {
    let predictor = predictor("h100")?;
    let network = catalog::network("qwen3_30b_a3b")?;
    let step = |numbers, imbalance: f64, tokens: (u64, u64), batch| -> Outcome<(f64, f64)> {
        let mut network = network.clone();
        network.set_imbalance(imbalance)?;
        let deployment = on(&predictor, numbers)?;
        let step = generation::step_on(&deployment, &network, tokens, (batch, Flow::Steady))?;
        let experts = step.layers.iter().filter(|l| l.kind == "experts").map(|l| l.time.value.get()).sum::<f64>();
        Ok((step.time.value.get(), experts))
    };
    let rising = [1.0, 1.2, 1.5, 2.0, 3.0, 4.0, 8.0, 16.0];
    for numbers in [(2, 1, 2, None), (4, 1, 4, None), (8, 1, 8, None), (1, 1, 4, None), (2, 1, 4, None)] {
        for (tokens, batch) in [((1, 1024), 4), ((1, 1024), 64), ((512, 0), 4), ((2048, 0), 4)] {
            let times = rising.into_iter().map(|imbalance| Ok(step(numbers, imbalance, tokens, batch)?.0));
            let times = times.collect::<Outcome<Vec<f64>>>()?;
            assert!(times.is_sorted_by(|a, b| *a <= b * (1.0 + 1e-9)), "{numbers:?} {tokens:?} {batch}: {times:?}");
        }
    }
    let prompt = |imbalance| step((4, 1, 4, None), imbalance, (4096, 0), 4);
    let ratio = prompt(2.0)?.1 / prompt(1.0)?.1;
    assert!((1.6..2.1).contains(&ratio), "{ratio}");
    // All other GPUs compute as before and wait: no work is added, and energy by waiting alone.
    let whole = |imbalance: f64| -> Outcome<NetworkPrediction> {
        let mut network = network.clone();
        network.set_imbalance(imbalance)?;
        let deployment = on(&predictor, (4, 1, 4, None))?;
        Ok(generation::step_on(&deployment, &network, (4096, 0), (4, Flow::Steady))?)
    };
    let (even, uneven) = (whole(1.0)?, whole(2.0)?);
    consistent(&uneven);
    assert_eq!((even.ops, even.read, even.written), (uneven.ops, uneven.read, uneven.written));
    let (longer, more) = (uneven.time.value / even.time.value, uneven.energy.value / even.energy.value);
    assert!(longer > 1.2 && more > 1.0 && more < longer, "{longer} {more}");
    assert!(uneven.power.value < even.power.value);
    let alone = |imbalance| step((1, 1, 1, None), imbalance, (1, 1024), 8);
    assert!(alone(4.0)?.1 < alone(1.0)?.1);
    // Inner features that are divided are as even as on one GPU.
    let divided = |imbalance| step((4, 1, 1, None), imbalance, (1, 1024), 8);
    assert!(divided(4.0)?.1 < divided(1.0)?.1);
    Ok(())
}

#[test]
fn an_imbalance_is_of_experts_and_within_what_they_allow() -> Outcome<()> {
    let refused = |net: &str, imbalance: f64| -> Outcome<String> {
        let mut network = catalog::network(net)?;
        Ok(network.set_imbalance(imbalance).expect_err("wrong").to_string())
    };
    assert!(refused("llama3_8b", 2.0)?.contains("no mixture of experts"));
    for wrong in [0.5, 17.0, f64::NAN] {
        assert!(refused("qwen3_30b_a3b", wrong)?.contains("to 16, every token has the same 8 of 128"), "{wrong}");
    }
    Ok(())
}
