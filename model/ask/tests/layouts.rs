//! Layouts of language models on the GPUs of a node: what fits, and how fast tokens follow each other.

use joulecast_ask::layouts::{LaidOut, Load, Refused, laid_out, of_node};
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::device::interconnect::Interconnect;
use joulecast_model::net::network::Stored;
use joulecast_model::net::share::Layout;
use joulecast_model::step::generation;
use joulecast_model::step::layout::{Deployment, Flow};
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, OperatingPoint};

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn predictor(gpu: &str) -> Outcome<Predictor> {
    Ok(Predictor::shipped(catalog::gpu(gpu)?, catalog::framework("cudnn")?))
}

/// `(tensor, pipeline, expert, data)`.
fn on(predictor: &Predictor, (t, p, e, d): (u64, u64, u64, Option<u64>)) -> Outcome<Deployment<'_>> {
    let layout = Layout::new(t, p, e, d)?;
    let known = catalog::interconnects()?;
    let interconnect = Interconnect::serving(&known, predictor.gpu(), layout.gpus(), None)?;
    Ok(Deployment {
        predictor,
        layout,
        interconnect,
        precision: Precision::Bf16,
        stored: Stored::default(),
        point: OperatingPoint::default(),
    })
}

fn step(
    deployment: &Deployment<'_>,
    net: &str,
    tokens: (u64, u64),
    batch: u64,
    flow: Flow,
) -> Outcome<NetworkPrediction> {
    Ok(generation::step_on(deployment, &catalog::network(net)?, tokens, (batch, flow))?)
}

fn near(found: f64, expected: f64, what: &str) {
    assert!((found / expected - 1.0).abs() < 1e-9, "{what}: {found}, {expected}");
}

/// What is said to fit fits, and one more does not; a step's own memory is the same.
#[test]
fn the_largest_that_fits_fits_and_one_more_does_not() -> Outcome<()> {
    let predictor = predictor("h100")?;
    let network = catalog::network("llama3_8b")?;
    let has = predictor.gpu().memory.value;
    for numbers in [(1, 1, 1, None), (2, 1, 1, None), (2, 2, 1, None), (1, 4, 1, Some(2))] {
        let deployment = on(&predictor, numbers)?;
        let held =
            laid_out(&deployment, &network, Load { batch: 8, context: 4096 })?.outcome.map_err(|e| format!("{e:?}"))?;
        let memory = |batch, context: u64| -> Outcome<_> {
            Ok(deployment.memory(&generation::decode(&network, context - 1)?, batch)?.total())
        };
        let step = step(&deployment, "llama3_8b", (1, 4095), 8, Flow::Steady)?;
        assert_eq!((step.memory, step.fits_in_memory), (held.memory, held.fits()));
        assert_eq!((step.time, held.token.per_second), (held.token.time, 8.0 / step.time.value.get()));
        near(held.token.energy.value.get() * 8.0, step.energy.value.get(), "energy of eight tokens");
        let (batch, context) = (held.largest_batch.ok_or("a batch")?, held.largest_context.ok_or("a context")?);
        let layout = deployment.layout;
        let more = batch + layout.data() * layout.pipeline();
        assert!(memory(batch, 4096)? <= has && memory(more, 4096)? > has, "{layout}: {batch}");
        assert!(memory(8, context)? <= has && memory(8, context + 1)? > has, "{layout}: {context}");
    }
    // 70 billion parameters in 16 bits on one GPU of 80 GiB: not even a token.
    let large = catalog::network("llama3_1_70b")?;
    let held = |n| laid_out(&on(&predictor, n)?, &large, Load { batch: 8, context: 4096 }).map_err(Into::into);
    let alone: LaidOut = held((1, 1, 1, None))?;
    let alone = alone.outcome.map_err(|e| format!("{e:?}"))?;
    assert!(!alone.fits() && alone.largest_batch.is_none() && alone.largest_context.is_none());
    let four: Outcome<LaidOut> = held((4, 1, 1, None));
    assert!(four?.outcome.is_ok_and(|held| held.fits()));
    // Fewer samples than stages fill some of them.
    let few = laid_out(&on(&predictor, (1, 2, 1, None))?, &large, Load { batch: 1, context: 60_000 })?;
    assert_eq!(few.outcome.map(|held| held.largest_batch), Ok(Some(1)));
    Ok(())
}

#[test]
fn layouts_of_a_node_use_up_to_all_of_its_gpus() -> Outcome<()> {
    let (dense, sparse) = (catalog::network("llama3_8b")?, catalog::network("qwen3_30b_a3b")?);
    let list = of_node(&dense, 8);
    assert_eq!(list.len(), 10);
    assert!(list.iter().all(|l| l.expert() == 1 && l.data() == 1 && 8 % l.gpus() == 0));
    let list = of_node(&sparse, 8);
    assert!(list.len() > 10 && list.iter().all(|l| l.gpus() <= 8 && l.replicas() == 1));
    assert!(list.contains(&Layout::new(1, 1, 8, None)?) && list.contains(&Layout::new(8, 1, 8, None)?));
    let mut once = list.clone();
    once.dedup();
    assert_eq!(once.len(), list.len());
    let predictor = predictor("h100")?;
    let refused =
        laid_out(&on(&predictor, (8, 1, 1, None))?, &catalog::network("gpt2")?, Load { batch: 8, context: 64 })?;
    assert!(matches!(refused.outcome, Err(Refused::Divides(_))));
    let refused = laid_out(&on(&predictor, (1, 1, 8, None))?, &sparse, Load { batch: 4, context: 64 })?;
    assert!(matches!(refused.outcome, Err(Refused::Batch(_))));
    Ok(())
}
