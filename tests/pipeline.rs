//! The whole pipeline without a GPU: a table of times that follow a known law, imported, fitted, shipped as text,
//! read back and used for a prediction.

use joulecast_calibrate::fit::choice::Choices;
use joulecast_calibrate::fit::polynomial::Options;
use joulecast_calibrate::fit::recipe::{calibrations, of_any_chip, without_held_out_shapes};
use joulecast_calibrate::fit::waiting::FitBar;
use joulecast_calibrate::judge::validate;
use joulecast_calibrate::rows::dataset;
use joulecast_calibrate::rows::import::{Format, import};
use joulecast_calibrate::rows::prepare::{Row, prepare};
use joulecast_import::table::Mapping;
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::step::calibrations::Calibrations;
use joulecast_model::step::predict::Predictor;
use joulecast_tests::{ok, root};
use std::fmt::Write as _;
use std::fs;

/// The law: a linear layer on the T4 takes 1.25 times its roofline, plus 4 us.
fn law_ms(m: u64, k: u64, n: u64) -> f64 {
    let compute = 2.0 * (m * k * n) as f64 / 8.1408e12;
    let memory = 4.0 * (m * k + k * n + n + m * n) as f64 / 320e9;
    1e3 * (4e-6 + 1.25 * (compute.powi(4) + memory.powi(4)).powf(0.25))
}

fn table() -> String {
    let mut text = String::from("gpu,split,m,k_in,n_out,fwd_ms,flag\n");
    let sizes = [16u64, 64, 160, 256, 384, 640, 1024, 2048];
    for (i, &m) in sizes.iter().enumerate() {
        for (j, &k) in sizes.iter().enumerate() {
            for (l, &n) in sizes.iter().enumerate() {
                if (i + j + l) % 2 == 0 {
                    let _ = writeln!(text, "Tesla T4,train,{m},{k},{n},{:.9},", law_ms(m, k, n));
                }
            }
        }
    }
    text
}

fn rows() -> Vec<Row> {
    let folder = ok(tempfile::tempdir());
    let path = folder.path().join("table.csv");
    ok(fs::write(&path, table()));
    let mapping = ok(fs::read_to_string(root().join("data/published/mappings/neusight_linear.toml")));
    let mapping = mapping.replace("event_single", "graph");
    let format = Format::Table(Box::new(ok(Mapping::from_toml(&mapping))));
    let report = ok(import(&path, &format, None, &folder.path().join("dataset")));
    assert_eq!((report.rows, report.flagged), (256, 0));
    ok(prepare(&ok(dataset::read(&folder.path().join("dataset")))))
}

fn fitted() -> Vec<Calibration> {
    ok(calibrations(&rows(), ok(of_any_chip(&rows())), &[], &Choices::new(), &Options::default(), false))
}

#[test]
fn validation_ranks_the_forms() {
    let bar = FitBar::hidden();
    let options = Options { exponents: &[4], bar: Some(&bar), ..Options::default() };
    let rows = rows();
    let lines = validate::lines(&rows, &ok(validate::held_out(&rows, &rows, &options, 2)), &options);
    assert_eq!(bar.state(), (2, Some(2)), "one model for each seed was told of");
    assert_eq!(lines.len(), 1);
    let line = &lines[0];
    assert!(line.mape.mean < 5.0 && line.mape.sd.is_some(), "{line:?}");
    assert!(line.mape.mean < line.neuralpower_mape && line.mape.mean < line.roofline_mape, "{line:?}");
}

#[test]
fn a_known_law_is_recovered() {
    let list = fitted();
    let t4 = list.iter().find(|c| c.chip == "TU104").unwrap_or_else(|| panic!("no calibration of the T4"));
    let text = ok(t4.to_toml());
    let calibration = ok(Calibration::from_toml(&text));
    let model = calibration
        .model(ModelKey::Kind("linear"), Phase::Forward, Precision::Fp32)
        .unwrap_or_else(|| panic!("no model"));
    assert!(model.cross_validation.mape < 2.0, "{:?}", model.cross_validation);

    let network = ok(Network::from_toml(
        "schema = \"network/1\"\nname = \"fc\"\ntitle = \"fc\"\nlayers = [{ name = \"fc\", kind = \"linear\", features = 700 }]\ninputs.x.shape = [500]\n",
    ));
    let shaped = ok(ShapedNetwork::new(&network, 300, Precision::Fp32, &[]));
    let (gpu, all_chips, framework) =
        (ok(catalog::gpu("t4")), ok(catalog::all_chips()), ok(catalog::framework("cudnn")));
    let calibrations = ok(Calibrations::given([calibration.clone(), all_chips]));
    let p = ok(Predictor::with(gpu, calibrations, framework).predict(&shaped, Mode::Inference));
    let expected = law_ms(300, 500, 700) * 1e-3;
    assert!((p.time.value.get() / expected - 1.0).abs() < 0.05, "{:?} against {expected}", p.time);
    assert!(p.layers[0].in_domain);
    assert_eq!(ok(calibration.to_toml()), text, "written, read and written again");
}

#[test]
fn the_fit_is_deterministic() {
    let options = Options { exponents: &[2], ..Options::default() };
    let texts = || {
        ok(calibrations(&rows(), ok(of_any_chip(&rows())), &[], &Choices::new(), &options, false))
            .iter()
            .map(|c| ok(c.to_toml()))
            .collect::<Vec<_>>()
    };
    assert_eq!(texts(), texts());
}

/// An evaluation fit sees no shape of a test network: VGG-16's last layer is one.
#[test]
fn shapes_of_test_networks_are_left_out() {
    let folder = ok(tempfile::tempdir());
    let path = folder.path().join("table.csv");
    ok(fs::write(
        &path,
        "gpu,split,m,k_in,n_out,fwd_ms,flag\nTesla T4,train,8,4096,1000,0.5,\nTesla T4,train,8,4096,1001,0.5,\n",
    ));
    let mapping = ok(fs::read_to_string(root().join("data/published/mappings/neusight_linear.toml")));
    let format = Format::Table(Box::new(ok(Mapping::from_toml(&mapping))));
    ok(import(&path, &format, None, &folder.path().join("dataset")));
    let rows = ok(prepare(&ok(dataset::read(&folder.path().join("dataset")))));
    assert_eq!(rows.len(), 2);
    assert_eq!(ok(without_held_out_shapes(rows, &[])).len(), 1);
}
