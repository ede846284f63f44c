//! `calibrate detect` through a simulated NVML, and without one.

use joulecast_fake_nvml::testing::FakeGpu;
use joulecast_kernels::nvml::LIBRARY_VARIABLE;
use std::path::Path;
use std::process::{Command, Output};

fn detect(nvml: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_calibrate"));
    command.arg("detect").args(more).env(LIBRARY_VARIABLE, nvml).output().expect("the program starts")
}

fn said(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_gpu_is_named_with_its_calibration_and_what_one_of_its_own_takes() {
    let gpu = FakeGpu::new();
    let output = detect(&gpu.library(), &["--gpu", "h100-nvl"]);
    let text = said(&output.stdout);
    assert!(output.status.success(), "{}", said(&output.stderr));
    for expected in [
        "name: Fake H200",
        "driver: ",
        "of the same chip on other boards (h100-sxm, h200",
        "calibrate run --plan quick",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn a_product_that_nobody_described_gets_the_universal_models() {
    let gpu = FakeGpu::new();
    let text = said(&detect(&gpu.library(), &[]).stdout);
    assert!(
        text.contains("no file in data/gpus describes \"Fake H200\"") && text.contains("calibration: universal"),
        "{text}"
    );
}

#[test]
fn without_a_driver_or_with_a_lost_gpu_it_says_what_is_wrong() {
    let missing = detect(Path::new("/nowhere/libnvidia-ml.so.1"), &[]);
    assert_eq!(missing.status.code(), Some(1));
    let error = said(&missing.stderr);
    assert!(error.contains("NVML is not available") && error.lines().count() == 1, "{error}");
    let gpu = FakeGpu::new();
    gpu.change(|s| s.faults.lost = true);
    let lost = detect(&gpu.library(), &[]);
    assert_eq!(lost.status.code(), Some(1));
    assert!(said(&lost.stderr).contains("device lost"), "{}", said(&lost.stderr));
}
