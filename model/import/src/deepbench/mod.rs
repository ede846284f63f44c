//! Baidu DeepBench's result workbooks for NVIDIA GPUs (baidu-research/DeepBench, Apache-2.0).
//!
//! Every time is the mean of a loop of launches back to back (300 for a convolution, 400 for a matrix
//! product), truncated upstream to whole microseconds: half a microsecond is added back. cuBLAS computes
//! C[M, N] = A[M, K] B[K, N], here a linear layer of K inputs and M outputs on N samples; its layout says which
//! of A and B is transposed. Dimensions stay as published; in the mixed-precision and int8 sheets, the
//! benchmark itself pads channels to a multiple of 8 (4 or 32 for int8) before it runs.

mod all_reduce;
mod label;
mod section;

use super::sheet::{Cell, Sheet};
use super::{ImportError, Imported};
pub use all_reduce::{AllReduce, all_reduces};
use joulecast_model::base::precision::Precision;
use joulecast_model::rows::measurement::Order;
use section::Section;

/// Key in `data/published/sources.toml`.
pub const SOURCE: &str = "deepbench";

/// Flag of an fp32 convolution labelled as a direct algorithm that beats the sheet's best matrix product by more
/// than a fifth: only Winograd or FFT can.
pub const LABEL_SUSPECT: &str = "above_direct_peak_algo_label_suspect";

/// Flag of a published time under 5 us, where truncation to 1 us costs more than a tenth.
pub const BELOW_RESOLUTION: &str = "below_timer_resolution";

/// What follows `DeepBench_NV_` in a workbook's name, the name in `data/gpus`, and the form factor. The V100 sat
/// in a DGX-1, the P100 on a desktop board.
const GPUS: &[(&str, &str, &str)] = &[
    ("V100", "v100", "sxm2"),
    ("P100", "p100-pcie", "pcie"),
    ("M40", "m40", "pcie"),
    ("TitanX", "titan-x-maxwell", "pcie"),
    ("TitanX_Pascal", "titan-x-pascal", "pcie"),
    ("1080Ti", "gtx1080ti", "pcie"),
    ("TitanXp", "titan-xp", "pcie"),
    ("T4", "t4", "pcie"),
];

/// Versions for workbooks whose sheet "Specs" is missing: GPU, whether of the inference set, CUDA, cuDNN. They are
/// those that the published workbooks state there.
const VERSIONS: &[(&str, bool, &str, &str)] = &[
    ("v100", false, "10.1.243", "7.6.2"),
    ("t4", false, "10.1.243", "7.6.2"),
    ("t4", true, "10.1.243", "7.6.2"),
    ("p100-pcie", false, "8.0.88", "6.0.21"),
    ("gtx1080ti", false, "8.0.88", "6.0.21"),
    ("titan-xp", false, "8.0.88", "6.0.21"),
    ("titan-x-pascal", false, "8", "5"),
    ("m40", false, "7.5.18", "5"),
    ("titan-x-maxwell", false, "7.5.18", "5"),
    ("gtx1080ti", true, "8.0.61", "6"),
    ("titan-xp", true, "8.0.61", "6"),
    ("titan-x-pascal", true, "8.0.61", "6"),
];

/// What all rows of a workbook share.
struct Workbook<'a> {
    file: &'a str,
    gpu: &'a str,
    form_factor: Option<&'static str>,
    cuda: Option<String>,
    cudnn: Option<String>,
    driver: Option<String>,
}

/// How a sheet computes.
#[derive(Clone, Copy)]
struct Arithmetic {
    precision: Precision,
    math: Option<&'static str>,
    /// Layout of the convolutions, where the benchmark's source fixes it.
    layout: Option<Order>,
}

