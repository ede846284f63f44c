//! The tables of NVIDIA AIConfigurator, Parquet into rows.

use crate::system::quiet::quietly;
use anyhow::{Context, Result, bail};
use joulecast_import::Imported;
use joulecast_import::aiconfigurator::{self as aic, Attention, Experts, Product};
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use polars::prelude::{DataFrame, Float32Chunked, Int32Chunked, ParquetReader, SerReader, StringChunked};
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The tables of a folder that hold layers.
const TABLES: [&str; 4] = ["aic_gemm", "aic_attention_context", "aic_attention_generation", "aic_moe"];

/// A folder's tables of layers; a file is itself.
///
/// # Errors
/// When a folder has none of them.
pub fn files(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() {
        return Ok(vec![path.to_path_buf()]);
    }
    let tables = TABLES.map(|name| path.join(format!("{name}.parquet")));
    let found: Vec<PathBuf> = tables.into_iter().filter(|table| table.is_file()).collect();
    if found.is_empty() {
        bail!("{}: none of {} is there", path.display(), TABLES.map(|name| format!("{name}.parquet")).join(", "));
    }
    Ok(found)
}

/// Columns of products.
const PRODUCTS: [&str; 7] = ["gpu", "framework", "dtype", "m", "n", "k", "time_us"];
/// Columns of attention, beside the one that counts tokens.
const ATTENTION: [&str; 10] = [
    "gpu",
    "framework",
    "attn_dtype",
    "kv_dtype",
    "batch_size",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "window_size",
    "time_us",
];

/// Columns of mixtures of experts.
const EXPERTS: [&str; 13] = [
    "gpu",
    "framework",
    "kernel_source",
    "dtype",
    "distribution",
    "num_tokens",
    "hidden_size",
    "inter_size",
    "topk",
    "num_experts",
    "moe_tp_size",
    "moe_ep_size",
    "time_us",
];

/// The rows of a table, which its columns tell apart: products, prompts, steps or mixtures of experts.
///
/// # Errors
/// When it is damaged or lacks columns.
pub fn import(bytes: &[u8]) -> Result<Imported> {
    let known = |gpu: &str, precision: Precision| catalog::gpu(gpu).is_ok_and(|g| g.peak(precision).is_some());
    let there = quietly(|| columns(bytes)).context("the reader of Parquet failed")??;
    let has = |name: &str| there.iter().any(|c| c == name);
    let tokens = ["seq_len", "kv_len"].into_iter().find(|name| has(name));
    match tokens {
        Some(tokens) => {
            let frame = read(bytes, &[&ATTENTION[..], &[tokens]].concat())?;
            attention(&Table { frame: &frame }, tokens, &known)
        }
        None if has("m") => products(&Table { frame: &read(bytes, &PRODUCTS)? }, &known),
        None if has("topk") => experts(&Table { frame: &read(bytes, &EXPERTS)? }, &known),
        None => bail!("no column m, seq_len, kv_len or topk: neither products, attention nor experts"),
    }
}

fn columns(bytes: &[u8]) -> Result<Vec<String>> {
    let schema = ParquetReader::new(Cursor::new(bytes)).schema()?;
    Ok(schema.iter_names().map(|name| name.to_string()).collect())
}

/// Some columns alone: not every type of the others can be read.
fn read(bytes: &[u8], names: &[&str]) -> Result<DataFrame> {
    let names = names.iter().map(|name| (*name).to_string()).collect();
    let frame = || Ok(ParquetReader::new(Cursor::new(bytes)).with_columns(Some(names)).finish()?);
    quietly(frame).context("the reader of Parquet failed")?
}

struct Table<'f> {
    frame: &'f DataFrame,
}

impl<'f> Table<'f> {
    fn text(&self, name: &str) -> Result<&'f StringChunked> {
        self.frame.column(name)?.str().with_context(|| format!("column {name}"))
    }

    fn whole(&self, name: &str) -> Result<&'f Int32Chunked> {
        self.frame.column(name)?.i32().with_context(|| format!("column {name}"))
    }

    fn number(&self, name: &str) -> Result<&'f Float32Chunked> {
        self.frame.column(name)?.f32().with_context(|| format!("column {name}"))
    }
}

/// What is not there reads as what no importer takes.
fn word(column: &StringChunked, row: usize) -> &str {
    column.get(row).unwrap_or_default()
}

fn count(column: &Int32Chunked, row: usize) -> i64 {
    column.get(row).map_or(0, i64::from)
}

fn time(column: &Float32Chunked, row: usize) -> f64 {
    column.get(row).map_or(f64::NAN, f64::from)
}

