//! Damaged files of every kind that is read: an error in one line or a valid reading, never a panic, and nothing
//! half-written.

use joulecast_calibrate::rows::import::{Format, import};
use joulecast_import::table::Mapping;
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::device::gpu::Gpu;
use joulecast_model::device::interconnect::Interconnect;
use joulecast_model::law::calibration::Calibration;
use joulecast_model::net::network::{Network, ShapedNetwork};
use joulecast_model::rows::splits::Splits;
use joulecast_model::step::framework::Framework;
use joulecast_read::caffe;
use joulecast_read::huggingface;
use joulecast_read::onnx;
use joulecast_tests::{ok, root, seeded};
use proptest::prelude::*;
use std::fs;
use std::io::Cursor;
use std::sync::LazyLock;

/// A change to some bytes.
#[derive(Clone, Debug)]
enum Change {
    Cut(f64),
    Flip(f64, u8),
    Insert(f64, Vec<u8>),
    Remove(f64, usize),
    Repeat(f64, usize),
    /// Far more than a name or message should hold.
    Swell(f64, char),
}

fn change() -> impl Strategy<Value = Change> {
    let place = 0.0..1.0f64;
    prop_oneof![
        place.clone().prop_map(Change::Cut),
        (place.clone(), any::<u8>()).prop_map(|(p, b)| Change::Flip(p, b)),
        (place.clone(), proptest::collection::vec(any::<u8>(), 1..6)).prop_map(|(p, b)| Change::Insert(p, b)),
        (
            place.clone(),
            prop_oneof![
                Just("-1"),
                Just("0"),
                Just("1e999"),
                Just("nan"),
                Just("99999999999999999999"),
                Just("\""),
                Just("[["),
                Just("$x"),
                Just(","),
                Just("18446744073709551615"),
                Just("\n")
            ]
        )
            .prop_map(|(p, text)| Change::Insert(p, text.as_bytes().to_vec())),
        (place.clone(), 1usize..80).prop_map(|(p, n)| Change::Remove(p, n)),
        (place.clone(), 1usize..200).prop_map(|(p, n)| Change::Repeat(p, n)),
        (place, prop_oneof![Just('x'), Just('\u{1b}'), Just('<'), Just('\u{e9}')])
            .prop_map(|(p, c)| Change::Swell(p, c)),
    ]
}

fn apply(bytes: &[u8], changes: &[Change]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    for change in changes {
        let at = |p: &f64, length: usize| ((length as f64 * p) as usize).min(length);
        let length = bytes.len();
        match change {
            Change::Cut(p) => bytes.truncate(at(p, length)),
            Change::Flip(p, b) => {
                if let Some(byte) = bytes.get_mut(at(p, length)) {
                    *byte ^= b;
                }
            }
            Change::Insert(p, new) => {
                let place = at(p, length);
                bytes.splice(place..place, new.iter().copied());
            }
            Change::Remove(p, n) => {
                let start = at(p, length);
                bytes.drain(start..(start + n).min(length));
            }
            Change::Swell(p, c) => {
                let place = at(p, length);
                bytes.splice(place..place, c.to_string().repeat(20_000).into_bytes());
            }
            Change::Repeat(p, n) => {
                let start = at(p, length);
                let again = bytes[start..(start + n).min(length)].to_vec();
                bytes.splice(start..start, again);
            }
        }
    }
    bytes
}

fn one_line<T, E: std::fmt::Display>(result: Result<T, E>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(error) => {
            let text = format!("{error:#}");
            assert!(!text.trim().is_empty() && !text.contains('\n'), "one line: {text:?}");
            assert!(text.len() < 2000, "a short line: {} bytes", text.len());
            let line = joulecast_reports::error_line(std::iter::once(text));
            assert!(line.chars().count() <= 300 && !line.contains(char::is_control), "{line:?}");
            None
        }
    }
}

