//! The tables of `calibrate published`: what others measured beside what is predicted.

use crate::table::Table;

/// A cell, before its column says how many digits are shown.
#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// A name.
    Text(String),
    /// A number; what is none is a dash.
    Number(f64),
    /// Several of them.
    Numbers(Vec<f64>),
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        Self::Number(number)
    }
}

/// Names, then numbers.
pub fn labelled<N: AsRef<str>>(
    names: impl IntoIterator<Item = N>,
    numbers: impl IntoIterator<Item = f64>,
) -> Vec<Cell> {
    names.into_iter().map(|n| n.as_ref().into()).chain(numbers.into_iter().map(Cell::from)).collect()
}

/// A column: its name, and digits after the point, with or without a plus.
type Shown = (&'static str, usize, bool);

/// What a table shows, its first columns being text.
#[derive(Clone, Copy, Debug)]
pub struct Form {
    labels: &'static [&'static str],
    numbers: &'static [Shown],
}

impl Form {
    /// A table of rows of cells, by column; cells that a row lacks at its end are empty.
    pub fn table(&self, rows: impl IntoIterator<Item = Vec<Cell>>) -> Table {
        let header: Vec<&str> = self.labels.iter().copied().chain(self.numbers.iter().map(|n| n.0)).collect();
        let mut table = Table::new(&header, self.labels.len());
        for row in rows {
            let shown = |(i, cell)| self.shown(i, cell);
            table.row(row.into_iter().enumerate().map(shown).collect());
        }
        table
    }

    fn shown(&self, column: usize, cell: Cell) -> String {
        let digits = column.checked_sub(self.labels.len()).and_then(|i| self.numbers.get(i));
        let number = |value: f64| match digits {
            _ if value.is_nan() => "-".to_string(),
            Some((_, decimals, true)) => format!("{value:+.decimals$}"),
            Some((_, decimals, false)) => format!("{value:.decimals$}"),
            None => value.to_string(),
        };
        match cell {
            Cell::Text(text) => text,
            Cell::Number(value) => number(value),
            Cell::Numbers(values) => values.into_iter().map(number).collect::<Vec<_>>().join(", "),
        }
    }
}

/// Sums over several GPUs: every law, its errors on what it was fitted to and on workbooks left out.
pub const RINGS: Form = Form {
    labels: &["ring all-reduce"],
    numbers: &[
        ("rows", 0, false),
        ("in the ring", 0, false),
        ("launch us", 1, false),
        ("hop us", 2, false),
        ("GB/s", 2, false),
        ("error %", 1, false),
        ("left out: error %", 1, false),
        ("90 % within", 2, false),
    ],
};

/// Whole networks on a GPU without rows: means over networks by half.
pub const TIMM_MEANS: Form = Form {
    labels: &["half", "mode", "layout"],
    numbers: &[("networks", 0, false), ("error %", 1, false), ("signed %", 1, true), ("in the interval %", 0, false)],
};

/// Whole networks on a GPU without rows: every run.
pub const TIMM: Form = Form {
    labels: &["half", "network", "mode", "layout"],
    numbers: &[
        ("pixels", 0, false),
        ("batch", 0, false),
        ("ms", 1, false),
        ("predicted", 1, false),
        ("error %", 1, true),
        ("5 %", 1, false),
        ("95 %", 1, false),
    ],
};

/// Voltages that were read, and what idle power is made of: P0 + V^2 (l + c f), V over its constant value.
pub const VOLTAGES: Form = Form {
    labels: &["GPU"],
    numbers: &[
        ("idle W, low clocks", 1, false),
        ("highest", 1, false),
        ("knee MHz", 0, false),
        ("rise", 3, false),
        ("at most off %", 1, false),
        ("P0 W", 1, false),
        ("l W", 1, false),
        ("c W", 1, false),
        ("l / c", 2, false),
    ],
};

/// Voltages that idle power tells with another board's l / c.
pub const INFERRED: Form = Form {
    labels: &["GPU", "l / c of"],
    numbers: &[
        ("knee MHz", 0, false),
        ("rise", 3, false),
        ("at most off %", 1, false),
        ("rise read", 3, false),
        ("error %", 1, true),
    ],
};

/// How well held-out energy rows agree with rises of the voltage.
pub const LIKELIHOODS: Form = Form {
    labels: &["chip"],
    numbers: &[("rise", 2, false), ("mean log density", 4, false), ("below the best", 4, false)],
};

/// Average power: every run.
pub const RUNS: Form = Form {
    labels: &["GPU", "network", "phase"],
    numbers: &[
        ("batch", 0, false),
        ("W", 0, false),
        ("predicted", 0, false),
        ("error %", 1, true),
        ("0.85 x limit: error %", 1, true),
    ],
};

/// Average power: mean errors.
pub const RUN_MEANS: Form =
    Form { labels: &[], numbers: &[("runs", 0, false), ("error %", 1, false), ("0.85 x limit: error %", 1, false)] };

