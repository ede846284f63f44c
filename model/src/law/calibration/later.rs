//! A list of a shipped file that is read when it is first asked for: most engines of a model are never chosen.

use crate::base::packed::{Kept, Packed};
use crate::kernel::family::Family;
use std::fmt;
use std::ops::Deref;
use std::sync::OnceLock;

/// A list, which need not be read yet.
#[derive(Clone)]
pub struct Later<T> {
    read: OnceLock<Vec<T>>,
    packed: Option<(Kept, Family, Read<T>)>,
}

/// Reads a packed list over the variables of a family; `None` of one that is damaged, which no build ships.
type Read<T> = fn(Packed<'static, '_>, Family) -> Option<Vec<T>>;

impl<T> Later<T> {
    /// A packed list, which stays as it is until it is asked for.
    pub(super) fn packed(list: Kept, family: Family, read: Read<T>) -> Self {
        Self { read: OnceLock::new(), packed: Some((list, family, read)) }
    }
}

impl<T> Deref for Later<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let read = || self.packed.as_ref().and_then(|(list, family, read)| read(list.value(), *family));
        self.read.get_or_init(|| read().unwrap_or_default())
    }
}

impl<T> From<Vec<T>> for Later<T> {
    fn from(list: Vec<T>) -> Self {
        Self { read: OnceLock::from(list), packed: None }
    }
}

impl<T: PartialEq> PartialEq for Later<T> {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl<T: fmt::Debug> fmt::Debug for Later<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.deref().fmt(f)
    }
}
