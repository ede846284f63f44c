//! NeuSight's kernel timings (sitar-lab/NeuSight, MIT): one CSV per operation and GPU, or several merged.
//!
//! Every row is one forward call in PyTorch between two CUDA events, fp32 with TF32 off. A call's time
//! contains its dispatch: rows that hardly rise above it are flagged, see [`OVERHEAD`].

mod operation;
mod overhead;

pub use overhead::OVERHEAD;

use super::columns::{Columns, Record};
use super::{ImportError, Imported, seconds, shown};
use joulecast_model::base::precision::Phase;
use joulecast_model::rows::measurement::Measurement;
use operation::{Dimensions, Operation};

/// Key in `data/published/sources.toml`.
pub const SOURCE: &str = "neusight";

/// Flag of a big matrix product at under 15 % of the GPU's peak: a 75 W card throttling, or a slow kernel.
/// Big: at least 5 GFLOP and no side under 128.
pub const LOW_EFFICIENCY: &str = "very_low_efficiency_throttle_or_slow_kernel";

/// What `torch.cuda.get_device_name()` says, the name in `data/gpus`, and the form factor.
const DEVICES: &[(&str, &str, &str)] = &[
    ("Tesla V100-PCIE-32GB", "v100-pcie", "pcie"),
    ("Tesla P100-PCIE-16GB", "p100-pcie", "pcie"),
    ("Tesla T4", "t4", "pcie"),
    ("Tesla P4", "p4", "pcie"),
    ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb", "pcie"),
    ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb", "pcie"),
    ("NVIDIA H100 80GB HBM3", "h100-sxm", "sxm5"),
    ("NVIDIA L4", "l4", "pcie"),
];

/// Imports one file.
///
/// `file` is its path in the clone (upstream, the files of all operations bear the GPU's name alone), `text`
/// its content. `gpu`, a name in `data/gpus`, overrides the column `Device`. `peak` answers a GPU's fp32 peak
/// in FLOP/s by that name; where it does not know, no row gets the flag [`LOW_EFFICIENCY`].
///
/// # Errors
/// When the text is not a table, lacks the columns every file has, or no row of it is of a known GPU.
pub fn import(
    file: &str,
    text: &str,
    gpu: Option<&str>,
    peak: &dyn Fn(&str) -> Option<f64>,
) -> Result<Imported, ImportError> {
    let table = Columns::read(file, text)?;
    let header = Header::of(&table)?;
    let mut imported = Imported::default();
    let mut operations = Vec::new();
    let mut stranger = None;
    for record in table.records() {
        let device = record.get(header.device).unwrap_or_default();
        let known = DEVICES.iter().find(|(name, ..)| *name == device);
        let Some(name) = gpu.or(known.map(|(_, name, _)| *name)) else {
            stranger.get_or_insert((record.line, format!("no GPU of the catalogue is called {}", shown(device))));
            imported.skip(format!("unknown device {}", shown(device)));
            continue;
        };
        match header.read(&record) {
            Ok((operation, time_s)) => {
                imported.rows.push(header.measurement(file, name, &operation, time_s, &record, peak(name)));
                operations.push((operation.name, operation.work));
            }
            Err(reason) => imported.skip(reason),
        }
    }
    if let (true, Some((line, what))) = (imported.rows.is_empty(), stranger) {
        return Err(table.fault(line, what));
    }
    overhead::flag(&mut imported.rows, &operations);
    Ok(imported)
}

/// Where the columns are; versions and kernel names are missing in newer files.
struct Header {
    op: usize,
    latency: usize,
    device: Option<usize>,
    cudnn: Option<usize>,
    cuda: Option<usize>,
    kernels: Option<usize>,
    dimensions: Dimensions,
}

impl Header {
    fn of(table: &Columns) -> Result<Self, ImportError> {
        Ok(Self {
            op: table.require("OPName")?,
            latency: table.require("Latency")?,
            device: table.find("Device"),
            cudnn: table.find("CUDNN Version"),
            cuda: table.find("CUDA Version"),
            kernels: table.find("Kernels").or_else(|| table.find("Kernel Name")),
            dimensions: Dimensions::of(table),
        })
    }

    /// The operation and its time in seconds, or why the row is left out.
    fn read(&self, record: &Record<'_>) -> Result<(Operation, f64), String> {
        let operation = self.dimensions.read(record.get(Some(self.op)).unwrap_or_default(), record)?;
        let ms = record.number(Some(self.latency)).and_then(|ms| seconds(ms, 1e-3));
        Ok((operation, ms.ok_or("Latency is not a time")?))
    }

