//! Which dimension of the inputs is the batch, and the sizes of the others.
//!
//! The batch is found by running the shapes with a marker in its place: a prime that divides no dimension of the file.
//! Whatever carries one sample after another then has exactly one dimension that the marker divides. A file that was made
//! for one sample, or without a batch, is read as it is, with a marker of 1: all of it is one sample.

use super::tensor::Tensor;
use super::wire::{self, ValueInfo, element};
use super::{OnnxError, Options};
use joulecast_model::base::text::shown;
use std::collections::HashSet;

/// How the file says which dimension is the batch.
pub struct Batch<'a> {
    symbol: Option<&'a str>,
    /// The batch that the file was made for, where it says one.
    pub made_for: Option<i64>,
    /// Dimensions of the first input.
    rank: usize,
}

/// What a graph reads beside its initializers, which older files list as inputs, too.
pub fn stated_inputs(graph: &wire::Graph) -> Vec<&ValueInfo> {
    let known: HashSet<&str> = graph.initializers.iter().map(|t| &t.name[..]).collect();
    graph.inputs.iter().filter(|i| !known.contains(&i.name[..])).collect()
}

/// The stated dimensions of an input.
pub fn dims(info: &ValueInfo) -> Option<&[wire::Dimension]> {
    Some(&info.kind.as_ref()?.tensor.as_ref()?.shape.as_ref()?.dims)
}

/// The name of an open dimension.
pub fn symbol(dim: &wire::Dimension) -> Option<&str> {
    dim.name.as_deref().filter(|n| !n.is_empty())
}

/// Whether a dimension's name says that it is a sequence's length.
pub fn is_sequence(dim: &wire::Dimension) -> bool {
    symbol(dim).is_some_and(|s| s.to_ascii_lowercase().contains("seq"))
}

impl<'a> Batch<'a> {
    /// A dimension called batch, or else the first one of the first input.
    pub fn of(inputs: &[&'a ValueInfo]) -> Self {
        let all = || inputs.iter().filter_map(|i| dims(i)).flatten().filter_map(symbol);
        if let Some(symbol) = all().find(|s| s.to_ascii_lowercase().contains("batch")) {
            return Self { symbol: Some(symbol), made_for: None, rank: 0 };
        }
        let all = inputs.iter().filter_map(|i| dims(i)).find(|d| !d.is_empty()).unwrap_or_default();
        let first = all.first();
        let size = first.and_then(|d| d.size).filter(|s| *s > 0);
        Self { symbol: first.and_then(symbol), made_for: size, rank: all.len() }
    }

    /// Whether the whole file is one sample: it was made for one.
    pub fn is_one_sample(&self) -> bool {
        self.made_for == Some(1)
    }

    /// Whether it says a size that is none of a batch: the channels of an image.
    pub fn is_channels(&self) -> bool {
        self.rank == 3 && self.made_for.is_some_and(|first| [1, 3, 4].contains(&first))
    }

    /// Whether it can be read as one sample where no dimension turns out to be a batch: its batch is open, or what comes
    /// first are the channels of an image.
    pub fn may_be_one_sample(&self) -> bool {
        self.made_for.is_none() || self.is_channels()
    }

    /// What stands in the place of the batch, where a size may be given.
    fn size(&self, marker: i64, given: Option<i64>) -> i64 {
        match (marker, self.made_for) {
            (1, Some(size)) => given.unwrap_or(size),
            _ => marker,
        }
    }

    fn is(&self, position: usize, dim: &wire::Dimension) -> bool {
        match (self.symbol, symbol(dim), dim.size) {
            (Some(own), Some(other), _) => own == other,
            (Some(_), None, _) => false,
            (None, _, size) => position == 0 && size.filter(|s| *s > 0) == self.made_for,
        }
    }
}

/// An input with the marker for its batch and sizes for its other open dimensions.
pub fn bound(info: &ValueInfo, batch: &Batch<'_>, marker: i64, options: &Options<'_>) -> Result<Tensor, OnnxError> {
    let name = shown(&info.name);
    let tensor = info.kind.as_ref().and_then(|k| k.tensor.as_ref());
    let tensor = tensor.ok_or_else(|| OnnxError::Format(format!("input {name} is not a tensor")))?;
    let real = element::is_real(tensor.element);
    let given = options.inputs.iter().find(|(n, _)| *n == info.name).map(|(_, shape)| shape.dims());
    let Some(stated) = dims(info) else {
        // No shape in the file: the first dimension that is given is the batch's.
        let given = given.ok_or_else(|| {
            OnnxError::Usage(format!(
                "the shape of input {name} is not in the file: give it, as in --input {name}=1x128"
            ))
        })?;
        let sizes = std::iter::once(batch.size(marker, None)).chain(given.iter().skip(1).map(|&d| d as i64)).collect();
        return Tensor::new(sizes, real).map_err(OnnxError::Format);
    };
    if let Some(given) = given {
        let place = stated.iter().enumerate().position(|(i, d)| batch.is(i, d));
        let mut sizes: Vec<i64> = given.iter().map(|&d| d as i64).collect();
        match place {
            Some(place) if sizes.len() + 1 == stated.len() => sizes.insert(place, batch.size(marker, None)),
            Some(place) if sizes.len() == stated.len() => sizes[place] = batch.size(marker, Some(sizes[place])),
            None if sizes.len() == stated.len() => {}
            _ => {
                let why = format!("input {name} has {} dimensions, the batch among them", stated.len());
                return Err(OnnxError::Usage(why));
            }
        }
        return Tensor::new(sizes, real).map_err(OnnxError::Format);
    }
    let mut sizes = Vec::new();
    for (position, dim) in stated.iter().enumerate() {
        let size = dim.size.filter(|s| *s > 0);
        let named =
            symbol(dim).and_then(|s| options.inputs.iter().find(|(n, _)| n == s)).map(|(_, shape)| shape.dims());
        sizes.push(match (size, named) {
            _ if batch.is(position, dim) => batch.size(marker, None),
            (Some(size), _) => size,
            (None, Some(&[size])) => size as i64,
            (None, None) if is_sequence(dim) && options.sequence.is_some() => options.sequence.unwrap_or(1) as i64,
            (None, _) => {
                let open = symbol(dim).map_or_else(|| format!("dimension {position}"), shown);
                let shape: Vec<String> = stated
                    .iter()
                    .enumerate()
                    .map(|(i, d)| match d.size {
                        _ if batch.is(i, d) => "1".to_string(),
                        Some(size) if size > 0 => size.to_string(),
                        _ => "128".to_string(),
                    })
                    .collect();
                return Err(OnnxError::Usage(format!(
                    "the size of {open} of input {name} is open: give it, as in --input {name}={}",
                    shape.join("x")
                )));
            }
        });
    }
    Tensor::new(sizes, real).map_err(OnnxError::Format)
}
