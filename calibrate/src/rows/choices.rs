//! Which algorithm a library chooses for a trial, `choices/1`: asked of its heuristics, not timed, so that there are many.
//!
//! A Parquet file holds trials as columns of sizes: the JSON of a layer case would be ten times as long.

use crate::rows::segment::{named, text};
use crate::system::hash::sha256_hex;
use crate::system::quiet::quietly;
use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::{Mode, Phase, Precision};
use joulecast_model::base::shape::Shape;
use joulecast_model::kernel::work::Trial;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{Conv2d, Groups, Layer, Linear, Pair};
use polars::prelude::{Column, DataFrame, ParquetReader, ParquetWriter, SerReader};
use std::collections::HashSet;
use std::fs;
use std::io::Cursor;
use std::path::PathBuf;

const SCHEMA: &str = "choices/1";

/// Columns of sizes: of a convolution all of them; of a linear layer its input `[rows, width]` and its outputs.
const SIZES: [&str; 13] = [
    "batch",
    "channels",
    "height",
    "width",
    "outputs",
    "kernel_h",
    "kernel_w",
    "stride_h",
    "stride_w",
    "padding_h",
    "padding_w",
    "dilation",
    "groups",
];

/// What a library's heuristics answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The board, as in `data/gpus`.
    pub gpu: String,
    /// The trial; its layer adds no bias.
    pub trial: Trial,
    /// The algorithm or engine, as rows name it.
    pub algorithm: String,
}

/// An engine's name as models have it: without what it says of its arithmetic.
pub fn engine_name(algorithm: &str) -> &str {
    algorithm.split_whitespace().next().unwrap_or(algorithm)
}

/// Whether such a file can hold a trial: convolutions of square dilation and linear layers, as libraries run them.
pub fn holds(trial: &Trial) -> bool {
    sizes(trial).is_some()
}

fn sizes(trial: &Trial) -> Option<[u64; SIZES.len()]> {
    let [input] = trial.inputs() else { return None };
    match trial.layer() {
        Layer::Conv2d(c) => {
            let (channels, height, width) = input.as_map()?;
            let [k, s, p, d] = [c.kernel, c.stride, c.padding, c.dilation];
            let groups = c.groups(channels);
            (d.h == d.w).then_some([
                trial.batch,
                channels,
                height,
                width,
                c.channels,
                k.h,
                k.w,
                s.h,
                s.w,
                p.h,
                p.w,
                d.h,
                groups,
            ])
        }
        Layer::Linear(linear) => {
            let rows = input.elements() / input.axis().max(1);
            Some([trial.batch, 0, rows, input.axis(), linear.features, 0, 0, 0, 0, 0, 0, 0, 0])
        }
        _ => None,
    }
}

fn trial(sizes: &[u64; SIZES.len()], phase: Phase, precision: Precision) -> Result<Trial> {
    let [batch, channels, height, width, outputs, kh, kw, sh, sw, ph, pw, dilation, groups] = *sizes;
    let case = if channels == 0 {
        let linear = Layer::Linear(Linear { features: outputs, bias: false });
        LayerCase { inputs: vec![Shape::new(&[height, width])?], layer: linear }
    } else {
        let groups = if groups == channels { Groups::Depthwise } else { Groups::Count(groups) };
        let conv = Conv2d {
            channels: outputs,
            kernel: Pair { h: kh, w: kw },
            stride: Pair { h: sh, w: sw },
            padding: Pair { h: ph, w: pw },
            dilation: Pair::square(dilation),
            groups,
            bias: false,
        };
        LayerCase { inputs: vec![Shape::map(channels, height, width)?], layer: Layer::Conv2d(conv) }
    };
    let mode = if phase == Phase::Forward { Mode::Inference } else { Mode::Training };
    Ok(Trial::usual(case, phase, batch, precision, mode)?)
}

/// Reads several files, each once.
///
/// # Errors
/// When one cannot be read or is none; the message names it.
pub fn read(paths: &[PathBuf]) -> Result<Vec<Answer>> {
    let mut seen = HashSet::new();
    let mut answers = Vec::new();
    for path in paths {
        let named = || path.display().to_string();
        let bytes = fs::read(path).with_context(named)?;
        if seen.insert(sha256_hex(&bytes)) {
            answers.extend(from_parquet(bytes).with_context(named)?);
        }
    }
    Ok(answers)
}