    fn measurement(
        &self,
        file: &str,
        gpu: &str,
        operation: &Operation,
        time_s: f64,
        record: &Record<'_>,
        peak: Option<f64>,
    ) -> Measurement {
        let row = format!("{file}:{}:{}", operation.name, record.line);
        let case = operation.case.clone();
        let mut m = Measurement::imported(SOURCE, &row, gpu, case, Phase::Forward, operation.batch, time_s);
        m.form_factor = DEVICES.iter().find(|(_, name, _)| *name == gpu).map(|(.., form)| (*form).to_string());
        m.cudnn = record.get(self.cudnn).and_then(cudnn_version);
        m.cuda = record.get(self.cuda).and_then(cuda_version);
        m.licence = Some("MIT".to_string());
        m.layout = operation.layout;
        m.n = Some(operation.timings);
        if operation.name == "conv" {
            m.algo = record.get(self.kernels).and_then(algorithm).map(str::to_string);
        }
        let big = operation.work >= 5e9 && operation.narrowest >= 128;
        if big && peak.is_some_and(|peak| operation.work / time_s < 0.15 * peak) {
            m.flags.push(LOW_EFFICIENCY.to_string());
        }
        m
    }
}

/// `8902` is 8.9.2; from cuDNN 9 on there are two digits more: `90100` is 9.1.0.
fn cudnn_version(text: &str) -> Option<String> {
    let n: u32 = text.parse().ok()?;
    let (major, minor) = if n >= 10_000 { (n / 10_000, n / 100 % 100) } else { (n / 1000, n / 100 % 10) };
    Some(format!("{major}.{minor}.{}", n % 100))
}

/// `cu121` is 12.1.
fn cuda_version(text: &str) -> Option<String> {
    let digits = text.strip_prefix("cu").filter(|d| d.len() >= 2 && d.bytes().all(|b| b.is_ascii_digit()))?;
    let (major, minor) = digits.split_at_checked(digits.len() - 1)?;
    Some(format!("{major}.{minor}"))
}