/// Whatever a file calls itself, no output holds more than a name.
fn only_names<const N: usize>(names: [&String; N]) {
    for name in names {
        let wrong = |c: char| c.is_control() || "<>[]|*`".contains(c);
        assert!(name.len() < 700 && !name.contains(wrong), "{name:?}");
    }
}

fn file(path: &str) -> String {
    ok(fs::read_to_string(root().join(path)))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..seeded() })]

    #[test]
    fn network_files(changes in proptest::collection::vec(change(), 1..4), which in 0usize..3) {
        let text = file(["data/nets/resnet18.toml", "data/nets/googlenet_bn.toml", "data/nets/lenet5.toml"][which]);
        let damaged = String::from_utf8_lossy(&apply(text.as_bytes(), &changes)).into_owned();
        if let Some(network) = one_line(Network::from_toml(&damaged)) {
            only_names([&network.name, &network.title]);
            prop_assert!(Network::from_toml(&network.to_toml()).is_ok_and(|again| again == network));
            let _ = one_line(ShapedNetwork::new(&network, 7, Precision::Fp16, &[]));
        }
    }

    #[test]
    fn onnx_files(changes in proptest::collection::vec(change(), 1..4), which in 0usize..3) {
        let name = ["alexnet", "resnet50", "odd/unknown_operator"][which];
        let damaged = apply(&ok(fs::read(root().join(format!("model/read/tests/onnx/{name}.onnx")))), &changes);
        let options = onnx::Options { name, skip_unknown: which == 2, ..onnx::Options::default() };
        if let Some(network) = one_line(onnx::read(Cursor::new(damaged), &options)) {
            let _ = one_line(ShapedNetwork::new(&network, 7, Precision::Fp16, &[]));
            only_names([&network.name, &network.title]);
            prop_assert!(Network::from_toml(&network.to_toml()).is_ok());
        }
    }

    #[test]
    fn transformers_as_onnx_files(changes in proptest::collection::vec(change(), 1..4), which in 0usize..2) {
        static FILES: LazyLock<[Vec<u8>; 2]> = LazyLock::new(|| {
            ["bert_base", "swin_t"].map(|name| ok(onnx::write(&ok(catalog::network(name)))))
        });
        let damaged = apply(&FILES[which], &changes);
        if let Some(network) = one_line(onnx::read(Cursor::new(damaged), &onnx::Options::default())) {
            let _ = one_line(ShapedNetwork::new(&network, 7, Precision::Fp16, &[]));
        }
    }

    #[test]
    fn prototxt_files(changes in proptest::collection::vec(change(), 1..4)) {
        let damaged = String::from_utf8_lossy(&apply(PROTOTXT.as_bytes(), &changes)).into_owned();
        if let Some(network) = one_line(caffe::read(&damaged, "damaged", &[])) {
            let _ = one_line(ShapedNetwork::new(&network, 7, Precision::Fp16, &[]));
            only_names([&network.name, &network.title]);
            prop_assert!(Network::from_toml(&network.to_toml()).is_ok());
        }
    }

    #[test]
    fn language_model_files(changes in proptest::collection::vec(change(), 1..4), which in 0usize..3) {
        let text = file(&format!("model/read/tests/huggingface/{}.json", ["pythia_70m", "gemma3_1b", "deepseek_v2_lite"][which]));
        let damaged = String::from_utf8_lossy(&apply(text.as_bytes(), &changes)).into_owned();
        if let Some(network) = one_line(huggingface::read(&damaged, "damaged")) {
            let _ = one_line(ShapedNetwork::new(&network, 7, Precision::Fp16, &[]));
            only_names([&network.name, &network.title]);
            prop_assert!(Network::from_toml(&network.to_toml()).is_ok());
        }
    }

    #[test]
    fn device_files(changes in proptest::collection::vec(change(), 1..4)) {
        let damaged = apply(file("data/gpus/v100.toml").as_bytes(), &changes);
        if let Some(gpu) = one_line(Gpu::from_toml(&String::from_utf8_lossy(&damaged))) {
            only_names([&gpu.name, &gpu.title, &gpu.chip, &gpu.architecture, &gpu.form_factor]);
        }
    }

    #[test]
    fn calibration_files(changes in proptest::collection::vec(change(), 1..4)) {
        let damaged = apply(file("data/calibrations/gp102.toml").as_bytes(), &changes);
        if let Some(calibration) = one_line(Calibration::from_toml(&String::from_utf8_lossy(&damaged))) {
            only_names([&calibration.id, &calibration.chip]);
        }
    }

    #[test]
    fn profiles_splits_and_mappings(changes in proptest::collection::vec(change(), 1..4)) {
        let damage = |path: &str| String::from_utf8_lossy(&apply(file(path).as_bytes(), &changes)).into_owned();
        let _ = one_line(Framework::from_toml(&damage("data/frameworks/cudnn.toml")));
        let _ = one_line(Splits::from_toml(&damage("data/splits.toml")));
        let _ = one_line(Mapping::from_toml(&damage("data/published/mappings/neusight_conv.toml")));
    }

    #[test]
    fn measured_tables(changes in proptest::collection::vec(change(), 1..4)) {
        let folder = ok(tempfile::tempdir());
        let path = folder.path().join("linear.csv");
        ok(fs::write(&path, apply(NEUSIGHT.as_bytes(), &changes)));
        let dataset = folder.path().join("dataset");
        let written = one_line(import(&path, &Format::Neusight, None, &dataset)).is_some();
        prop_assert_eq!(segments(&dataset), usize::from(written));
    }

    #[test]
    fn measured_tables_with_a_mapping(changes in proptest::collection::vec(change(), 1..4)) {
        let folder = ok(tempfile::tempdir());
        let path = folder.path().join("table.csv");
        let table = "gpu,split,m,k_in,n_out,fwd_ms,flag\nTesla T4,train,8,64,128,0.5,\nTesla T4,train,16,64,128,0.9,x\n";
        ok(fs::write(&path, apply(table.as_bytes(), &changes)));
        let mapping = ok(Mapping::from_toml(&file("data/published/mappings/neusight_linear.toml")));
        let dataset = folder.path().join("dataset");
        let written = one_line(import(&path, &Format::Table(Box::new(mapping)), None, &dataset)).is_some();
        prop_assert_eq!(segments(&dataset), usize::from(written));
    }

    #[test]
    fn workbooks(changes in proptest::collection::vec(change(), 1..4)) {
        let folder = ok(tempfile::tempdir());
        let path = folder.path().join("DeepBench_NV_V100.xlsx");
        ok(fs::write(&path, apply(&workbook(), &changes)));
        let dataset = folder.path().join("dataset");
        let written = one_line(import(&path, &Format::Deepbench, None, &dataset)).is_some();
        prop_assert_eq!(segments(&dataset), usize::from(written));
    }
}

