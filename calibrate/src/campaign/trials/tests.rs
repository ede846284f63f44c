use super::nets::{Wanted, of_networks};
use super::*;
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::units::Bytes;
use joulecast_model::net::layer::{Conv2d, Layer};
use joulecast_model::rows::splits::Role;
use joulecast_model::rows::splits::Splits;

fn plan(level: Level) -> Plan {
    expand(REFERENCE, level).expect("the recipe expands")
}

#[test]
fn the_recipe_gives_its_counts_and_every_level_is_in_the_next() {
    let [quick, standard, reference] = [Level::Quick, Level::Standard, Level::Reference].map(plan);
    for (plan, time, energy) in
        [(&quick, 800..=900, 60..=70), (&standard, 2600..=2800, 180..=200), (&reference, 9000..=10_000, 440..=500)]
    {
        assert!(time.contains(&plan.count(Measure::Time)), "{}: {}", plan.id, plan.count(Measure::Time));
        assert!(energy.contains(&plan.count(Measure::Energy)), "{}: {}", plan.id, plan.count(Measure::Energy));
    }
    let ids = |plan: &Plan| plan.items.iter().map(|i| i.trial_id.clone()).collect::<HashSet<_>>();
    let (small, middle, all) = (ids(&quick), ids(&standard), ids(&reference));
    assert!(small.is_subset(&middle) && middle.is_subset(&all));
    assert_eq!(all.len(), reference.items.len(), "no trial twice");
    let recipe = Recipe::from_toml(REFERENCE).expect("valid");
    for stratum in &recipe.strata {
        let count = reference.items.iter().filter(|i| i.stratum == stratum.name()).count();
        assert_eq!(count, stratum.count.reference, "{}", stratum.name());
    }
}

#[test]
fn expansion_is_deterministic_in_the_seed() {
    let again = plan(Level::Quick);
    assert_eq!(again, plan(Level::Quick));
    let seed = format!("seed = {}", again.seed);
    assert!(REFERENCE.contains(&seed));
    let other = expand(&REFERENCE.replace(&seed, "seed = 5"), Level::Quick).expect("expands");
    assert_ne!(other.items, again.items);
}

#[test]
fn no_trial_has_the_shape_of_a_test_network_or_breaks_a_limit() {
    let zoo = Zoo::read().expect("zoo");
    assert!(zoo.held_out.len() > 100 && zoo.cases.values().map(Vec::len).sum::<usize>() > 20);
    let gpu = catalog::gpu("h200").expect("h200");
    for item in plan(Level::Reference).items {
        let trial = &item.trial;
        assert!(!zoo.held_out.contains(&trial.case.fold_key()), "{item:?}");
        assert!(trial.footprint().expect("fits") <= Bytes::new(6 << 30), "{item:?}");
        let time = bound(trial, &gpu).expect("fits").expect("runs");
        assert!(time <= Seconds::from_ms(60.0), "{item:?}");
        if item.measure == Measure::Energy {
            assert!(time >= Seconds::from_us(20.0), "{item:?}");
        }
        assert_eq!(trial.phase == Phase::Update, trial.optimizer.is_some());
        assert!(trial.algorithm.supports(&trial.case.layer, &trial.case.inputs));
        assert_eq!(item.trial_id, trial_id(trial).expect("json"));
    }
}

