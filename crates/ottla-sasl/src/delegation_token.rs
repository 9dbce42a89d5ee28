//! The secrets of delegation tokens (KIP-48). The HMAC of a token is computed from
//! `delegation.token.secret.key` and the token ID, is not contained in any record, and is the
//! password of the client's SCRAM login.
//!
//! Kafka: `DelegationTokenManager.createHmac`, `TokenDelegationScramCredential`.

use std::collections::BTreeMap;
use std::sync::Arc;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha512;

use crate::scram::message::to_base64;
use crate::scram::{ScramCredential, ScramKeys, ScramMechanism};

const SALT_BYTES: usize = 16;

/// The HMAC of a token: 64 bytes.
pub fn token_hmac(secret_key: &str, token_id: &str) -> Vec<u8> {
    mac(secret_key, &[token_id])
        .finalize()
        .into_bytes()
        .to_vec()
}

/// Whether these bytes are the HMAC of the token. Compares in constant time.
pub fn is_token_hmac(secret_key: &str, token_id: &str, hmac: &[u8]) -> bool {
    mac(secret_key, &[token_id]).verify_slice(hmac).is_ok()
}

/// The SCRAM credential of a token. The salt is the same on every node. The derivation takes
/// thousands of hash rounds, so do not call this on a thread that serves connections.
pub fn token_credential(
    secret_key: &str,
    token_id: &str,
    mechanism: ScramMechanism,
) -> ScramCredential {
    let password = to_base64(&token_hmac(secret_key, token_id));
    let salt = salt(secret_key, token_id);
    mechanism.credential(&password, salt, ScramMechanism::MIN_ITERATIONS)
}

/// A credential for an unknown token, with which no login succeeds. It has the salt and iterations
/// that the token would have, and is the same in each attempt.
pub fn token_decoy(secret_key: &str, token_id: &str, mechanism: ScramMechanism) -> ScramCredential {
    let key = |name: &str| {
        let bytes = mac(secret_key, &[name, "\0", token_id]).finalize();
        bytes.into_bytes()[..mechanism.key_bytes()].to_vec()
    };
    ScramCredential {
        salt: salt(secret_key, token_id),
        iterations: ScramMechanism::MIN_ITERATIONS,
        keys: ScramKeys {
            stored_key: key("stored key"),
            server_key: key("server key"),
        },
    }
}

/// The credentials of a cluster's tokens. They are derived when a token is created, so that a login
/// only looks them up, and takes the same time for an unknown token.
///
/// Kafka: `DelegationTokenCache`.
#[derive(Clone, Default, Debug)]
pub struct TokenCredentials {
    /// By token ID, one credential for each of [`ScramMechanism::ALL`].
    by_token: BTreeMap<String, Arc<[ScramCredential; 2]>>,
}

impl TokenCredentials {
    /// The credentials of exactly these tokens. Existing ones are kept, others are derived.
    pub fn following<'a>(
        &self,
        secret_key: &str,
        token_ids: impl Iterator<Item = &'a str>,
    ) -> TokenCredentials {
        let derive = |token_id| {
            Arc::new(
                ScramMechanism::ALL
                    .map(|mechanism| token_credential(secret_key, token_id, mechanism)),
            )
        };
        let of_token = |token_id: &'a str| {
            let known = self.by_token.get(token_id).cloned();
            let credentials = known.unwrap_or_else(|| derive(token_id));
            (token_id.to_owned(), credentials)
        };
        TokenCredentials {
            by_token: token_ids.map(of_token).collect(),
        }
    }

    pub fn get(&self, mechanism: ScramMechanism, token_id: &str) -> Option<&ScramCredential> {
        let index = ScramMechanism::ALL.iter().position(|it| *it == mechanism)?;
        self.by_token.get(token_id)?.get(index)
    }
}

fn salt(secret_key: &str, token_id: &str) -> Vec<u8> {
    let bytes = mac(secret_key, &["salt", "\0", token_id]).finalize();
    bytes.into_bytes()[..SALT_BYTES].to_vec()
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
    #[test]
    fn a_decoy_looks_like_the_token_and_authenticates_no_client() {
        for mechanism in ScramMechanism::ALL {
            let token = token_credential("secret", "id", mechanism);
            let decoy = token_decoy("secret", "id", mechanism);
            assert_eq!(
                (&decoy.salt, decoy.iterations),
                (&token.salt, token.iterations)
            );
            assert_eq!(decoy.keys.stored_key.len(), mechanism.key_bytes());
            assert_eq!(decoy.keys.server_key.len(), mechanism.key_bytes());
            assert!(decoy.keys != token.keys);
            assert!(decoy == token_decoy("secret", "id", mechanism));
            assert!(decoy != token_decoy("other", "id", mechanism));
        }
    }

    #[test]
    fn credentials_follow_the_tokens_and_are_derived_once() {
        let first = TokenCredentials::default().following("secret", ["a", "b"].into_iter());
        for mechanism in ScramMechanism::ALL {
            let expected = token_credential("secret", "a", mechanism);
            assert!(first.get(mechanism, "a") == Some(&expected));
        }
        let second = first.following("secret", ["b", "c"].into_iter());
        assert!(second.get(ScramMechanism::Sha256, "a").is_none());
        assert!(second.get(ScramMechanism::Sha512, "c").is_some());
        assert!(Arc::ptr_eq(&first.by_token["b"], &second.by_token["b"]));
    }
}
