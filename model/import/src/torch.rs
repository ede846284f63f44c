//! Layers through PyTorch, as `calibrate/tools/torch_ops.py` writes them: one CSV row a trial, the trial as JSON.

use super::columns::Columns;
use super::{ImportError, Imported, check, seconds};
use joulecast_model::base::precision::Phase;
use joulecast_model::kernel::work::Work;
use joulecast_model::rows::measurement::{Measurement, Regime};

/// The source of these rows, and the framework whose kernels they time.
pub const SOURCE: &str = "pytorch";

/// Reads the text; times are in microseconds, of calls back to back in a CUDA graph.
///
/// # Errors
/// When a column is missing or a trial is not one; the message names the line.
pub fn import(file: &str, text: &str, gpu: &str) -> Result<Imported, ImportError> {
    let table = Columns::read(file, text)?;
    let [id, time, trial] = ["trial_id", "time_us", "trial"].map(|name| table.require(name));
    let (id, time, trial) = (id?, time?, trial?);
    let [spread, calls, cudnn] = ["spread_us", "calls", "cudnn"].map(|name| table.find(name));
    let mut imported = Imported::default();
    for record in table.records() {
        let text = record.get(Some(trial)).ok_or_else(|| table.fault(record.line, "no trial".to_string()))?;
        let trial: Work<'static> = serde_json::from_str(text)
            .map_err(|e| table.fault(record.line, format!("trial: {}", e.to_string().replace('\n', " "))))?;
        let Some(time_s) = record.number(Some(time)).and_then(|t| seconds(t, 1e-6)) else {
            imported.skip("no time");
            continue;
        };
        if let Err(reason) = check(&trial.case) {
            imported.skip(reason);
            continue;
        }
        if trial.batch == 0 || trial.phase == Phase::Update {
            imported.skip("no layer in a batch");
            continue;
        }
        let id = record.get(Some(id)).unwrap_or_default();
        let mut row = Measurement::imported(SOURCE, id, gpu, trial.case.into_owned(), trial.phase, trial.batch, time_s);
        row.trial_id = id.to_string();
        row.precision = trial.precision;
        row.mode = Some(trial.mode);
        row.layout = Some(trial.layout.into());
        row.cache = Some(trial.cache);
        row.regime = Regime::Burst;
        row.method = "graph".to_string();
        row.n = record.number(calls).map(|n| n as u64);
        row.cudnn = record.number(cudnn).map(|v| version(v as u64));
        // The middle of seven replays; the spread is that of their middle five.
        let half = record.number(spread).filter(|s| s.is_finite() && *s >= 0.0).map(|s| s * 0.5e-6);
        row.time_p10_s = half.map(|h| (time_s - h).max(0.0));
        row.time_p90_s = half.map(|h| time_s + h);
        imported.rows.push(row);
    }
    Ok(imported)
}

/// cuDNN 9 counts 91900 for 9.19.0, its forerunners 8902 for 8.9.2.
fn version(number: u64) -> String {
    let major = if number >= 90000 { 10000 } else { 1000 };
    format!("{}.{}.{}", number / major, number % major / 100, number % 100)
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::rows::measurement::Order;

    const HEADER: &str = "trial_id,kind,time_us,spread_us,calls,device,torch,cudnn,trial";
    const TRIAL: &str = r#"{""case"":{""inputs"":[[64,56,56]],""layer"":{""kind"":""activation"",""function"":""silu""}},""phase"":""forward"",""batch"":8,""precision"":""fp16"",""mode"":""inference"",""layout"":""nhwc"",""cache"":""hot"",""algorithm"":""heuristic""}"#;

    #[test]
    fn a_trial_becomes_a_row() -> Result<(), ImportError> {
        let text = format!("{HEADER}\nabc,silu,12.5,0.4,100,NVIDIA H200,2.11,91900,\"{TRIAL}\"\n");
        let imported = import("ops.csv", &text, "h200")?;
        let row = &imported.rows[0];
        assert_eq!((row.trial_id.as_str(), row.gpu.as_str(), row.source.as_str()), ("abc", "h200", SOURCE));
        assert!((row.time_s - 12.5e-6).abs() < 1e-12);
        assert_eq!(row.cudnn.as_deref(), Some("9.19.0"));
        assert_eq!(row.case.layer.kind(), "silu");
        assert_eq!(row.layout, Some(Order::Nhwc));
        Ok(())
    }

    #[test]
    fn a_trial_that_is_none_names_its_line() {
        let text = format!("{HEADER}\nabc,silu,12.5,0.4,100,NVIDIA H200,2.11,91900,\"{{}}\"\n");
        let error = import("ops.csv", &text, "h200").expect_err("no trial").to_string();
        assert!(error.contains("line 2"), "{error}");
        assert!(import("ops.csv", "trial_id,time_us\n", "h200").is_err());
    }

    #[test]
    fn versions_read_as_their_makers_write_them() {
        assert_eq!(version(91900), "9.19.0");
        assert_eq!(version(8902), "8.9.2");
    }
}
