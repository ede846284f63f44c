//! Two routes to one network: the zoo's definition and what PyTorch's exporters write of the model that it was written after.
//! Both must say the same of it.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::net::network::folding::Folding;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::step::framework::Launch;
use joulecast_model::step::memory::footprint;
use joulecast_model::step::predict::Predictor;
use joulecast_read::onnx::{self, Options};
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// An export, and the network of the zoo that it is of.
struct Route {
    file: String,
    path: PathBuf,
    zoo: String,
}

/// What the zoo calls a network of torchvision, timm or transformers; of others it has none.
fn zoo_name(network: &str) -> Option<String> {
    let name = match network {
        "googlenet" => "googlenet_bn",
        // Its rectifiers are clipped at 6, the paper's are not.
        "timm_mobilenetv1_100" => return None,
        "timm_inception_v4" => "inception_v4",
        "timm_resnet50" => "resnet50",
        "timm_densenet121" => "densenet121",
        "timm_vit_base_patch16_224" => "vit_b_16",
        other => other,
    };
    catalog::network_names().any(|n| n == name).then(|| name.to_string())
}

/// Exports of a folder: `NETWORK.EXPORTER.FORM.onnx`.
fn routes(folder: &Path) -> Vec<Route> {
    let entries = fs::read_dir(folder).expect("the folder is there").flatten().map(|e| e.path());
    let mut routes: Vec<Route> = entries
        .filter(|p| p.extension().is_some_and(|e| e == "onnx"))
        .filter_map(|path| {
            let file = path.file_stem()?.to_str()?.to_string();
            let zoo = zoo_name(file.split('.').next()?)?;
            Some(Route { file, path, zoo })
        })
        .collect();
    routes.sort_by(|a, b| a.file.cmp(&b.file));
    routes
}

fn folder() -> PathBuf {
    let own = || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/zoo");
    std::env::var_os("JOULECAST_ROUTES").map_or_else(own, PathBuf::from)
}

fn imported(route: &Route) -> Network {
    let options = Options { name: &route.zoo, ..Options::default() };
    let file = File::open(&route.path).expect("the file is there");
    onnx::read(file, &options).unwrap_or_else(|e| panic!("{}: {e}", route.file))
}

fn zoo(route: &Route) -> Network {
    catalog::network(&route.zoo).unwrap_or_else(|e| panic!("{}: {e}", route.zoo))
}

fn shaped(network: &Network, batch: u64, precision: Precision) -> ShapedNetwork {
    ShapedNetwork::new(network, batch, precision, &[]).unwrap_or_else(|e| panic!("{}: {e}", network.name))
}

/// By how much one number differs from another.
fn apart(a: f64, b: f64) -> f64 {
    (a / b - 1.0).abs()
}

/// No route may say more than this other than the other one.
const MOST: f64 = 0.03;

/// Exports that do not hold what the zoo's definition has, and cannot: a convolution's own bias before a batch norm is in
/// the folded one.
fn lacks_biases(route: &Route) -> u64 {
    match (&route.zoo[..], route.file.contains(".kept")) {
        ("vgg11_bn", false) => 2_752,
        ("vgg13_bn", false) => 2_944,
        _ => 0,
    }
}

/// Without these files the tests below would compare nothing.
#[test]
fn every_network_of_pytorchs_libraries_has_an_export() {
    let routes = routes(&folder());
    assert!(routes.len() >= 39, "{} files", routes.len());
    let own = |name: &&str| {
        let source = &catalog::network(name).expect(name).source;
        ["torchvision/models/", "modeling_bert.py"].iter().any(|part| source.contains(part))
    };
    let missing: Vec<&str> = catalog::network_names()
        .filter(own)
        // Exports of the first are those of a sibling to the letter; weights of the last fill two gigabytes.
        .filter(|n| !["efficientnet_b2", "regnet_y_1_6gf", "densenet169", "densenet201", "bert_large"].contains(n))
        .filter(|n| routes.iter().all(|r| r.zoo != *n))
        .collect();
    assert!(missing.is_empty(), "no export of {missing:?}");
}

#[test]
fn both_routes_have_the_same_parameters_and_products() {
    for route in routes(&folder()) {
        let (file, own) = (imported(&route).with_folding(Folding::Unfold), zoo(&route));
        let (a, b) = (shaped(&file, 1, Precision::Fp32), shaped(&own, 1, Precision::Fp32));
        assert_eq!(a.parameters() + lacks_biases(&route), b.parameters(), "{}", route.file);
        assert!(apart(a.macs() as f64, b.macs() as f64) < 0.01, "{}: {} and {}", route.file, a.macs(), b.macs());
    }
}

