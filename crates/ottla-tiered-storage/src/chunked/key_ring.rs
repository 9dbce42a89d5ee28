//! The key pairs that wrap the data keys of segments: RSA-OAEP with SHA3-512, for the label and for
//! MGF1.
//!
//! A wrapped key is `<key pair ID>:<base64>`. The active pair wraps; every pair of the ring unwraps,
//! so that keys can be rotated. Public keys are PEM of SPKI, private ones of PKCS #8.
//!
//! Aiven's plugin: `RsaEncryptionProvider` (`RSA/NONE/OAEPWithSHA3-512AndMGF1Padding`),
//! `RsaKeyReader`, `EncryptedDataKey`.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ottla_sync::random::random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rsa::pkcs8::{DecodePrivateKey, DecodePublicKey};
use rsa::{PrivateKey, PublicKey};
use sha3::Sha3_512;

use super::data_key::KEY_SIZE;

struct KeyPair {
    public: PublicKey,
    private: PrivateKey,
}

/// The key pairs by their IDs. `Debug` shows the IDs.
pub struct KeyRing {
    active: String,
    pairs: BTreeMap<String, KeyPair>,
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.pairs.keys()).finish()
    }
}

/// Why a key cannot be used. Nothing of the key is in the text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyRingError {
    #[error("encryption.key.pair.id is {0}, which encryption.key.pairs does not list")]
    NoActivePair(String),
    #[error("the {which} key of key pair {id} cannot be read: {cause}")]
    Unreadable {
        id: String,
        which: &'static str,
        cause: String,
    },
    #[error("the key pair {0} is not configured; add it to encryption.key.pairs")]
    UnknownPair(String),
    #[error("the wrapped key has not the form <key pair ID>:<base64>")]
    Malformed,
    #[error("the private key of key pair {0} does not fit")]
    DoesNotFit(String),
    #[error("the public key of key pair {0} is too short to wrap a key of 256 bits")]
    TooShort(String),
}

impl KeyRing {
    /// From the PEM texts of the pairs: (ID, public key, private key).
    pub fn new(
        active: &str,
        pairs: impl IntoIterator<Item = (String, String, String)>,
    ) -> Result<KeyRing, KeyRingError> {
        let mut ring = BTreeMap::new();
        for (id, public, private) in pairs {
            let unreadable = |which, cause: String| KeyRingError::Unreadable {
                id: id.clone(),
                which,
                cause,
            };
            let public = PublicKey::from_public_key_pem(&public)
                .map_err(|error| unreadable("public", error.to_string()))?;
            let private = PrivateKey::from_pkcs8_pem(&private)
                .map_err(|error| unreadable("private", error.to_string()))?;
            ring.insert(id, KeyPair { public, private });
        }
        if !ring.contains_key(active) {
            return Err(KeyRingError::NoActivePair(active.to_owned()));
        }
        Ok(KeyRing {
            active: active.to_owned(),
            pairs: ring,
        })
    }

    /// Wraps a data key with the active pair.
    pub fn wrap(&self, key: &[u8; KEY_SIZE]) -> Result<String, KeyRingError> {
        let wrapped = self.pairs[&self.active]
            .public
            .oaep_encrypt_with_rng::<Sha3_512, _>(&mut rng(), key)
            .map_err(|_| KeyRingError::TooShort(self.active.clone()))?;
        Ok(format!(
            "{}:{}",
            self.active,
            BASE64_STANDARD.encode(wrapped)
        ))
    }

    /// Unwraps a data key with the pair that it names.
    pub fn unwrap(&self, text: &str) -> Result<[u8; KEY_SIZE], KeyRingError> {
        let (id, wrapped) = text.split_once(':').ok_or(KeyRingError::Malformed)?;
        let wrapped = BASE64_STANDARD
            .decode(wrapped)
            .map_err(|_| KeyRingError::Malformed)?;
        let pair = self
            .pairs
            .get(id)
            .ok_or_else(|| KeyRingError::UnknownPair(id.to_owned()))?;
        let key = pair
            .private
            .oaep_decrypt_with_rng::<Sha3_512, _>(&mut rng(), &wrapped)
            .map_err(|_| KeyRingError::DoesNotFit(id.to_owned()))?;
        key.try_into()
            .map_err(|_| KeyRingError::DoesNotFit(id.to_owned()))
    }
}

/// A separate generator for each use, seeded from the process's generator.
fn rng() -> StdRng {
    StdRng::from_seed(random("OAEP of a remote segment"))
}
