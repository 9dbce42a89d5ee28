//! SCRAM (RFC 5802): the stored credential, and the exchange in which a client proves that it knows
//! the password.

mod client;
pub(crate) mod message;
mod server;

use std::fmt;
use std::num::NonZeroU32;

use aws_lc_rs::pbkdf2;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

pub use client::ScramClient;
pub(crate) use message::is_sasl_name;
pub use server::{ClientFirst, ScramError, ScramServer};

/// Kafka's mechanisms, with Kafka's numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
#[repr(i8)]
pub enum ScramMechanism {
    Sha256 = 1,
    Sha512 = 2,
}

/// The keys that a cluster stores instead of a password.
#[derive(Clone, PartialEq, Eq)]
pub struct ScramKeys {
    pub stored_key: Vec<u8>,
    pub server_key: Vec<u8>,
}

impl fmt::Debug for ScramKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScramKeys").finish_non_exhaustive()
    }
}

/// The keys of a user, and the parameters with which they were derived from the password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramCredential {
    pub salt: Vec<u8>,
    pub iterations: u32,
    pub keys: ScramKeys,
}

impl ScramMechanism {
    pub const ALL: [ScramMechanism; 2] = [ScramMechanism::Sha256, ScramMechanism::Sha512];

    /// Kafka's tools, clients and brokers reject a smaller number of iterations.
    pub const MIN_ITERATIONS: u32 = 4096;
    /// A larger number is rejected, to bound the work of one login.
    pub const MAX_ITERATIONS: u32 = 16384;

    pub fn from_name(name: &str) -> Option<ScramMechanism> {
        match name {
            "SCRAM-SHA-256" => Some(ScramMechanism::Sha256),
            "SCRAM-SHA-512" => Some(ScramMechanism::Sha512),
            _ => None,
        }
    }

    pub fn from_code(code: i8) -> Option<ScramMechanism> {
        match code {
            1 => Some(ScramMechanism::Sha256),
            2 => Some(ScramMechanism::Sha512),
            _ => None,
        }
    }

    /// Kafka's number in records and requests.
    pub const fn code(self) -> i8 {
        self as i8
    }

    pub fn name(self) -> &'static str {
        match self {
            ScramMechanism::Sha256 => "SCRAM-SHA-256",
            ScramMechanism::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// The length of a key.
    pub fn key_bytes(self) -> usize {
        match self {
            ScramMechanism::Sha256 => 32,
            ScramMechanism::Sha512 => 64,
        }
    }

    /// The salted password: one block of PBKDF2.
    pub fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let algorithm = match self {
            ScramMechanism::Sha256 => pbkdf2::PBKDF2_HMAC_SHA256,
            ScramMechanism::Sha512 => pbkdf2::PBKDF2_HMAC_SHA512,
        };
        let iterations = NonZeroU32::new(iterations).unwrap_or(NonZeroU32::MIN);
        let mut salted = vec![0; self.key_bytes()];
        pbkdf2::derive(algorithm, iterations, salt, password, &mut salted);
        salted
    }

    /// The keys derived from a salted password.
    pub fn keys(self, salted_password: &[u8]) -> ScramKeys {
        ScramKeys {
            stored_key: self.hash(&self.client_key(salted_password)),
            server_key: self.mac(salted_password, &[b"Server Key"]),
        }
    }

    /// Derives the credential to be stored for a password.
    pub fn credential(self, password: &str, salt: Vec<u8>, iterations: u32) -> ScramCredential {
        let salted = self.salted_password(password.as_bytes(), &salt, iterations);
        ScramCredential {
            keys: self.keys(&salted),
            salt,
            iterations,
        }
    }

    /// A credential for an unknown user, with which no login succeeds. It is the same in each
    /// attempt, and resembles `model`, the credential of an existing user.
    pub fn decoy(
        self,
        secret: &[u8],
        username: &str,
        model: Option<&ScramCredential>,
    ) -> ScramCredential {
        let part = |name: &[u8]| self.mac(secret, &[name, &[0], username.as_bytes()]);
        let mut salt = part(b"salt");
        salt.truncate(model.map_or(DECOY_SALT_BYTES, |model| model.salt.len()));
        ScramCredential {
            salt,
            iterations: model.map_or(Self::MIN_ITERATIONS, |model| model.iterations),
            keys: ScramKeys {
                stored_key: part(b"stored key"),
                server_key: part(b"server key"),
            },
        }
    }

    /// The key that a client proves to know.
    fn client_key(self, salted_password: &[u8]) -> Vec<u8> {
        self.mac(salted_password, &[b"Client Key"])
    }

    fn hash(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            ScramMechanism::Sha256 => Sha256::digest(bytes).to_vec(),
            ScramMechanism::Sha512 => Sha512::digest(bytes).to_vec(),
        }
    }

    fn mac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            ScramMechanism::Sha256 => {
                let keyed = Hmac::<Sha256>::new_from_slice(key);
                mac(keyed.expect("HMAC takes keys of any length"), parts)
            }
            ScramMechanism::Sha512 => {
                let keyed = Hmac::<Sha512>::new_from_slice(key);
                mac(keyed.expect("HMAC takes keys of any length"), parts)
            }
        }
    }
}

/// The length of the salts that Kafka's tools create.
const DECOY_SALT_BYTES: usize = 25;

fn mac(mut keyed: impl Mac, parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().for_each(|part| keyed.update(part));
    keyed.finalize().into_bytes().to_vec()
}

/// The exclusive or of two byte strings.
fn exclusive_or(one: &[u8], other: &[u8]) -> Vec<u8> {
    one.iter()
        .zip(other)
        .map(|(one, other)| one ^ other)
        .collect()
}

#[cfg(test)]
mod tests;
