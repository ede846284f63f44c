//! The sections of a DeepBench sheet: matrix products, convolutions, and those that are skipped.

use super::super::sheet::{Cell, Sheet};
use super::super::{ImportError, Imported, check, count, seconds, shown, whole};
use super::{Arithmetic, BELOW_RESOLUTION, SOURCE, Workbook};
use joulecast_model::base::precision::Phase;
use joulecast_model::base::shape::Shape;
use joulecast_model::net::case::LayerCase;
use joulecast_model::net::layer::{Conv2d, Groups, Layer, Linear, Pair};
use joulecast_model::rows::measurement::{Measurement, Order};

/// Truncation upstream takes half a microsecond on average.
const HALF_MICROSECOND: f64 = 0.5e-6;

/// Kernels in the loops that were timed.
const CONV_LAUNCHES: u64 = 300;
const GEMM_LAUNCHES: u64 = 400;

/// Spellings of the columns' headers; which side R and S, the paddings and the strides belong to is in them,
/// and their order differs between the sheets.
const M: &[&str] = &["m"];
const N: &[&str] = &["n"];
const K: &[&str] = &["k"];
const A_T: &[&str] = &["a transpose"];
const B_T: &[&str] = &["b transpose"];
const TIME: &[&str] = &["time (msec)"];
const W: &[&str] = &["w"];
const H: &[&str] = &["h"];
const C: &[&str] = &["c"];
const KERNEL_H: &[&str] = &["r", "r (filter height)"];
const KERNEL_W: &[&str] = &["s", "s (filter width)"];
const PAD_H: &[&str] = &["pad_h"];
const PAD_W: &[&str] = &["pad_w"];
const STRIDE_H: &[&str] = &["vertical stride"];
const STRIDE_W: &[&str] = &["horizontal stride"];
const FORWARD: &[&str] = &["forward (msec)", "time (msec)"];
const BACKWARD_DATA: &[&str] = &["wrt inputs (msec)"];
const BACKWARD_WEIGHTS: &[&str] = &["wrt parameters (msec)"];
const ALGORITHM: &[&str] = &["forward algorithm"];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Gemm,
    Conv,
    Other(&'static str),
}

/// The rows from a title in column A to the next.
pub(super) struct Section {
    kind: Kind,
    /// Indices into the sheet's rows, title included.
    rows: std::ops::Range<usize>,
}

impl Section {
    /// The sections of a sheet; none if it holds neither matrix products nor convolutions.
    pub fn split(sheet: &Sheet) -> Vec<Self> {
        let titles: Vec<(usize, Kind)> = sheet
            .rows
            .iter()
            .enumerate()
            .filter_map(|(i, row)| {
                let title = row.first()?.text()?;
                Some((
                    i,
                    match title {
                        "Dense Matrix Multiplication" => Kind::Gemm,
                        "Convolution" => Kind::Conv,
                        _ if title.starts_with("Recurrent Layers") => Kind::Other("recurrent layer"),
                        "All-Reduce" => Kind::Other("all-reduce"),
                        _ => Kind::Other("unknown section"),
                    },
                ))
            })
            .collect();
        if !titles.iter().any(|(_, kind)| matches!(kind, Kind::Gemm | Kind::Conv)) {
            return Vec::new();
        }
        let ends = titles.iter().skip(1).map(|(i, _)| *i).chain([sheet.rows.len()]);
        titles.iter().zip(ends).map(|((begin, kind), end)| Self { kind: *kind, rows: *begin..end }).collect()
    }

