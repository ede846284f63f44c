//! Outputs that must not change unnoticed. `UPDATE_GOLDEN=1 cargo test -p joulecast-tests --test golden` rewrites
//! them; look at the difference before committing it.

use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::base::units::{Seconds, Watts};
use joulecast_model::catalog;
use joulecast_model::net::cost::Site;
use joulecast_model::net::layer::{Layer, LayerOp};
use joulecast_model::step::framework::Launch;
use joulecast_model::step::training::{Plan, Training};
use joulecast_reports::describe;
use joulecast_reports::export::{Export as _, Format};
use joulecast_reports::prediction::{Asked, Shown};
use joulecast_tests::{ok, predicted, root, shaped};
use std::fmt::Write as _;
use std::fs;

fn check(name: &str, actual: &str) {
    let path = root().join("tests/golden").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        ok(fs::write(&path, actual));
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(actual, expected, "{name} changed");
}

/// One line per layer kind: what every phase costs for a small site.
#[test]
fn costs_of_every_kind() {
    let mut text =
        String::from("kind  output  parameters  then per phase ops read written (training, fp32, batch 2)\n");
    for kind in Layer::KINDS {
        let (fields, inputs): (&str, &[&[u64]]) = match *kind {
            "conv2d" => ("channels = 8\nkernel = 3\npadding = 1\ngroups = 2", &[&[4, 6, 6]]),
            "linear" => ("features = 10", &[&[16]]),
            "matmul" => ("", &[&[3, 5], &[5, 7]]),
            "max_pool2d" | "avg_pool2d" => ("kernel = 3\nstride = 2\npadding = 1", &[&[4, 6, 6]]),
            "adaptive_avg_pool2d" | "adaptive_max_pool2d" => ("output = 4", &[&[4, 6, 6]]),
            "concat" => ("", &[&[4, 6, 6], &[2, 6, 6]]),
            "add" => ("", &[&[4, 6, 6], &[4, 6, 6]]),
            "multiply" => ("", &[&[4, 6, 6], &[4, 1, 1]]),
            "conv_transpose2d" => ("channels = 8\nkernel = 4\nstride = 2\npadding = 1", &[&[4, 6, 6]]),
            "conv3d" => ("channels = 8\nkernel = 3\npadding = 1", &[&[4, 5, 6, 6]]),
            "max_pool3d" | "avg_pool3d" => ("kernel = 2", &[&[4, 4, 6, 6]]),
            "pad" => ("padding = [0, 1, 0, 1]", &[&[4, 6, 6]]),
            "attention" => ("heads = 4\nkv_heads = 2\ncausal = true", &[&[6, 32]]),
            "latent_attention" => ("heads = 4\nvalue = 5\ncausal = true", &[&[6, 32], &[6, 12], &[6, 2]]),
            "experts" => ("experts = 4\nactive = 2\nhidden = 8", &[&[6, 16], &[6, 4]]),
            "embedding" => ("vocabulary = 50\nfeatures = 8", &[&[6]]),
            "rotary" => ("heads = 2", &[&[6, 32]]),
            "lstm" | "gru" | "rnn" => ("hidden = 8\nlayers = 2", &[&[6, 16]]),
            "group_norm" => ("groups = 2", &[&[4, 6, 6]]),
            "rms_norm" | "class_token" => ("", &[&[6, 16]]),
            "position_embedding" => ("positions = 10", &[&[6, 16]]),
            "relative_position_bias" => ("heads = 2\nwindow = 3", &[&[4, 9, 9]]),
            "cast" => ("to = \"wide\"", &[&[4, 6, 6]]),
            "reshape" => ("shape = [-1, 4]\ncopy = true", &[&[4, 6, 6]]),
            "permute" => ("order = [1, 2, 0]\ncopy = true", &[&[4, 6, 6]]),
            "slice" => ("axis = 0\nsize = 2", &[&[4, 6, 6]]),
            "elementwise" => ("ops = 2\nparameters = 4", &[&[4, 6, 6], &[4, 1, 1]]),
            "resize" => ("output = 12\ninterpolation = \"linear\"", &[&[4, 6, 6]]),
            _ => ("", &[&[4, 6, 6]]),
        };
        let layer = ok(Layer::from_table(kind, ok(fields.parse())).unwrap_or_else(|| panic!("{kind} is unknown")));
        assert_eq!(&layer.kind(), kind);
        let inputs: Vec<Shape> = inputs.iter().map(|d| ok(Shape::new(d))).collect();
        let output = ok(layer.output(&inputs));
        let _ = write!(text, "{kind}  {output}  {}", layer.parameters(&inputs));
        for phase in [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights] {
            let site = Site { batch: 2, inputs: &inputs, output, precision: Precision::Fp32, mode: Mode::Training };
            match layer.cost(phase, &site) {
                Some(c) => {
                    let _ = write!(text, "  {phase} {} {} {}", c.ops.get(), c.read.get(), c.written.get());
                }
                None => {
                    let _ = write!(text, "  {phase} -");
                }
            }
        }
        text.push('\n');
    }
    check("kinds.txt", &text);
}

#[test]
fn description_of_caffenet() {
    let network = shaped("caffenet", 1, Precision::Fp32);
    check("caffenet.txt", &describe::table(&network).to_text());
    check("caffenet_castro2018.txt", &describe::castro_table(&network).to_text());
}

/// The keys of the JSON contract, in order; values are the fit's business.
#[test]
fn keys_of_the_json_document() {
    let p = predicted(&shaped("lenet5", 4, Precision::Fp32), "v100", Mode::Training);
    let plan = Plan { epochs: 2, dataset_size: 60_000, price_per_kwh: Some(0.3), start: Seconds::from_ms(17_000.0) };
    let asked = Asked {
        gpu: "v100",
        source: "zoo",
        framework: "cudnn",
        launch: Launch::Graph,
        training: Some(Training::of(&p, plan, Watts::new(40.0))),
    };
    let shown = Shown { prediction: &p, gpu: &ok(catalog::gpu("v100")), asked: &asked, layers: false };
    let document: serde_json::Value = ok(serde_json::from_str(&ok(shown.export(Format::Json))));
    let mut text = String::new();
    keys(&document, "", &mut text);
    check("prediction_keys.txt", &text);
}

fn keys(value: &serde_json::Value, prefix: &str, text: &mut String) {
    match value {
        serde_json::Value::Object(map) => {
            for (key, inner) in map {
                let _ = writeln!(text, "{prefix}{key}");
                keys(inner, &format!("{prefix}{key}."), text);
            }
        }
        serde_json::Value::Array(items) => {
            if let Some(first) = items.first() {
                keys(first, &format!("{prefix}0."), text);
            }
        }
        _ => {}
    }
}
