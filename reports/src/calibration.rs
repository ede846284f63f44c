//! `calibrate show`: a calibration in words.

use crate::table::{Column, Row, Table, significant};
use joulecast_model::base::order::sort_by;
use joulecast_model::law::calibration::{Calibration, LayerModel};
use std::fmt::Write as _;

/// What a calibration holds: a line for each model, or of one kind all, strongest term first.
pub fn explain(calibration: &Calibration, kind: Option<&str>) -> String {
    let mut text = format!(
        "{}: chip {}, tier {}, {} fit\nboards    {}\nsoftware  {}\nsources   {}\ntool      {}\ndataset   {}\nfolds by  {}\n",
        calibration.id,
        calibration.chip,
        calibration.tier,
        calibration.fit,
        calibration.boards.join(", "),
        calibration.software,
        calibration.sources.join(", "),
        calibration.tool,
        calibration.dataset_hash,
        calibration.fold_key,
    );
    if kind.is_none_or(|kind| kind.starts_with("conv2d")) {
        explain_choices(&mut text, calibration);
    }
    match kind {
        Some(kind) => {
            calibration.models.iter().filter(|m| m.key.name() == kind).for_each(|m| explain_model(&mut text, m))
        }
        None => {
            let models = Table::of(calibration.models.iter());
            let _ = write!(text, "\nmodels, all of one kind by --kind KIND\n{}", models.to_text());
        }
    }
    text
}

impl Row for LayerModel {
    const COLUMNS: &'static [Column<Self>] = &[
        Column::text("  kind", |m| format!("  {}", m.key)),
        Column::text("kernel", |m| m.phase.to_string()),
        Column::text("precision", |m| m.precision.to_string()),
        Column::text("kernels of", |m| m.framework.clone().unwrap_or_else(|| "library".into())),
        Column::number("rows", |m| m.rows.to_string()),
        Column::number("terms", |m| m.terms.len().to_string()),
        Column::number("engines", |m| m.engines.len().to_string()),
        Column::number("held-out MAPE %", |m| format!("{:.1}", m.cross_validation.mape)),
        Column::number("median", |m| format!("{:.1}", m.cross_validation.median)),
    ];
}

fn explain_choices(text: &mut String, calibration: &Calibration) {
    if calibration.choices.is_empty() {
        return;
    }
    text.push_str("\nengines that the library chooses for convolutions, foreseen by trees\n");
    let mut table = Table::new(&["  kernel", "precisions", "engines", "branches", "answers", "right"], 2);
    for choice in &calibration.choices {
        let precisions: Vec<&str> = choice.precisions.iter().map(|p| p.name()).collect();
        table.row(vec![
            format!("  {}", choice.phase),
            precisions.join(", "),
            choice.engines.len().to_string(),
            choice.tree.nodes().len().div_ceil(2).to_string(),
            choice.asked.to_string(),
            format!("{:.1} %", 100.0 * choice.right),
        ]);
    }
    text.push_str(&table.to_text());
    text.push_str(
        "  right: share of the answers for shapes kept aside\n  \
         engines are as cuDNN's heuristics name them: eng67, or with knobs eng67{2=12}\n",
    );
}

fn explain_model(text: &mut String, model: &LayerModel) {
    let _ = write!(
        text,
        "\n{} {} {}{}: {} rows, held out {:.1} % MAPE, {:.1} % RMSPE, {:.1} % median\n  \
         t = t_ref exp({} + terms), t_ref = (t_comp^{p} + t_mem^{p} + ({} us)^{p})^(1/{p})\n",
        model.key,
        model.phase,
        model.precision,
        model.framework.as_ref().map_or(String::new(), |framework| format!(" (kernels of {framework})")),
        model.rows,
        model.cross_validation.mape,
        model.cross_validation.rmspe,
        model.cross_validation.median,
        significant(model.intercept, 4),
        significant(model.floor.to_us(), 3),
        p = model.exponent,
    );
    let mut terms: Vec<_> = model.terms.iter().collect();
    sort_by(&mut terms, |a, b| b.coefficient.abs().total_cmp(&a.coefficient.abs()));
    let mut table = Table::new(&["  term", "one deviation up", "coefficient", "mean", "deviation"], 1);
    for term in terms {
        table.row(vec![
            format!("  {}", term.name(model.family)),
            format!("{:+.1} %", 100.0 * (term.coefficient.exp() - 1.0)),
            significant(term.coefficient, 3),
            significant(term.mean, 3),
            significant(term.scale, 3),
        ]);
    }
    if !model.terms.is_empty() {
        text.push_str(&table.to_text());
    }
    if !model.engines.is_empty() {
        let mut table = Table::new(&["  engine", "rows", "terms", "adds in the mean", "from", "to"], 1);
        for engine in &model.engines {
            let percent = |log: f64| format!("{:+.1} %", 100.0 * (log.exp() - 1.0));
            table.row(vec![
                format!("  {}", engine.engine),
                engine.rows.to_string(),
                engine.terms.len().to_string(),
                percent(engine.intercept),
                percent(engine.range.0),
                percent(engine.range.1),
            ]);
        }
        text.push_str(&table.to_text());
    }
    for b in &model.residuals {
        let up_to = b.up_to.to_us();
        let range = if up_to.is_finite() { format!("up to {} us", significant(up_to, 3)) } else { "longer".into() };
        let _ = writeln!(
            text,
            "  90 % of held-out rows {range}: x{:.2} to x{:.2} ({} rows)",
            b.low.exp(),
            b.high.exp(),
            b.rows
        );
    }
}
