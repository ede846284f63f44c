//! Where rows go, and where they left off.

use super::rows::{COLUMNS, Cell, KEYS, Key, Row};
use super::{SweepArgs, SweepFormat};
use crate::commands::Failure;
use anyhow::{Context, Result, anyhow};
use joulecast_reports::csv_cell;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::Path;

/// Rows as they are written.
pub enum Chunk {
    Text(String),
    #[cfg(feature = "parquet")]
    Columns(super::parquet::Columns),
}

/// An output that rows are appended to.
pub struct Writer {
    format: SweepFormat,
    sink: Sink,
}

enum Sink {
    Text(Box<dyn Write + Send + Sync>),
    #[cfg(feature = "parquet")]
    Parquet(super::parquet::Rows),
}

fn csv_line<'a>(text: &mut String, cells: impl Iterator<Item = Cell<'a>>) {
    for (i, cell) in cells.enumerate() {
        if i > 0 {
            text.push(',');
        }
        let _ = match cell {
            Cell::Text(value) => write!(text, "{}", csv_cell(value)),
            Cell::Whole(value) => write!(text, "{value}"),
            Cell::Number(value) => write!(text, "{value}"),
            Cell::Truth(value) => write!(text, "{value}"),
            Cell::Nothing => Ok(()),
        };
    }
}

fn json_line<'a>(text: &mut String, cells: impl Iterator<Item = Cell<'a>>) {
    text.push('{');
    for (i, (name, cell)) in COLUMNS.iter().zip(cells).enumerate() {
        let _ = write!(text, "{}\"{name}\":", if i > 0 { "," } else { "" });
        let _ = match cell {
            Cell::Text(value) => write!(text, "{}", serde_json::Value::from(value)),
            Cell::Whole(value) => write!(text, "{value}"),
            Cell::Number(value) if value.is_finite() => write!(text, "{value}"),
            Cell::Truth(value) => write!(text, "{value}"),
            Cell::Number(_) | Cell::Nothing => write!(text, "null"),
        };
    }
    text.push('}');
}

/// How a line of a key begins, its end left out: what comes next tells them apart.
fn beginning(format: SweepFormat, key: &Key) -> String {
    let mut text = String::new();
    match format {
        SweepFormat::Jsonl => {
            json_line(&mut text, key.cells().into_iter());
            text.pop();
        }
        _ => csv_line(&mut text, key.cells().into_iter()),
    }
    text + ","
}

impl Writer {
    /// Opens the output; with --resume also says how many rows it has. `key`: what the row at a place is of.
    pub fn open(args: &SweepArgs, key: impl Fn(u64) -> Option<Key>) -> Result<(Self, u64), Failure> {
        let format = args.format;
        #[cfg(feature = "parquet")]
        if format == SweepFormat::Parquet {
            let path = args.output.as_deref().ok_or_else(|| Failure::Usage(anyhow!("Parquet needs --output")))?;
            if args.resume {
                return Err(Failure::Usage(anyhow!(
                    "a Parquet file is whole or nothing: only CSV and JSON Lines resume"
                )));
            }
            let rows = super::parquet::Rows::create(path).map_err(Failure::Failed)?;
            return Ok((Self { format, sink: Sink::Parquet(rows) }, 0));
        }
        let Some(path) = &args.output else {
            let sink = Sink::Text(Box::new(BufWriter::new(std::io::stdout())));
            return Ok((Self { format, sink }.headed().map_err(Failure::Failed)?, 0));
        };
        let shown = || path.display().to_string();
        if args.resume && path.exists() {
            let (rows, end) = existing(path, format, key).map_err(Failure::Failed)?;
            let open = || -> Result<File> {
                let mut file = OpenOptions::new().write(true).open(path)?;
                // A line that was cut off is written anew.
                file.set_len(end)?;
                file.seek(SeekFrom::End(0))?;
                Ok(file)
            };
            let file = open().with_context(shown).map_err(Failure::Failed)?;
            let writer = Self { format, sink: Sink::Text(Box::new(BufWriter::new(file))) };
            return Ok((if end == 0 { writer.headed().map_err(Failure::Failed)? } else { writer }, rows));
        }
        let file = File::create(path).with_context(shown).map_err(Failure::Failed)?;
        let writer = Self { format, sink: Sink::Text(Box::new(BufWriter::new(file))) };
        Ok((writer.headed().map_err(Failure::Failed)?, 0))
    }

    fn headed(mut self) -> Result<Self> {
        if self.format == SweepFormat::Csv {
            self.write(Chunk::Text(COLUMNS.join(",") + "\n"))?;
        }
        Ok(self)
    }

    /// Rows as text or columns; on any thread.
    pub fn render(&self, rows: &[Row]) -> Chunk {
        #[cfg(feature = "parquet")]
        if self.format == SweepFormat::Parquet {
            return Chunk::Columns(super::parquet::Columns::of(rows));
        }
        let mut text = String::with_capacity(rows.len() * 420);
        for row in rows {
            let cells = row.cells().into_iter();
            if self.format == SweepFormat::Jsonl {
                json_line(&mut text, cells)
            } else {
                csv_line(&mut text, cells)
            }
            text.push('\n');
        }
        Chunk::Text(text)
    }

    pub fn write(&mut self, chunk: Chunk) -> Result<()> {
        match (&mut self.sink, chunk) {
            (Sink::Text(sink), Chunk::Text(text)) => sink.write_all(text.as_bytes())?,
            #[cfg(feature = "parquet")]
            (Sink::Parquet(rows), Chunk::Columns(columns)) => rows.write(&columns)?,
            #[cfg(feature = "parquet")]
            _ => return Err(anyhow!("rows and their file are of different formats")),
        }
        Ok(())
    }

    pub fn finish(self) -> Result<()> {
        match self.sink {
            Sink::Text(mut sink) => sink.flush()?,
            #[cfg(feature = "parquet")]
            Sink::Parquet(rows) => rows.finish()?,
        }
        Ok(())
    }
}

/// Whole rows of an output that is resumed, and where they end in bytes. Every one must be the one that this sweep has at
/// its place.
fn existing(path: &Path, format: SweepFormat, key: impl Fn(u64) -> Option<Key>) -> Result<(u64, u64)> {
    let shown = || path.display().to_string();
    let mut file = BufReader::new(File::open(path).with_context(shown)?);
    let (mut rows, mut end, mut line) = (0, 0u64, String::new());
    loop {
        line.clear();
        let read = file.read_line(&mut line).with_context(shown)?;
        if read == 0 || !line.ends_with('\n') {
            return Ok((rows, end));
        }
        let text = line.trim_end();
        if end == 0 && format == SweepFormat::Csv {
            if text != COLUMNS.join(",") {
                return Err(anyhow!("{} has other columns than this sweep: write to another file", shown()));
            }
        } else {
            let same = key(rows).is_some_and(|k| text.starts_with(&beginning(format, &k)));
            if !same {
                let row = rows + 1;
                return Err(anyhow!("{}: row {row} is not of this sweep: write to another file", shown()));
            }
            rows += 1;
        }
        end += read as u64;
    }
}

const _: () = assert!(KEYS < COLUMNS.len());
