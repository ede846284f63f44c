//! The GPUs of the catalog: under which names people find them, and what is predicted of those that nobody measured.

use joulecast_model::base::precision::{Mode, Precision};
use joulecast_model::catalog;
use joulecast_model::device::gpu::{Device, Gpu, Vendor};
use joulecast_model::law::calibration::Tier;
use joulecast_model::law::lookup::Substitute;
use joulecast_model::step::predict::Predictor;
use joulecast_model::step::predictor::{NetworkPrediction, PredictError, Warning};

fn gpu(name: &str) -> Gpu {
    catalog::gpu(name).unwrap_or_else(|e| panic!("{e}"))
}

fn predicted(net: &str, gpu: Gpu, batch: u64, precision: Precision) -> Result<NetworkPrediction, PredictError> {
    let predictor = Predictor::shipped(gpu, catalog::framework("cudnn").expect("known"));
    let network = catalog::network(net).expect("known");
    let shaped = predictor.shape(&network, batch, precision, &[]).expect("fits");
    predictor.predict(&shaped, Mode::Inference)
}

/// Names as they are typed, and as drivers print them.
#[test]
fn boards_are_found_as_people_and_drivers_call_them() {
    for (typed, name) in [
        ("V100", "v100"),
        ("RTX 3090", "rtx3090"),
        ("rtx_3090", "rtx3090"),
        ("RTX-4090", "rtx4090"),
        ("5090", "rtx5090"),
        ("A10", "a10"),
        ("L40S", "l40s"),
        ("B200", "b200"),
        ("gb200", "gb200"),
        ("GB300", "gb300"),
        ("b300", "b300"),
        ("RTX PRO 6000", "rtx-pro-6000"),
        ("mi300x", "mi300x"),
        ("A6000", "rtx-a6000"),
        ("rtx 6000 ada", "rtx-6000-ada"),
        ("Jetson Orin", "jetson-agx-orin"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 5090", "rtx5090"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx2080ti"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
        ("GeForce GTX TITAN X", "titan-x-maxwell"),
        ("NVIDIA TITAN X (Pascal)", "titan-x-pascal"),
        ("NVIDIA TITAN Xp", "titan-xp"),
        ("NVIDIA TITAN V", "titan-v"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("NVIDIA A30", "a30"),
        ("NVIDIA A40", "a40"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L20", "l20"),
        ("NVIDIA L40", "l40"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("Quadro RTX 6000", "quadro-rtx6000"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm4-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm4-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA H800", "h800"),
        ("NVIDIA H20", "h20"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GB300", "gb300"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla V100-PCIE-32GB", "v100-pcie"),
        ("Tesla P100-PCIE-16GB", "p100-pcie"),
        ("Tesla P100-SXM2-16GB", "p100-sxm2"),
        ("Tesla T4", "t4"),
        ("Tesla P4", "p4"),
        ("Tesla M40", "m40"),
        ("Tesla K20m", "k20m"),
        ("AMD Instinct MI250X", "mi250x"),
        ("AMD Instinct MI300X", "mi300x"),
        ("AMD Instinct MI325X", "mi325x"),
        ("AMD Instinct MI355X", "mi355x"),
    ] {
        assert_eq!(gpu(typed).name, name, "{typed}");
    }
    for near in ["", "nvidia", "NVIDIA H200 NVL", "NVIDIA H2000", "rtx309", "a100x", "-"] {
        assert!(catalog::gpu(near).is_err(), "{near} names no board");
    }
}

/// Every name and alias finds its board, however it is written, and no two boards share one.
#[test]
fn names_and_aliases_find_their_board_in_any_spelling() {
    for name in catalog::gpu_names() {
        let board = gpu(name);
        for called in board.aliases.iter().map(String::as_str).chain([name, &board.name]) {
            let spellings =
                [called.to_string(), called.to_uppercase(), called.replace('-', " "), called.replace('-', "_")];
            for spelling in spellings.iter().flat_map(|s| [s.clone(), format!("NVIDIA {s}")]) {
                assert_eq!(gpu(&spelling).name, name, "{spelling}");
            }
        }
    }
}

/// Numbers of a GPU agree with each other: tensor cores are faster in fewer bits, and nothing is a figure with sparsity.
#[test]
fn peaks_are_in_proportion() {
    for name in catalog::gpu_names() {
        let board = gpu(name);
        let of = |precision| board.peak(precision).map(|p| p.get());
        let per_clock = |precision| Some(of(precision)? / board.sms.value as f64 / board.core_clock.boost.value.get());
        // Dense multiply-accumulates of fp16: 4096 on the matrix units of GB100 and CDNA 4, counted as two operations.
        assert!(per_clock(Precision::Fp16).is_none_or(|ops| ops < 8192.0 * 1.001), "{name}");
        if let (Some(fp16), Some(bf16)) = (of(Precision::Fp16), of(Precision::Bf16)) {
            assert_eq!(fp16, bf16, "{name}");
        }
        if let (Some(fp16), Some(tf32)) = (of(Precision::Fp16), of(Precision::Tf32)) {
            assert!((fp16 / tf32 - 2.0).abs() < 0.01, "{name}: {fp16} {tf32}");
        }
        if let Some(fp8) = of(Precision::Fp8) {
            let ratio = fp8 / of(Precision::Fp16).expect("fp16 beside fp8");
            assert!((ratio - 2.0).abs() < 0.01, "{name}: {ratio}");
            assert!(["ada", "hopper", "blackwell", "cdna3", "cdna4"].contains(&board.architecture.as_str()), "{name}");
        }
    }
}

/// resnet50 in fp32 and fp16 on every GPU takes about what its roofline says, or more, and at most twenty times that. A large
/// second-level cache (96 MB on an L40S) keeps some of the traffic from the memory that the roofline counts.
#[test]
fn every_gpu_predicts_between_about_its_roofline_and_twenty_times_that() -> Result<(), PredictError> {
    let mut count = 0;
    for name in catalog::gpu_names() {
        let board = gpu(name);
        if board.device == Device::Cpu {
            continue;
        }
        for precision in [Precision::Fp32, Precision::Fp16] {
            let p = predicted("resnet50", board.clone(), 32, precision)?;
            let (time, bound) = (p.time.value, p.bound);
            assert!(bound * 0.8 <= time && time <= bound * 20.0, "{name} {precision}: {time:?}, roofline {bound:?}");
            assert!(p.time.p05 < time && time < p.time.p95, "{name} {precision}");
            count += 1;
        }
    }
    assert!(count >= 100, "{count}");
    Ok(())
}

/// What is another vendor's rests on other chips' models, with an interval that says so.
#[test]
fn another_vendor_is_told_and_less_certain() -> Result<(), PredictError> {
    for name in ["mi250x", "mi300x", "mi325x", "mi355x"] {
        let board = gpu(name);
        let as_nvidia = Gpu { vendor: Vendor::Nvidia, ..board.clone() };
        for (net, precision) in [("resnet50", Precision::Fp16), ("bert_base", Precision::Fp32)] {
            let own = predicted(net, board.clone(), 32, precision)?;
            let taken = predicted(net, as_nvidia.clone(), 32, precision)?;
            assert!(own.warnings.contains(&Warning::OtherVendor { vendor: Vendor::Amd }), "{name}");
            assert!(!taken.warnings.contains(&Warning::OtherVendor { vendor: Vendor::Amd }), "{name}");
            assert!(own.time_tier >= Tier::Transferred && own.power_tier == Tier::Transferred);
            let spread = |p: &NetworkPrediction| p.time.p95 / p.time.p05;
            assert!(spread(&own) > 1.45 * spread(&taken), "{name} {net}: {} {}", spread(&own), spread(&taken));
        }
    }
    Ok(())
}

/// An H20 has an H200's fp32 lanes and a seventh of its tensor cores: rows of the chip say nothing of the latter.
#[test]
fn a_board_with_fewer_tensor_cores_is_no_sibling_to_them() -> Result<(), PredictError> {
    let tier = |name, precision| predicted("resnet50", gpu(name), 32, precision).map(|p| p.time_tier);
    assert_eq!(tier("h20", Precision::Fp32)?, Tier::Sibling);
    assert_eq!(tier("h800", Precision::Fp16)?, Tier::Sibling);
    assert!(tier("h20", Precision::Fp16)? > Tier::Sibling);
    Ok(())
}

/// Halves on a chip without fast fp16 save bytes and no arithmetic.
#[test]
fn halves_are_stored_where_they_are_not_computed() -> Result<(), PredictError> {
    for name in ["gtx1080ti", "titan-xp", "p4", "m40", "titan-x-maxwell", "k20m"] {
        let board = gpu(name);
        let said = Warning::StoredHalves { gpu: name.into() };
        let of = |net, precision| predicted(net, board.clone(), 16, precision);
        let (halves, full) = (of("vgg16", Precision::Fp16)?, of("vgg16", Precision::Fp32)?);
        assert!(halves.warnings.contains(&said) && !full.warnings.contains(&said), "{name}");
        assert_eq!(halves.read.get() * 2, full.read.get(), "{name}");
        // Convolutions are arithmetic, rectifiers traffic; nothing takes longer.
        for (net, products, moves) in [("vgg16", "conv2d", "relu"), ("bert_base", "linear", "gelu")] {
            let (halves, full) = (of(net, Precision::Fp16)?, of(net, Precision::Fp32)?);
            let ratio = |kind: &str| {
                let sum = |p: &NetworkPrediction| -> f64 {
                    p.layers.iter().filter(|l| l.kind == kind).map(|l| l.time.value.get()).sum()
                };
                sum(&halves) / sum(&full)
            };
            let (products, moves) = (ratio(products), ratio(moves));
            assert!((0.75..1.03).contains(&products), "{name} {net}: products {products}");
            assert!((0.45..0.75).contains(&moves), "{name} {net}: moves {moves}");
        }
        let instead = |w: &Warning| matches!(w, Warning::Substituted { by: Substitute::Precision, .. });
        assert!(halves.warnings.iter().any(|w| instead(w) || matches!(w, Warning::NoRows { .. })), "{name}");
        assert!(halves.memory.total() < full.memory.total());
        let error = predicted("vgg16", board, 16, Precision::Bf16).expect_err("no bf16").to_string();
        assert!(error.contains("has no units that compute in bf16"), "{error}");
    }
    assert!(predicted("lenet5", gpu("i7-6700k"), 1, Precision::Fp16).is_err(), "processors are not said to do so");
    let fast = predicted("vgg16", gpu("v100"), 16, Precision::Fp16)?;
    assert!(!fast.warnings.iter().any(|w| matches!(w, Warning::StoredHalves { .. })));
    Ok(())
}
