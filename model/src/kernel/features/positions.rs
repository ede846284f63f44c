//! Positions of names in a list: a table of hashes that the compiler makes.

/// Several times as many as a family has variables, a power of two.
const SLOTS: usize = 512;
/// Nothing is here.
const FREE: u8 = u8::MAX;

/// Where names stand in a list of fewer than 255: each at its hash, or at the next place that is free.
pub(super) struct Positions([u8; SLOTS]);

/// FNV-1a (Fowler, Noll, Vo).
const fn hash(name: &[u8]) -> usize {
    let mut hash: u32 = 0x811c_9dc5;
    let mut i = 0;
    while i < name.len() {
        hash = (hash ^ name[i] as u32).wrapping_mul(0x0100_0193);
        i += 1;
    }
    hash as usize % SLOTS
}

impl Positions {
    pub const fn of(names: &[&str]) -> Self {
        assert!(names.len() < FREE as usize);
        let mut slots = [FREE; SLOTS];
        let mut i = 0;
        while i < names.len() {
            let mut at = hash(names[i].as_bytes());
            while slots[at] != FREE {
                at = (at + 1) % SLOTS;
            }
            slots[at] = i as u8;
            i += 1;
        }
        Self(slots)
    }

    /// The position of a name in the list that these are of.
    pub fn find(&self, names: &[&str], name: &[u8]) -> Option<usize> {
        let mut at = hash(name);
        while self.0[at] != FREE {
            let position = usize::from(self.0[at]);
            if names.get(position)?.as_bytes() == name {
                return Some(position);
            }
            at = (at + 1) % SLOTS;
        }
        None
    }
}