/// Imports a workbook. `file` is its path in the clone (the same name occurs under train and inference);
/// `gpu`, a name in `data/gpus`, overrides the one in the file's name. Recurrent layers, all-reduce and times
/// that were not taken are counted as skipped.
///
/// # Errors
/// When the GPU is unknown, no sheet holds results, or a section lacks its header or a column.
pub fn import(file: &str, sheets: &[Sheet], gpu: Option<&str>) -> Result<Imported, ImportError> {
    let fault = |what: String| ImportError::File { file: file.to_string(), what };
    let gpu = match gpu {
        Some(gpu) => gpu,
        None => named(file).ok_or_else(|| {
            fault("the name is not DeepBench_NV_<GPU>.xlsx with a GPU of the catalogue; say which GPU".to_string())
        })?,
    };
    let specs = Specs(sheets.iter().find(|s| s.name.to_ascii_lowercase().contains("spec")));
    let versions = VERSIONS.iter().find(|v| v.0 == gpu && v.1 == file.contains("inference"));
    let workbook = Workbook {
        file,
        gpu,
        form_factor: GPUS.iter().find(|(_, known, _)| *known == gpu).map(|(.., form)| *form),
        cuda: specs.get("CUDA Version").or(versions.map(|v| v.2.to_string())),
        cudnn: specs.get("Cudnn Version").or(versions.map(|v| v.3.to_string())).map(|v| three_parts(&v)),
        driver: specs.get("Nvidia Driver"),
    };
    let mut imported = Imported::default();
    let mut results = 0;
    for sheet in sheets {
        let sections = Section::split(sheet);
        if sections.is_empty() {
            continue;
        }
        results += 1;
        let arithmetic = arithmetic(sheet).ok_or_else(|| ImportError::Sheet {
            file: file.to_string(),
            sheet: sheet.name.clone(),
            row: 1,
            what: "no row \"Precision\" that says float, 16 bit or 8 bit".to_string(),
        })?;
        let first = imported.rows.len();
        for section in sections {
            section.import(&workbook, sheet, arithmetic, &mut imported)?;
        }
        if arithmetic.precision == Precision::Fp32 {
            label::flag(imported.rows.get_mut(first..).unwrap_or_default());
        }
    }
    if results == 0 {
        return Err(fault("no sheet holds \"Dense Matrix Multiplication\" or \"Convolution\"".to_string()));
    }
    Ok(imported)
}

/// The GPU in a workbook's name.
fn named(file: &str) -> Option<&'static str> {
    let name = file.rsplit(['/', '\\']).next()?;
    let name = name.strip_prefix("DeepBench_NV_")?.strip_suffix(".xlsx")?;
    GPUS.iter().find(|(known, ..)| *known == name).map(|(_, gpu, _)| *gpu)
}

/// From the cell beside "Precision", or the sheet's name where that says nothing. "Mixed Precision" is the name of
/// the int8 sheets of the inference workbooks.
fn arithmetic(sheet: &Sheet) -> Option<Arithmetic> {
    let stated = sheet.rows.iter().find_map(|row| match row.as_slice() {
        [label, value, ..] if label.text() == Some("Precision") => value.text(),
        _ => None,
    });
    stated.and_then(recognized).or_else(|| recognized(&sheet.name))
}

fn recognized(text: &str) -> Option<Arithmetic> {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
    let of = |precision, math, layout| Some(Arithmetic { precision, math, layout });
    if says(&["8 bit", "8-bit", "int8", "mixed precision"]) {
        of(Precision::Int8, None, None)
    } else if says(&["32 bit multiplication", "psuedo", "pseudo"]) {
        of(Precision::Fp16, Some("fp16_storage"), Some(Order::Nchw))
    } else if says(&["16 bit", "fp16"]) {
        of(Precision::Fp16, Some("mixed"), Some(Order::Nhwc))
    } else if says(&["float", "fp32"]) {
        of(Precision::Fp32, None, Some(Order::Nchw))
    } else {
        None
    }
}

/// The sheet of hardware and software, labels in column A and values in B.
struct Specs<'a>(Option<&'a Sheet>);

impl Specs<'_> {
    fn get(&self, label: &str) -> Option<String> {
        let rows = &self.0?.rows;
        rows.iter().find_map(|row| match row.as_slice() {
            [name, value, ..] if name.text().is_some_and(|t| t.eq_ignore_ascii_case(label)) => match value {
                Cell::Number(n) if n.is_finite() => Some(n.to_string()),
                _ => value
                    .text()
                    .filter(|t| t.len() <= 40 && t.starts_with(|c: char| c.is_ascii_digit()))
                    .map(Into::into),
            },
            _ => None,
        })
    }
}

