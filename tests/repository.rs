//! Rules of the repository: which crate may depend on which, what the shipped files must say, what must not be
//! committed.

use joulecast_model::calibration::{ANY_CHIP, Calibration, Tier, Wanted};
use joulecast_model::catalog;
use joulecast_model::framework::Framework;
use joulecast_model::network::{Network, ShapedNetwork};
use joulecast_model::precision::Mode;
use joulecast_model::predictor::{Setup, predict};
use joulecast_model::splits::Role;
use joulecast_tests::{ok, root};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use toml::{Table, Value};

fn manifest(path: &str) -> Table {
    ok(ok(fs::read_to_string(root().join(path))).parse())
}

#[test]
fn crates_depend_only_as_the_architecture_says() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("model", &[] as &[&str]),
        ("kernels", &["joulecast-model"] as &[&str]),
        ("reports", &["joulecast-model"]),
        ("predict", &["joulecast-model", "joulecast-reports"]),
        ("calibrate", &["joulecast-model", "joulecast-kernels", "joulecast-reports"]),
    ]);
    for (folder, allowed) in allowed {
        let table = manifest(&format!("{folder}/Cargo.toml"));
        let dependencies = table.get("dependencies").and_then(Value::as_table).cloned().unwrap_or_default();
        for name in dependencies.keys().filter(|n| n.starts_with("joulecast")) {
            assert!(allowed.contains(&name.as_str()), "{folder} must not depend on {name}");
        }
    }
}

/// `predict` builds quickly: nothing it needs pulls in polars, linfa, CUDA or NVML.
#[test]
fn predict_stays_light() {
    let lock = manifest("Cargo.lock");
    let packages = lock.get("package").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut edges: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in &packages {
        let name = package.get("name").and_then(Value::as_str).unwrap_or_default().to_string();
        let needs = package.get("dependencies").and_then(Value::as_array).cloned().unwrap_or_default();
        let needs = needs.iter().filter_map(Value::as_str).map(|d| d.split(' ').next().unwrap_or(d).to_string());
        edges.entry(name).or_default().extend(needs);
    }
    // The lock file does not tell development dependencies apart; model's are known to be light.
    let (mut reached, mut open) = (BTreeSet::new(), vec!["joulecast-predict".to_string()]);
    while let Some(name) = open.pop() {
        if reached.insert(name.clone()) {
            open.extend(edges.get(&name).cloned().unwrap_or_default());
        }
    }
    assert!(reached.contains("clap"), "the lock file was understood");
    for heavy in ["polars", "polars-core", "linfa", "cudarc", "nvml-wrapper", "ndarray", "calamine"] {
        assert!(!reached.contains(heavy), "predict reaches {heavy}");
    }
}

#[test]
fn shipped_calibrations_are_readable_and_current() {
    let splits = ok(catalog::splits());
    let sources = ok(fs::read_to_string(root().join("data/published/sources.toml")));
    let mut boards = BTreeSet::new();
    for (name, text) in catalog::calibrations() {
        let c = ok(Calibration::from_toml(text));
        // What was fitted to all rows depends on no role; intervals of networks on those of their networks alone.
        assert_eq!((c.fit.as_str(), &c.held_out_hash), ("shipped", &None), "{name}");
        for spread in &c.networks {
            assert_eq!(spread.names.len(), spread.networks, "{name}");
            for network in &spread.names {
                assert_eq!(splits.role(network), Some(Role::Conformal), "{name}: intervals rest on {network}");
            }
        }
        assert_eq!(ok(c.to_toml()), *text, "{name} is not what the program writes");
        let tier = match *name {
            "roofline" => Tier::Roofline,
            "gh100" => Tier::Measured,
            _ => Tier::Imported,
        };
        assert_eq!(c.tier, tier);
        assert_eq!(c.power.is_some(), matches!(tier, Tier::Roofline | Tier::Measured), "{name}: law of power");
        // Ours, the library's kernels and PyTorch's.
        for source in c.sources.iter().filter(|s| !["own", "pytorch"].contains(&s.as_str())) {
            assert!(sources.contains(&format!("key = \"{source}\"")), "{name}: {source} is not in sources.toml");
        }
        for board in &c.boards {
            let gpu = ok(catalog::gpu(board));
            assert!(c.chip == ANY_CHIP || c.chip == gpu.chip, "{name}: {board} has chip {}", gpu.chip);
            boards.insert(board.clone());
        }
        for model in &c.models {
            assert!(model.terms.len() <= 100, "{name} {}: {} terms", model.kind, model.terms.len());
        }
    }
    for board in
        ["h200", "v100", "p100-pcie", "t4", "p4", "m40", "titan-x-maxwell", "titan-x-pascal", "titan-xp", "gtx1080ti"]
    {
        assert!(boards.contains(board), "no calibration rests on rows of {board}");
    }
    assert!(boards.iter().any(|b| b.starts_with("a100")));
}

