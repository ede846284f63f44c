//! Scratch memory of convolutions by named algorithms, against what cuDNN asked for on an H200.

use joulecast_calibrate::rows::dataset;
use joulecast_model::base::precision::Phase;
use joulecast_model::kernel::setting::Algorithm;
use joulecast_model::net::layer::Layer;
use joulecast_tests::{ok, root};

/// Shares of the rows whose scratch memory is within 1 and within 25 % of what is computed.
fn within(algorithm: Algorithm) -> (usize, f64, f64) {
    let rows = ok(dataset::read(&root().join("data/measurements/h200/algorithms")));
    let ratios: Vec<f64> = rows
        .iter()
        .filter(|r| r.algorithm == Some(algorithm) && r.phase == Phase::Forward)
        .filter_map(|r| {
            let Layer::Conv2d(conv) = &r.case.layer else { return None };
            let computed = algorithm.workspace(conv, r.case.inputs.first()?, &r.case.output().ok()?, r.batch);
            Some(r.workspace_bytes? as f64 / computed.to_f64())
        })
        .collect();
    let share = |edge: f64| ratios.iter().filter(|r| (*r - 1.0).abs() <= edge).count() as f64 / ratios.len() as f64;
    (ratios.len(), share(0.01), share(0.25))
}

#[test]
fn workspaces_are_those_that_cudnn_asks_for() {
    for (algorithm, exact, near) in
        [(Algorithm::Fft, 0.2, 0.7), (Algorithm::FftTiling, 0.4, 0.5), (Algorithm::WinogradNonfused, 0.4, 0.6)]
    {
        let (count, one, quarter) = within(algorithm);
        println!("{algorithm}: {count} rows, {:.0} % within 1 %, {:.0} % within 25 %", 100.0 * one, 100.0 * quarter);
        assert!(count > 100 && one >= exact && quarter >= near, "{algorithm}: {count} rows, {one:.2}, {quarter:.2}");
    }
}
