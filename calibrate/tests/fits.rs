//! What a small dataset is fitted to, number by number: rows of `data/measurements/h200/layers`, and the same as if two
//! other GPUs had been measured, each slower by a factor of its own. A change of the fits that should change nothing changes
//! nothing here; else `UPDATE_GOLDEN=1 cargo test -p joulecast-calibrate --test fits` and a look at the difference.

use anyhow::Result;
use joulecast_calibrate::fit::choice::Choices;
use joulecast_calibrate::fit::polynomial::Options;
use joulecast_calibrate::fit::{neuralpower, power, recipe, siblings, task};
use joulecast_calibrate::judge::networks::{compare, read_runs};
use joulecast_calibrate::judge::{spread, validate};
use joulecast_calibrate::rows::dataset;
use joulecast_calibrate::rows::prepare::{Row, prepare};
use joulecast_model::base::precision::Precision;
use joulecast_model::law::calibration::{Calibration, LayerModel};
use joulecast_model::rows::measurement::{Measurement, Regime};
use joulecast_reports::networks::table;
use joulecast_reports::table::Table;
use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Numbers may differ by so much: processors add in other orders.
const NEAR: f64 = 2e-3;
const KINDS: [&str; 6] = ["linear", "batch_norm", "conv2d", "relu", "add", "multiply"];

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/measurements/h200")
}

/// One row in so many of a few kinds, and those whose trials have energy; then the fp32 forward ones as other GPUs' rows.
fn measurements() -> Result<Vec<Measurement>> {
    let all = dataset::read(&data().join("layers"))?;
    let of_kind = |m: &&Measurement| KINDS.contains(&m.case.layer.kind());
    let sustained = all.iter().filter(|m| m.regime == Regime::Sustained).map(|m| m.trial_id.as_str());
    let with_energy: HashSet<&str> = sustained.collect();
    let kept =
        |(i, m): (usize, &Measurement)| (i % 16 == 0 || with_energy.contains(m.trial_id.as_str())).then(|| m.clone());
    let mut rows: Vec<Measurement> = all.iter().filter(of_kind).enumerate().filter_map(kept).collect();
    let forward: Vec<Measurement> = rows
        .iter()
        .filter(|m| m.precision == Precision::Fp32 && m.phase.name() == "forward" && m.regime == Regime::Burst)
        .cloned()
        .collect();
    for (gpu, slower) in [("v100", 3.1), ("v100-pcie", 3.7), ("t4", 9.0)] {
        rows.extend(forward.iter().enumerate().map(|(i, m)| Measurement {
            row_id: format!("{} as {gpu}", m.row_id),
            gpu: gpu.to_string(),
            source: "deepbench".to_string(),
            regime: Regime::Import,
            algorithm: None,
            method: "loop".to_string(),
            time_s: m.time_s * slower * (1.0 + 0.04 * (i % 7) as f64),
            energy_j: None,
            power_w: None,
            ..m.clone()
        }));
    }
    Ok(rows)
}

/// A model in few numbers: its head, its first terms, and sums over the rest.
fn model(text: &mut String, m: &LayerModel) {
    let of = |values: &mut dyn Iterator<Item = f64>| values.sum::<f64>();
    let _ = write!(text, "  {} {} {} p {} floor {:e}", m.key, m.phase, m.precision, m.exponent, m.floor.get());
    let _ = write!(text, " intercept {:.6e} shortest {:.6e} library {:.3}", m.intercept, m.shortest.get(), m.library);
    let _ = write!(
        text,
        " ratio {:.5} {:.5} ordinary {:.5} {:.5}",
        m.ratio_range.0, m.ratio_range.1, m.ordinary_range.0, m.ordinary_range.1
    );
    let cv = m.cross_validation;
    let _ =
        writeln!(text, " rows {} errors {:.5} {:.5} {:.5} boards {:?}", m.rows, cv.mape, cv.rmspe, cv.median, m.boards);
    for t in m.terms.iter().take(4) {
        let _ = writeln!(text, "    {} {:.6e} {:.6e} {:.6e}", t.name(m.family), t.coefficient, t.mean, t.scale);
    }
    let absolute = of(&mut m.terms.iter().map(|t| t.coefficient.abs()));
    let _ = write!(
        text,
        "    {} terms {absolute:.6e} {:.6e}",
        m.terms.len(),
        of(&mut m.terms.iter().map(|t| t.mean / t.scale))
    );
    for (name, ranges) in [("clamp", &m.clamp), ("domain", &m.domain)] {
        let (low, high) = (of(&mut ranges.iter().map(|r| r.low)), of(&mut ranges.iter().map(|r| r.high)));
        let _ = write!(text, " {name} {} {low:.6e} {high:.6e}", ranges.len());
    }
    let s = &m.sizes;
    let _ = writeln!(
        text,
        " sizes {} {:.6e} {:.6e} {:.4e}",
        s.variables.len(),
        of(&mut s.mean.iter().copied()),
        of(&mut s.scale.iter().copied()),
        of(&mut s.inverse.iter().map(|v| v.abs()))
    );
    for b in &m.residuals {
        let _ = writeln!(text, "    up to {:.5e}: {:.6} {:.6} of {}", b.up_to.get(), b.low, b.high, b.rows);
    }
}