/// As the bytes of a file.
///
/// # Errors
/// When a trial is none that [`holds`] says yes to.
pub fn to_parquet(answers: &[Answer]) -> Result<Vec<u8>> {
    let rows = answers.iter().map(|c| sizes(&c.trial)).collect::<Option<Vec<_>>>().context("a trial without sizes")?;
    let size = |i: usize| rows.iter().map(|r| r[i]).collect::<Vec<u64>>();
    let mut columns: Vec<Column> =
        SIZES.iter().enumerate().map(|(i, name)| Column::new((*name).into(), size(i))).collect();
    let words = |word: fn(&Answer) -> &str| answers.iter().map(word).collect::<Vec<&str>>();
    columns.push(Column::new("schema".into(), vec![SCHEMA; answers.len()]));
    columns.push(Column::new("gpu".into(), words(|c| &c.gpu)));
    columns.push(Column::new("phase".into(), words(|c| c.trial.phase.name())));
    columns.push(Column::new("precision".into(), words(|c| c.trial.precision.name())));
    columns.push(Column::new("algorithm".into(), words(|c| &c.algorithm)));
    let mut bytes = Vec::new();
    ParquetWriter::new(&mut bytes).finish(&mut DataFrame::new(answers.len(), columns)?)?;
    Ok(bytes)
}

/// Reads such a file.
///
/// # Errors
/// When it is none, or a row of it describes no layer.
pub fn from_parquet(bytes: Vec<u8>) -> Result<Vec<Answer>> {
    let frame = quietly(|| ParquetReader::new(Cursor::new(bytes)).finish())??;
    let (schema, gpus, phases) = (text(&frame, "schema")?, text(&frame, "gpu")?, text(&frame, "phase")?);
    if let Some(other) = schema.iter().flatten().find(|s| *s != SCHEMA) {
        bail!("schema is {other}, expected {SCHEMA}");
    }
    let (precisions, algorithms) = (text(&frame, "precision")?, text(&frame, "algorithm")?);
    let columns = SIZES.iter().map(|name| Ok(frame.column(name)?.u64()?)).collect::<Result<Vec<_>>>()?;
    (0..frame.height())
        .map(|i| {
            let word = |column: Option<&str>| column.map(str::to_string).with_context(|| format!("row {i} is cut"));
            let mut sizes = [0; SIZES.len()];
            for (size, column) in sizes.iter_mut().zip(&columns) {
                *size = column.get(i).with_context(|| format!("row {i} is cut"))?;
            }
            let phase = named("phase", &word(phases.get(i))?, Phase::from_name)?;
            let precision = named("precision", &word(precisions.get(i))?, Precision::from_name)?;
            let trial = trial(&sizes, phase, precision).with_context(|| format!("row {i}"))?;
            Ok(Answer { gpu: word(gpus.get(i))?, trial, algorithm: word(algorithms.get(i))? })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use joulecast_model::base::shape::Shape as Of;

    fn answers() -> Vec<Answer> {
        let conv = |groups| {
            Layer::Conv2d(Conv2d {
                channels: 64,
                kernel: Pair { h: 1, w: 7 },
                stride: Pair { h: 2, w: 1 },
                padding: Pair { h: 0, w: 3 },
                dilation: Pair::square(2),
                groups,
                bias: false,
            })
        };
        let map = |c, h, w| Of::map(c, h, w).expect("a shape");
        let linear = Layer::Linear(Linear { features: 10, bias: false });
        let cases = [
            LayerCase { inputs: vec![map(32, 20, 30)], layer: conv(Groups::Count(4)) },
            LayerCase { inputs: vec![map(64, 20, 30)], layer: conv(Groups::Depthwise) },
            LayerCase { inputs: vec![Of::new(&[5, 8]).expect("a shape")], layer: linear },
        ];
        cases
            .into_iter()
            .zip([Phase::Forward, Phase::BackwardData, Phase::BackwardWeights])
            .map(|(case, phase)| {
                let mode = if phase == Phase::Forward { Mode::Inference } else { Mode::Training };
                let trial = Trial::usual(case, phase, 3, Precision::Fp16, mode).expect("fits");
                Answer { gpu: "h200".into(), trial, algorithm: format!("eng1{{2=4}} {phase}") }
            })
            .collect()
    }

    #[test]
    fn answers_come_back_as_they_were_written() -> Result<()> {
        assert_eq!(from_parquet(to_parquet(&answers())?)?, answers());
        Ok(())
    }

    #[test]
    fn a_file_that_is_named_twice_is_read_once() -> Result<()> {
        let folder = tempfile::tempdir()?;
        let path = folder.path().join("choices.parquet");
        fs::write(&path, to_parquet(&answers())?)?;
        let copy = folder.path().join("copy.parquet");
        fs::copy(&path, &copy)?;
        assert_eq!(read(&[path, copy])?, answers());
        Ok(())
    }

    #[test]
    fn damage_is_an_error() -> Result<()> {
        let bytes = to_parquet(&answers())?;
        for end in (0..bytes.len()).step_by(97) {
            assert!(from_parquet(bytes[..end].to_vec()).is_err(), "{end}");
        }
        assert!(from_parquet(b"PAR1".to_vec()).is_err());
        Ok(())
    }

    #[test]
    fn an_engine_is_named_without_its_notes() {
        assert_eq!(engine_name("eng38{1=2,23=0} tensor_core winograd"), "eng38{1=2,23=0}");
    }
}
