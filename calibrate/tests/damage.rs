//! Damaged and hostile files as a user meets them: one line that names the file, status 1, nothing aborts.

use joulecast_calibrate::rows::segment;
use joulecast_calibrate::rows::writer::Writer;
use joulecast_calibrate::system::hash::sha256_hex;
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{Layer, Linear};
use joulecast_model::rows::measurement::Measurement;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

fn calibrate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_calibrate")).args(arguments).output().expect("the program starts")
}

/// What a refusal says: one line, status 1.
fn refusal(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{} {error}", output.status);
    assert_eq!(error.lines().count(), 1, "{error}");
    assert!(error.starts_with("error: ") && error.len() < 500, "{error}");
    error
}

fn text(path: &Path) -> &str {
    path.to_str().expect("utf-8")
}

fn row(n: u64) -> Measurement {
    let layer = Layer::Linear(Linear { features: 8 * n, bias: true });
    let case = LayerCase { inputs: vec![Shape::new(&[64]).expect("a shape")], layer };
    Measurement::imported("s", &n.to_string(), "v100", case, Phase::Forward, n, 1e-3 * n as f64)
}

/// Whoever damages a segment may make its checksum anew; what its first pages then claim ends in polars' panics, and in
/// memory that nobody has.
#[test]
fn segments_that_lie_are_one_line() {
    let folder = tempfile::tempdir().expect("a folder");
    let rows: Vec<Measurement> = (1..4).map(row).collect();
    let writer = Writer::open(folder.path()).expect("nobody else writes");
    let segment = segment::append(&writer, "one", &rows).expect("written");
    drop(writer);
    let whole = fs::read(&segment).expect("a segment");
    let sum = segment.with_extension("parquet.sha256");
    let (mut memory, mut polars) = (0, 0);
    for at in 46..58 {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            fs::write(&segment, &bytes).expect("written");
            fs::write(&sum, sha256_hex(&bytes)).expect("written");
            let output = calibrate(&["status", text(folder.path())]);
            if !output.status.success() {
                let error = refusal(&output);
                assert!(error.contains("one.parquet"), "byte {at}, bit {bit}: {error}");
                memory += usize::from(error.contains("more memory was asked for"));
                polars += usize::from(error.contains("is damaged"));
            }
        }
    }
    assert!(memory > 0 && polars > 0, "{memory} of one kind, {polars} of the other: this test shows nothing any more");
    fs::write(&segment, &whole).expect("written");
    fs::remove_file(&sum).expect("removed");
    let error = refusal(&calibrate(&["status", text(folder.path())]));
    assert!(error.contains("one.parquet has no checksum") && error.contains("sha256sum"), "{error}");
}

/// Rows that `measure` writes and `validate` reads.
#[test]
fn a_changed_figure_in_a_table_is_noticed_wherever_it_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let runs = folder.path().join("runs.csv");
    let measure =
        ["measure", "--net", "nin", "--batch", "4,8", "--precision", "fp32", "--device", "fake", "--out", text(&runs)];
    assert!(calibrate(&measure).status.success());
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("../data/calibrations");
    let validate = ["validate", "--networks", text(&runs), "--calibrations", text(&shipped)];
    // What the fake gave is no measurement: that is as far as a whole file comes.
    assert!(refusal(&calibrate(&validate)).contains("simulated"));
    let table = fs::read_to_string(&runs).expect("a table");
    let line = table.lines().nth(2).expect("two rows");
    let digit = line.rfind("fp32").expect("a precision") + "fp32,nchw,8,graph,".len();
    let mut bytes = table.clone().into_bytes();
    let at = table.find(line).expect("itself") + digit;
    bytes[at] = if bytes[at] == b'7' { b'3' } else { b'7' };
    fs::write(&runs, &bytes).expect("written");
    for arguments in [&validate[..], &measure] {
        let error = refusal(&calibrate(arguments));
        assert!(error.contains("runs.csv, line 3: damaged or edited"), "{error}");
    }
    assert_eq!(fs::read(&runs).expect("a table"), bytes, "nothing is added to it");
    // The whole line goes, and is measured again.
    let kept: String = table.lines().take(2).map(|l| format!("{l}\n")).collect();
    fs::write(&runs, kept).expect("written");
    let output = calibrate(&measure);
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 rows added, 1 were there"));
    // A file from before checksums is read without a word.
    let old: String = table.lines().map(|l| format!("{}\n", l.rsplit_once(',').expect("columns").0)).collect();
    fs::write(&runs, old).expect("written");
    assert!(refusal(&calibrate(&validate)).contains("simulated"));
    assert!(String::from_utf8_lossy(&calibrate(&measure).stdout).contains("0 rows added, 2 were there"));
}

