//! The tables of `calibrate validate --networks`: whole networks as measured and as predicted.

use crate::export::{Export, ExportError, Format};
use crate::table::{Column, Row, Table};
use joulecast_model::base::accuracy::Accuracy;
use joulecast_model::step::predictor::{Estimate, Widths};
use serde::Serialize;
use std::collections::BTreeMap;

/// A value measured and predicted, with its interval.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Pair {
    /// Measured.
    pub measured: f64,
    /// Predicted.
    pub predicted: f64,
    /// 5 % quantile.
    pub p05: f64,
    /// 95 % quantile.
    pub p95: f64,
}

impl Pair {
    /// A measured value beside its prediction, both in the unit of `number`.
    pub fn of<T>(measured: f64, predicted: Estimate<T>, number: fn(T) -> f64) -> Self {
        let Estimate { value, p05, p95 } = predicted;
        Self { measured, predicted: number(value), p05: number(p05), p95: number(p95) }
    }

    /// Whether its interval holds the measured value.
    pub fn holds(&self) -> bool {
        (self.p05..=self.p95).contains(&self.measured)
    }

    /// Signed error in percent.
    pub fn error(&self) -> f64 {
        100.0 * (self.predicted / self.measured - 1.0)
    }
}

/// A run beside its prediction.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Network, as in the catalog.
    pub network: String,
    /// Its role.
    pub role: &'static str,
    /// GPU.
    pub gpu: String,
    /// inference or training.
    pub mode: &'static str,
    /// Precision.
    pub precision: &'static str,
    /// Batch.
    pub batch: u64,
    /// Tokens per sample, in words; empty for networks that read none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub tokens: String,
    /// eager or graph.
    pub launch: &'static str,
    /// Whether the GPU is predicted to wait for the host, however shortly.
    pub launch_bound: bool,
    /// Whether the step is predicted to last as long as the host takes.
    #[serde(skip)]
    pub host_decides: bool,
    /// Whether it would on the slowest host that is likely.
    #[serde(skip)]
    pub host_may_decide: bool,
    /// Seconds.
    pub time: Pair,
    /// Watts.
    pub power: Option<Pair>,
    /// Joules.
    pub energy: Option<Pair>,
    /// Roofline of the whole network, in seconds.
    pub roofline: f64,
    /// Core clock in MHz: mean of the run, and predicted.
    pub clock: (Option<f64>, f64),
    /// Half-widths of its intervals as the layers give them.
    #[serde(skip)]
    pub widths: Widths,
}

impl Compared {
    /// The network, and its tokens where it reads some.
    pub fn name(&self) -> String {
        if self.tokens.is_empty() { self.network.clone() } else { format!("{} {}", self.network, self.tokens) }
    }

    /// How it was launched, and whether that decides.
    pub fn launched(&self) -> String {
        if self.launch_bound { format!("{}, launch-bound", self.launch) } else { self.launch.into() }
    }
}

/// Mean errors and coverage by role, mode, precision and launch.
pub fn table(rows: &[Compared]) -> Table {
    let mut groups: BTreeMap<Vec<String>, Vec<&Compared>> = BTreeMap::new();
    for row in rows {
        let launch = row.launched();
        for precision in [row.precision, "all"] {
            let key = [row.gpu.as_str(), row.role, row.mode, &launch, precision].map(str::to_string).to_vec();
            groups.entry(key).or_default().push(row);
        }
    }
    let mut table = Table::new(
        &[
            "gpu",
            "networks",
            "mode",
            "launch",
            "precision",
            "runs",
            "time %",
            "bias",
            "worst",
            "holds",
            "power %",
            "bias",
            "holds",
            "energy %",
            "bias",
            "worst",
            "holds",
            "roofline %",
        ],
        5,
    );
    for (key, members) in groups {
        let measures: [Vec<Pair>; 3] = [
            members.iter().map(|r| r.time).collect(),
            members.iter().filter_map(|r| r.power).collect(),
            members.iter().filter_map(|r| r.energy).collect(),
        ];
        let mut cells = key;
        cells.push(members.len().to_string());
        for (i, pairs) in measures.iter().enumerate() {
            let accuracy = Accuracy::of(pairs.iter().map(|p| (p.measured, p.predicted)));
            let worst = pairs.iter().map(|p| p.error()).max_by(|a, b| a.abs().total_cmp(&b.abs()));
            let held = pairs.iter().filter(|p| p.holds()).count();
            cells.push(accuracy.map_or("-".into(), |a| format!("{:.1}", a.mape)));
            cells.push(accuracy.map_or("-".into(), |a| format!("{:+.1}", a.bias)));
            if i != 1 {
                cells.push(worst.map_or("-".into(), |w| format!("{w:+.0}")));
            }
            cells.push(format!("{held}/{}", pairs.len()));
        }
        let roofline = Accuracy::of(members.iter().map(|r| (r.time.measured, r.roofline)));
        cells.push(roofline.map_or("-".into(), |a| format!("{:.0}", a.mape)));
        table.row(cells);
    }
    table
}

impl Row for Compared {
    /// With its errors.
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("network", Self::name),
        Column::text("mode", |r| r.mode.into()),
        Column::text("precision", |r| r.precision.into()),
        Column::number("batch", |r| r.batch.to_string()),
        Column::number("launch", Self::launched),
        Column::number("ms", |r| format!("{:.3}", r.time.measured * 1e3)),
        Column::number("predicted", |r| format!("{:.3}", r.time.predicted * 1e3)),
        Column::number("error %", |r| signed(Some(r.time.error()))),
        Column::number("W", |r| whole(r.power.map(|p| p.measured))),
        Column::number("predicted", |r| whole(r.power.map(|p| p.predicted))),
        Column::number("error %", |r| signed(r.power.map(|p| p.error()))),
        Column::number("energy error %", |r| signed(r.energy.map(|e| e.error()))),
        Column::number("MHz", |r| whole(r.clock.0)),
        Column::number("predicted", |r| whole(Some(r.clock.1))),
    ];
}

fn whole(value: Option<f64>) -> String {
    value.map_or("-".into(), |v| format!("{v:.0}"))
}

fn signed(error: Option<f64>) -> String {
    error.map_or("-".into(), |e| format!("{e:+.1}"))
}

/// Runs beside predictions as they are shown.
#[derive(Clone, Copy, Debug)]
pub struct Networks<'a> {
    /// The runs.
    pub runs: &'a [Compared],
    /// Whether tables show every run, not only means, as JSON and CSV do.
    pub every: bool,
}

impl Export for Networks<'_> {
    const FORMS: &'static [(Format, &'static str)] = <[Compared]>::FORMS;

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Json | Format::Csv => self.runs.export(format),
            _ if self.every => self.runs.export(format),
            _ => table(self.runs).export(format),
        }
    }
}
