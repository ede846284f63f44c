//! Which model predicts a kernel that has none of its own, with the calibrations that are shipped.

use joulecast_model::base::precision::{Phase, Precision};
use joulecast_model::catalog;
use joulecast_model::kernel::family::Family;
use joulecast_model::kernel::key::{ConvClass, ModelKey};
use joulecast_model::law::calibration::{Calibration, Tier};
use joulecast_model::law::lookup::{Substitute, find};

const TANH: ModelKey = ModelKey::Kind("tanh");

/// As if hyperbolic tangents had been measured nowhere.
fn without_tanh(calibration: Calibration) -> Calibration {
    let mut models = Vec::from(calibration.models);
    models.retain(|m| m.key != TANH);
    models.iter_mut().for_each(|m| m.covers.retain(|c| c.key != TANH));
    Calibration { models: models.into(), ..calibration }
}

fn chip(name: &str) -> Calibration {
    catalog::calibration(name).expect("valid").expect("shipped")
}

#[test]
fn a_kind_without_rows_anywhere_runs_as_those_that_it_shares_a_model_with() {
    let universal = without_tanh(catalog::all_chips().expect("valid"));
    let substitute = |calibration: &Calibration, phase, precision| {
        find(Some(calibration), &universal, TANH, Family::Stream, phase, precision).expect("a model").substitute
    };
    let measured = chip("gh100");
    assert_eq!(substitute(&measured, Phase::Forward, Precision::Fp16), None);
    let unknown = without_tanh(measured);
    for phase in [Phase::Forward, Phase::BackwardData] {
        for precision in [Precision::Fp32, Precision::Tf32, Precision::Fp16, Precision::Bf16] {
            assert_eq!(substitute(&unknown, phase, precision), Some(Substitute::Shared), "{phase} {precision}");
        }
    }
    // There the model knows rectifiers alone, which says nothing of other kinds.
    assert_eq!(substitute(&chip("gm200"), Phase::Forward, Precision::Fp32), Some(Substitute::Bandwidth));
    // A kind with rows elsewhere stays with the bandwidth of this chip.
    let known = catalog::all_chips().expect("valid");
    let found = find(Some(&unknown), &known, TANH, Family::Stream, Phase::Forward, Precision::Fp16).expect("a model");
    let elsewhere = known.models.iter().any(|m| m.key == TANH);
    assert_eq!(found.substitute, Some(if elsewhere { Substitute::Bandwidth } else { Substitute::Shared }));
}

/// Convolutions of a chip that has rows of matrix products alone go the way that erred less on chips that were left out: by
/// all chips' convolutions or by this chip's products.
#[test]
fn convolutions_without_rows_go_the_way_that_erred_less_elsewhere() {
    let key = ModelKey::Conv(ConvClass::Plain3x3);
    let mut products = chip("gv100");
    products.models = products.models.iter().filter(|m| m.key == ModelKey::Kind("linear")).cloned().collect();
    let substitute = |by_product: f64, by_all: f64| {
        let mut universal = catalog::all_chips().expect("valid");
        let mut models = Vec::from(universal.models);
        for model in &mut models {
            match model.key {
                k if k == key => model.cross_validation.mape = by_all,
                k if Some(k) == key.by_product() => model.cross_validation.mape = by_product,
                _ => continue,
            }
        }
        universal.models = models.into();
        let (phase, precision) = (Phase::BackwardData, Precision::Fp32);
        let found = find(Some(&products), &universal, key, Family::Gemm, phase, precision).expect("a model");
        (found.substitute, found.calibrated)
    };
    assert_eq!(substitute(40.0, 30.0), (Some(Substitute::Universal), true));
    assert_eq!(substitute(30.0, 40.0), (Some(Substitute::Product), true));
}

/// One chip alone has rows of several results of every channel: everywhere else its law is a substitute whose residuals nobody
/// compared. Rows of a second chip make [`ModelKey::is_of_one_chip`] wrong.
#[test]
fn several_results_of_every_channel_are_of_one_chip() {
    let key = ModelKey::Conv(ConvClass::DepthwiseMultiplier);
    let chips = ["ad102", "ga100", "gb100", "gh100", "gm200", "gp100", "gp102", "gp104", "gv100", "tu104"];
    assert_eq!(catalog::calibration_files().count(), chips.len() + 1, "a chip that is not asked here");
    let with = |key: ModelKey| -> Vec<&str> { chips.into_iter().filter(|name| chip(name).knows_kind(key)).collect() };
    assert_eq!(with(key), ["gh100"]);
    assert!(key.is_of_one_chip());
    let plain = ModelKey::Conv(ConvClass::Plain3x3);
    assert!(with(plain).len() > 1 && !plain.is_of_one_chip());
    let universal = catalog::all_chips().expect("valid");
    let (measured, other) = (chip("gh100"), chip("ad102"));
    for precision in [Precision::Fp32, Precision::Fp16, Precision::Bf16] {
        for phase in [Phase::Forward, Phase::BackwardData, Phase::BackwardWeights] {
            let found = |on| find(Some(on), &universal, key, Family::Gemm, phase, precision).expect("a model");
            let (own, elsewhere) = (found(&measured), found(&other));
            assert_eq!((own.substitute, own.tier), (None, Tier::Measured));
            assert_eq!((elsewhere.substitute, elsewhere.tier), (Some(Substitute::OneChip), Tier::Transferred));
            assert!(!elsewhere.trusted(true), "{phase} {precision}: its interval must be wider");
        }
    }
}
