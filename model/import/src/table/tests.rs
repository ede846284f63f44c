use super::*;

const MAPPING: &str = r#"
schema = "mapping/1"
name = "mine"
source = "lab"
licence = "MIT"
method = "loop"
unit = "us"
flags = ["flag"]
where = { run = ["good*"] }
kind = { column = "op", map = { conv = "conv2d", fc = "linear", pool = "max_pool2d" }, unmapped = "skip" }
gpu = { column = "gpu", map = { "Tesla T4" = "t4" } }
batch = "$n"
texts = { cudnn = "7", algo = "$algo" }
times = { forward = "fwd", backward_weights = "bww" }

[layers.conv2d]
inputs = [["$c", "$h", "$w"]]
fields = { channels = "$k", kernel = ["$r", "$s"], padding = 1, bias = false }
output = ["$k", "$h", "$w"]

[layers.linear]
inputs = [["$c * $h * $w"]]
fields = { features = "$k" }

[layers.max_pool2d]
inputs = [["$c", "$h", "$w"]]
fields = { kernel = "$r", stride = 2, ceil = true }
times = { forward = "fwd", backward_data = "bww" }
"#;

const HEAD: &str = "op,run,gpu,n,c,h,w,k,r,s,fwd,bww,algo,flag";

fn mapping() -> Mapping {
    Mapping::from_toml(MAPPING).expect("a mapping")
}

fn read(rows: &[&str]) -> Result<Imported, ImportError> {
    import(&format!("{HEAD}\n{}\n", rows.join("\n")), &mapping())
}

#[test]
fn rows_become_measurements() {
    let imported = read(&[
        "conv,good 1,Tesla T4,8,3,10,12,16,3,3,250,500,fft,a; b",
        "fc,good,Tesla T4,8,2,3,4,16,,,50,,,",
        "pool,good,Tesla T4,8,2,5,5,,2,,50,60,,",
    ])
    .expect("a table");
    let [conv, weights, fc, pool, pool_back] = imported.rows.as_slice() else { panic!("{} rows", imported.rows.len()) };
    let json = r#"{"inputs":[[3,10,12]],"layer":{"kind":"conv2d","channels":16,"kernel":[3,3],"stride":[1,1],"padding":[1,1],"dilation":[1,1],"groups":1,"bias":false}}"#;
    assert_eq!(conv.case.to_json().expect("json"), json);
    assert_eq!((conv.gpu.as_str(), conv.batch, conv.method.as_str()), ("t4", 8, "loop"));
    assert_eq!((conv.cudnn.as_deref(), conv.algo.as_deref(), fc.algo.as_deref()), (Some("7"), Some("fft"), None));
    assert_eq!(conv.flags, ["a", "b"]);
    assert!((conv.time_s - 250e-6).abs() < 1e-12 && (weights.time_s - 500e-6).abs() < 1e-12);
    assert_eq!((conv.row_id.as_str(), weights.phase), ("lab:mine:2:forward", Phase::BackwardWeights));
    assert_eq!(fc.case.inputs[0].dims(), [24]);
    assert_eq!(pool.case.output().expect("fits").dims(), [2, 3, 3]);
    assert_eq!(pool_back.phase, Phase::BackwardData);
    assert_eq!(imported.skipped.get("no backward_weights time"), Some(&1));
}

#[test]
fn rows_are_skipped_with_a_reason_or_refused() {
    let imported = read(&[
        "conv,bad,Tesla T4,8,3,10,12,16,3,3,250,500,,",
        "dance,good,Tesla T4,8,3,10,12,16,3,3,250,500,,",
        "conv,good,Tesla T4,8,3,10,12,16,5,5,250,500,,",
        "conv,good,Tesla T4,0,3,10,12,16,3,3,250,500,,",
        "conv,good,Tesla T4,8,-3,10,12,16,3,3,250,500,,",
        "conv,good,Tesla T4,8,3,1e99,12,16,3,3,250,500,,",
        "conv,good,Tesla T4,8,3,10,12,16,3,x,250,500,,",
        "conv,good,Tesla T4,8,3,10,12,16,3,99,250,500,,",
        "conv,good,Tesla T4,8,3,10,12,16,3,3,inf,NaN,,",
        "fc,good,Tesla T4,8,2000000,2000000,2000000,16,,,50,,,",
    ])
    .expect("a table");
    assert!(imported.rows.is_empty());
    let reasons: Vec<_> = imported.skipped.keys().map(String::as_str).collect();
    assert_eq!(
        reasons,
        [
            "a size is not a whole number from 0",
            "backward_weights time is not a time",
            "batch is not a whole number from 1",
            "c is not a whole number from 0",
            "conv2d: a window of 99 does not fit in 12 with padding 1",
            "conv2d: the published output size is another than its fields give",
            "forward time is not a time",
            "h is not a whole number from 0",
            "op \"dance\" is not in the map",
            "run is \"bad\"",
            "s is not a number",
        ]
    );
    let error = read(&["conv,good,Voodoo,8,3,10,12,16,3,3,250,500,,"]).expect_err("GPUs must be mapped");
    assert_eq!(error.to_string(), "mine, line 2: gpu \"Voodoo\" is not in the map");
    let error = import(&HEAD.replace("bww", "bwww"), &mapping()).expect_err("a missing column");
    assert_eq!(error.to_string(), "mine, line 1: no column \"bww\"; did you mean \"bwww\"?");
}

#[test]
fn mistakes_in_mappings_are_named() {
    let fails = |from: &str, to: &str| Mapping::from_toml(&MAPPING.replace(from, to)).expect_err(to).to_string();
    assert!(fails("mapping/1", "mapping/9").contains("schema is \"mapping/9\""));
    assert!(fails("unit = \"us\"", "unit = \"min\"").contains("expected s, ms or us"));
    assert!(fails("layers.linear", "layers.liner").contains("did you mean \"linear\"?"));
    assert!(
        fails("{ forward = \"fwd\", backward_w", "{ forwards = \"fwd\", backward_w")
            .contains("did you mean \"forward\"?")
    );
    assert!(fails("cudnn =", "cudn =").contains("did you mean \"cudnn\"?"));
    assert!(fails("\"$c * $h * $w\"", "\"$c * h\"").contains("\"h\" is neither"));
    assert!(fails("unmapped = \"skip\"", "unmapped = \"maybe\"").contains("neither \"skip\" nor"));
    assert!(fails("unmapped =", "unmaped =").contains("unknown key \"unmaped\""));
    assert!(fails("flags =", "falgs =").contains("falgs"));
    assert!(fails("licence = \"MIT\"", "licence = \"\"").contains("licence is empty"));
    assert!(Mapping::from_toml("]").is_err());
}
