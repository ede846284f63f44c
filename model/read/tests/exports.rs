//! Exports of model libraries: those that are kept here, and a folder of hundreds where one is there.
//!
//! What is read of those here stands in `onnx/exports.csv`, file by file;
//! `UPDATE_GOLDEN=1 cargo test -p joulecast-read --test exports` writes it anew.
//!
//! `JOULECAST_EXPORTS` names a folder of ONNX files with a table `exports.csv` (`file,parameters,macs`: of the model that was
//! exported, as its library and a counter of its products say; empty where unknown). Every file must be read, and no
//! products may be missing.

use joulecast_model::base::precision::Precision;
use joulecast_model::net::layer::Layer;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_read::onnx::{self, OnnxError, Options};
use joulecast_skipped::skipped;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::path::Path;

/// Tokens where a file leaves their number open.
const TOKENS: u64 = 32;

fn read(path: &Path) -> Result<Network, OnnxError> {
    how(path).map(|(network, _)| network)
}

/// The network, and what had to be said.
fn how(path: &Path) -> Result<(Network, &'static str), OnnxError> {
    let read = |sequence, skip_unknown| {
        let options = Options { name: "export", sequence, skip_unknown, ..Options::default() };
        onnx::read(File::open(path).expect("the file is there"), &options)
    };
    match read(None, false) {
        Err(OnnxError::Usage(_)) => Ok((read(Some(TOKENS), false)?, "--sequence 32")),
        // Loops over pixels of boxes that are only known when they run.
        Err(error) if error.to_string().contains("--skip-unknown") => Ok((read(None, true)?, "--skip-unknown")),
        other => Ok((other?, "as it is")),
    }
}

/// Modules as the Python package exports them, and as many parameters as their libraries count: two tokens before others and a
/// table of positions (DeiT), biases and masks of windows (Swin), biases before batch norms (VGG).
const LIVE: [(&str, u64); 3] = [("live_deit", 67_920), ("live_swin", 16_734), ("live_vgg11_bn", 132_868_840)];

