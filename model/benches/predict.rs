//! Time of one library prediction of ResNet-50, and of reading what it needs.
#![allow(missing_docs)] // the macros of criterion generate an undocumented function

use criterion::{Criterion, criterion_group, criterion_main};
use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::base::units::Watts;
use joulecast_model::catalog;
use joulecast_model::net::network::ShapedNetwork;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::OperatingPoint;
use std::hint::black_box;

fn resnet50(c: &mut Criterion) {
    let gpu = catalog::gpu("v100").expect("a shipped device");
    let chip = gpu.chip.clone();
    let framework = catalog::framework("cudnn").expect("a shipped profile");
    let network = catalog::network("resnet50").expect("a shipped network");
    let shaped = ShapedNetwork::new(&network, 64, Precision::Fp32, &[]).expect("fits");
    let (predictor, mode) = (Predictor::shipped(gpu, framework), Mode::Inference);
    c.bench_function("predict resnet50 on v100", |b| b.iter(|| predictor.predict(black_box(&shaped), mode)));
    c.bench_function("prepare resnet50 on v100", |b| {
        b.iter(|| predictor.step(black_box(&shaped), mode).map(|s| s.prepare().cost))
    });
    // What `predict sweep` does for batches.
    let over = predictor.over_batches(&shaped, mode).expect("a prediction").expect("the same kernels");
    c.bench_function("resnet50 on v100 at eight other batches", |b| {
        b.iter(|| {
            let batches = [41, 42, 43, 44, 45, 46, 47, 48];
            over.each(black_box(&batches), |_, prepared| prepared.at(OperatingPoint::default())).expect("a prediction")
        })
    });
    let step = predictor.step(&shaped, mode).expect("a prediction");
    let capped = OperatingPoint { power_cap: Some(Watts::new(200.0)), ..OperatingPoint::default() };
    c.bench_function("resnet50 on v100 under a limit", |b| b.iter(|| step.at(black_box(capped))));
    c.bench_function("shape resnet50", |b| {
        b.iter(|| ShapedNetwork::new(black_box(&network), 64, Precision::Fp32, &[]))
    });
    c.bench_function("read the v100 calibration", |b| b.iter(|| catalog::calibration(black_box(&chip))));
}

criterion_group!(benches, resnet50);
criterion_main!(benches);
