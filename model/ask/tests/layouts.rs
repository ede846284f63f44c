//! Layouts of language models on the GPUs of a node: what fits, and how fast tokens follow each other.

#[path = "../../tests/deployed/mod.rs"]
mod deployed;

use deployed::{Outcome, near, on, predictor, step};
use joulecast_ask::layouts::{LaidOut, Load, Refused, laid_out, of_node};
use joulecast_model::catalog;
use joulecast_model::net::share::Layout;
use joulecast_model::step::generation;
use joulecast_model::step::layout::Flow;

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
