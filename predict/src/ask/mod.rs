//! Questions and their answers as values; what prints them is elsewhere.

mod compare;
mod convert;
mod generate;
mod layouts;
mod list;
mod optimize;
mod papers;
mod plan;
mod replica;
mod serve;
mod settings;
mod step;
mod sweep;
mod tried;

pub use compare::{Question, compare};
pub use convert::{to_onnx, to_toml};
pub use generate::{Generated, generate};
pub use layouts::{Laid, layouts};
pub use list::{calibrations, frameworks, gpus, inputs, nets};
pub use optimize::{Choice, Over, figure, optimize};
pub use papers::{Papers, papers};
pub use plan::plan;
pub use serve::{Beside, Coming, Progress, Serving, serve, serve_telling};
pub use step::{Answer, Brief, Prepared, step};
pub use sweep::{COLUMNS, Cell, Entry, Errors, KEYS, Key, POINT, Row, Sweep, Values};