/// Segments in a dataset's folder; every one has its checksum beside it, and nothing unfinished is left.
fn segments(dataset: &std::path::Path) -> usize {
    let entries: Vec<_> = fs::read_dir(dataset).map_or_else(|_| Vec::new(), |list| list.flatten().collect());
    let segments = entries.iter().filter(|e| e.path().extension().is_some_and(|x| x == "parquet")).count();
    assert_eq!(entries.len(), 2 * segments, "a segment and its sum: {entries:?}");
    segments
}

const PROTOTXT: &str = "name: 'n' input: 'x' input_dim: 1 input_dim: 8 input_dim: 9 input_dim: 9
layer { name: 'c' type: 'Convolution' bottom: 'x' top: 'c' convolution_param { num_output: 8 kernel_size: 3 pad: 1 group: 2 } }
layer { name: 'r' type: 'ReLU' bottom: 'c' top: 'c' } # in place
layer { name: 's' type: 'Eltwise' bottom: 'c' bottom: 'x' top: 's' }
layer { name: 'p' type: 'Pooling' bottom: 's' top: 'p' pooling_param { pool: AVE kernel_size: 3 stride: 2 } }
layer { name: 'cut' type: 'Slice' bottom: 'p' top: 'a' top: 'b' slice_param { slice_point: [3] } }
layer { name: 'ip' type: 'InnerProduct' bottom: 'b' top: 'ip' inner_product_param { num_output: 4 } }
layer { name: 'l' type: 'SoftmaxWithLoss' bottom: 'ip' top: 'l' include { phase: TEST } }
";

