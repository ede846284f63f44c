//! The tables of NVIDIA AIConfigurator, Parquet into rows.

use crate::system::quiet::quietly;
use anyhow::{Context, Result, bail};
use joulecast_model::base::precision::Precision;
use joulecast_model::catalog;
use joulecast_model::rows::import::Imported;
use joulecast_model::rows::import::aiconfigurator::{self as aic, Attention, Product};
use polars::prelude::{DataFrame, Float32Chunked, Int32Chunked, ParquetReader, SerReader, StringChunked};
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// The tables of a folder that hold layers.
const TABLES: [&str; 3] = ["aic_gemm", "aic_attention_context", "aic_attention_generation"];

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

/// The rows of a table, which its columns tell apart: products, prompts or steps.
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
        None => bail!("no column m, seq_len or kv_len: neither products nor attention"),
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
        Ok(self.frame.column(name)?.str().with_context(|| format!("column {name}"))?)
    }

    fn whole(&self, name: &str) -> Result<&'f Int32Chunked> {
        Ok(self.frame.column(name)?.i32().with_context(|| format!("column {name}"))?)
    }

    fn number(&self, name: &str) -> Result<&'f Float32Chunked> {
        Ok(self.frame.column(name)?.f32().with_context(|| format!("column {name}"))?)
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
