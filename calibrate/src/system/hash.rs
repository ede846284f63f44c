//! What tells that bytes are the same.

use sha2::{Digest, Sha256};

/// SHA-256 in hexadecimal digits.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|b| format!("{b:02x}")).collect()
}

/// Above every number that [`drawn`] gives.
pub const DRAWN_BELOW: u32 = 1 << 24;

/// A number drawn for a text, below [`DRAWN_BELOW`]: the same whatever others there are.
pub fn drawn(text: &str) -> u32 {
    Sha256::digest(text.as_bytes()).iter().take(3).fold(0, |sum, byte| sum << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_drawn_is_the_head_of_the_hash() {
        for text in ["", "conv2d 3x3", "linear 10"] {
            assert_eq!(format!("{:06x}", drawn(text)), sha256_hex(text.as_bytes())[..6]);
        }
    }
}
