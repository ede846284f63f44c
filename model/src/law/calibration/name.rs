//! Names in calibration files: of kinds and of terms, of which the same come again and again.

use super::term::parse_term;
use super::{CalibrationError, Factor};
use crate::kernel::family::Family;
use serde::Deserialize;
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

/// A name, borrowed from the file where that can be.
#[derive(Clone, Deserialize)]
#[serde(transparent)]
pub(super) struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl AsRef<str> for Name<'_> {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

/// Monomials by where their names stand in the file, each read once: a packed file has every name once.
#[derive(Default)]
pub(super) struct Monomials<'a>(RefCell<HashMap<Key<'a>, Vec<Factor>, BuildHasherDefault<Scattered>>>);

type Key<'a> = (*const u8, usize, bool, std::marker::PhantomData<&'a str>);

/// Addresses, spread by a multiplication (Knuth, The Art of Computer Programming, volume 3, 6.4).
#[derive(Default)]
struct Scattered(u64);

impl Hasher for Scattered {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }
    fn write_u8(&mut self, number: u8) {
        self.write_usize(usize::from(number));
    }
    fn write_usize(&mut self, number: usize) {
        self.0 = (self.0.rotate_left(26) ^ number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

impl<'a> Monomials<'a> {
    /// The factors of a monomial.
    ///
    /// # Errors
    /// As [`parse_term`].
    pub(super) fn read(&self, name: &Name<'a>, family: Family) -> Result<Vec<Factor>, CalibrationError> {
        // A name of the file's own text stays where it is; a copy of it does not.
        let Cow::Borrowed(text) = name.0 else { return parse_term(&name.0, family) };
        let key = (text.as_ptr(), text.len(), family == Family::Gemm, std::marker::PhantomData);
        if let Some(known) = self.0.borrow().get(&key) {
            return Ok(known.clone());
        }
        let factors = parse_term(text, family)?;
        self.0.borrow_mut().insert(key, factors.clone());
        Ok(factors)
    }
}