#[test]
fn edited_files_are_not_written_over_unasked() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (plan, figure, rows) = (path("plan.jsonl"), path("curve.svg"), path("rows.csv"));
    let planned = ["plan", "--level", "quick", "--out", &plan];
    let swept = ["sweep", "--net", "nin", "--batch", "64", "--device", "fake", "--over", "cap", "--points", "500"];
    let swept = [&swept[..], &["--out", &rows, "--figure", &figure]].concat();
    for (arguments, file) in [(&planned[..], &plan), (&swept, &figure)] {
        let output = calibrate(arguments);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let ours = fs::read(file).expect("a file");
        fs::write(file, "edited").expect("written");
        let before = fs::read(&rows).ok();
        let error = refusal(&calibrate(arguments));
        assert!(error.contains(file.as_str()) && error.contains("--force"), "{error}");
        assert_eq!(fs::read_to_string(file).expect("a file"), "edited");
        assert_eq!(fs::read(&rows).ok(), before, "refused before anything was measured");
        assert!(calibrate(&[arguments, &["--force"]].concat()).status.success());
        assert_eq!(fs::read(file).expect("a file"), ours);
    }
    assert!(String::from_utf8_lossy(&calibrate(&planned).stdout).contains("unchanged"), "the same is no loss");
}

const TWO_CHIPS: &str = "OPName,Latency,Device,Torch Version,CUDNN Version,Kernel Name,B,M,N,K,CUDA Version,Kernels
linear,0.35,Tesla V100-PCIE-32GB,p2.1.0,8902,volta_sgemm_32x128_tn,1,580,1300,1410,cu121,;volta_sgemm_32x128_tn
linear,0.35,Tesla T4,p2.1.0,8902,volta_sgemm_32x128_tn,1,580,1300,1410,cu121,;volta_sgemm_32x128_tn
";

/// A fit is put into a folder whole, or not at all.
#[test]
fn a_fit_beside_an_edited_calibration_writes_none() {
    let folder = tempfile::tempdir().expect("a folder");
    let (rows, table, fits) =
        (folder.path().join("rows"), folder.path().join("linear.csv"), folder.path().join("fits"));
    fs::write(&table, TWO_CHIPS).expect("written");
    assert!(calibrate(&["import", "neusight", text(&table), "--dataset", text(&rows)]).status.success());
    let fit = ["fit", "--model", "neuralpower", "--dataset", text(&rows), "--out", text(&fits)];
    let output = calibrate(&fit);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let (first, last) = (fits.join("neuralpower-gv100.toml"), fits.join("neuralpower-tu104.toml"));
    let ours = fs::read(&last).expect("a file");
    fs::remove_file(&first).expect("there");
    fs::write(&last, "edited").expect("written");
    let output = calibrate(&fit);
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let (note, error) = told.trim_end().split_once('\n').expect("told before and after the fit");
    assert!(note.contains("earlier fit (1 files)") && output.status.code() == Some(1), "{told}");
    assert!(error.starts_with("error: ") && error.contains("tu104.toml") && error.contains("--force"), "{error}");
    assert!(!first.exists() && fs::read_to_string(&last).expect("a file") == "edited");
    for force in ["--force", "--replace"] {
        fs::write(&last, "edited").expect("written");
        assert!(calibrate(&[&fit[..], &[force]].concat()).status.success(), "{force}");
        assert!(first.exists() && fs::read(&last).expect("a file") == ours);
    }
}