/// Power of long kernels: share of the limit that is drawn in the middle, and errors.
pub const KERNELS: Form = Form {
    labels: &["GPU", "kind", "precision"],
    numbers: &[
        ("rows", 0, false),
        ("% of the limit", 0, false),
        ("predicted", 0, false),
        ("power error %", 1, false),
        ("median", 1, true),
        ("time error %", 1, false),
        ("median", 1, true),
    ],
};

/// What a paper calls efficiency.
pub const EFFICIENCIES: Form = Form {
    labels: &["GPU", "network"],
    numbers: &[("batch", 0, false), ("GFLOPS/W", 1, false), ("predicted", 1, false)],
};

/// Power limits: every point, over the default.
pub const CAPS: Form = Form {
    labels: &["GPU", "network"],
    numbers: &[
        ("limit W", 0, false),
        ("time", 3, false),
        ("predicted", 3, false),
        ("unseen", 3, false),
        ("energy", 3, false),
        ("predicted", 3, false),
        ("unseen", 3, false),
    ],
};

/// Power limits: mean errors of networks.
pub const CAP_MEANS: Form = Form {
    labels: &["GPU", "network"],
    numbers: &[
        ("default given: time %", 1, false),
        ("energy %", 1, false),
        ("unseen: time %", 1, false),
        ("energy %", 1, false),
        ("mean curve: time %", 1, false),
        ("energy %", 1, false),
    ],
};

/// Power limits: what choosing by a prediction costs.
pub const REGRETS: Form = Form {
    labels: &["GPU", "metric"],
    numbers: &[("default given %", 2, false), ("unseen %", 2, false), ("one constant limit %", 2, false)],
};

/// A board's constants, fitted without a network.
pub const CONSTANTS: Form =
    Form { labels: &["GPU", "without"], numbers: &[("rise", 3, false), ("held", 3, false), ("draw", 3, false)] };

/// Clocks: what the best one saves.
pub const SAVINGS: Form = Form {
    labels: &["GPU", "mode", "network"],
    numbers: &[
        ("printed %", 1, false),
        ("rise of others %", 1, false),
        ("shipped %", 1, false),
        ("others' mean %", 1, false),
        ("best MHz", 0, false),
    ],
};

/// Clocks: mean errors of savings.
pub const SAVING_MEANS: Form = Form {
    labels: &["GPU", "mode"],
    numbers: &[
        ("rise of others: points", 1, false),
        ("shipped: points", 1, false),
        ("others' mean: points", 1, false),
        ("printed %", 1, false),
        ("predicted %", 1, false),
    ],
};

/// Clocks: the rise of a board's voltage.
pub const RISES: Form = Form {
    labels: &["GPU"],
    numbers: &[("rise of the voltage fitted to all", 2, false), ("points", 1, false), ("shipped", 2, false)],
};

/// Clocks: savings with convolutions by one algorithm.
pub const BY_ALGORITHM: Form = Form {
    labels: &["GPU", "convolutions by"],
    numbers: &[
        ("printed %", 1, false),
        ("predicted %", 1, false),
        ("time at the highest clock against the usual choice", 2, false),
    ],
};

/// Kernels over clocks: mean errors of laws that know three clocks.
pub const LAWS: Form = Form {
    labels: &["GPU", "kernels"],
    numbers: &[
        ("points", 0, false),
        ("P0 + a f V^2: power %", 1, false),
        ("linear: power %", 1, false),
        ("P0 + a f^3: power %", 1, false),
        ("p = 4: time %", 1, false),
        ("p = 1: time %", 1, false),
        ("linear: time %", 1, false),
    ],
};

/// Epochs under power limits: mean errors.
pub const TRACES: Form = Form {
    labels: &["GPU"],
    numbers: &[
        ("limit W", 0, false),
        ("runs", 0, false),
        ("default given: time %", 1, false),
        ("energy %", 1, false),
        ("unseen: time %", 1, false),
        ("energy %", 1, false),
        ("min(cap, P): time %", 1, false),
        ("energy %", 1, false),
    ],
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_says_how_its_numbers_are_shown() {
        let row = vec!["v100".into(), f64::NAN.into(), "2 to 8".into(), Cell::Numbers(vec![1.25, 20.0])];
        let text = RINGS.table([row]).to_text();
        let line: Vec<&str> = text.lines().nth(2).unwrap_or_default().split("  ").filter(|c| !c.is_empty()).collect();
        assert_eq!(line.iter().map(|c| c.trim()).collect::<Vec<_>>(), ["v100", "-", "2 to 8", "1.2, 20.0"]);
        let signed =
            RUNS.table([vec!["g".into(), "n".into(), "p".into(), 1.0.into(), 2.0.into(), 3.4.into(), 5.0.into()]]);
        assert!(signed.to_text().contains("+5.0"), "{}", signed.to_text());
    }
}