    /// Appends the section's rows.
    pub fn import(
        &self,
        workbook: &Workbook<'_>,
        sheet: &Sheet,
        arithmetic: Arithmetic,
        imported: &mut Imported,
    ) -> Result<(), ImportError> {
        let rows = sheet.rows.get(self.rows.clone()).unwrap_or_default();
        let numbered = |row: &[Cell]| row.get(2).is_some_and(|c| c.number().is_some());
        let marks: &[&[&str]] = match self.kind {
            Kind::Other(reason) => {
                rows.iter().filter(|row| numbered(row)).for_each(|_| imported.skip(reason));
                return Ok(());
            }
            Kind::Gemm => &[M, N, K],
            Kind::Conv => &[W, H, C, N, K],
        };
        let fault = |row: usize, what: String| ImportError::Sheet {
            file: workbook.file.to_string(),
            sheet: sheet.name.clone(),
            row: row + 1,
            what,
        };
        let is_header = |row: &Vec<Cell>| marks.iter().all(|names| position(row, names).is_some());
        let Some(at) = rows.iter().position(is_header) else {
            return Err(fault(self.rows.start, format!("no header with the columns {}", listed(marks))));
        };
        let header_row = self.rows.start + at;
        let header = rows.get(at).map(Vec::as_slice).unwrap_or_default();
        let site = Site { workbook, sheet, arithmetic };
        let need = |names: &[&str]| {
            position(header, names).ok_or_else(|| fault(header_row, format!("no column {}", listed(&[names]))))
        };
        let data = rows.iter().enumerate().skip(at + 1).map(|(i, row)| (self.rows.start + i + 1, row.as_slice()));
        if self.kind == Kind::Gemm {
            let columns =
                Gemm { m: need(M)?, n: need(N)?, k: need(K)?, a_t: need(A_T)?, b_t: need(B_T)?, time: need(TIME)? };
            data.for_each(|(number, row)| columns.import(&site, number, row, imported));
        } else {
            let columns = Conv {
                input: [need(C)?, need(H)?, need(W)?],
                batch: need(N)?,
                channels: need(K)?,
                kernel: [need(KERNEL_H)?, need(KERNEL_W)?],
                padding: [need(PAD_H)?, need(PAD_W)?],
                stride: [need(STRIDE_H)?, need(STRIDE_W)?],
                times: [
                    (Phase::Forward, Some(need(FORWARD)?)),
                    (Phase::BackwardData, position(header, BACKWARD_DATA)),
                    (Phase::BackwardWeights, position(header, BACKWARD_WEIGHTS)),
                ],
                algorithm: position(header, ALGORITHM),
            };
            data.for_each(|(number, row)| columns.import(&site, number, row, imported));
        }
        Ok(())
    }
}

/// Where a row stands.
struct Site<'a> {
    workbook: &'a Workbook<'a>,
    sheet: &'a Sheet,
    arithmetic: Arithmetic,
}

impl Site<'_> {
    fn measurement(&self, row: usize, case: LayerCase, phase: Phase, batch: u64, published_s: f64) -> Measurement {
        let (workbook, arithmetic) = (self.workbook, self.arithmetic);
        let row = format!("{}:{}:{row}:{phase}", workbook.file, self.sheet.name);
        let time_s = published_s + HALF_MICROSECOND;
        let mut m = Measurement::imported(SOURCE, &row, workbook.gpu, case, phase, batch, time_s);
        m.form_factor = workbook.form_factor.map(str::to_string);
        m.cuda.clone_from(&workbook.cuda);
        m.cudnn.clone_from(&workbook.cudnn);
        m.driver.clone_from(&workbook.driver);
        m.licence = Some("Apache-2.0".to_string());
        m.method = "loop".to_string();
        m.precision = arithmetic.precision;
        m.math = arithmetic.math.map(str::to_string);
        if published_s < 5e-6 {
            m.flags.push(BELOW_RESOLUTION.to_string());
        }
        m
    }
}

struct Gemm {
    m: usize,
    n: usize,
    k: usize,
    a_t: usize,
    b_t: usize,
    time: usize,
}

impl Gemm {
    fn import(&self, site: &Site<'_>, number: usize, row: &[Cell], imported: &mut Imported) {
        if is_blank(row, &[self.m, self.n, self.k]) {
            return;
        }
        match self.read(site, number, row) {
            Ok(m) => imported.rows.push(m),
            Err(reason) => imported.skip(format!("matrix product: {reason}")),
        }
    }

    fn read(&self, site: &Site<'_>, number: usize, row: &[Cell]) -> Result<Measurement, String> {
        let need = |name: &str, column| dimension(row, column).ok_or(format!("{name} is not a whole number from 1"));
        let (m, n, k) = (need("M", self.m)?, need("N", self.n)?, need("K", self.k)?);
        let flag = |column: usize| match row.get(column).and_then(Cell::text) {
            Some("N" | "n") => Some('n'),
            Some("T" | "t") => Some('t'),
            _ => None,
        };
        let (Some(a), Some(b)) = (flag(self.a_t), flag(self.b_t)) else {
            return Err("a transposition is neither N nor T".to_string());
        };
        let time = time(row, self.time).ok_or("no time")?;
        let input = Shape::new(&[k]).map_err(|e| e.to_string())?;
        let case = LayerCase { inputs: vec![input], layer: Layer::Linear(Linear { features: m, bias: false }) };
        check(&case)?;
        let mut measurement = site.measurement(number, case, Phase::Forward, n, time);
        measurement.layout = Order::from_name(&format!("{a}{b}"));
        measurement.n = Some(GEMM_LAUNCHES);
        Ok(measurement)
    }
}

