//! A calibration's models. Those of a shipped file are read when they are first asked for: a prediction needs a tenth of them,
//! and reading all takes longer than predicting.

use super::file::read_packed_model;
use super::part::ModelHead;
use super::{Cover, LayerModel};
use crate::base::packed::{Error, Kept, Packed};
use crate::base::precision::{Phase, Precision};
use crate::kernel::key::ModelKey;
use std::fmt;
use std::sync::OnceLock;

/// Models of layers, by kind, phase and precision.
#[derive(Clone, Default)]
pub struct Models(Vec<Entry>);

#[derive(Clone)]
struct Entry {
    head: Head,
    /// What was read; `None` of a model that is damaged, which no build ships.
    read: OnceLock<Option<Box<LayerModel>>>,
    packed: Option<Kept>,
}

/// What a model is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Head {
    pub key: ModelKey,
    pub phase: Phase,
    pub precision: Precision,
    pub framework: Option<String>,
    pub covers: Vec<Cover>,
}

impl Head {
    pub(super) fn of(model: &LayerModel) -> Self {
        let LayerModel { key, phase, precision, ref framework, ref covers, .. } = *model;
        Self { key, phase, precision, framework: framework.clone(), covers: covers.clone() }
    }

    /// Whether it predicts a kind in a phase and precision, through a framework's own kernels or the library's.
    pub(super) fn is_for(&self, key: ModelKey, phase: Phase, precision: Precision, framework: Option<&str>) -> bool {
        let of = |k, p, q| k == key && p == phase && q == precision && self.framework.as_deref() == framework;
        match self.covers.is_empty() {
            true => of(self.key, self.phase, self.precision),
            false => self.covers.iter().any(|c| of(c.key, c.phase, c.precision)),
        }
    }
}

impl Entry {
    fn model(&self) -> Option<&LayerModel> {
        let read = || self.packed.as_ref().and_then(|kept| read_packed_model(kept.value()).ok()).map(Box::new);
        self.read.get_or_init(read).as_deref()
    }
}

impl From<LayerModel> for Entry {
    fn from(model: LayerModel) -> Self {
        Self { head: Head::of(&model), read: OnceLock::from(Some(Box::new(model))), packed: None }
    }
}

impl Models {
    /// Of packed models, which stay as they are until they are asked for.
    ///
    /// # Errors
    /// When what one is for cannot be read.
    pub(super) fn packed(models: impl IntoIterator<Item = (ModelHead<'static>, Kept)>) -> Result<Self, Error> {
        let entry = |(head, kept): (ModelHead<'static>, Kept)| {
            Ok(Entry { head: head.named()?, read: OnceLock::new(), packed: Some(kept) })
        };
        models.into_iter().map(entry).collect::<Result<_, _>>().map(Self)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &LayerModel> {
        self.0.iter().filter_map(Entry::model)
    }

    /// Whether one is the same.
    pub fn contains(&self, model: &LayerModel) -> bool {
        self.iter().any(|other| other == model)
    }

    /// The first that is for something.
    pub(super) fn find(&self, is_for: impl Fn(&Head) -> bool) -> Option<&LayerModel> {
        self.0.iter().find(|entry| is_for(&entry.head)).and_then(Entry::model)
    }

    /// What they are for, without reading them.
    pub(super) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.0.iter().map(|entry| &entry.head)
    }
}

impl From<Vec<LayerModel>> for Models {
    fn from(models: Vec<LayerModel>) -> Self {
        models.into_iter().collect()
    }
}

impl FromIterator<LayerModel> for Models {
    fn from_iter<I: IntoIterator<Item = LayerModel>>(models: I) -> Self {
        Self(models.into_iter().map(Entry::from).collect())
    }
}

impl From<Models> for Vec<LayerModel> {
    fn from(models: Models) -> Self {
        models.iter().cloned().collect()
    }
}

impl PartialEq for Models {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl fmt::Debug for Models {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.heads()).finish()
    }
}

/// A packed model with what it is for, where that is among what is wanted.
pub(super) fn wanted_of(
    packed: Packed<'_>,
    kept: impl Fn(Packed<'_>) -> Kept,
    wanted: impl Fn(&ModelHead<'static>) -> bool,
) -> Result<Option<(ModelHead<'static>, Kept)>, Error> {
    let head: ModelHead<'static> = packed.read()?;
    Ok(wanted(&head).then(|| (head, kept(packed))))
}
