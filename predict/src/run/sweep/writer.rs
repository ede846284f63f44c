//! Where rows go, and where they left off.

use super::identity::Identity;
use crate::args::{SweepArgs, SweepFormat};
use crate::ask::{COLUMNS, Cell, KEYS, Key, POINT, Row};
use crate::failure::Failure;
use crate::output::keep;
use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead, BufReader, BufWriter, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};

/// Writes rows that are in a CSV file as another one, with what they were made from.
type Rewrite = fn(&Path, &Path, &str) -> Result<()>;

/// How a file comes about that is whole or nothing.
fn rewriter(format: SweepFormat) -> Option<Rewrite> {
    match format {
        SweepFormat::Csv | SweepFormat::Jsonl => None,
        #[cfg(feature = "parquet")]
        SweepFormat::Parquet => Some(super::parquet::write),
        #[cfg(feature = "arrow")]
        SweepFormat::Arrow => Some(super::arrow::write),
    }
}

/// An output that rows are appended to.
pub struct Writer {
    format: SweepFormat,
    sink: Box<dyn Write + Send + Sync>,
    /// What becomes of the rows once they are all there: how, from where, to where, made from what.
    rewritten: Option<(Rewrite, PathBuf, PathBuf, Identity)>,
}

/// Cells from a column on.
fn cells<'a>(text: &mut String, format: SweepFormat, first: usize, cells: impl IntoIterator<Item = Cell<'a>>) {
    for (column, cell) in (first..).zip(cells) {
        if column > 0 {
            text.push(',');
        }
        if format == SweepFormat::Jsonl {
            text.extend(["\"", COLUMNS[column], "\":"]);
            json_cell(text, cell);
        } else {
            csv_cell(text, cell);
        }
    }
}

fn csv_cell(text: &mut String, cell: Cell<'_>) {
    match cell {
        // Words of our own need no quotes.
        Cell::Text(value) if value.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') => text.push_str(value),
        Cell::Text(value) => text.push_str(&joulecast_reports::csv_cell(value)),
        Cell::Whole(value) => text.push_str(itoa::Buffer::new().format(value)),
        Cell::Number(value) => number(text, value),
        Cell::Truth(value) => text.push_str(if value { "true" } else { "false" }),
        Cell::Nothing => {}
    }
}

fn json_cell(text: &mut String, cell: Cell<'_>) {
    match cell {
        Cell::Text(value) => {
            let _ = write!(text, "{}", serde_json::Value::from(value));
        }
        Cell::Number(value) if !value.is_finite() => text.push_str("null"),
        Cell::Nothing => text.push_str("null"),
        other => csv_cell(text, other),
    }
}

/// The shortest number that reads back as the value, as `Display` writes it, several times as fast; where two are as short
/// and as near, either.
fn number(text: &mut String, value: f64) {
    // Very large and very small ones would have an exponent, which `Display` does not write.
    if value == 0.0 || (1e-5..1e15).contains(&value.abs()) {
        let mut buffer = zmij::Buffer::new();
        let digits = buffer.format_finite(value);
        text.push_str(digits.strip_suffix(".0").unwrap_or(digits));
    } else {
        let _ = write!(text, "{value}");
    }
}

/// Where the rows of a sweep gather: beside a file that is whole or nothing, which is written when all of them are there.
fn gathered(args: &SweepArgs) -> Option<PathBuf> {
    let file = args.file()?.clone();
    if rewriter(args.format).is_none() {
        return Some(file);
    }
    let mut name = file.into_os_string();
    name.push(".rows.csv");
    Some(name.into())
}

fn name(format: SweepFormat) -> String {
    format.to_possible_value().map_or(String::new(), |v| v.get_name().to_string())
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
    let format = name(args.format);
    let ending = output.extension().and_then(|e| e.to_str()).unwrap_or_default().to_ascii_lowercase();
    let meant = match ending.as_str() {
        "csv" | "jsonl" | "parquet" | "arrow" => ending.as_str(),
        "json" | "ndjson" => "jsonl",
        "feather" | "ipc" => "arrow",
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
    if format == SweepFormat::Jsonl {
        text.push('{');
    }
    cells(&mut text, format, 0, key.cells());
    text + ","
}

/// What the rows of a step have in common, as text: what stands before their point, and behind it.
struct Common<'r> {
    key: &'r Key<'r>,
    before: String,
    behind: String,
}

impl<'r> Common<'r> {
    fn of(format: SweepFormat, key: &'r Key<'r>) -> Self {
        let (mut before, mut behind) = (String::new(), String::new());
        cells(&mut before, format, 0, key.cells().into_iter().take(POINT));
        cells(&mut behind, format, POINT + 2, key.cells().into_iter().skip(POINT + 2));
        Self { key, before, behind }
    }
}

