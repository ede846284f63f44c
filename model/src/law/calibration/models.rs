//! A calibration's models. Those of a shipped file are read when they are first asked for: a prediction needs a tenth of them,
//! and reading all takes longer than predicting.

use super::CalibrationError;
use super::layer_model::{Cover, LayerModel};
use crate::base::mark::Places;
use crate::base::packed::Kept;
use crate::base::precision::{Phase, Precision};
use crate::kernel::key::ModelKey;
use std::fmt;
use std::sync::OnceLock;

/// Models of layers, by kind, phase and precision.
#[derive(Clone, Default)]
pub struct Models {
    entries: Vec<Entry>,
    /// Where the models for something are, of the library and of frameworks; made when one is first asked for.
    places: OnceLock<Places>,
}

#[derive(Clone)]
struct Entry {
    head: Head,
    /// What was read; `None` of a model that is damaged, which no build ships.
    read: OnceLock<Option<Box<LayerModel>>>,
    packed: Option<(Kept, Read)>,
}

/// Reads a packed model.
pub(super) type Read = fn(&Kept) -> Result<LayerModel, CalibrationError>;

/// What a model is for.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Head {
    pub own: Cover,
    pub framework: Option<String>,
    pub covers: Vec<Cover>,
}

impl Head {
    /// What it is looked up by.
    fn keys(&self) -> impl Iterator<Item = (Option<&str>, &Cover)> {
        let covers = if self.covers.is_empty() { std::slice::from_ref(&self.own) } else { &self.covers };
        covers.iter().map(|cover| (self.framework.as_deref(), cover))
    }

    /// As [`LayerModel::is_for`].
    fn is_for(&self, key: ModelKey, phase: Phase, precision: Precision, framework: Option<&str>) -> bool {
        self.framework.as_deref() == framework && Cover { key, phase, precision }.is_among(&self.own, &self.covers)
    }
}

impl Entry {
    fn model(&self) -> Option<&LayerModel> {
        let read = || self.packed.as_ref().and_then(|(kept, read)| read(kept).ok()).map(Box::new);
        self.read.get_or_init(read).as_deref()
    }
}

impl From<LayerModel> for Entry {
    fn from(model: LayerModel) -> Self {
        let LayerModel { key, phase, precision, ref framework, ref covers, .. } = model;
        let own = Cover { key, phase, precision };
        let head = Head { own, framework: framework.clone(), covers: covers.clone() };
        Self { head, read: OnceLock::from(Some(Box::new(model))), packed: None }
    }
}

impl Models {
    /// Of packed models, which stay as they are until they are asked for.
    pub(super) fn packed(models: impl IntoIterator<Item = (Head, Kept)>, read: Read) -> Self {
        let entry = |(head, kept)| Entry { head, read: OnceLock::new(), packed: Some((kept, read)) };
        models.into_iter().map(entry).collect()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &LayerModel> {
        self.entries.iter().filter_map(Entry::model)
    }

    /// Whether one is the same.
    pub fn contains(&self, model: &LayerModel) -> bool {
        self.iter().any(|other| other == model)
    }

    /// The first of which something holds.
    pub(super) fn find(&self, holds: impl Fn(&Head) -> bool) -> Option<&LayerModel> {
        self.entries.iter().find(|entry| holds(&entry.head)).and_then(Entry::model)
    }

    /// The first that predicts a kind in a phase and precision, through a framework's own kernels or the library's.
    pub(super) fn of(
        &self,
        key: ModelKey,
        phase: Phase,
        precision: Precision,
        framework: Option<&str>,
    ) -> Option<&LayerModel> {
        let places = self.places.get_or_init(|| {
            let entries = self.entries.iter().enumerate();
            Places::of(entries.flat_map(|(place, entry)| entry.head.keys().map(move |key| (key, place))))
        });
        let mut list = places.of_key((framework, Cover { key, phase, precision }));
        let place = list.find(|&place| self.entries[place].head.is_for(key, phase, precision, framework))?;
        self.entries[place].model()
    }

    /// What they are for, without reading them.
    pub(super) fn heads(&self) -> impl Iterator<Item = &Head> {
        self.entries.iter().map(|entry| &entry.head)
    }
}

impl From<Vec<LayerModel>> for Models {
    fn from(models: Vec<LayerModel>) -> Self {
        models.into_iter().collect()
    }
}

impl FromIterator<LayerModel> for Models {
    fn from_iter<I: IntoIterator<Item = LayerModel>>(models: I) -> Self {
        models.into_iter().map(Entry::from).collect()
    }
}

impl FromIterator<Entry> for Models {
    fn from_iter<I: IntoIterator<Item = Entry>>(entries: I) -> Self {
        Self { entries: entries.into_iter().collect(), places: OnceLock::new() }
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
