//! Where rows go, and where they left off.

use super::identity::Identity;
use crate::args::{SweepArgs, SweepFormat};
use crate::ask::{COLUMNS, Cell, KEYS, Key, Row};
use crate::failure::Failure;
use crate::output::keep;
use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use joulecast_reports::csv_cell;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// An output that rows are appended to.
pub struct Writer {
    format: SweepFormat,
    sink: Box<dyn Write + Send + Sync>,
    /// What becomes of the rows once they are all there: from where, to where, made from what.
    #[cfg(feature = "parquet")]
    rewritten: Option<(PathBuf, PathBuf, Identity)>,
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

/// Where the rows of a sweep gather: beside a Parquet file, which is written from them when they are whole.
fn gathered(args: &SweepArgs) -> Option<PathBuf> {
    #[cfg(feature = "parquet")]
    if args.format == SweepFormat::Parquet {
        let mut name = args.file()?.clone().into_os_string();
        name.push(".rows.csv");
        return Some(name.into());
    }
    args.file().cloned()
}

/// An output whose name is of another format, and one that would lose rows.
fn check(args: &SweepArgs) -> Result<(), Failure> {
    let Some(output) = args.file() else {
        return match args.resume {
            true => Err(Failure::Usage(anyhow!("--resume goes on in a file: --output FILE"))),
            false => Ok(()),
        };
    };
    let shown = output.display();
    let format = args.format.to_possible_value().map_or(String::new(), |v| v.get_name().to_string());
    let ending = output.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let meant = match ending.as_str() {
        "csv" | "jsonl" | "parquet" => ending.as_str(),
        "json" | "ndjson" => "jsonl",
        _ => &format,
    };
    if meant != format {
        let known = SweepFormat::value_variants().iter().filter_map(ValueEnum::to_possible_value);
        let what = if known.into_iter().any(|v| v.get_name() == meant) {
            format!("--format {meant} writes what the name says")
        } else {
            format!("{meant} needs the cargo feature {meant}, without it take csv or jsonl")
        };
        return Err(Failure::Usage(anyhow!("{shown} would be written as {format}: {what}")));
    }
    if args.resume || args.force {
        return Ok(());
    }
    let files = gathered(args).into_iter().chain([output.clone()]);
    files.into_iter().try_for_each(|path| keep(&path, "--resume goes on where its rows end, --force writes over it"))
}

/// How a line of a key begins, its end left out: what comes next tells them apart.
fn beginning(format: SweepFormat, key: &Key<'_>) -> String {
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

/// Rows as text; on any thread.
pub fn render(format: SweepFormat, rows: &[Row<'_>]) -> String {
    let mut text = String::with_capacity(rows.len() * 420);
    for row in rows {
        let cells = row.cells().into_iter();
        if format == SweepFormat::Jsonl {
            json_line(&mut text, cells)
        } else {
            csv_line(&mut text, cells)
        }
        text.push('\n');
    }
    text
}

impl Writer {
    /// Opens the output; with --resume also says how many rows it has. `key`: what the row at a place is of.
    /// `identity`: what its rows rest on.
    pub fn open<'a>(
        args: &SweepArgs,
        identity: Identity,
        key: impl Fn(u64) -> Option<Key<'a>>,
    ) -> Result<(Self, u64), Failure> {
        check(args)?;
        let writer = |sink: Box<dyn Write + Send + Sync>| Self {
            format: args.format,
            sink,
            #[cfg(feature = "parquet")]
            rewritten: None,
        };
        let Some(path) = gathered(args) else {
            #[cfg(feature = "parquet")]
            if args.format == SweepFormat::Parquet {
                return Err(Failure::Usage(anyhow!("Parquet needs --output")));
            }
            let sink = Box::new(BufWriter::new(std::io::stdout()));
            return Ok((writer(sink).headed().map_err(Failure::Failed)?, 0));
        };
        let open = || -> Result<(Self, u64, Identity)> {
            let mut identity = identity;
            let mut file = alone(&path)?;
            let (rows, end) = if args.resume {
                let (rows, end) = existing(&path, args.format, key)?;
                if rows > 0 {
                    identity = identity.joined(&path)?;
                }
                (rows, end)
            } else {
                // Whoever held it meanwhile may have written it.
                if !args.force && file.metadata()?.len() > 0 {
                    return Err(anyhow!("another sweep has written it meanwhile: --force writes over it"));
                }
                (0, 0)
            };
            if file.metadata()?.is_file() {
                // A line that was cut off is written anew.
                file.set_len(end)?;
                file.seek(SeekFrom::End(0))?;
            }
            // Before any row: whoever finds rows finds what they were made from.
            identity.write(&path)?;
            let writer = writer(Box::new(BufWriter::new(file)));
            Ok((if end == 0 { writer.headed()? } else { writer }, rows, identity))
        };
        #[cfg_attr(not(feature = "parquet"), allow(unused_mut, unused_variables))]
        let (mut writer, rows, identity) =
            open().with_context(|| path.display().to_string()).map_err(Failure::Failed)?;
        #[cfg(feature = "parquet")]
        if let (SweepFormat::Parquet, Some(output)) = (args.format, args.file()) {
            writer.rewritten = Some((path, output.clone(), identity));
        }
        Ok((writer, rows))
    }

    fn headed(mut self) -> Result<Self> {
        if self.format != SweepFormat::Jsonl {
            self.write(&(COLUMNS.join(",") + "\n"))?;
        }
        Ok(self)
    }

    pub fn write(&mut self, text: &str) -> Result<()> {
        Ok(self.sink.write_all(text.as_bytes())?)
    }

    pub fn finish(mut self) -> Result<()> {
        self.sink.flush()?;
        #[cfg(feature = "parquet")]
        if let Some((rows, output, identity)) = self.rewritten {
            super::parquet::write(&rows, &output, &identity.text())?;
            let beside = Identity::path(&rows);
            for path in [rows, beside] {
                std::fs::remove_file(&path).with_context(|| path.display().to_string())?;
            }
        }
        Ok(())
    }
}

/// A file for this process alone, made where it is not there: two sweeps would mix their rows. The kernel gives the lock
/// back when the process ends in any way.
fn alone(path: &Path) -> Result<File> {
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path)?;
    if file.metadata()?.is_file() {
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(anyhow!("another process is writing there; wait until it ends, or name another file"));
            }
            Err(TryLockError::Error(e)) => return Err(e).context("cannot be locked"),
        }
    }
    Ok(file)
}

/// Whole rows of an output that is resumed, and where they end in bytes. Every one must be the one that this sweep has at
/// its place.
fn existing<'a>(path: &Path, format: SweepFormat, key: impl Fn(u64) -> Option<Key<'a>>) -> Result<(u64, u64)> {
    let mut file = BufReader::new(File::open(path)?);
    let (mut rows, mut end, mut line) = (0, 0u64, String::new());
    loop {
        line.clear();
        let read = file.read_line(&mut line)?;
        if read == 0 || !line.ends_with('\n') {
            return Ok((rows, end));
        }
        let text = line.trim_end();
        if end == 0 && format != SweepFormat::Jsonl {
            if text != COLUMNS.join(",") {
                return Err(anyhow!("other columns than this sweep has: write to another file"));
            }
        } else {
            let same = key(rows).is_some_and(|k| text.starts_with(&beginning(format, &k)));
            if !same {
                let row = rows + 1;
                return Err(anyhow!("row {row} is not of this sweep: write to another file"));
            }
            rows += 1;
        }
        end += read as u64;
    }
}

const _: () = assert!(KEYS < COLUMNS.len());