/// What an export folded is back where modules run as written, and only there.
#[test]
fn folded_batch_norms_run_where_modules_do() {
    let norms = |n: &ShapedNetwork| n.layers().iter().filter(|l| l.case.layer.kind() == "batch_norm").count();
    let through = |profile: &str, network: &Network| {
        catalog::framework(profile).expect("shipped").runs(shaped(network, 1, Precision::Fp32))
    };
    for route in routes(&folder()) {
        let (file, own) = (imported(&route), zoo(&route));
        let (as_written, graph) = (through("pytorch", &file), through("cudnn", &file));
        let (wanted, folded) = (norms(&shaped(&own, 1, Precision::Fp32)), file.folded());
        assert_eq!((norms(&as_written), norms(&graph)), (wanted, wanted - folded), "{}", route.file);
        let says = |network: &ShapedNetwork, start: &str| network.notes().iter().any(|n| n.starts_with(start));
        if folded > 0 {
            assert!(
                says(&as_written, &format!("{folded} batch norms that the file's export folded")),
                "{}",
                route.file
            );
            assert!(says(&graph, &format!("{folded} layers of the file hold a folded batch norm")), "{}", route.file);
        }
        let kept = through("pytorch", &file.with_folding(Folding::Keep));
        assert_eq!(norms(&kept), wanted - folded, "{}", route.file);
    }
}

#[test]
fn both_routes_take_the_same_time_and_energy() {
    let mut wrong = Vec::new();
    for profile in ["cudnn", "pytorch"] {
        let framework = catalog::framework(profile).expect("shipped");
        for (gpu, precision) in ["h200", "v100", "t4"].iter().flat_map(|g| [(g, Precision::Fp32), (g, Precision::Fp16)])
        {
            let gpu = catalog::gpu(gpu).expect("shipped");
            let predictor = Predictor::shipped(gpu, framework.clone());
            for route in routes(&folder()).iter().filter(|r| lacks_biases(r) == 0) {
                let (file, own) = (imported(route).with_folding(Folding::Unfold), zoo(route));
                for (batch, launch) in [1, 32].into_iter().flat_map(|b| Launch::ALL.iter().map(move |l| (b, *l))) {
                    let predictor = predictor.clone().launched(Some(launch));
                    let of = |network: &Network| {
                        let shaped = framework.runs(shaped(network, batch, precision));
                        let found = predictor.predict(&shaped, Mode::Inference);
                        found.unwrap_or_else(|e| panic!("{}: {e}", route.file))
                    };
                    let (a, b) = (of(&file), of(&own));
                    // Views take a host a call each, and files list them differently.
                    if a.host.iter().chain(&b.host).any(|host| host.decides) {
                        continue;
                    }
                    let time = apart(a.time.value.get(), b.time.value.get());
                    let energy = apart(a.energy.value.get(), b.energy.value.get());
                    // One route joins few maps many times, the other many maps at once: concat's model is off by 9 to 14 %.
                    let joins = route.file.starts_with("densenet") && predictor.gpu().name == "h200";
                    let most = match precision {
                        Precision::Fp16 if joins => 0.25,
                        _ if joins => 0.1,
                        _ => MOST,
                    };
                    if time > most || energy > most {
                        wrong.push(format!(
                            "{} on {}, {profile}, {precision}, batch {batch}, {launch}: time {time:.3}, energy {energy:.3}",
                            route.file,
                            predictor.gpu().name
                        ));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// PyTorch's modules are the same ones, whichever route names them.
#[test]
fn both_routes_take_the_same_memory() {
    let framework = catalog::framework("pytorch").expect("shipped");
    let mut wrong = Vec::new();
    // Another library's modules are others.
    let same = |r: &&Route| lacks_biases(r) == 0 && !r.file.starts_with("timm_");
    for route in routes(&folder()).iter().filter(same) {
        let (file, own) = (imported(route), zoo(route));
        for (batch, precision) in [(1, Precision::Fp32), (32, Precision::Fp16), (256, Precision::Fp32)] {
            let of = |n: &Network| {
                let step = framework.runs(shaped(n, batch, precision));
                footprint(&step, Mode::Inference, &framework.memory, &[]).total().to_f64()
            };
            let difference = apart(of(&file), of(&own));
            if difference > most_memory(&route.zoo) {
                wrong.push(format!("{}, {precision}, batch {batch}: {difference:.3}", route.file));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// DenseNet's layers join all that came before them anew, as its exports say; the zoo's join the last joined one.
fn most_memory(zoo: &str) -> f64 {
    if zoo.starts_with("densenet") { 0.05 } else { MOST }
}
