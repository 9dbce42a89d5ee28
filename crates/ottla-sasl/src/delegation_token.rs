//! The secrets of delegation tokens (KIP-48): a token's HMAC is made of `delegation.token.secret.key` and the token's id, is in no
//! record, and is the password with which a client logs in by SCRAM.
//!
//! In Kafka: `DelegationTokenManager.createHmac`, `TokenDelegationScramCredential`.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha512;

use crate::scram::message::to_base64;
use crate::scram::{ScramCredential, ScramMechanism};

const SALT_BYTES: usize = 16;

/// The HMAC of a token, 64 bytes.
pub fn token_hmac(secret_key: &str, token_id: &str) -> Vec<u8> {
    mac(secret_key, &[token_id])
        .finalize()
        .into_bytes()
        .to_vec()
}

/// Whether these bytes are the HMAC of the token, compared in constant time.
pub fn is_token_hmac(secret_key: &str, token_id: &str, hmac: &[u8]) -> bool {
    mac(secret_key, &[token_id]).verify_slice(hmac).is_ok()
}

/// What SCRAM checks a login with the token against. The salt is the same on every node.
pub fn token_credential(
    secret_key: &str,
    token_id: &str,
    mechanism: ScramMechanism,
) -> ScramCredential {
    let password = to_base64(&token_hmac(secret_key, token_id));
    let salt = mac(secret_key, &["salt", "\0", token_id])
        .finalize()
        .into_bytes();
    let salt = salt[..SALT_BYTES].to_vec();
    mechanism.credential(&password, salt, ScramMechanism::MIN_ITERATIONS)
}

fn mac(secret_key: &str, parts: &[&str]) -> Hmac<Sha512> {
    let mut hmac =
        Hmac::<Sha512>::new_from_slice(secret_key.as_bytes()).expect("a key of any length");
    for part in parts {
        hmac.update(part.as_bytes());
    }
    hmac
}

#[cfg(test)]
mod tests {
    use super::*;

    /// From RFC 4231, test case 2.
    #[test]
    fn the_hmac_is_that_of_the_standard() {
        let data = "what do ya want for nothing?";
        let hmac = token_hmac("Jefe", data);
        assert_eq!(hmac[..8], [0x16, 0x4b, 0x7a, 0x7b, 0xfc, 0xf8, 0x19, 0xe2]);
        assert_eq!(hmac.len(), 64);
        assert!(is_token_hmac("Jefe", data, &hmac));
        assert!(!is_token_hmac("Jefe", data, &hmac[..63]));
    }

    #[test]
    fn a_token_is_checked_against_its_hmac_in_base64() {
        let mechanism = ScramMechanism::Sha256;
        let found = token_credential("secret", "id", mechanism);
        let password = to_base64(&token_hmac("secret", "id"));
        let expected = mechanism.credential(&password, found.salt.clone(), found.iterations);
        assert!(found == expected);
        assert_ne!(
            found.salt,
            token_credential("secret", "other", mechanism).salt
        );
    }
}
