//! From rows of several chips to a chip that was not among them, and with few of its rows.

use joulecast_calibrate::fit::choice::Choices;
use joulecast_calibrate::fit::polynomial::Options;
use joulecast_calibrate::fit::recipe::{calibrations, few_shot, of_any_chip};
use joulecast_calibrate::fit::transfer::predict;
use joulecast_calibrate::judge::leave_out;
use joulecast_calibrate::rows::dataset;
use joulecast_calibrate::rows::import::{Format, import};
use joulecast_calibrate::rows::prepare::{Row, prepare_alike};
use joulecast_import::table::Mapping;
use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::ModelKey;
use joulecast_model::law::calibration::{Calibration, Tier};
use joulecast_tests::{ok, root};
use std::fmt::Write as _;
use std::fs;

/// Name in the published files, name here, and how much longer than on the others a layer takes on it.
const CHIPS: [(&str, &str, f64); 5] = [
    ("Tesla T4", "t4", 1.1),
    ("Tesla P4", "p4", 0.9),
    ("Tesla V100-PCIE-32GB", "v100-pcie", 1.0),
    ("Tesla P100-PCIE-16GB", "p100-pcie", 1.05),
    ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb", 1.6),
];

/// A linear layer takes 1.3 times its roofline with a floor, a little more where the contraction is short.
fn law_ms(gpu: &str, factor: f64, [m, k, n]: [u64; 3]) -> f64 {
    let gpu = ok(catalog::gpu(gpu));
    let peak = gpu.peak(Precision::Fp32).map_or(f64::NAN, |p| p.get());
    let compute = 2.0 * (m * k * n) as f64 / peak;
    let memory = 4.0 * (m * k + k * n + n + m * n) as f64 / gpu.bandwidth.value.get();
    let bound = (compute.powi(2) + memory.powi(2) + 4e-6f64.powi(2)).sqrt();
    1e3 * factor * 1.3 * (1024.0 / k as f64).powf(0.1) * bound
}

/// Rows of some of the chips: every `every`-th shape.
fn rows(chips: &[(&str, &str, f64)], every: usize) -> Vec<Row> {
    let mut text = String::from("gpu,split,m,k_in,n_out,fwd_ms,flag\n");
    let sizes = [64u64, 160, 256, 384, 640, 1024, 2048];
    for (name, gpu, factor) in chips {
        let shapes = sizes.iter().flat_map(|&m| sizes.iter().flat_map(move |&k| sizes.map(|n| [m, k, n])));
        for shape in shapes.step_by(every) {
            let [m, k, n] = shape;
            let _ = writeln!(text, "{name},train,{m},{k},{n},{:.9},", law_ms(gpu, *factor, shape));
        }
    }
    let folder = ok(tempfile::tempdir());
    let path = folder.path().join("table.csv");
    ok(fs::write(&path, text));
    let mapping = ok(fs::read_to_string(root().join("data/published/mappings/neusight_linear.toml")));
    let format = Format::Table(Box::new(ok(Mapping::from_toml(&mapping.replace("event_single", "graph")))));
    ok(import(&path, &format, None, &folder.path().join("dataset")));
    ok(prepare_alike(&ok(dataset::read(&folder.path().join("dataset")))))
}

/// Mean absolute error in percent, and the share of times in the interval.
fn judge(calibration: Option<&Calibration>, base: &Calibration, rows: &[Row]) -> (f64, f64) {
    let rows: Vec<&Row> = rows.iter().collect();
    let target = (ModelKey::Kind("linear"), Family::Gemm, Phase::Forward, Precision::Fp32);
    let predicted = predict(calibration, base, target, &rows);
    let pairs: Vec<_> = rows.iter().zip(predicted).map(|(r, p)| (r.time.get(), p.expect("a model"))).collect();
    let n = pairs.len() as f64;
    let error = pairs.iter().map(|(t, p)| (p.time / t - 1.0).abs()).sum::<f64>() / n;
    let held = pairs.iter().filter(|(t, p)| (p.p05..=p.p95).contains(t)).count() as f64 / n;
    (100.0 * error, 100.0 * held)
}

#[test]
fn a_chip_without_rows_is_predicted_and_few_rows_correct_it() {
    let others = rows(&CHIPS[..4], 1);
    let all = ok(calibrations(&others, ok(of_any_chip(&others)), &[], &Choices::new(), &Options::default(), false));
    let base = all.iter().find(|c| c.chip == "any").expect("models of all chips");
    let text = ok(base.to_toml());
    let base = ok(Calibration::from_toml(&text));
    let held_out = rows(&CHIPS[4..], 1);
    let (zero, _) = judge(None, &base, &held_out);
    assert!((25.0..45.0).contains(&zero), "the law but for the chip's factor of 1.6, about 35 %: {zero}");

    let few = ok(few_shot(&rows(&CHIPS[4..], 16), &base));
    let [few] = &few[..] else { unreachable!("one chip") };
    assert_eq!((few.tier, few.chip.as_str()), (Tier::Transferred, "GA100"));
    let few = ok(Calibration::from_toml(&ok(few.to_toml())));
    let (corrected, held) = judge(Some(&few), &base, &held_out);
    assert!(corrected < 8.0, "{corrected}");
    assert!(held > 60.0, "intervals of chips that lie 10 % apart, for one that lay 60 % off: {held}");
}

/// Fits that nobody judged have no residuals, and errors all the same.
#[test]
fn ways_of_fitting_are_compared_by_errors_alone() {
    let trials = leave_out::trials(&rows(&CHIPS[..4], 2));
    for trial in &trials {
        let [convolutions, linear, _] = trial.kinds;
        assert!(convolutions.is_nan(), "no row is of a convolution");
        assert!((1.0..60.0).contains(&linear), "{}: chips lie 10 % apart, not {linear} %", trial.fit);
    }
    let of = |fit: &str| trials.iter().find(|t| t.fit == fit).expect("a way").kinds[1];
    assert!(of("as shipped") < of("no terms"), "{trials:?}");
}

#[test]
fn a_base_of_one_chip_is_refused() {
    let one = rows(&CHIPS[..1], 4);
    let all = ok(calibrations(
        &one,
        ok(of_any_chip(&one)),
        &[],
        &Choices::new(),
        &Options { exponents: &[2], ..Options::default() },
        false,
    ));
    let base = all.iter().find(|c| c.chip == "any").expect("efficiencies");
    let error = few_shot(&one, base).expect_err("nothing is known of other chips");
    assert!(format!("{error:#}").contains("not fitted to several chips"), "{error:#}");
}