struct Conv {
    input: [usize; 3],
    batch: usize,
    channels: usize,
    kernel: [usize; 2],
    padding: [usize; 2],
    stride: [usize; 2],
    times: [(Phase, Option<usize>); 3],
    algorithm: Option<usize>,
}

impl Conv {
    fn import(&self, site: &Site<'_>, number: usize, row: &[Cell], imported: &mut Imported) {
        if is_blank(row, &self.input) {
            return;
        }
        let (case, batch) = match self.case(row) {
            Ok(found) => found,
            Err(reason) => return imported.skip(format!("convolution: {reason}")),
        };
        for (phase, column) in self.times {
            let Some(column) = column else { continue };
            let Some(time) = time(row, column) else {
                imported.skip(format!("convolution: no {phase} time"));
                continue;
            };
            let mut m = site.measurement(number, case.clone(), phase, batch, time);
            m.layout = site.arithmetic.layout;
            m.n = Some(CONV_LAUNCHES);
            if phase == Phase::Forward {
                m.algo = self.algorithm.and_then(|c| row.get(c)).and_then(Cell::text).map(algorithm);
            }
            imported.rows.push(m);
        }
    }

    fn case(&self, row: &[Cell]) -> Result<(LayerCase, u64), String> {
        let need = |name: &str, column: usize| {
            dimension(row, column).ok_or_else(|| format!("{name} is not a whole number from 1"))
        };
        let pair = |name: &str, [h, w]: [usize; 2]| Ok::<_, String>(Pair { h: need(name, h)?, w: need(name, w)? });
        let padding = self.padding.map(|c| row.get(c).and_then(Cell::number).and_then(whole));
        let [Some(pad_h), Some(pad_w)] = padding else {
            return Err("padding is not a whole number".to_string());
        };
        let [c, h, w] = self.input;
        let input = Shape::map(need("C", c)?, need("H", h)?, need("W", w)?).map_err(|e| e.to_string())?;
        let layer = Layer::Conv2d(Conv2d {
            channels: need("K", self.channels)?,
            kernel: pair("filter size", self.kernel)?,
            stride: pair("stride", self.stride)?,
            padding: Pair { h: pad_h, w: pad_w },
            dilation: Pair::square(1),
            groups: Groups::Count(1),
            bias: false,
        });
        let case = LayerCase { inputs: vec![input], layer };
        check(&case)?;
        Ok((case, need("N", self.batch)?))
    }
}

/// cuDNN's name; the Titan X workbook lost its first letters in places.
fn algorithm(text: &str) -> String {
    let text: String = text.chars().take(60).collect();
    if text == "LICIT_PRECOMP_GEMM" { "IMPLICIT_PRECOMP_GEMM".to_string() } else { text }
}

/// A published time in seconds.
fn time(row: &[Cell], column: usize) -> Option<f64> {
    row.get(column).and_then(Cell::number).and_then(|ms| seconds(ms, 1e-3))
}

fn dimension(row: &[Cell], column: usize) -> Option<u64> {
    row.get(column).and_then(Cell::number).and_then(count)
}

/// Whether a row is between the data: empty, or a footnote.
fn is_blank(row: &[Cell], columns: &[usize]) -> bool {
    columns.iter().all(|&c| row.get(c).and_then(Cell::number).is_none())
}

fn position(header: &[Cell], names: &[&str]) -> Option<usize> {
    header.iter().position(|cell| cell.text().is_some_and(|t| names.iter().any(|n| t.eq_ignore_ascii_case(n))))
}

fn listed(columns: &[&[&str]]) -> String {
    columns.iter().filter_map(|names| names.first()).map(|name| shown(name)).collect::<Vec<_>>().join(", ")
}
