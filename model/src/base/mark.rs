//! Marks of keys by which tables of our own files are looked up: quick, and no secret.

use std::hash::{BuildHasherDefault, Hash, Hasher};

/// Numbers that are alike for alike keys, and seldom for others.
#[derive(Default)]
pub(crate) struct Mark(u64);

/// For sets and maps of so few that nobody gains by choosing keys that are slow together.
pub(crate) type Quick = BuildHasherDefault<Mark>;

impl Mark {
    fn add(&mut self, number: u64) {
        // As `rustc-hash` does.
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(0x517c_c1b7_2722_0a95);
    }
}

impl Hasher for Mark {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut number = [0; 8];
            number[..chunk.len()].copy_from_slice(chunk);
            self.add(u64::from_le_bytes(number));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.add(u64::from(number));
    }

    fn write_isize(&mut self, number: isize) {
        self.add(number as u64);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

fn mark(key: &impl Hash) -> u64 {
    let mut mark = Mark::default();
    key.hash(&mut mark);
    mark.finish()
}

/// Places of a list by what stands there. Several may have the same key, and one place several keys.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places(Vec<(u64, usize)>);

impl Places {
    pub fn of<K: Hash>(keys: impl IntoIterator<Item = (K, usize)>) -> Self {
        let mut places: Vec<(u64, usize)> = keys.into_iter().map(|(key, place)| (mark(&key), place)).collect();
        places.sort_unstable();
        Self(places)
    }

    /// Places that a key may have, rising: all that it has, and seldom another.
    pub fn of_key<K: Hash>(&self, key: K) -> impl Iterator<Item = usize> + use<'_, K> {
        let mark = mark(&key);
        let begin = self.0.partition_point(|(other, _)| *other < mark);
        self.0[begin..].iter().take_while(move |(other, _)| *other == mark).map(|(_, place)| *place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_a_key_is_found_in_order() {
        let names = ["eng4", "eng70{2=12,18=0}", "eng4", "", "eng70{2=12,18=1}", "eng4"];
        let places = Places::of(names.into_iter().enumerate().map(|(place, name)| (name, place)));
        for name in names {
            let all: Vec<usize> = (0..names.len()).filter(|&place| names[place] == name).collect();
            assert_eq!(places.of_key(name).collect::<Vec<_>>(), all, "{name}");
        }
        assert_eq!(places.of_key("eng").next(), None);
        assert_eq!(Places::default().of_key("eng4").next(), None);
        // The key is the same borrowed or not, with others or alone.
        assert_eq!(Places::of([(("a", Some("b".to_string())), 7)]).of_key(("a", Some("b"))).next(), Some(7));
    }
}