/// Names are the files' names, aliases are unique and no alias hides a name.
#[test]
fn names_and_aliases_are_unique() {
    for (names, aliases) in [
        (
            catalog::network_names().collect::<Vec<_>>(),
            catalog::network_names().flat_map(|n| ok(catalog::network(n)).aliases).collect::<Vec<_>>(),
        ),
        (catalog::gpu_names().collect(), catalog::gpu_names().flat_map(|n| ok(catalog::gpu(n)).aliases).collect()),
    ] {
        let mut seen: BTreeSet<&str> = names.into_iter().collect();
        for alias in &aliases {
            assert!(seen.insert(alias), "{alias} is there twice");
            assert_eq!(*alias, alias.to_lowercase(), "names are lower case");
        }
    }
}

/// A source is something that a reader can find: what is in the repository, or named outside of it. What cannot be found any
/// more is called unsourced.
#[test]
fn sources_can_be_found() {
    for folder in ["data/gpus", "data/frameworks", "data/interconnects", "data/libraries", "data/nets", "data/capacity"]
    {
        for entry in ok(fs::read_dir(root().join(folder))).map(ok) {
            let text = ok(fs::read_to_string(entry.path()));
            let name = entry.path().display().to_string();
            assert!(!text.contains("stored text"), "{name} cites a search that nobody can repeat");
            // Files of this repository that are cited are there.
            let words = text.split(|c: char| c.is_whitespace() || "()\"`,;".contains(c));
            for path in words.filter(|w| {
                ["data/published", "data/measurements", "data/papers", "papers/", "h200/"]
                    .iter()
                    .any(|p| w.starts_with(p))
                    && w.contains('.')
            }) {
                let path = path.trim_end_matches(['.', ':']);
                let there = root().join(path).exists() || path.contains('*');
                assert!(there, "{name} cites {path}, which is not in the repository");
            }
            assert!(!text.contains("MEASURING.md"), "{name} cites what is not in the repository");
        }
    }
}

/// What boards' files say of limits and voltage is what the command named beside it finds, as `power.md` shows it.
#[test]
fn constants_of_boards_are_those_of_their_command() {
    let page = ok(fs::read_to_string(root().join("reports/published/power.md")));
    let value = |gpu: &str, key: &str| -> f64 {
        let table = manifest(&format!("data/gpus/{gpu}.toml"));
        let section = if key == "rise" { "voltage" } else { "power" };
        let value = table.get(section).and_then(|t| t.get(key)).and_then(|v| v.get("value"));
        value.and_then(Value::as_float).unwrap_or_else(|| panic!("{gpu} has no {section}.{key}"))
    };
    let mut found = 0;
    for line in page.lines().filter(|l| l.contains("| none |")) {
        let cells: Vec<&str> = line.split('|').map(str::trim).filter(|c| !c.is_empty()).collect();
        let [gpu, "none", rise, held, draw] = cells[..] else { panic!("{line}") };
        for (key, printed) in [("rise", rise), ("held", held), ("draw", draw)] {
            assert_eq!(value(gpu, key), ok(printed.parse::<f64>()), "{gpu} {key}: the command finds {printed}");
        }
        found += 1;
    }
    assert_eq!(found, 2, "boards with runs under limits");
    // Boards without runs of their own have none of those, but for those of the same chip or architecture.
    for name in catalog::gpu_names() {
        let gpu = ok(catalog::gpu(name));
        for (key, constant) in [("held", &gpu.power.held), ("draw", &gpu.power.draw)] {
            let Some(constant) = constant else { continue };
            let from = constant.source.contains("calibrate published caps")
                || constant.source.contains("typically under 10 W");
            assert!(from, "{name} {key}: {}", constant.source);
        }
    }
}

