//! Imports of the published files against tidy tables that were extracted from them independently. Neither is in
//! the repository: where they are absent, these tests are skipped.

use super::table::Mapping;
use super::{Imported, neusight, table};
use joulecast_model::rows::measurement::Measurement;
use joulecast_skipped::skipped;
use std::path::PathBuf;

/// A published file, for a test that is skipped without it.
fn published(test: &str, name: &str) -> Option<String> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "..", "shared", "data", "public", name].iter().collect();
    let text = std::fs::read_to_string(&path).ok();
    if text.is_none() {
        skipped(&format!("import::crosscheck::{test}"), &format!("{name} is not on this machine"));
    }
    text
}

fn mapping(name: &str) -> Mapping {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "..", "..", "data", "published", "mappings", &format!("{name}.toml")]
            .iter()
            .collect();
    Mapping::from_toml(&std::fs::read_to_string(path).expect("a mapping file")).expect("a mapping")
}

fn tidy(test: &str, name: &str) -> Option<Imported> {
    Some(table::import(&published(test, &format!("{name}.csv"))?, &mapping(name)).expect("a table"))
}

fn differs(ours: &Measurement, theirs: &Measurement) -> Option<String> {
    let same = ours.case == theirs.case
        && ours.batch == theirs.batch
        && ours.gpu == theirs.gpu
        && ours.form_factor == theirs.form_factor
        && ours.algo == theirs.algo
        && ours.layout == theirs.layout
        && (ours.cuda.as_deref(), ours.cudnn.as_deref()) == (theirs.cuda.as_deref(), theirs.cudnn.as_deref())
        && ours.n == theirs.n
        && (ours.time_s / theirs.time_s - 1.0).abs() < 1e-5;
    (!same).then(|| format!("{ours:?}\n{theirs:?}"))
}

/// The raw files of one GPU against that GPU's first rows in the tidy table, which are its training split.
fn compare(test: &str, op: &str) {
    let raw = format!("raw/neusight/{op}-Tesla V100-PCIE-32GB.csv");
    let (Some(raw), Some(tidy)) = (published(test, &raw), tidy(test, &format!("neusight_{op}"))) else { return };
    let ours = neusight::import("raw.csv", &raw, None, &|_| Some(14.1e12)).expect("a table");
    assert!(ours.skipped.is_empty(), "{:?}", ours.skipped);
    let theirs: Vec<_> = tidy.rows.iter().filter(|m| m.gpu == "v100-pcie").take(ours.rows.len()).collect();
    assert_eq!(ours.rows.len(), theirs.len());
    let different: Vec<_> = ours.rows.iter().zip(&theirs).filter_map(|(a, b)| differs(a, b)).collect();
    assert!(different.is_empty(), "{op}: {} differ, first {}", different.len(), different[0]);
    let agree = ours.rows.iter().zip(&theirs).filter(|(a, b)| a.flags == b.flags).count();
    println!("{op}: {} rows, flags agree in {:.3} %", ours.rows.len(), 100.0 * agree as f64 / ours.rows.len() as f64);
    assert_eq!(agree, ours.rows.len());
}

#[test]
fn neusight_convolutions() {
    compare("neusight_convolutions", "conv");
}

#[test]
fn neusight_linear_layers() {
    compare("neusight_linear_layers", "linear");
}

#[test]
fn neusight_matrix_products() {
    compare("neusight_matrix_products", "bmm");
}

#[test]
fn tidy_tables_are_read_whole() {
    // Rows and left-out lines. Of the 222 lines of convnet-benchmarks, 165 count; those of pooling (22) and
    // rectifiers (67) have two phases.
    let expected = [
        ("neusight_conv", 24_662, 0),
        ("neusight_linear", 37_358, 0),
        ("neusight_bmm", 94_028, 0),
        ("neusight_ln", 7_360, 0),
        ("neusight_softmax", 9_120, 0),
        ("neusight_elementwise", 45_166, 54_244),
        ("convnet_benchmarks_layers", 165 + 22 + 67, 57),
    ];
    for (name, rows, skipped) in expected {
        let Some(text) = published("tidy_tables_are_read_whole", &format!("{name}.csv")) else { return };
        let imported = table::import(&text, &mapping(name.trim_end_matches("_layers"))).expect("a table");
        assert_eq!((imported.rows.len(), imported.skipped.values().sum::<usize>()), (rows, skipped), "{name}");
    }
}

#[test]
fn shipped_mappings_are_valid() {
    let folder: PathBuf = [env!("CARGO_MANIFEST_DIR"), "..", "..", "data", "published", "mappings"].iter().collect();
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .expect("the mappings")
        .map(|entry| entry.expect("an entry").path().file_stem().expect("a name").to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names.len(), 7);
    for name in names {
        assert_eq!(mapping(&name).name(), name);
    }
}