fn calibration(text: &mut String, c: &Calibration) {
    let _ = writeln!(text, "{} {} {} {:?} {:?} {}", c.id, c.chip, c.tier, c.boards, c.sources, c.software);
    if let Some(p) = &c.power {
        let _ = writeln!(
            text,
            "  power {:.6?} burst {:.4?} headroom {:.4} residuals {:.5?} mape {:.4} rows {}",
            p.coefficients, p.burst, p.headroom, p.residuals, p.mape, p.rows
        );
        if let Some(k) = &p.correction {
            let _ = writeln!(text, "  correction {:.6} {:.6?} {:.5?}", k.intercept, k.terms, k.clamp);
        }
    }
    for n in &c.networks {
        let _ = writeln!(
            text,
            "  network {} {} {} {:.5?} {:.5?} {:.5?} {:?} {} {:.4?}",
            n.framework, n.mode, n.launch_bound, n.time, n.power, n.energy, n.names, n.runs, n.held
        );
    }
    if let Some(t) = &c.transfer {
        let _ = writeln!(text, "  siblings {:.5?}", t.siblings);
        for s in &t.slopes {
            let _ = writeln!(
                text,
                "  slope {} {:?} {:.6e}",
                s.share,
                s.factors.iter().map(|f| (f.variable, f.power)).collect::<Vec<_>>(),
                s.deviation
            );
        }
        for r in &t.residuals {
            let _ = writeln!(text, "  known {} {} {}: {:.6} {:.6}", r.share, r.arithmetic, r.rows, r.low, r.high);
        }
    }
    c.models.iter().for_each(|m| model(text, m));
}

fn lines(text: &mut String, rows: &[Row], options: &Options) -> Result<()> {
    for line in validate::lines(rows, &validate::held_out(rows, rows, options, 1)?, options) {
        let _ = writeln!(text, "{}", serde_json::to_string(&line)?);
    }
    for (name, file) in neuralpower::files(rows)? {
        let _ = writeln!(
            text,
            "{name}: {} bytes\n{}",
            file.len() / 200,
            file.lines().take(14).collect::<Vec<_>>().join("\n")
        );
    }
    Ok(())
}

/// Everything that fits say, as text.
fn fits() -> Result<String> {
    let measurements = measurements()?;
    let rows = prepare(&measurements)?;
    let options = Options { most_terms: 15, exponents: &[1, 2], folds: 3, ..Options::default() };
    let mut text = format!("{} measurements, {} rows\n\n# calibrations\n", measurements.len(), rows.len());
    let mut all = recipe::calibrations(&rows, None, &measurements, &Choices::new(), &options, false)?;
    let runs: Vec<_> = read_runs(&data().join("torch_networks.csv"))?.into_iter().step_by(3).collect();
    spread::add(&runs, &[], &mut all)?;
    all.iter().for_each(|c| calibration(&mut text, c));
    let _ = writeln!(text, "\n# judged\n");
    // The comparator's polynomials of convolutions have hundreds of terms.
    let few: Vec<Row> = rows.iter().filter(|r| ["linear", "relu"].contains(&r.kind)).cloned().collect();
    lines(&mut text, &few, &options)?;
    let tasks = task::tasks(&rows);
    text += &Table::of(&siblings::lines(&siblings::left_out(&tasks, &options)?, &BTreeMap::new())).to_text();
    for (chip, rows) in power::rows(&measurements, &rows)? {
        if let Some((_, held_out)) = power::fit(&rows, &options)? {
            text += &Table::of(&power::lines(&chip, &rows, &held_out)).to_text();
        }
    }
    let compared = compare(&runs[..runs.len().min(24)], &all, "pytorch", None)?;
    text += &table(&compared).to_text();
    text += &Table::of(&compared).to_text();
    let _ = writeln!(text, "{}", recipe::held_out_hash(&[])?.len());
    let _ = writeln!(text, "{} rows without held-out shapes", recipe::without_held_out_shapes(rows, &[])?.len());
    Ok(text)
}

/// Words and numbers of a text.
fn tokens(text: &str) -> Vec<&str> {
    text.split(|c: char| c.is_whitespace() || "[](){},:\"".contains(c)).filter(|t| !t.is_empty()).collect()
}

#[test]
fn a_small_dataset_is_fitted_to_these_numbers() -> Result<()> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/fits.txt");
    let actual = fits()?;
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, &actual)?;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let (a, e) = (tokens(&actual), tokens(&expected));
    let same = |a: &str, e: &str| match (a.parse::<f64>(), e.parse::<f64>()) {
        (Ok(a), Ok(e)) => a == e || (a - e).abs() <= NEAR * a.abs().max(e.abs()).max(1e-6),
        _ => a == e,
    };
    let differs = a.iter().zip(&e).position(|(a, e)| !same(a, e));
    let around = |t: &[&str], i: usize| t[i.saturating_sub(12)..(i + 3).min(t.len())].join(" ");
    if let Some(i) = differs {
        panic!("token {i}: expected … {}\nfound … {}", around(&e, i), around(&a, i));
    }
    assert_eq!(a.len(), e.len(), "more or fewer numbers");
    Ok(())
}