/// cuDNN's algorithm for a convolution by the kernels it launched; the first match counts, since several
/// algorithms launch a GEMM or an implicit convolution beside their own kernels.
fn algorithm(kernels: &str) -> Option<&'static str> {
    const SIGNS: &[(&str, &str)] = &[
        ("winograd_nonfused", "winograd_nonfused"),
        ("winograd", "winograd_fused"),
        ("gcgemm", "fft"),
        ("fft2d", "fft"),
        ("3dconv", "implicit_gemm_3dconv"),
        ("precomputed_convolve", "implicit_precomp_gemm"),
        ("explicit_convolve", "explicit_gemm"),
        ("im2col", "explicit_gemm"),
        ("implicit_convolve", "implicit_gemm"),
        ("implicit_gemm", "implicit_gemm"),
        ("scudnn", "implicit_gemm"),
    ];
    // "explicit_convolve" must not be taken for the tail of a longer word, hence the order above.
    SIGNS.iter().find(|(sign, _)| kernels.contains(sign)).map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::shape::Shape;
    use joulecast_model::net::case::LayerCase;
    use joulecast_model::net::layer::Layer;
    use joulecast_model::rows::measurement::Order;

    const HEAD: &str = "OPName,Latency,Device,CUDNN Version,CUDA Version,Kernels";

    fn no_peak(_: &str) -> Option<f64> {
        None
    }

    fn read(text: &str) -> Imported {
        import("f.csv", text, None, &|_| None).expect("a table")
    }

    #[test]
    fn every_operation_becomes_its_layer() {
        let conv = format!(
            "{HEAD},B,Input_Channel,Output_Channel,Kernel_Szie,Input_Size,Stride,Padding\n\
             conv,0.5,Tesla V100-PCIE-32GB,8902,cu121,\";a::winograd_nonfused::b<x, y>;volta_sgemm\",2,3,8,3,10,1,1\n"
        );
        let row = read(&conv).rows.remove(0);
        let json = r#"{"inputs":[[3,10,10]],"layer":{"kind":"conv2d","channels":8,"kernel":[3,3],"stride":[1,1],"padding":[1,1],"dilation":[1,1],"groups":1,"bias":false}}"#;
        assert_eq!(row.case, LayerCase::from_json(json).expect("a case"));
        assert_eq!((row.batch, row.gpu.as_str(), row.n), (2, "v100-pcie", Some(3)));
        assert_eq!((row.algo.as_deref(), row.layout), (Some("winograd_nonfused"), Some(Order::Nchw)));
        assert_eq!((row.cudnn.as_deref(), row.cuda.as_deref()), (Some("8.9.2"), Some("12.1")));
        assert!((row.time_s - 5e-4).abs() < 1e-12);

        let mm = format!(
            "{HEAD},B,M,N,K\nlinear,1,Tesla T4,8902,cu121,,1,58,13,141\nbmm,1,Tesla T4,8902,cu121,,6,27,21,39\n"
        );
        let rows = read(&mm).rows;
        assert_eq!((rows[0].batch, rows[0].case.inputs[0].dims()), (58, &[13][..]));
        assert!(matches!(&rows[0].case.layer, Layer::Linear(l) if l.features == 141 && l.bias));
        assert_eq!(rows[1].case.inputs, [&[27, 21][..], &[21, 39]].map(|d| Shape::new(d).expect("shape")));
        assert_eq!(rows[1].batch, 6);

        let vectors =
            format!("{HEAD},B,H\nadd,1,Tesla P4,,,,127,168\nln,1,Tesla P4,,,,60,272\npowu,1,Tesla P4,,,,9,9\n");
        let imported = read(&vectors);
        assert_eq!(imported.rows.iter().map(|r| r.case.layer.kind()).collect::<Vec<_>>(), ["add", "layer_norm"]);
        assert_eq!((imported.rows[0].case.inputs.len(), imported.rows[0].batch), (2, 127));
        assert_eq!(imported.skipped.get("no layer kind for operation \"powu\""), Some(&1));
    }

    #[test]
    fn mistakes_are_named_and_none_panics() {
        let text = import("f.csv", "OPName,Latnecy\n", None, &no_peak).expect_err("no latency").to_string();
        assert_eq!(text, "f.csv, line 1: no column \"Latency\"; did you mean \"Latnecy\"?");
        let short = format!("{HEAD},B,H\nadd,1\n");
        let text = import("f.csv", &short, None, &no_peak).expect_err("short").to_string();
        assert_eq!(text, "f.csv, line 2: 2 cells where the header has 8");
        let device = format!("{HEAD},B,H\nadd,1,Riva 128,,,,1,1\n");
        let text = import("f.csv", &device, None, &no_peak).expect_err("no such GPU").to_string();
        assert_eq!(text, "f.csv, line 2: no GPU of the catalogue is called \"Riva 128\"");
        assert_eq!(import("f.csv", &device, Some("t4"), &no_peak).expect("given").rows[0].gpu, "t4");
        assert!(import("f.csv", "", None, &no_peak).is_err());
        for cells in
            ["add,NaN,Tesla T4,,,,1,1", "add,-1,Tesla T4,,,,1,1", "add,1e99,Tesla T4,,,,1,1", "add,,Tesla T4,,,,1,1"]
        {
            assert_eq!(
                read(&format!("{HEAD},B,H\n{cells}\n")).skipped.get("Latency is not a time"),
                Some(&1),
                "{cells}"
            );
        }
        for cells in
            ["add,1,Tesla T4,,,,0,1", "add,1,Tesla T4,,,,-3,1", "add,1,Tesla T4,,,,1e30,1", "add,1,Tesla T4,,,,x,1"]
        {
            let imported = read(&format!("{HEAD},B,H\n{cells}\n"));
            assert_eq!(imported.skipped.get("add: B is not a whole number from 1"), Some(&1), "{cells}");
        }
        assert_eq!(read(&format!("{HEAD},B,H\nbmm,1,Tesla T4,,,,1,1\n")).rows.len(), 0);
    }

    #[test]
    fn slow_big_products_are_flagged_where_the_peak_is_known() {
        let text = format!(
            "{HEAD},B,M,N,K\nlinear,100,Tesla P4,,,,1,2000,2000,2000\nlinear,100,Tesla P4,,,,1,100,40000,2000\n"
        );
        let imported = import("f.csv", &text, None, &|gpu| (gpu == "p4").then_some(5.7e12)).expect("a table");
        assert_eq!(imported.rows[0].flags, [LOW_EFFICIENCY]);
        assert!(imported.rows[1].usable());
        assert!(read(&text).rows.iter().all(Measurement::usable));
    }

    #[test]
    fn versions_and_algorithms_are_decoded() {
        assert_eq!(cudnn_version("90100").as_deref(), Some("9.1.0"));
        assert_eq!((cudnn_version("x"), cuda_version("cu1"), cuda_version("rocm")), (None, None, None));
        assert_eq!(algorithm(";implicit_convolve_sgemm;precomputed_convolve_sgemm"), Some("implicit_precomp_gemm"));
        assert_eq!(algorithm(";cudnn_infer_volta_scudnn_128x64_relu_small_nn_v1"), Some("implicit_gemm"));
        assert_eq!(algorithm(";something_new"), None);
    }
}
