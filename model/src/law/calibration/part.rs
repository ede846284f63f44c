//! The part of a shipped calibration that one prediction can need: reading all of a large one takes longer than predicting.

use super::Cover;
use super::models::Head;
use super::name::Name;
use crate::base::packed::{Document, Error, Packed};
use crate::base::precision::{Mode, Phase, Precision};
use crate::kernel::key::{ConvClass, ModelKey};
use crate::kernel::setting::Algorithm;
use serde::{Deserialize, de};

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

/// What a model is for.
pub(super) struct ModelHead<'a> {
    kind: Name<'a>,
    phase: Phase,
    precision: Precision,
    framework: Option<Name<'a>>,
    covers: Vec<(Name<'a>, Phase, Precision)>,
}

/// Where a file has the names of a head's fields.
pub(super) struct HeadPlaces([Option<usize>; 5]);

impl HeadPlaces {
    pub(super) fn of(document: &Document<'_>) -> Self {
        Self(["kind", "phase", "precision", "framework", "covers"].map(|name| document.place(name)))
    }
}

impl<'a> ModelHead<'a> {
    /// Of a packed model: nothing else of it is looked at, since a file has hundreds.
    ///
    /// # Errors
    /// When it lacks one of the fields, or has something else there.
    pub(super) fn read(model: Packed<'a, '_>, places: &HeadPlaces) -> Result<Self, Error> {
        let [kind, phase, precision, framework, covers] = model.fields(&places.0)?;
        let (Some(kind), Some(phase), Some(precision)) = (kind, phase, precision) else {
            return Err(de::Error::custom("a model lacks kind, phase or precision"));
        };
        Ok(Self {
            kind: kind.read()?,
            phase: phase.read()?,
            precision: precision.read()?,
            framework: framework.map(Packed::read).transpose()?,
            covers: covers.map_or(Ok(Vec::new()), Packed::read)?,
        })
    }

    /// With the names of models read.
    ///
    /// # Errors
    /// When a name is no model's.
    pub(super) fn named(&self) -> Result<Head, Error> {
        let cover = |(kind, phase, precision): &(Name<'_>, Phase, Precision)| {
            let key = kind.as_ref().parse().map_err(de::Error::custom)?;
            Ok(Cover { key, phase: *phase, precision: *precision })
        };
        Ok(Head {
            own: cover(&(self.kind.clone(), self.phase, self.precision))?,
            framework: self.framework.as_ref().map(Name::to_string),
            covers: self.covers.iter().map(cover).collect::<Result<_, _>>()?,
        })
    }
}

/// What a section of engines is for.
#[derive(Deserialize)]
pub(super) struct ChoiceHead {
    phase: Phase,
    precisions: Vec<Precision>,
}

impl Wanted<'_> {
    /// Whether engines are of the precision in hand, and of a phase that is run. They are foreseen in the precision that a
    /// convolution runs in, so that no other's stand in.
    pub(super) fn asks(&self, choice: &ChoiceHead) -> bool {
        // A transposed convolution runs a convolution's gradient forward.
        let phase = self.mode == Mode::Training || matches!(choice.phase, Phase::Forward | Phase::BackwardData);
        phase && choice.precisions.iter().any(|p| self.is_run_in(*p))
    }

    /// Whether a precision is the networks', or the one that stands beside fp8, and beside integers for what has a cache.
    fn is_run_in(&self, precision: Precision) -> bool {
        let beside = matches!(self.precision, Precision::Fp8 | Precision::Int8) && precision == Precision::Bf16;
        precision == self.precision || beside
    }

    /// Whether a model is of the precision, phase and framework in hand, or may stand in: fp32 for every precision, fp16 for
    /// those of 16 bits and fewer, forward for every phase; and bf16 for fp8, which is bf16 but for some products.
    pub(super) fn needs(&self, model: &ModelHead<'_>) -> bool {
        let kinds = || model.covers.iter().map(|(kind, ..)| kind).chain([&model.kind]);
        let phase = |phase| model.phase == phase || model.covers.iter().any(|(_, p, _)| *p == phase);
        let half = self.precision.is_narrow();
        let stands_in = |p| self.is_run_in(p) || p == Precision::Fp32 || half && p == Precision::Fp16;
        let precision = stands_in(model.precision) || model.covers.iter().any(|(.., p)| stands_in(*p));
        // A transposed convolution runs a convolution's gradient forward.
        let convolution = model.kind.as_ref().starts_with(ModelKey::Conv(ConvClass::General).name());
        let runs = self.mode == Mode::Training || phase(Phase::Forward) || convolution && phase(Phase::BackwardData);
        let framework = model.framework.as_ref().is_none_or(|name| name.as_ref() == self.framework);
        let mut by = Algorithm::ALL
            .iter()
            .filter(|a| ModelKey::by(**a).is_some_and(|key| kinds().any(|kind| kind.as_ref() == key.name())));
        precision && runs && framework && by.all(|a| self.algorithm == Some(*a))
    }
}
