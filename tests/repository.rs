//! Rules of the repository: which crate may depend on which, what the shipped files must say, what must not be
//! committed.

use joulecast_model::base::precision::Mode;
use joulecast_model::catalog;
use joulecast_model::law::calibration::{ANY_CHIP, Calibration, Tier};
use joulecast_model::net::layer::{Layer, Measured};
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::rows::splits::Role;
use joulecast_model::rows::splits::Splits;
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::predict::Predictor;
use joulecast_tests::{ok, root};
use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::Command;
use toml::{Table, Value};

fn manifest(path: &str) -> Table {
    ok(ok(fs::read_to_string(root().join(path))).parse())
}

#[test]
fn crates_depend_only_as_the_architecture_says() {
    let allowed: BTreeMap<&str, &[&str]> = BTreeMap::from([
        ("data", &[] as &[&str]),
        ("model", &["joulecast-data"]),
        ("model/read", &["joulecast-model"]),
        ("model/import", &["joulecast-model"]),
        ("model/ask", &["joulecast-data", "joulecast-model"]),
        ("kernels", &["joulecast-model"]),
        ("reports", &["joulecast-ask", "joulecast-model"]),
        ("predict", &["joulecast-ask", "joulecast-model", "joulecast-read", "joulecast-reports"]),
        ("machine", &["joulecast-model", "joulecast-kernels", "joulecast-reports"]),
        (
            "predict/python",
            &[
                "joulecast-ask",
                "joulecast-data",
                "joulecast-machine",
                "joulecast-model",
                "joulecast-predict",
                "joulecast-reports",
            ],
        ),
        (
            "predict/web",
            &["joulecast-ask", "joulecast-data", "joulecast-model", "joulecast-predict", "joulecast-reports"],
        ),
        (
            "calibrate",
            &[
                "joulecast-ask",
                "joulecast-data",
                "joulecast-import",
                "joulecast-model",
                "joulecast-kernels",
                "joulecast-machine",
                "joulecast-read",
                "joulecast-reports",
            ],
        ),
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

/// Networks of the sealed rounds that intervals rest on, as `calibrate/tools/rows.sh` names these.
fn foreseen_before_they_ran() -> BTreeSet<String> {
    let rows = ok(fs::read_to_string(root().join("calibrate/tools/rows.sh")));
    let line = rows.lines().find(|line| line.contains("--sealed")).unwrap_or_default();
    let rounds =
        line.split(';').next().unwrap_or_default().split_whitespace().filter_map(|word| word.parse::<u32>().ok());
    let names = rounds.flat_map(|round| ok(fs::read_dir(root().join(format!("data/sealed/round-{round}/nets")))));
    names.filter_map(|file| Some(ok(file).path().file_stem()?.to_string_lossy().into_owned())).collect()
}

#[test]
fn shipped_calibrations_are_readable_and_current() {
    let (splits, foreseen) = (ok(Splits::shipped()), foreseen_before_they_ran());
    assert!(foreseen.len() > 100, "{foreseen:?}");
    let sources = ok(fs::read_to_string(root().join("data/published/sources.toml")));
    let mut boards = BTreeSet::new();
    for (name, text) in catalog::calibrations() {
        let c = ok(Calibration::from_toml(text));
        // What was fitted to all rows depends on no role; intervals of networks on those of their networks alone.
        assert_eq!((c.fit.as_str(), &c.held_out_hash), ("shipped", &None), "{name}");
        for spread in &c.networks {
            assert_eq!(spread.names.len(), spread.networks, "{name}");
            for network in &spread.names {
                let is_conformal = splits.role(network) == Some(Role::Conformal);
                assert!(is_conformal || foreseen.contains(network), "{name}: intervals rest on {network}");
            }
        }
        assert_eq!(ok(c.to_toml()), *text, "{name} is not what the program writes");
        let tier = match *name {
            "all_chips" => Tier::Roofline,
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
        for model in c.models.iter() {
            assert!(model.terms.len() <= 180, "{name} {}: {} terms", model.key, model.terms.len());
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
    // Lent ones are the donor's: rise on its line from the knee to the boost clock, draw as it is.
    let mhz = |gpu: &str, section: &str, key: &str| -> f64 {
        let table = manifest(&format!("data/gpus/{gpu}.toml"));
        let text = table.get(section).and_then(|t| t.get(key)).and_then(|v| v.get("value")).and_then(Value::as_str);
        let text = text.unwrap_or_else(|| panic!("{gpu} has no {section}.{key}"));
        ok(text.trim_end_matches(" MHz").parse())
    };
    let above_knee = |gpu: &str| mhz(gpu, "core_clock", "boost") - mhz(gpu, "voltage", "knee");
    for (gpu, donor) in [("t4", "quadro-rtx6000"), ("rtx2080ti", "quadro-rtx6000"), ("titan-v", "v100")] {
        let rise = value(donor, "rise") * above_knee(gpu) / above_knee(donor);
        assert!((value(gpu, "rise") - rise).abs() < 5.1e-4, "{gpu}: {rise} on the line of {donor}");
        assert_eq!(value(gpu, "draw"), value(donor, "draw"), "{gpu}");
    }
    assert_eq!(value("v100-pcie", "draw"), value("v100", "draw"));
    // Boards without runs of their own have none of those, but for those of the same chip or architecture.
    for name in catalog::gpu_names() {
        let gpu = ok(catalog::gpu(name));
        for (key, constant) in [("held", &gpu.power.held), ("draw", &gpu.power.draw)] {
            let Some(constant) = constant else { continue };
            let from = constant.source.contains("calibrate published caps")
                || constant.source.contains("typically under 10 W");
            if key == "held" && constant.source.contains("calibrate/tools/held.py data/sealed/round-{1..14}/") {
                let of = if name == "h200" { "NVIDIA H200" } else { "NVIDIA H100" };
                assert!((constant.value - held_share(of)).abs() < 5.1e-4, "{name}: {}", held_share(of));
            } else {
                assert!(from, "{name} {key}: {}", constant.source);
            }
        }
    }
}

/// What `calibrate/tools/held.py` finds: the median share of 700 W of graphs of the first 14 sealed rounds whose clock was held.
fn held_share(of: &str) -> f64 {
    let mut shares = Vec::new();
    for round in 1..=14 {
        for entry in ok(fs::read_dir(root().join(format!("data/sealed/round-{round}")))).map(ok) {
            if !entry.file_name().to_string_lossy().starts_with("measured-") {
                continue;
            }
            let text = ok(fs::read_to_string(entry.path()));
            let header: Vec<&str> = text.lines().next().unwrap_or_default().split(',').collect();
            for line in text.lines().skip(1) {
                let cells: Vec<&str> = line.split(',').collect();
                let cell = |name: &str| header.iter().position(|h| *h == name).and_then(|at| cells.get(at).copied());
                let number = |name: &str| cell(name).and_then(|text| text.parse::<f64>().ok());
                // Cells with commas are of rows that failed.
                let ran = cells.len() == header.len() && cell("error") == Some("") && cell("launch") == Some("graph");
                let alone = cell("gpus").is_none_or(|gpus| gpus == "1");
                let device = cell("device").is_some_and(|device| device.starts_with(of));
                if let (true, Some(watts), Some(clock)) =
                    (ran && alone && device, number("watts"), number("sm_mhz_mean"))
                    && clock < 0.97 * 1980.0
                {
                    shares.push(watts / 700.0);
                }
            }
        }
    }
    shares.sort_by(f64::total_cmp);
    let middle = shares.len() / 2;
    if shares.len().is_multiple_of(2) { (shares[middle - 1] + shares[middle]) / 2.0 } else { shares[middle] }
}

/// A network can be added: no published page and no calibration depends on the folder of networks as a whole. Pages name
/// the networks that they show.
#[test]
fn a_new_network_makes_nothing_stale() {
    for entry in ok(fs::read_dir(root().join("calibrate/tools"))).map(ok) {
        let Ok(script) = fs::read_to_string(entry.path()) else { continue };
        let inputs = script.lines().filter_map(|l| l.strip_prefix("# inputs:")).flat_map(str::split_whitespace);
        for input in inputs {
            assert_ne!(input.trim_end_matches('/'), "data/nets", "{}", entry.path().display());
        }
    }
    let named = ok(fs::read_to_string(root().join("calibrate/tools/papers_report.sh")));
    for word in ok(fs::read_to_string(root().join("data/published/papers/papers.toml"))).split('"').skip(1).step_by(2) {
        if catalog::network_names().any(|name| name == word) {
            assert!(
                named.contains(&format!("data/nets/{word}.toml "))
                    || named.contains(&format!("data/nets/{word}.toml\n")),
                "papers_report.sh does not name {word}"
            );
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
    let gpu = ok(joulecast_model::device::gpu::Gpu::from_toml(&example("data/gpus/README.md")));
    assert_eq!(gpu.name, "v100");
    let network = ok(joulecast_model::net::network::Network::from_toml(&example("data/nets/README.md")));
    let shaped = joulecast_model::net::network::ShapedNetwork::new(
        &network,
        1,
        joulecast_model::base::precision::Precision::Fp32,
        &[],
    );
    assert!(ok(shaped).parameters() > 0);
}

/// A device described unlike every measured board of its chip gets no calibration of that chip.
#[test]
fn an_imaginary_board_of_a_known_chip_has_no_calibration() {
    let text = ok(fs::read_to_string(root().join("data/gpus/v100.toml")));
    let real = ok(joulecast_model::device::gpu::Gpu::from_toml(&text));
    assert!(ok(catalog::calibration_for(&real)).is_some());
    let imaginary = joulecast_model::device::gpu::Gpu {
        bandwidth: joulecast_model::device::gpu::Sourced {
            value: joulecast_model::base::units::BytesPerSecond::new(9e12),
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
        let (own, all_chips) = (ok(catalog::calibration_for(&gpu)), ok(catalog::all_chips()));
        let whole = ok(Calibrations::given(own.into_iter().chain([all_chips.clone()])));
        for precision in gpu.peaks.keys().copied() {
            for (mode, profile) in [
                (Mode::Inference, "cudnn"),
                (Mode::Training, "cudnn"),
                (Mode::Inference, "pytorch"),
                (Mode::Training, "pytorch"),
            ] {
                let framework = ok(catalog::framework(profile));
                let shipped = Predictor::shipped(gpu.clone(), framework.clone());
                let part = ok(shipped.basis(precision, mode));
                assert!(part.all.models.len() < all_chips.models.len());
                let whole = Predictor::with(gpu.clone(), whole.clone(), framework);
                let predicted = |predictor: &Predictor| {
                    networks.each_ref().map(|n| predictor.predict(&ok(ShapedNetwork::new(n, 4, precision, &[])), mode))
                };
                assert_eq!(predicted(&whole), predicted(&shipped), "{name} {precision} {mode} {profile}");
            }
        }
    }
}

fn text<'a>(value: &'a Json, key: &str) -> &'a str {
    value.get(key).and_then(Json::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Json, pointer: &str) -> &'a [Json] {
    value.pointer(pointer).and_then(Json::as_array).map_or(&[], Vec::as_slice)
}

/// All packages of this machine's builds, as cargo knows them from the lock file.
fn packages() -> Json {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let host = ok(Command::new("rustc").arg("-vV").output()).stdout;
    let host = String::from_utf8_lossy(&host).lines().find_map(|l| l.strip_prefix("host: ").map(str::to_string));
    let output = ok(Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--locked", "--filter-platform"])
        .arg(host.unwrap_or_default())
        .current_dir(root())
        .output());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ok(serde_json::from_slice(&output.stdout))
}

/// Paths of the files of a crate's package.
fn packaged(name: &str) -> BTreeSet<String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let arguments = ["package", "--list", "--allow-dirty", "--offline", "--locked", "--package", name];
    let output = ok(Command::new(cargo).args(arguments).current_dir(root()).output());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).lines().map(str::to_string).collect()
}

/// A crate from a registry builds without the repository; what was measured stays there.
#[test]
fn packages_hold_all_that_is_embedded_and_no_measurements() {
    let data = packaged("joulecast-data");
    let folders = ["calibrations", "frameworks", "gpus", "interconnects", "libraries", "nets", "published/papers"];
    let mut embedded = BTreeSet::from(["plans/reference.toml".to_string()]);
    for folder in folders {
        for entry in ok(fs::read_dir(root().join("data").join(folder))) {
            let path = ok(entry).path();
            if path.extension().is_some_and(|e| e == "toml" || e == "csv") {
                embedded.insert(format!("{folder}/{}", path.file_name().unwrap_or_default().to_string_lossy()));
            }
        }
    }
    let code = |f: &str| f.starts_with("src/") || f.starts_with("build/");
    let held: BTreeSet<_> = data.iter().filter(|f| f.contains('/') && !code(f)).cloned().collect();
    assert_eq!(held, embedded);
    for builds in ["build.rs", "build/pack.rs"] {
        assert!(data.contains(builds), "the package does not build without {builds}");
    }
    assert!(data.contains("splits.toml"));
    let kernels = packaged("joulecast-kernels");
    assert!(kernels.iter().filter(|f| f.starts_with("cuda/") && f.ends_with(".cu")).count() > 10, "{kernels:?}");
    for name in ["model", "ask", "read", "import", "kernels", "machine", "reports", "calibrate", "predict"] {
        let files = packaged(&format!("joulecast-{name}"));
        // `calibrate host` brings its script along.
        let known = ["src/", "cuda/", "benches/", "tools/torch_host.py"];
        let strange = |f: &&String| f.contains('/') && !known.iter().any(|at| f.starts_with(at));
        assert!(files.contains("README.md") && files.iter().find(strange).is_none(), "{name}: {files:?}");
    }
}

/// As numbers that compare; a package that declares none takes any.
fn version(package: &Json) -> Vec<u64> {
    text(package, "rust_version").split('.').map_while(|part| part.parse().ok()).chain([0, 0, 0]).take(3).collect()
}

/// No package that a member builds or tests with wants a newer Rust than the member declares.
#[test]
fn the_declared_rust_is_new_enough_for_every_dependency() {
    let all = packages();
    let by_id: BTreeMap<&str, &Json> = list(&all, "/packages").iter().map(|p| (text(p, "id"), p)).collect();
    let needs: BTreeMap<&str, Vec<&str>> = list(&all, "/resolve/nodes")
        .iter()
        .map(|node| (text(node, "id"), list(node, "/deps").iter().map(|d| text(d, "pkg")).collect()))
        .collect();
    let members: Vec<&str> = list(&all, "/workspace_members").iter().filter_map(Json::as_str).collect();
    assert!(members.len() >= 8 && by_id.len() > 100, "cargo metadata was understood");
    let mut wrong = Vec::new();
    for member in members {
        let (mut reached, mut open) = (BTreeSet::new(), vec![member]);
        while let Some(id) = open.pop() {
            if reached.insert(id) {
                open.extend(needs.get(id).into_iter().flatten());
            }
        }
        let declared = version(by_id[member]);
        assert!(declared > vec![1, 0, 0], "{member} declares no Rust version");
        let newer = reached.iter().map(|id| by_id[id]).filter(|p| version(p) > declared);
        wrong.extend(newer.map(|p| format!("{member}: {} wants {}", text(p, "name"), text(p, "rust_version"))));
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    // The toolchain of the checks is one of them.
    let toolchain: Vec<u64> =
        ok(fs::read_to_string(root().join(".ci/toolchain"))).trim().split('.').map(|p| ok(p.parse())).collect();
    let newest = by_id.values().map(|p| version(p)).max();
    assert!(Some(toolchain) >= newest, "{newest:?}");
}

/// Licences under which a dependency may come.
const LICENCES: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Whether a licence expression leaves a choice that is allowed; `/` is an old way to write `OR`.
fn allowed(expression: &str) -> bool {
    /// Parts between a word that stands outside of parentheses.
    fn parts<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
        let (mut depth, mut from, mut found) = (0, 0, Vec::new());
        for (i, c) in text.char_indices() {
            match c {
                '(' => depth += 1,
                ')' => depth -= 1,
                _ if depth == 0 && i >= from && text[i..].starts_with(word) => {
                    found.push(&text[from..i]);
                    from = i + word.len();
                }
                _ => {}
            }
        }
        found.push(&text[from..]);
        found
    }
    let expression = expression.trim();
    let (either, both) = (parts(expression, " OR "), parts(expression, " AND "));
    if either.len() > 1 {
        return either.into_iter().any(allowed);
    }
    if both.len() > 1 {
        return both.into_iter().all(allowed);
    }
    if let Some(inside) = expression.strip_prefix('(').and_then(|e| e.strip_suffix(')')) {
        return allowed(inside);
    }
    LICENCES.contains(&expression) || (expression.contains('/') && expression.split('/').any(allowed))
}

#[test]
fn every_dependency_has_a_licence_that_is_allowed() {
    for (expression, expected) in [
        ("MIT OR Apache-2.0", true),
        ("GPL-3.0-only OR MIT", true),
        ("GPL-3.0-only", false),
        ("MIT AND GPL-3.0-only", false),
        ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
        ("(MIT OR Apache-2.0) AND MPL-2.0", false),
        ("Unlicense/MIT", true),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("GPL-3.0/LGPL-3.0", false),
        ("", false),
    ] {
        assert_eq!(allowed(expression), expected, "{expression:?}");
    }
    let all = packages();
    let wrong = list(&all, "/packages").iter().filter(|p| !allowed(text(p, "license")));
    let wrong: Vec<String> = wrong.map(|p| format!("{}: {:?}", text(p, "name"), text(p, "license"))).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// `.ci/run` with a cargo that says what a real one would; its output and whether it succeeded.
fn checks(tests: &str, works: bool) -> (String, bool) {
    let folder = ok(tempfile::tempdir());
    let path = |part: &str| folder.path().join(part);
    for part in [".ci", "bin", "home"] {
        ok(fs::create_dir(path(part)));
    }
    for part in [".ci/run", ".ci/toolchain"] {
        ok(fs::copy(root().join(part), path(part)));
    }
    ok(fs::write(path("README.md"), "```\ncargo test --workspace\n```\n"));
    ok(fs::write(path("tests.txt"), tests));
    let script = |name: &str, text: &str| {
        ok(fs::write(path("bin").join(name), format!("#!/bin/sh\n{text}\n")));
        ok(Command::new("chmod").arg("+x").arg(path("bin").join(name)).status());
    };
    let status = i32::from(!works);
    script(
        "cargo",
        &format!(
            "case \"$*\" in audit*) exit 1;; test*) echo \"ran: $*\"; cat tests.txt; exit {status};; *--version) exit 0;; \
             fmt*|clippy*|check*) exit 0;; esac; exit 3"
        ),
    );
    script("rustc", "echo 'rustc 1.0.0 (old)'");
    script("rustup", "case \"$1 $2\" in 'toolchain list') echo stable-x;; *) echo 'would download' >&2; exit 9;; esac");
    let paths = format!("{}:{}", path("bin").display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("bash");
    command.arg(path(".ci/run")).env("PATH", paths).env("HOME", path("home")).env_remove("CARGO_HOME");
    let output = ok(command.output());
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (text, output.status.success())
}

#[test]
fn the_checks_end_with_what_passed_failed_and_was_skipped() {
    let result = |passed, failed| {
        format!(
            "test result: ok. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.1s\n"
        )
    };
    let absent = "\nskipped: a::b: no Chromium\n\nskipped: c: no rows\n\nskipped: c: no table\n";
    let (text, works) = checks(&format!("test a::b ... ok\n{absent}{}{}", result(5, 0), result(3, 0)), true);
    assert!(text.contains("ran: test --workspace --locked --no-fail-fast\n"), "{text}");
    assert!(text.contains("rustc 1.0.0, not 1.95.0") && !text.contains("would download"), "{text}");
    let end: Vec<&str> = text.lines().rev().take(4).collect();
    let expected = [
        "10 passed, 0 failed, 3 skipped",
        "skipped: c: no rows",
        "skipped: a::b: no Chromium",
        "skipped: advisories: cargo-audit is not installed",
    ];
    assert_eq!((end.as_slice(), works), (expected.as_slice(), true), "{text}");

    let (text, works) = checks(&format!("test d ... FAILED\n{}{}", result(5, 1), result(3, 0)), false);
    assert!(text.ends_with("failed: d\n12 passed, 1 failed, 1 skipped\n") && !works, "{text}");
    let (text, works) = checks("error: could not compile\n", false);
    assert!(text.ends_with("4 passed, 1 failed, 1 skipped\n") && !works, "{text}");
}

/// What tests skip is said in the one way that `.ci/run` counts.
#[test]
fn tests_do_not_skip_in_silence() {
    fn sources(folder: &Path, found: &mut Vec<std::path::PathBuf>) {
        for entry in ok(fs::read_dir(folder)).map(ok).map(|e| e.path()) {
            if entry.is_dir() {
                sources(&entry, found);
            } else if entry.extension().is_some_and(|e| e == "rs") {
                found.push(entry);
            }
        }
    }
    let mut files = Vec::new();
    for folder in ["model", "kernels", "reports", "calibrate", "predict", "tests"] {
        sources(&root().join(folder), &mut files);
    }
    assert!(files.len() > 300);
    let printed = concat!("println!(\"", "skipped: ");
    let silent: Vec<_> = files.iter().filter(|f| ok(fs::read_to_string(f)).contains(printed)).collect();
    assert!(silent.is_empty(), "use joulecast_skipped: {silent:?}");
}

/// A kind that is forgotten in a list of data is not forgotten silently.
#[test]
fn every_kind_is_described_and_every_measured_one_is_planned() {
    // Views run nothing; these maxima are in no network.
    const UNPLANNED: [&str; 3] = ["flatten", "global_max_pool2d", "adaptive_max_pool2d"];
    let described = ok(fs::read_to_string(root().join("data/nets/README.md")));
    let mut plans = String::new();
    for entry in ok(fs::read_dir(root().join("data/plans"))) {
        plans += &ok(fs::read_to_string(ok(entry).path()));
    }
    for kind in Layer::KINDS {
        assert!(described.contains(&format!("`{kind}`")), "data/nets/README.md does not describe {kind}");
        let planned = plans.contains(&format!("\"{kind}\"")) || UNPLANNED.contains(kind);
        assert!(planned || Layer::measured(kind) == Measured::Nowhere, "no recipe in data/plans draws {kind}");
    }
}

/// Files under a folder, as paths from the root.
fn tree(folder: &Path, found: &mut Vec<String>) {
    for entry in ok(fs::read_dir(folder)) {
        let path = ok(entry).path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && !["target", ".git"].contains(&name.as_str()) {
            tree(&path, found);
        } else if path.is_file() {
            found.push(format!("/{}", path.strip_prefix(root()).unwrap_or(&path).display()));
        }
    }
}

/// A file or folder that a document names is there; where it says less than the whole path, somewhere.
#[test]
fn documents_name_files_that_are_there() {
    let mut files = Vec::new();
    tree(&root(), &mut files);
    let (mut missing, mut named) = (Vec::new(), 0);
    for document in ["ARCHITECTURE.md", "MODELLING.md", "CONTRIBUTING.md"] {
        let text = ok(fs::read_to_string(root().join(document)));
        let quoted = text.split('`').skip(1).step_by(2);
        let plain = |word: &&str| word.chars().all(|c| c.is_ascii_alphanumeric() || "_-./".contains(c));
        let file =
            |word: &&str| [".rs", ".toml", ".md", ".cu", ".sh", ".py", "/"].iter().any(|end| word.ends_with(end));
        let example = |word: &&str| word.contains("NAME") || word.contains("KEY");
        for word in quoted.filter(plain).filter(file).filter(|word| !example(word)) {
            let there = |path: &String| match word.strip_suffix('/') {
                Some(folder) => path.contains(&format!("/{folder}/")),
                None => path.ends_with(&format!("/{word}")),
            };
            named += 1;
            if !files.iter().any(there) {
                missing.push(format!("{document}: {word}"));
            }
        }
    }
    assert!(named > 100 && missing.is_empty(), "{named} named; {missing:#?}");
}
