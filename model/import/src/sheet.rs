//! Cells of a workbook, as the reader of spreadsheets hands them over.

/// A sheet. `rows[0]` is the sheet's row 1 and `rows[_][0]` its column A, so that messages and row ids
/// name cells as the spreadsheet does; rows may be shorter than the sheet is wide.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sheet {
    /// The name on its tab.
    pub name: String,
    /// Cells by row and column.
    pub rows: Vec<Vec<Cell>>,
}

/// A cell's value; that of a formula is its last result.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Cell {
    /// Nothing, or an error value.
    #[default]
    Empty,
    /// A number.
    Number(f64),
    /// Text.
    Text(String),
}

impl Cell {
    /// The number, if it is one.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(n) => Some(*n),
            Self::Empty | Self::Text(_) => None,
        }
    }

    /// The text without blanks around it, if there is any.
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text.trim()).filter(|t| !t.is_empty()),
            Self::Empty | Self::Number(_) => None,
        }
    }
}