#[test]
fn shapes_come_from_networks_of_the_role_layer_only() {
    let zoo = Zoo::read().expect("zoo");
    let splits = Splits::shipped().expect("splits");
    let known: HashSet<String> = zoo.cases.values().flatten().map(|c| c.fold_key()).collect();
    let items = plan(Level::Reference).items;
    let convolutions: Vec<&Item> =
        items.iter().filter(|i| matches!(i.trial.case.layer, Layer::Conv2d(_)) && i.measure == Measure::Time).collect();
    let share = convolutions.iter().filter(|i| known.contains(&i.trial.case.fold_key())).count() as f64
        / convolutions.len() as f64;
    assert!((0.3..0.6).contains(&share), "{share}");
    // A network measured whole may share a shape with one of the role `layer`; what it alone has must not be drawn.
    let mut alone: HashSet<String> = HashSet::new();
    for name in splits.with_role(Role::Conformal).chain(splits.with_role(Role::Profile)) {
        let Ok(network) = catalog::network(name) else { continue };
        for node in joulecast_model::net::network::ShapedNetwork::new(
            &network,
            1,
            joulecast_model::base::precision::Precision::Fp32,
            &[],
        )
        .expect("shapes")
        .layers()
        {
            let key = node.case.fold_key();
            if matches!(node.case.layer, Layer::Conv2d(_)) && !known.contains(&key) {
                alone.insert(key);
            }
        }
    }
    let met = convolutions.iter().filter(|i| alone.contains(&i.trial.case.fold_key())).count();
    assert!(met * 100 < convolutions.len(), "{met}: by chance a few random shapes may be equal");
}

#[test]
fn any_prefix_holds_the_strata_in_their_shares() {
    let items = plan(Level::Reference).items;
    let share = |items: &[Item]| {
        items.iter().filter(|i| i.stratum == "conv2d forward fp32").count() as f64 / items.len() as f64
    };
    let whole = share(&items);
    for part in [500, 1000, 3000] {
        assert!((share(&items[..part]) / whole - 1.0).abs() < 0.1, "{part}");
        let strata: HashSet<&str> = items[..part].iter().map(|i| i.stratum.as_str()).collect();
        assert!(strata.len() > 100 || part < 1000, "{}", strata.len());
    }
}

/// The recipe of the lattice, of the repository alone.
fn lattice() -> String {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/plans/lattice.toml");
    std::fs::read_to_string(path).expect("a recipe of the repository")
}

#[test]
fn a_lattice_has_whole_rows_of_batches_of_shapes_that_networks_have() {
    let recipe = Recipe::from_toml(&lattice()).expect("valid");
    let quick = expand(&lattice(), Level::Quick).expect("expands").items;
    let all = expand(&lattice(), Level::Reference).expect("expands").items;
    let ids: HashSet<&str> = all.iter().map(|i| i.trial_id.as_str()).collect();
    assert!(quick.iter().all(|i| ids.contains(i.trial_id.as_str())) && ids.len() == all.len());
    let gpu = catalog::gpu("h200").expect("h200");
    let mut batches: BTreeMap<String, std::collections::BTreeSet<u64>> = BTreeMap::new();
    for lattice in &recipe.lattices {
        let items: Vec<&Item> = all.iter().filter(|i| i.stratum == lattice.name).collect();
        let shapes: HashSet<String> = items.iter().map(|i| i.trial.case.fold_key()).collect();
        assert_eq!(shapes.len(), lattice.shapes.reference, "{}", lattice.name);
        for item in items {
            let Layer::Conv2d(conv) = &item.trial.case.layer else { panic!("{item:?}") };
            let (channels, side, _) = item.trial.case.inputs[0].as_map().expect("a map");
            assert!(
                lattice.sides.contains(&side)
                    && (lattice.values[0]..=lattice.values[1]).contains(&(channels * side * side))
            );
            let width = channels / if conv.groups(channels) == channels { 1 } else { conv.groups(channels) };
            assert!(lattice.channels.contains(&width), "{item:?}");
            let time = bound(&item.trial, &gpu).expect("fits").expect("runs");
            assert!(time <= recipe.longest && item.trial.footprint().expect("fits") <= recipe.memory, "{item:?}");
            let series = format!("{} {} {}", item.trial.case.fold_key(), item.trial.phase, item.trial.precision);
            batches.entry(series).or_default().insert(item.trial.batch);
        }
    }
    let rows: Vec<std::collections::BTreeSet<u64>> =
        recipe.lattices[0].batches.iter().map(|row| row.iter().copied().collect()).collect();
    for (series, found) in &batches {
        // Long ones end early.
        let whole = rows.iter().any(|row| row.iter().take(found.len()).eq(found.iter()));
        assert!(whole, "{series}: {found:?}");
    }
    // A run that stops has whole shapes, but for the last.
    let mut seen: Vec<String> = Vec::new();
    let mut again = 0;
    for item in all.iter().filter(|i| i.stratum.starts_with("lattice")) {
        let key = item.trial.case.fold_key();
        if seen.last() != Some(&key) {
            again += usize::from(seen.contains(&key));
            seen.push(key);
        }
    }
    assert!(again * 20 < seen.len(), "{again} of {}", seen.len());
}