/// cuDNN's own build number, a fourth part, is left out: `7.6.2.24` is 7.6.2.
fn three_parts(version: &str) -> String {
    version.split('.').take(3).collect::<Vec<_>>().join(".")
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::precision::Phase;
    use joulecast_model::net::layer::Layer;

    /// Cells split at `|`; numbers where they parse.
    fn sheet(name: &str, rows: &[&str]) -> Sheet {
        let cell = |text: &str| match (text.trim(), text.trim().parse()) {
            ("", _) => Cell::Empty,
            (_, Ok(number)) => Cell::Number(number),
            (text, Err(_)) => Cell::Text(text.to_string()),
        };
        let rows = rows.iter().map(|row| row.split('|').map(cell).collect()).collect();
        Sheet { name: name.to_string(), rows }
    }

    const CONV: &str = "||W|H|C|N|K |S (Filter width)|R (Filter height)|pad_w|pad_h|Horizontal stride|Vertical stride|\
                        Forward (msec)|wrt Inputs (msec)|wrt Parameters (msec)||P|Q|Total|F|B|W|Forward Algorithm";

    fn results(gemm: &str, conv_header: &str, conv: &str) -> Sheet {
        let rows = [
            "Precision|Float",
            "",
            "Dense Matrix Multiplication||M|N|K|A Transpose|B Transpose||Time (msec)|TERAFLOPS",
            gemm,
            "",
            "Convolution",
            conv_header,
            conv,
            "|||* = a footnote",
            "Recurrent Layers - GRU||Hidden units|N",
            "||1760|16",
            "All-Reduce||Size",
            "||100000|2",
            "||100000|4",
        ];
        sheet("Results FP32", &rows)
    }

    fn specs() -> Sheet {
        sheet("Specs", &["CUDA Version|10.1.243", "Cudnn Version|7.6.2.24", "Nvidia Driver|418.67"])
    }

    const GEMM: &str = "|DeepSpeech|1760|16|1024|T|N||0.038|2.6";

    #[test]
    fn both_sections_become_rows_and_the_rest_is_counted() {
        let conv = "|Vision|700|161|1|4|32|20|5|0|1|2|3|0.078|N/A*|0.127||1|1|1|1|1|1|LICIT_PRECOMP_GEMM";
        let imported =
            import("a/DeepBench_NV_V100.xlsx", &[results(GEMM, CONV, conv), specs()], None).expect("a workbook");
        let [gemm, forward, weights] = imported.rows.as_slice() else { panic!("{} rows", imported.rows.len()) };
        assert!(matches!(&gemm.case.layer, Layer::Linear(l) if l.features == 1760 && !l.bias));
        assert_eq!((gemm.case.inputs[0].dims(), gemm.batch, gemm.n), (&[1024][..], 16, Some(400)));
        assert_eq!((gemm.layout, gemm.method.as_str()), (Some(Order::Tn), "loop"));
        assert!((gemm.time_s - 38.5e-6).abs() < 1e-12);
        assert_eq!((gemm.gpu.as_str(), gemm.form_factor.as_deref()), ("v100", Some("sxm2")));
        assert_eq!(
            (gemm.cuda.as_deref(), gemm.cudnn.as_deref(), gemm.driver.as_deref()),
            (Some("10.1.243"), Some("7.6.2"), Some("418.67"))
        );
        let json = r#"{"inputs":[[1,161,700]],"layer":{"kind":"conv2d","channels":32,"kernel":[5,20],"stride":[3,2],"padding":[1,0],"dilation":[1,1],"groups":1,"bias":false}}"#;
        assert_eq!(forward.case.to_json().expect("json"), json);
        assert_eq!((forward.phase, weights.phase), (Phase::Forward, Phase::BackwardWeights));
        assert_eq!((forward.algo.as_deref(), weights.algo.as_deref()), (Some("IMPLICIT_PRECOMP_GEMM"), None));
        assert_eq!(forward.row_id, "deepbench:a/DeepBench_NV_V100.xlsx:Results FP32:8:forward");
        let skipped: Vec<_> = imported.skipped.iter().map(|(reason, n)| (reason.as_str(), *n)).collect();
        assert_eq!(skipped, [("all-reduce", 2), ("convolution: no backward_data time", 1), ("recurrent layer", 1)]);
    }

    #[test]
    fn columns_go_by_their_headers() {
        let header = "||W|H|C|N|K|R|S|pad_h|pad_w|Vertical stride|Horizontal stride|Forward (msec)";
        let conv = "||700|161|1|4|32|5|20|1|0|3|2|0.004";
        let imported = import("DeepBench_NV_M40.xlsx", &[results(GEMM, header, conv)], None).expect("a workbook");
        let json = imported.rows[1].case.to_json().expect("json");
        assert!(json.contains(r#""kernel":[5,20],"stride":[3,2],"padding":[1,0]"#), "{json}");
        assert_eq!(imported.rows[1].flags, [BELOW_RESOLUTION]);
        assert_eq!((imported.rows[1].cudnn.as_deref(), imported.rows[1].driver.as_deref()), (Some("5"), None));
    }

    #[test]
    fn precision_comes_from_its_row_then_the_sheets_name() {
        let of = |text: &str| recognized(text).map(|a| (a.precision, a.math, a.layout));
        assert_eq!(
            of("16 bit inputs, 16 bit multiplication, 32 bit addition"),
            Some((Precision::Fp16, Some("mixed"), Some(Order::Nhwc)))
        );
        assert_eq!(
            of("16 bit inputs, 32 bit multiplication, 32 bit addition"),
            Some((Precision::Fp16, Some("fp16_storage"), Some(Order::Nchw)))
        );
        assert_eq!(of("Results - Mixed Precision"), Some((Precision::Int8, None, None)));
        assert_eq!(of("Results - FP16 ip, Mixed math"), Some((Precision::Fp16, Some("mixed"), Some(Order::Nhwc))));
        assert_eq!(of("Float").map(|a| a.0), Some(Precision::Fp32));
        assert_eq!(of("quantum"), None);
    }

    #[test]
    fn a_direct_algorithm_above_the_best_matrix_product_is_suspect() {
        // 2 x 16 x 28 x 28 x 128 x 128 x 9 operations; the matrix product runs at 1.5 TFLOP/s.
        let conv = |ms: &str| format!("||28|28|128|16|128|3|3|1|1|1|1|{ms}|1|1||1|1|1|1|1|1|IMPLICIT_GEMM");
        let flags = |ms: &str| {
            let sheets = [results(GEMM, CONV, &conv(ms))];
            import("DeepBench_NV_T4.xlsx", &sheets, None).expect("a workbook").rows[1].flags.clone()
        };
        assert_eq!(flags("1.9"), [LABEL_SUSPECT]);
        assert!(flags("2.5").is_empty());
    }

    #[test]
    fn mistakes_are_named_and_none_panics() {
        let conv = "||28|28|128|16|128|3|3|1|1|1|1|1|1|1";
        let fails = |file: &str, sheets: &[Sheet]| import(file, sheets, None).expect_err("a mistake").to_string();
        assert!(fails("DeepBench_NV_Z9.xlsx", &[results(GEMM, CONV, conv)]).contains("say which GPU"));
        assert!(fails("DeepBench_NV_T4.xlsx", &[specs()]).contains("no sheet holds"));
        let text = fails("DeepBench_NV_T4.xlsx", &[results(GEMM, &CONV.replace("pad_h", "pud_h"), conv)]);
        assert_eq!(text, r#"DeepBench_NV_T4.xlsx, sheet "Results FP32", row 7: no column "pad_h""#);
        let text = fails("DeepBench_NV_T4.xlsx", &[results(GEMM, "", conv)]);
        assert!(text.contains(r#"row 6: no header with the columns "w", "h", "c", "n", "k""#), "{text}");
        let mut odd = results(GEMM, CONV, conv);
        (odd.name, odd.rows[0]) = ("Results".to_string(), Vec::new());
        assert!(fails("DeepBench_NV_T4.xlsx", &[odd]).contains("no row \"Precision\""));
        for bad in [
            "||1760|16|1024|T|N||NaN",
            "||1e30|16|1024|T|N||1",
            "||-5|16|1024|T|N||1",
            "||1760|16|1024|X|N||1",
            "||1760|16|1024|T|N",
        ] {
            let imported = import("DeepBench_NV_T4.xlsx", &[results(bad, CONV, conv)], None).expect("a workbook");
            assert_eq!(imported.rows.len(), 3, "{bad}");
        }
        let huge = "||28|28|128|16|128|99|99|0|0|1|1|1|1|1";
        let imported = import("DeepBench_NV_T4.xlsx", &[results(GEMM, CONV, huge)], None).expect("a workbook");
        assert_eq!(imported.rows.len(), 1);
    }
}