/// The first TOML block of a README.
fn example(path: &str) -> String {
    let text = ok(fs::read_to_string(root().join(path)));
    let block = text.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next());
    block.unwrap_or_else(|| panic!("{path} has no example")).to_string()
}

/// What the documentation shows can be copied and used.
#[test]
fn documented_examples_are_valid() {
    let gpu = ok(joulecast_model::gpu::Gpu::from_toml(&example("data/gpus/README.md")));
    assert_eq!(gpu.name, "v100");
    let network = ok(joulecast_model::network::Network::from_toml(&example("data/nets/README.md")));
    let shaped =
        joulecast_model::network::ShapedNetwork::new(&network, 1, joulecast_model::precision::Precision::Fp32, &[]);
    assert!(ok(shaped).parameters() > 0);
}

/// A device described unlike every measured board of its chip gets no calibration of that chip.
#[test]
fn an_imaginary_board_of_a_known_chip_has_no_calibration() {
    let text = ok(fs::read_to_string(root().join("data/gpus/v100.toml")));
    let real = ok(joulecast_model::gpu::Gpu::from_toml(&text));
    assert!(ok(catalog::calibration_for(&real)).is_some());
    let imaginary = joulecast_model::gpu::Gpu {
        bandwidth: joulecast_model::gpu::Sourced {
            value: joulecast_model::units::BytesPerSecond::new(9e12),
            ..real.bandwidth.clone()
        },
        ..real
    };
    assert!(ok(catalog::calibration_for(&imaginary)).is_none());
}

#[test]
fn a_part_of_a_calibration_predicts_as_all_of_it() {
    // A transposed convolution runs another phase's kernels.
    let transposed = "schema = \"network/1\"\nname = \"up\"\ntitle = \"up\"\nlayers = [\n  { name = \"up\", kind = \"conv_transpose2d\", \
                      channels = 64, kernel = 2, stride = 2 },\n]\n\n[inputs]\nimage = { shape = [128, 28, 28] }\n";
    let networks = [ok(catalog::network("mobilenet_v2")), ok(Network::from_toml(transposed))];
    for name in ["h200", "v100", "t4", "l4", "titan-x-maxwell"] {
        let gpu = ok(catalog::gpu(name));
        let (own, roofline) = (ok(catalog::calibration_for(&gpu)), ok(catalog::roofline()));
        for precision in gpu.peaks.keys().copied() {
            for (mode, profile) in [
                (Mode::Inference, "cudnn"),
                (Mode::Training, "cudnn"),
                (Mode::Inference, "pytorch"),
                (Mode::Training, "pytorch"),
            ] {
                let framework = ok(Framework::named(profile));
                let predicted = |own: Option<&Calibration>, roofline: &Calibration| {
                    let setup = Setup::usual(&gpu, (own, roofline), &framework, mode);
                    networks.each_ref().map(|n| predict(&ok(ShapedNetwork::new(n, 4, precision, &[])), &setup))
                };
                let (own_part, part) = ok(catalog::calibrations_for(
                    &gpu,
                    &Wanted { precision, mode, framework: profile, algorithm: None },
                ));
                assert!(part.models.len() < roofline.models.len());
                let (all, part) = (predicted(own.as_ref(), &roofline), predicted(own_part.as_ref(), &part));
                assert_eq!(all, part, "{name} {precision} {mode} {profile}");
            }
        }
    }
}
