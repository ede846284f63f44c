//! Values into bytes: tables, JSON, CSV and Markdown. Nothing is computed here.

pub mod accuracy;
pub mod calibration;
pub mod compare;
pub mod describe;
pub mod document;
pub mod exit;
pub mod figure;
pub mod optimum;
pub mod papers;
pub mod plan;
pub mod prediction;
pub mod table;
pub mod transfer;

/// A chain of causes in one line, outermost first; what a cause already said is not said again.
pub fn error_line(chain: impl Iterator<Item = String>) -> String {
    let mut line = String::new();
    for cause in chain.map(|c| c.replace(['\n', '\r'], " ")) {
        if line.is_empty() {
            line = cause;
        } else if !line.contains(cause.trim()) {
            line = format!("{line}: {cause}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_cause_is_said_once() {
        let chain = ["net.toml: layer a: too small", "too small", "disk\nfull"].map(String::from);
        assert_eq!(super::error_line(chain.into_iter()), "net.toml: layer a: too small: disk full");
    }
}