const NEUSIGHT: &str = "OPName,Latency,Device,Torch Version,CUDNN Version,Kernel Name,B,M,N,K,CUDA Version,Kernels
linear,0.065,Tesla V100-PCIE-32GB,p2.1.0,8902,volta_sgemm_32x128_tn,1,58,13,141,cu121,;volta_sgemm_32x128_tn
linear,0.35,Tesla V100-PCIE-32GB,p2.1.0,8902,volta_sgemm_32x128_tn,1,580,1300,1410,cu121,;volta_sgemm_32x128_tn
";

/// A minimal workbook in DeepBench's layout with invented numbers, uncompressed so that changes reach its text.
fn workbook() -> Vec<u8> {
    ok(fs::read(root().join("tests/golden/tiny_workbook.xlsx")))
}

/// What a file says may be as long as it likes wherever it stands: a message about it is short.
#[test]
fn words_as_long_as_pages_make_short_messages() {
    type Read = fn(&str) -> bool;
    let files: [(String, Read); 8] = [
        (file("data/nets/lenet5.toml"), |text| one_line(Network::from_toml(text)).is_some()),
        (file("data/gpus/v100.toml"), |text| one_line(Gpu::from_toml(text)).is_some()),
        (file("data/calibrations/gp102.toml"), |text| one_line(Calibration::from_toml(text)).is_some()),
        (file("data/frameworks/cudnn.toml"), |text| one_line(Framework::from_toml(text)).is_some()),
        (file("data/interconnects/pcie3.toml"), |text| one_line(Interconnect::from_toml(text)).is_some()),
        (file("data/splits.toml"), |text| one_line(Splits::from_toml(text)).is_some()),
        (file("data/published/mappings/neusight_conv.toml"), |text| one_line(Mapping::from_toml(text)).is_some()),
        (PROTOTXT.into(), |text| one_line(caffe::read(text, "damaged", &[])).is_some()),
    ];
    for (text, read) in files {
        assert!(read(&text), "{}", &text[..40]);
        let places: Vec<usize> = text.char_indices().map(|(at, _)| at).collect();
        for at in places.iter().step_by(places.len() / 400 + 1) {
            for swollen in ["x".repeat(5000), "9".repeat(5000), "\u{e9}".repeat(2500)] {
                let _ = read(&format!("{}{swollen}{}", &text[..*at], &text[*at..]));
            }
        }
    }
}

#[test]
fn the_undamaged_files_are_read() {
    let folder = ok(tempfile::tempdir());
    for (name, bytes, format) in [
        ("DeepBench_NV_V100.xlsx", workbook(), Format::Deepbench),
        ("linear.csv", NEUSIGHT.as_bytes().to_vec(), Format::Neusight),
    ] {
        let path = folder.path().join(name);
        ok(fs::write(&path, bytes));
        let report = ok(import(&path, &format, None, &folder.path().join("dataset")));
        assert!(report.rows > 0, "{name}");
        let again = ok(import(&path, &format, None, &folder.path().join("dataset")));
        assert!(again.known, "the same bytes are imported once");
    }
    assert_eq!(ok(joulecast_calibrate::rows::dataset::read(&folder.path().join("dataset"))).len(), 6);
    assert!(catalog::network("vgg16").is_ok());
}