fn products(table: &Table<'_>, known: aic::Known<'_>) -> Result<Imported> {
    let [gpu, framework, dtype] = ["gpu", "framework", "dtype"].map(|name| table.text(name));
    let (gpu, framework, dtype) = (gpu?, framework?, dtype?);
    let [m, n, k] = ["m", "n", "k"].map(|name| table.whole(name));
    let (m, n, k, times) = (m?, n?, k?, table.number("time_us")?);
    let rows = (0..table.frame.height()).map(|i| Product {
        gpu: word(gpu, i),
        framework: word(framework, i),
        dtype: word(dtype, i),
        mnk: [m, n, k].map(|column| count(column, i)),
        time_us: time(times, i),
    });
    Ok(aic::products(rows, known))
}

fn attention(table: &Table<'_>, tokens: &str, known: aic::Known<'_>) -> Result<Imported> {
    let [gpu, framework, arithmetic, cache] = ["gpu", "framework", "attn_dtype", "kv_dtype"].map(|c| table.text(c));
    let (gpu, framework, arithmetic, cache) = (gpu?, framework?, arithmetic?, cache?);
    let [batch, length, heads, kv_heads, dimension, window] =
        ["batch_size", tokens, "num_heads", "num_kv_heads", "head_dim", "window_size"].map(|name| table.whole(name));
    let (batch, length, heads, kv_heads) = (batch?, length?, heads?, kv_heads?);
    let (dimension, window, times) = (dimension?, window?, table.number("time_us")?);
    let rows = (0..table.frame.height()).map(|i| Attention {
        gpu: word(gpu, i),
        framework: word(framework, i),
        dtypes: [arithmetic, cache].map(|column| word(column, i)),
        batch: count(batch, i),
        tokens: count(length, i),
        heads: [heads, kv_heads, dimension].map(|column| count(column, i)),
        window: count(window, i),
        time_us: time(times, i),
    });
    Ok(aic::attention(rows, tokens == "kv_len", known))
}

fn experts(table: &Table<'_>, known: aic::Known<'_>) -> Result<Imported> {
    let [gpu, framework, kernel, dtype, distribution] =
        ["gpu", "framework", "kernel_source", "dtype", "distribution"].map(|name| table.text(name));
    let (gpu, framework, kernel, dtype, distribution) = (gpu?, framework?, kernel?, dtype?, distribution?);
    let [tokens, features, hidden, active, experts, shared, divided] =
        ["num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size"]
            .map(|name| table.whole(name));
    let (tokens, features, hidden, active, experts) = (tokens?, features?, hidden?, active?, experts?);
    let (shared, divided, times) = (shared?, divided?, table.number("time_us")?);
    let rows = (0..table.frame.height()).map(|i| Experts {
        gpu: word(gpu, i),
        framework: word(framework, i),
        kernel: word(kernel, i),
        dtype: word(dtype, i),
        distribution: word(distribution, i),
        tokens: count(tokens, i),
        features: [features, hidden].map(|column| count(column, i)),
        experts: [active, experts].map(|column| count(column, i)),
        among: [shared, divided].map(|column| count(column, i)),
        time_us: time(times, i),
    });
    Ok(aic::experts(rows, known))
}

/// A sum over the GPUs of a node.
#[derive(Clone, Debug)]
pub struct AllReduce {
    /// Board, as in `data/gpus` where it is there.
    pub gpu: String,
    /// Who summed, how launched: `nccl`, `vllm graph`.
    pub by: String,
    /// Cards.
    pub gpus: u64,
    /// Bytes of the message.
    pub bytes: f64,
    /// Seconds.
    pub seconds: f64,
}

/// All-reduces in 16 bits of the table of collectives.
///
/// # Errors
/// When it is damaged or lacks columns.
pub fn all_reduces(bytes: &[u8]) -> Result<Vec<AllReduce>> {
    const COLUMNS: [&str; 8] =
        ["gpu", "framework", "launch", "collective", "dtype", "num_gpus", "message_bytes", "time_us"];
    let frame = read(bytes, &COLUMNS)?;
    let table = Table { frame: &frame };
    let [gpu, framework, launch, collective, dtype] =
        ["gpu", "framework", "launch", "collective", "dtype"].map(|name| table.text(name));
    let (gpu, framework, launch, collective, dtype) = (gpu?, framework?, launch?, collective?, dtype?);
    let (gpus, message, times) = (table.whole("num_gpus")?, table.whole("message_bytes")?, table.number("time_us")?);
    let half = |i: usize| matches!(word(dtype, i), "half" | "bfloat16") && word(collective, i) == "all_reduce";
    let row = |i: usize| {
        let (gpus, bytes, us) = (count(gpus, i), count(message, i), time(times, i));
        let seconds = us * 1e-6;
        (gpus > 1 && bytes > 0 && seconds > 0.0).then(|| AllReduce {
            gpu: aic::board(word(gpu, i)).unwrap_or(word(gpu, i)).to_string(),
            by: format!("{} {}", word(framework, i), word(launch, i)).trim().to_string(),
            gpus: gpus.unsigned_abs(),
            bytes: bytes as f64,
            seconds,
        })
    };
    Ok((0..frame.height()).filter(|&i| half(i)).filter_map(row).collect())
}