/// A number that was written, and where.
#[derive(Clone, Default)]
struct Known {
    bits: Option<u64>,
    at: Range<usize>,
}

/// Cells behind the key. Most numbers are those of the row before where the limit holds nothing back: they are copied.
fn results(text: &mut Vec<u8>, format: SweepFormat, row: &Row<'_>, known: &mut [Known], room: &mut String) {
    for ((column, cell), known) in (KEYS..).zip(row.results()).zip(known) {
        text.push(b',');
        if format == SweepFormat::Jsonl {
            ["\"", COLUMNS[column], "\":"].iter().for_each(|part| text.extend_from_slice(part.as_bytes()));
        }
        let bits = match cell {
            Cell::Number(value) => Some(value.to_bits()),
            Cell::Whole(value) => Some(value),
            _ => None,
        };
        if bits.is_some() && known.bits == bits {
            text.extend_from_within(known.at.clone());
            continue;
        }
        room.clear();
        if format == SweepFormat::Jsonl {
            json_cell(room, cell)
        } else {
            csv_cell(room, cell)
        }
        *known = Known { bits, at: text.len()..text.len() + room.len() };
        text.extend_from_slice(room.as_bytes());
    }
}

/// Rows as text; on any thread.
pub fn render(format: SweepFormat, rows: &[Row<'_>]) -> Vec<u8> {
    let mut text = Vec::with_capacity(rows.len() * 420);
    let (mut known, mut room) = (vec![Known::default(); COLUMNS.len() - KEYS], String::new());
    let mut common: Option<Common<'_>> = None;
    for row in rows {
        let same = common.take().filter(|common| common.key.differs_by_its_point_alone(&row.key));
        let same = same.unwrap_or_else(|| Common::of(format, &row.key));
        if format == SweepFormat::Jsonl {
            text.push(b'{');
        }
        text.extend_from_slice(same.before.as_bytes());
        room.clear();
        cells(&mut room, format, POINT, row.key.point_cells());
        text.extend_from_slice(room.as_bytes());
        text.extend_from_slice(same.behind.as_bytes());
        results(&mut text, format, row, &mut known, &mut room);
        text.extend_from_slice(if format == SweepFormat::Jsonl { b"}\n" } else { b"\n" });
        common = Some(same);
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
        let writer = |sink| Self { format: args.format, sink, rewritten: None };
        let Some(path) = gathered(args) else {
            if rewriter(args.format).is_some() {
                return Err(Failure::Usage(anyhow!("--format {} needs --output FILE", name(args.format))));
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
        let (mut writer, rows, identity) =
            open().with_context(|| path.display().to_string()).map_err(Failure::Failed)?;
        if let (Some(rewrite), Some(output)) = (rewriter(args.format), args.file()) {
            writer.rewritten = Some((rewrite, path, output.clone(), identity));
        }
        Ok((writer, rows))
    }

    fn headed(mut self) -> Result<Self> {
        if self.format != SweepFormat::Jsonl {
            self.write((COLUMNS.join(",") + "\n").as_bytes())?;
        }
        Ok(self)
    }

    pub fn write(&mut self, text: &[u8]) -> Result<()> {
        Ok(self.sink.write_all(text)?)
    }

    pub fn finish(mut self) -> Result<()> {
        self.sink.flush()?;
        if let Some((rewrite, rows, output, identity)) = self.rewritten {
            rewrite(&rows, &output, &identity.text())?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of earlier versions go on: numbers look as they did.
    #[test]
    fn numbers_are_written_as_display_does() {
        let of = |value: f64| {
            let mut text = String::new();
            number(&mut text, value);
            text
        };
        let mut bits: u64 = 1;
        for i in 0..20_000 {
            bits = bits.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let whole = (bits >> 40) as f64;
            for value in [f64::from_bits(bits), whole, whole / 1024.0, whole * 10f64.powi(i % 40 - 20)] {
                let (text, usual) = (of(value), value.to_string());
                let same = text.parse::<f64>().is_ok_and(|read| read.to_bits() == value.to_bits() || read.is_nan());
                assert!(same && text.len() == usual.len(), "{text} {usual}");
            }
        }
        for value in [0.0, -0.0, 1.0, 1e15, 1e16, 1e17, 1e-5, 1e-6, f64::INFINITY, f64::NAN, 5e-324, f64::MAX] {
            assert_eq!(of(value), value.to_string());
        }
    }
}
