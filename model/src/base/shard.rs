//! A part of a work that several processes share.

use std::str::FromStr;

/// One of so many parts, written `2/4`. What belongs to which is whoever divides the work's to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: u64,
    of: u64,
}

impl Shard {
    /// Which part, from 1.
    pub fn number(self) -> u64 {
        self.number
    }

    /// How many parts there are; at least as many as its number.
    pub fn of(self) -> u64 {
        self.of
    }
}

/// The whole.
impl Default for Shard {
    fn default() -> Self {
        Self { number: 1, of: 1 }
    }
}

impl FromStr for Shard {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('/').and_then(|(i, n)| Some((i.parse().ok()?, n.parse().ok()?)));
        match parts {
            Some((number, of)) if 1 <= number && number <= of => Ok(Self { number, of }),
            _ => Err("a part of so many, as in 1/4".to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_lies_within_the_whole() {
        let shard: Shard = "2/4".parse().expect("a part");
        assert_eq!((shard.number(), shard.of()), (2, 4));
        assert_eq!("1/1".parse(), Ok(Shard::default()));
        for wrong in ["0/2", "3/2", "1/0", "2", "a/b", "1/2/3", "-1/2"] {
            assert!(wrong.parse::<Shard>().is_err(), "{wrong}");
        }
    }
}