/// The convolutions of a recipe of the repository, with the channels that they read.
fn convolutions(name: &str) -> Vec<(Conv2d, u64)> {
    let path = format!("{}/../data/plans/{name}.toml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).expect("a recipe");
    let items = expand(&text, Level::Quick).expect("expands").items;
    let conv = |item: &Item| match &item.trial.case.layer {
        Layer::Conv2d(conv) => Some((conv.clone(), item.trial.case.inputs.first()?.axis())),
        _ => None,
    };
    items.iter().filter_map(conv).collect()
}

#[test]
fn depthwise_convolutions_have_as_many_results_of_a_channel_as_the_ratio_says() {
    let found = convolutions("multipliers");
    assert!(found.iter().all(|(conv, channels)| conv.groups(*channels) == *channels));
    assert!(found.iter().all(|(conv, channels)| conv.channels.is_multiple_of(*channels)));
    assert!(found.iter().any(|(conv, channels)| conv.channels >= 2 * channels), "{found:?}");
}

#[test]
fn patches_lie_side_by_side_and_other_windows_with_strides_are_padded() {
    let found = convolutions("patches");
    for (conv, _) in &found {
        let (kernel, stride) = (conv.kernel.h, conv.stride.h);
        if stride > 1 {
            assert_eq!(conv.padding.h == 0, kernel == stride, "{conv:?}");
        }
    }
    assert!(found.iter().any(|(conv, _)| conv.kernel.h == 16 && conv.stride.h == 16), "{found:?}");
}

#[test]
fn a_stratum_may_have_small_batches_and_many_inputs() {
    let many: Vec<usize> = expand(&lattice(), Level::Standard)
        .expect("expands")
        .items
        .iter()
        .filter(|i| i.stratum == "concat forward fp32 many")
        .map(|i| i.trial.case.inputs.len())
        .collect();
    assert!(many.iter().all(|n| (2..=64).contains(n)) && many.iter().any(|n| *n > 20), "{many:?}");
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../data/plans/power.toml");
    let power = expand(&std::fs::read_to_string(path).expect("a recipe"), Level::Standard).expect("expands");
    assert!(power.items.iter().all(|i| i.measure == Measure::Energy));
    let mut small = power.items.iter().filter(|i| i.stratum.contains("small"));
    assert!(small.all(|i| i.trial.batch <= 16));
    assert!(power.items.iter().any(|i| i.trial.batch > 16));
}

#[test]
fn mistakes_in_a_lattice_are_named() {
    for (from, to, expected) in [
        ("groups = \"one\"", "groups = \"two\"", "two"),
        ("share = 0.25", "share = 2.5", "share"),
        ("kernel = [1, 1], stride = 1", "kernel = [0, 1], stride = 1", "windows"),
        ("values = [4000, 1700000]", "values = [1700000, 4000]", "values"),
        ("name = \"lattice 3x3\"", "name = \"lattice 1x1\"", "twice"),
        ("quick = 8, standard = 70", "quick = 80, standard = 70", "fall"),
        ("inputs = [2, 64]", "inputs = [64, 2]", "inputs"),
    ] {
        let error = format!("{:#}", Recipe::from_toml(&lattice().replacen(from, to, 1)).expect_err(expected));
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn trials_are_hot_and_cold_small_and_large() {
    let items = plan(Level::Reference).items;
    let share = |of: &dyn Fn(&Item) -> bool| items.iter().filter(|i| of(i)).count() as f64 / items.len() as f64;
    let cold = |phase: Phase| {
        let of_phase: Vec<&Item> = items.iter().filter(|i| i.trial.phase == phase).collect();
        of_phase.iter().filter(|i| i.trial.cache == Cache::Cold).count() as f64 / of_phase.len() as f64
    };
    assert!((0.15..0.45).contains(&cold(Phase::Forward)), "{}", cold(Phase::Forward));
    assert!(cold(Phase::BackwardData) > 0.6);
    assert!(share(&|i| i.trial.batch == 1) > 0.03);
    assert!(share(&|i| i.trial.batch >= 128) > 0.1);
}

fn wanted(networks: &[&str]) -> Wanted {
    Wanted {
        networks: networks.iter().map(|name| catalog::network(name).expect("known")).collect(),
        batches: vec![1, 16],
        precisions: vec![Precision::Fp32, Precision::Fp16],
        phases: vec![Phase::Forward, Phase::BackwardData, Phase::BackwardWeights],
    }
}

#[test]
fn layers_of_networks_are_trials_once_each_and_in_a_balanced_order() {
    let gpu = catalog::gpu("h200").expect("h200");
    let one = of_networks(&wanted(&["resnet50"]), &gpu).expect("plans").plan;
    let mut cases = HashSet::new();
    for item in &one.items {
        let trial = &item.trial;
        assert_eq!(trial.mode, if trial.phase == Phase::Forward { Mode::Inference } else { Mode::Training });
        assert_eq!(item.stratum, format!("net {} {} {}", trial.layer().kind(), trial.phase, trial.precision));
        assert_eq!(item.trial_id, trial_id(trial).expect("json"));
        assert!(trial.cost().expect("fits").is_some(), "{item:?}");
        cases.insert(trial.case.to_json().expect("json"));
    }
    let layers = zoo::layers_of(&catalog::network("resnet50").expect("known")).expect("shapes");
    let distinct: HashSet<String> = layers.iter().map(|c| c.to_json().expect("json")).collect();
    assert!(cases.is_subset(&distinct) && cases.len() + 2 >= distinct.len(), "{} {}", cases.len(), distinct.len());
    let convolutions = distinct.iter().filter(|c| c.contains("\"conv2d\"")).count();
    let planned = one.items.iter().filter(|i| matches!(i.trial.case.layer, Layer::Conv2d(_))).count();
    assert_eq!(planned, convolutions * 2 * 2 * 3);
    // Shapes that several networks have are there once, and it does not matter which comes first.
    let both = of_networks(&wanted(&["resnet50", "resnet18"]), &gpu).expect("plans").plan;
    let turned = of_networks(&wanted(&["resnet18", "resnet50", "resnet18"]), &gpu).expect("plans").plan;
    assert_eq!(both, turned);
    let ids: HashSet<&str> = both.items.iter().map(|i| i.trial_id.as_str()).collect();
    assert_eq!(ids.len(), both.items.len());
    assert!(one.items.iter().all(|i| ids.contains(i.trial_id.as_str())) && both.items.len() > one.items.len());
    // A run that stops has a bit of all strata.
    let part = both.items.len() / 4;
    for stratum in both.strata() {
        let early = both.items[..part].iter().filter(|i| i.stratum == stratum.name).count() as f64;
        assert!((early - stratum.time as f64 / 4.0).abs() <= 1.0, "{}: {early} of {}", stratum.name, stratum.time);
    }
}

#[test]
fn trials_of_networks_keep_the_limits_of_recipes() {
    let gpu = catalog::gpu("h200").expect("h200");
    let large = Wanted { batches: vec![4096], ..wanted(&["vgg16"]) };
    let planned = of_networks(&large, &gpu).expect("plans");
    assert!(planned.beyond > 0 && !planned.plan.items.is_empty());
    for item in &planned.plan.items {
        assert!(item.trial.footprint().expect("fits") <= Bytes::new(6 << 30), "{item:?}");
        let time = bound(&item.trial, &gpu).expect("fits").expect("runs");
        assert!(time <= Seconds::from_ms(30.0), "{item:?}");
    }
    let text = file::to_text(&planned.plan).expect("json");
    assert_eq!(text.lines().count(), planned.plan.items.len() + 1);
}
