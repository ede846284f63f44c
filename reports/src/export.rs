//! The forms in which results are written, and what has them.

use crate::figure::FigureError;
use crate::record;
use crate::table::{Row, Table};
use serde::Serialize;

/// A form: how `--format` calls it, and what writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Aligned text.
    Table,
    /// For a report.
    Markdown,
    /// One file for a browser.
    Html,
    /// A document with all digits, in seconds, watts and joules.
    Json,
    /// A header, then a line per row.
    Csv,
}

impl Format {
    const ALL: [Self; 5] = [Self::Table, Self::Markdown, Self::Html, Self::Json, Self::Csv];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Table => "table",
            Self::Markdown => "markdown",
            Self::Html => "html",
            Self::Json => "json",
            Self::Csv => "csv",
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|f| f.name() == name).ok_or_else(|| format!("no format \"{name}\""))
    }
}

/// Why a result was not written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// A number that JSON does not have.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A row that CSV does not have.
    #[error(transparent)]
    Csv(#[from] csv::Error),
    /// A figure on the page.
    #[error(transparent)]
    Figure(#[from] FigureError),
    /// A form that it has not, which [`Export::FORMS`] does not list.
    #[error("this has no form {0}")]
    Absent(Format),
}

/// A result that can be written.
pub trait Export {
    /// The forms that it has, each with what help says of it.
    const FORMS: &'static [(Format, &'static str)];

    /// Its text in one of them.
    ///
    /// # Errors
    /// When a number is not finite, a figure cannot be drawn, or there is no such form.
    fn export(&self, format: Format) -> Result<String, ExportError>;
}

/// A document as every JSON of ours is written.
pub(crate) fn json(document: &(impl Serialize + ?Sized)) -> Result<String, ExportError> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

impl Export for Table {
    const FORMS: &'static [(Format, &'static str)] =
        &[(Format::Table, "Aligned text"), (Format::Markdown, "For a report")];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Table => Ok(self.to_text()),
            Format::Markdown => Ok(self.to_markdown()),
            Format::Html | Format::Json | Format::Csv => Err(ExportError::Absent(format)),
        }
    }
}

/// Several tables, one below the other.
impl Export for [Table] {
    const FORMS: &'static [(Format, &'static str)] = Table::FORMS;

    fn export(&self, format: Format) -> Result<String, ExportError> {
        Ok(self.iter().map(|table| table.export(format)).collect::<Result<Vec<_>, _>>()?.join("\n"))
    }
}

impl<R: Row + Serialize> Export for [R] {
    const FORMS: &'static [(Format, &'static str)] = &[
        (Format::Table, "Aligned text"),
        (Format::Markdown, "For a report"),
        (Format::Json, "A list of objects, with all digits"),
        (Format::Csv, "A line per row, with all digits"),
    ];

    fn export(&self, format: Format) -> Result<String, ExportError> {
        match format {
            Format::Json => json(self),
            Format::Csv => {
                let rows = self.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
                Ok(record::csv(&rows, &[]))
            }
            Format::Table | Format::Markdown | Format::Html => Table::of(self).export(format),
        }
    }
}

/// What `--format` takes for a result, each form with its help.
#[cfg(feature = "clap")]
pub fn format_of<E: Export + ?Sized>() -> impl clap::builder::TypedValueParser<Value = Format> {
    use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser as _};
    let known = E::FORMS.iter().map(|(format, help)| PossibleValue::new(format.name()).help(*help));
    PossibleValuesParser::new(known).try_map(|name| name.parse())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::Column;

    #[derive(Serialize)]
    struct Board {
        name: &'static str,
        watts: f64,
    }

    impl Row for Board {
        const COLUMNS: &'static [Column<Self>] =
            &[Column::text("board", |b| b.name.into()), Column::number("W", |b| format!("{:.0}", b.watts))];
    }

    #[test]
    fn rows_have_every_form_that_they_list_and_no_other() -> Result<(), ExportError> {
        let rows = [Board { name: "a", watts: 70.25 }, Board { name: "b", watts: 700.0 }];
        assert_eq!(rows.export(Format::Table)?, "board    W\n-----  ---\na       70\nb      700\n");
        assert_eq!(rows.export(Format::Markdown)?, "| board | W |\n| --- | ---: |\n| a | 70 |\n| b | 700 |\n");
        assert_eq!(rows.export(Format::Csv)?, "name,watts\na,70.25\nb,700.0\n");
        let values: serde_json::Value = serde_json::from_str(&rows.export(Format::Json)?)?;
        assert_eq!(values[0]["watts"], 70.25);
        for format in Format::ALL {
            let listed = <[Board]>::FORMS.iter().any(|(form, _)| *form == format);
            assert_eq!(rows.export(format).is_ok(), listed, "{format}");
            assert_eq!(format.name().parse(), Ok(format));
        }
        Ok(())
    }
}