/// A long kernel whose power was read.
#[derive(Clone, Debug)]
pub struct Reading {
    /// Board, as in `data/gpus`.
    pub gpu: String,
    /// The kernel.
    pub kernel: Kernel,
    /// Format of the arithmetic, in the source's words.
    pub dtype: String,
    /// Seconds.
    pub seconds: f64,
    /// Power, and the limit, W.
    pub watts: f64,
    /// The board's limit, W.
    pub limit: f64,
    /// Largest relative difference in power from the next shorter and longer shape.
    pub beside: Option<f64>,
}

/// What a reading is of.
#[derive(Clone, Copy, Debug)]
pub enum Kernel {
    /// A product: m, n, k.
    Product([u64; 3]),
    /// Attention of prompts: requests, tokens, heads, heads of keys, features of a head.
    Attention([u64; 5]),
}

/// Products and attention of the table of power; attention in one format, over all tokens.
///
/// # Errors
/// When it is damaged or lacks columns.
pub fn readings(bytes: &[u8]) -> Result<Vec<Reading>> {
    const TEXTS: [&str; 4] = ["op", "gpu", "dtype", "kv_dtype"];
    const COUNTS: [&str; 9] =
        ["m", "n", "k", "batch_size", "seq_len", "num_heads", "num_kv_heads", "head_dim", "window_size"];
    const NUMBERS: [&str; 4] = ["time_us", "power_w", "power_limit_w", "neighbour_power_rel_diff"];
    let frame = read(bytes, &[&TEXTS[..], &COUNTS, &NUMBERS].concat())?;
    let table = Table { frame: &frame };
    let texts = TEXTS.map(|name| table.text(name)).into_iter().collect::<Result<Vec<_>>>()?;
    let counts = COUNTS.map(|name| table.whole(name)).into_iter().collect::<Result<Vec<_>>>()?;
    let numbers = NUMBERS.map(|name| table.number(name)).into_iter().collect::<Result<Vec<_>>>()?;
    let row = |i: usize| {
        let sizes = |columns: &[&Int32Chunked]| -> Option<Vec<u64>> {
            columns.iter().map(|c| c.get(i).filter(|&v| v > 0).map(|v| u64::from(v.unsigned_abs()))).collect()
        };
        let kernel = match word(texts[0], i) {
            "gemm" => Kernel::Product(sizes(&counts[..3])?.try_into().ok()?),
            "context_attention" if word(texts[2], i) == word(texts[3], i) && count(counts[8], i) == 0 => {
                Kernel::Attention(sizes(&counts[3..8])?.try_into().ok()?)
            }
            _ => return None,
        };
        Some(Reading {
            gpu: aic::board(word(texts[1], i))?.to_string(),
            kernel,
            dtype: word(texts[2], i).to_string(),
            seconds: time(numbers[0], i) * 1e-6,
            watts: time(numbers[1], i),
            limit: time(numbers[2], i),
            beside: numbers[3].get(i).map(f64::from),
        })
    };
    Ok((0..frame.height()).filter_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use polars::prelude::{Column, ParquetWriter};

    fn parquet(columns: Vec<Column>) -> Vec<u8> {
        let height = columns.first().map_or(0, Column::len);
        let mut frame = DataFrame::new(height, columns).expect("columns of one length");
        let mut bytes = Vec::new();
        ParquetWriter::new(&mut bytes).finish(&mut frame).expect("written");
        bytes
    }

    fn texts(name: &str, values: &[&str]) -> Column {
        Column::new(name.into(), values)
    }

    fn counts(name: &str, values: &[i32]) -> Column {
        Column::new(name.into(), values)
    }

    fn numbers(name: &str, values: &[f32]) -> Column {
        Column::new(name.into(), values)
    }

    #[test]
    fn tables_are_told_by_their_columns() -> Result<()> {
        let both = |name: &str, text: &str| texts(name, &[text, text]);
        let mut products = vec![
            texts("gpu", &["h200_sxm", "b300"]),
            both("framework", "vllm"),
            both("dtype", "bfloat16"),
            counts("m", &[8, 8]),
            counts("n", &[96, 96]),
            counts("k", &[64, 64]),
            numbers("time_us", &[3.5, 3.5]),
        ];
        let imported = import(&parquet(products.clone()))?;
        assert_eq!((imported.rows.len(), imported.rows[0].batch), (1, 8));
        assert!((imported.rows[0].time_s - 3.5e-6).abs() < 1e-12);
        assert_eq!(imported.skipped.get("unknown device \"b300\""), Some(&1));
        products.remove(4);
        assert!(import(&parquet(products)).is_err(), "n is missing");
        let attention = vec![
            both("gpu", "a100_sxm"),
            both("framework", "sglang"),
            both("attn_dtype", "bfloat16"),
            both("kv_dtype", "bfloat16"),
            counts("batch_size", &[2, 4]),
            counts("kv_len", &[128, 128]),
            counts("num_heads", &[8, 8]),
            counts("num_kv_heads", &[2, 2]),
            counts("head_dim", &[64, 64]),
            counts("window_size", &[0, 128]),
            numbers("time_us", &[20.0, 20.0]),
        ];
        let imported = import(&parquet(attention))?;
        assert_eq!((imported.rows.len(), imported.rows[0].case.layer.kind()), (1, "attention"));
        let experts = vec![
            both("gpu", "h100_sxm"),
            both("framework", "vllm"),
            both("kernel_source", "vllm_fused_moe"),
            both("dtype", "bfloat16"),
            texts("distribution", &["balanced", "power_law_1.01"]),
            counts("num_tokens", &[16, 16]),
            counts("hidden_size", &[512, 512]),
            counts("inter_size", &[128, 128]),
            counts("topk", &[2, 2]),
            counts("num_experts", &[8, 8]),
            counts("moe_tp_size", &[2, 2]),
            counts("moe_ep_size", &[1, 1]),
            numbers("time_us", &[30.0, 40.0]),
        ];
        let imported = import(&parquet(experts))?;
        assert_eq!((imported.rows.len(), imported.rows[0].batch), (1, 16));
        assert!((imported.rows[0].time_s - 4e-5).abs() < 1e-12);
        let error = import(&parquet(vec![counts("x", &[1])])).err().map(|e| e.to_string());
        assert!(error.is_some_and(|e| e.contains("neither products, attention nor experts")));
        assert!(import(b"PAR1 and no more").is_err());
        Ok(())
    }

    #[test]
    fn sums_and_readings_are_read() -> Result<()> {
        let three = |name: &str, text: &str| texts(name, &[text; 3]);
        let collectives = vec![
            three("gpu", "h100_sxm"),
            three("framework", "nccl"),
            three("launch", ""),
            texts("collective", &["all_reduce", "all_gather", "all_reduce"]),
            texts("dtype", &["half", "half", "int8"]),
            counts("num_gpus", &[8; 3]),
            counts("message_bytes", &[1 << 20; 3]),
            numbers("time_us", &[50.0; 3]),
        ];
        let sums = all_reduces(&parquet(collectives))?;
        assert_eq!((sums.len(), sums[0].gpus, sums[0].gpu.as_str(), sums[0].by.as_str()), (1, 8, "h100-sxm", "nccl"));
        let power = vec![
            texts("op", &["gemm", "context_attention", "moe"]),
            three("gpu", "h200_sxm"),
            three("dtype", "bfloat16"),
            three("kv_dtype", "bfloat16"),
            counts("m", &[7, 0, 0]),
            counts("n", &[8; 3]),
            counts("k", &[9; 3]),
            counts("batch_size", &[2; 3]),
            counts("seq_len", &[128; 3]),
            counts("num_heads", &[8; 3]),
            counts("num_kv_heads", &[2; 3]),
            counts("head_dim", &[64; 3]),
            counts("window_size", &[0; 3]),
            numbers("time_us", &[2e4; 3]),
            numbers("power_w", &[600.0; 3]),
            numbers("power_limit_w", &[700.0; 3]),
            numbers("neighbour_power_rel_diff", &[0.01; 3]),
        ];
        let readings = readings(&parquet(power))?;
        assert_eq!(readings.len(), 2);
        assert!(matches!(readings[0].kernel, Kernel::Product([7, 8, 9])));
        assert!(matches!(readings[1].kernel, Kernel::Attention([2, 128, 8, 2, 64])));
        assert!((readings[0].seconds - 0.02).abs() < 1e-6);
        Ok(())
    }
}