#[test]
fn a_live_module_has_the_parameters_that_its_library_counts() {
    for (name, expected) in LIVE {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/onnx/exports/{name}.onnx"));
        let network = read(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
        let shaped = ShapedNetwork::new(&network, 1, Precision::Fp32, &[]).expect("fits");
        assert_eq!(shaped.parameters(), expected, "{name}");
    }
}

/// Of a model's products some lead to outputs that the file does not have, and some multiply constants (XLNet's positions).
const FEWEST: f64 = 0.85;

#[derive(Default)]
struct Expected {
    parameters: Option<u64>,
    macs: Option<u64>,
}

fn table(folder: &Path) -> BTreeMap<String, Expected> {
    let text = fs::read_to_string(folder.join("exports.csv")).unwrap_or_default();
    let line = |line: &str| {
        let mut cells = line.split(',');
        let name = cells.next()?.to_string();
        let mut number = || cells.next().and_then(|c| c.trim().parse().ok());
        Some((name, Expected { parameters: number(), macs: number() }))
    };
    text.lines().filter_map(line).collect()
}

fn shaped(network: &Network) -> ShapedNetwork {
    ShapedNetwork::new(network, 1, Precision::Fp32, &[]).unwrap_or_else(|e| panic!("{}: {e}", network.name))
}

/// Parameters and multiply-accumulates of what PyTorch 2.11 wrote, beside what its models have and a counter counts.
#[test]
fn exports_have_the_parameters_and_products_of_their_models() {
    for (name, parameters, missing, macs, besides) in [
        // A detector: of each folded batch norm one value per channel is left.
        ("det_fasterrcnn_mobilenet_v3_large_fpn_script", 19_410_754, 12_200, 18_853_144_256u64, 0),
        // Biases of zeros are not written; the counter leaves attention's products out.
        ("hf_gpt2_dynamo", 53_561_088, 19_968, 1_688_100_864, 2 * 2 * 32 * 32 * 768),
        // Masks and positions are constants; the counter has 2048 products of angles besides.
        ("hf_llama_dynamo", 666_914_816, 0, 17_146_316_800, 2 * 2 * 32 * 32 * 4096 - 2048),
        ("own_conv3d_net_script", 6_970, 64, 203_423_904, 0),
        // A branch by shape, pooling of volumes, weights per head, a plain recurrent layer.
        ("own_deformable_free_script", 1_211_946, 0, 4_532_256, 0),
        ("own_einsum_net_script", 32_768, 0, 524_288, 0),
        ("own_rnn_vanilla_script", 8_609_552, 0, 386_400_256, 0),
        ("own_unet_script", 31_043_586, 11_776, 48_171_581_440, 0),
        ("vid_r3d_18_script", 33_371_472, 4_800, 40_696_553_472, 0),
    ] {
        let path = format!("{}/tests/onnx/exports/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
        let network = shaped(&read(Path::new(&path)).unwrap_or_else(|e| panic!("{name}: {e}")));
        assert_eq!(network.parameters() + missing, parameters, "{name}");
        assert_eq!(network.macs(), macs + besides, "{name}");
    }
}

/// ONNX files in a folder of the repository, by name; none where there is no such folder.
fn kept(folder: &str) -> Vec<std::path::PathBuf> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx").join(folder);
    let entries = fs::read_dir(path).into_iter().flatten().flatten().map(|e| e.path());
    let mut files: Vec<_> = entries.filter(|p| p.extension().is_some_and(|e| e == "onnx")).collect();
    files.sort();
    files
}

/// Every export in the repository is read, and what is read of it is in the table.
#[test]
fn exports_in_the_repository_are_read_as_the_table_says() {
    let mut text = String::from("file,read,layers,elementwise,attention,parameters,macs\n");
    for folder in [".", "exports", "zoo"] {
        for path in kept(folder) {
            let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
            let name = if folder == "." { name.to_string() } else { format!("{folder}/{name}") };
            let (network, how) = how(&path).unwrap_or_else(|e| panic!("{name}: {e}"));
            let shaped = shaped(&network);
            let of = |kind: &dyn Fn(&Layer) -> bool| shaped.layers().iter().filter(|l| kind(&l.case.layer)).count();
            let others = of(&|l| matches!(l, Layer::Elementwise(_)));
            let attention = of(&|l| matches!(l, Layer::Attention(_)));
            let (layers, parameters, macs) = (shaped.layers().len(), shaped.parameters(), shaped.macs());
            let _ = writeln!(text, "{name},{how},{layers},{others},{attention},{parameters},{macs}");
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/onnx/exports.csv");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &text).expect("written");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "onnx/exports.csv: UPDATE_GOLDEN=1 accepts what is read now");
    // The table's command counts what it says.
    let count = |how: &str| text.lines().filter(|l| l.split(',').nth(1) == Some(how)).count();
    let (whole, tokens, partly) = (count("as it is"), count("--sequence 32"), count("--skip-unknown"));
    println!("{whole} read as they are, {tokens} with --sequence, {partly} with --skip-unknown");
    assert!(whole + tokens >= 14, "{text}");
}

/// Attention is one kernel, with its mask and whatever guards its softmax.
#[test]
fn attention_of_exports_is_recognised() {
    for name in ["hf_gpt2_dynamo", "hf_llama_dynamo"] {
        let path = format!("{}/tests/onnx/exports/{name}.onnx", env!("CARGO_MANIFEST_DIR"));
        let network = read(Path::new(&path)).unwrap_or_else(|e| panic!("{name}: {e}"));
        let kinds: Vec<&str> = network.nodes.iter().map(|n| n.layer.kind()).collect();
        assert_eq!(kinds.iter().filter(|k| **k == "attention").count(), 2, "{kinds:?}");
        assert!(!kinds.contains(&"softmax") && !kinds.contains(&"matmul"), "{kinds:?}");
    }
}

#[test]
fn every_export_is_read() {
    let Some(folder) = std::env::var_os("JOULECAST_EXPORTS") else {
        return skipped("exports::every_export_is_read", "JOULECAST_EXPORTS names no folder of exports");
    };
    let folder = Path::new(&folder);
    let expected = table(folder);
    let mut files: Vec<_> = fs::read_dir(folder).expect("the folder is there").flatten().map(|e| e.path()).collect();
    files.retain(|p| p.extension().is_some_and(|e| e == "onnx"));
    files.sort();
    let (mut failures, mut exact) = (Vec::new(), 0);
    for path in &files {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or_default();
        let network = match read(path) {
            Ok(network) => network,
            Err(error) => {
                println!("{name}\tfails\t{error}");
                failures.push(name.to_string());
                continue;
            }
        };
        let shaped = shaped(&network);
        let nothing = Expected::default();
        let known = expected.get(name).unwrap_or(&nothing);
        let of = |kind: &dyn Fn(&Layer) -> bool| shaped.layers().iter().filter(|l| kind(&l.case.layer)).count();
        let others = of(&|l| matches!(l, Layer::Elementwise(_)));
        let attention = of(&|l| matches!(l, Layer::Attention(_)));
        let difference = known.parameters.map(|p| shaped.parameters() as i64 - p as i64);
        let ratio = known.macs.map(|m| shaped.macs() as f64 / m.max(1) as f64);
        exact += usize::from(difference == Some(0));
        if ratio.is_some_and(|r| r < FEWEST) {
            failures.push(format!("{name} ({ratio:?} of its products)"));
        }
        let (layers, parameters, notes) = (shaped.layers().len(), shaped.parameters(), network.notes.join("; "));
        println!(
            "{name}\tread\t{layers} layers\t{others} elementwise\t{attention} attention\t{parameters} parameters\t{difference:?}\t{ratio:?}\t{notes}"
        );
    }
    println!("{} files, {exact} with their models' parameters exactly", files.len());
    assert!(failures.is_empty(), "{failures:?}");
}
