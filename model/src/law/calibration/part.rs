//! The part of a calibration's text that one prediction can need: reading all of a large one takes longer than predicting.

use crate::base::precision::{Mode, Precision};
use crate::kernel::key::{ConvClass, ModelKey};
use crate::kernel::setting::Algorithm;

/// What is to be predicted.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Precision of the networks that are predicted.
    pub precision: Precision,
    /// Whether inference or training.
    pub mode: Mode,
    /// Name of the framework profile.
    pub framework: &'a str,
    /// What convolutions are to be computed by, if asked for.
    pub algorithm: Option<Algorithm>,
}

const MODEL: &str = "\n[[model]]\n";
const CHOICE: &str = "\n[[choice]]\n";

impl Wanted<'_> {
    /// A calibration's text without the models of other precisions, phases and frameworks. Substitutes stay: fp32 for
    /// every precision, fp16 for those of 16 bits and fewer, forward for every phase; and bf16 for fp8, which is bf16 but for
    /// some products.
    pub fn part_of(&self, text: &str) -> String {
        let (head, models) = text.split_once(MODEL).unwrap_or((text, ""));
        let mut choices = head.split(CHOICE);
        let head = choices.next().unwrap_or_default();
        let kept: Vec<&str> = models.split(MODEL).filter(|m| self.needs(m)).collect();
        let mut part = String::with_capacity(text.len());
        for line in head.lines() {
            match line.starts_with("model_count = ") {
                true => part.push_str(&format!("model_count = {}", kept.len())),
                false => part.push_str(line),
            }
            part.push('\n');
        }
        for choice in choices.filter(|c| self.asks(c)) {
            part.push_str(CHOICE);
            part.push_str(choice);
        }
        for model in kept {
            part.push_str(MODEL);
            part.push_str(model);
        }
        part
    }

    /// Whether a section of engines is of the precision in hand, and of a phase that is run. Engines are foreseen in the
    /// precision that a convolution runs in, so that no other's stand in.
    fn asks(&self, choice: &str) -> bool {
        let head = choice.split_once("engines = [").map_or(choice, |(head, _)| head);
        let names = |name: &str| head.contains(&format!("\"{name}\""));
        // A transposed convolution runs a convolution's gradient forward.
        let phase = self.mode == Mode::Training || names("forward") || names("backward_data");
        phase && self.is_run_in(names)
    }

    /// Whether what says which precisions it is of `names` the networks', or the one that stands beside fp8.
    fn is_run_in(&self, names: impl Fn(&str) -> bool) -> bool {
        names(self.precision.name()) || self.precision == Precision::Fp8 && names("bf16")
    }

    fn needs(&self, model: &str) -> bool {
        // What it is for stands before its numbers.
        let head = model.split_once("residuals = [").map_or(model, |(head, _)| head);
        let names = |name: &str| head.contains(&format!("\"{name}\""));
        let half = self.precision.bytes() < Precision::Fp32.bytes();
        let precision = self.is_run_in(names) || names("fp32") || half && names("fp16");
        // A transposed convolution runs a convolution's gradient forward.
        let transposed =
            names("backward_data") && head.contains(&format!("kind = \"{}", ModelKey::Conv(ConvClass::General)));
        let phase = self.mode == Mode::Training || names("forward") || transposed;
        let framework = !head.contains("\nframework = ") || names(self.framework);
        let by = Algorithm::ALL.iter().filter(|a| ModelKey::by(**a).is_some_and(|key| names(key.name())));
        let algorithm = by.copied().all(|a| self.algorithm == Some(a));
        !model.is_empty() && precision && phase && framework && algorithm
    }
}
