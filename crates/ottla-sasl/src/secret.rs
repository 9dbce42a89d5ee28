//! Secret values and their comparison.

use std::fmt;

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// A password, key or token. `Debug` does not show it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The secret text, to be sent or hashed.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// Compares two secrets. The time depends neither on the position of a difference nor on the length
/// of `expected`.
pub fn is_same_secret(given: &[u8], expected: &[u8]) -> bool {
    let (given, expected) = (Sha256::digest(given), Sha256::digest(expected));
    given.as_slice().ct_eq(expected.as_slice()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_compared_and_not_shown() {
        assert!(is_same_secret(b"hush", b"hush"));
        for other in [&b"hus"[..], b"hush ", b"", b"Hush"] {
            assert!(!is_same_secret(other, b"hush"));
        }
        let secret = Secret::new("hush");
        assert_eq!(secret.expose(), "hush");
        assert!(!format!("{secret:?}").contains("hush"));
    }
}
