//! What SCRAM keeps of a password (RFC 5802): the salted password, and the keys that a cluster stores.

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256, Sha512};

/// The mechanisms that Kafka has; the numbers are Kafka's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum ScramMechanism {
    Sha256 = 1,
    Sha512 = 2,
}

/// What a cluster stores instead of a password.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ScramKeys {
    pub stored_key: Vec<u8>,
    pub server_key: Vec<u8>,
}

impl ScramMechanism {
    /// Fewer iterations are refused by Kafka's tools.
    pub const MIN_ITERATIONS: u32 = 4096;
    /// More are refused, so that nobody keeps a broker busy with one login.
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

    pub fn name(self) -> &'static str {
        match self {
            ScramMechanism::Sha256 => "SCRAM-SHA-256",
            ScramMechanism::Sha512 => "SCRAM-SHA-512",
        }
    }

    /// The salted password: PBKDF2 with one block.
    pub fn salted_password(self, password: &[u8], salt: &[u8], iterations: u32) -> Vec<u8> {
        let mut block = self.mac(password, &[salt, &1u32.to_be_bytes()]);
        let mut salted = block.clone();
        for _ in 1..iterations {
            block = self.mac(password, &[&block]);
            for (byte, other) in salted.iter_mut().zip(&block) {
                *byte ^= other;
            }
        }
        salted
    }

    /// The keys that belong to a salted password.
    pub fn keys(self, salted_password: &[u8]) -> ScramKeys {
        let client_key = self.client_key(salted_password);
        let stored_key = match self {
            ScramMechanism::Sha256 => Sha256::digest(&client_key).to_vec(),
            ScramMechanism::Sha512 => Sha512::digest(&client_key).to_vec(),
        };
        ScramKeys {
            stored_key,
            server_key: self.mac(salted_password, &[b"Server Key"]),
        }
    }

    /// What a client proves that it knows.
    pub(crate) fn client_key(self, salted_password: &[u8]) -> Vec<u8> {
        self.mac(salted_password, &[b"Client Key"])
    }

    pub(crate) fn mac(self, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
        match self {
            ScramMechanism::Sha256 => {
                let keyed = Hmac::<Sha256>::new_from_slice(key);
                let mut keyed = keyed.expect("HMAC takes keys of any length");
                parts.iter().for_each(|part| keyed.update(part));
                keyed.finalize().into_bytes().to_vec()
            }
            ScramMechanism::Sha512 => {
                let keyed = Hmac::<Sha512>::new_from_slice(key);
                let mut keyed = keyed.expect("HMAC takes keys of any length");
                parts.iter().for_each(|part| keyed.update(part));
                keyed.finalize().into_bytes().to_vec()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 7677, section 3: user `user`, password `pencil`.
    #[test]
    fn keys_are_those_of_the_standards_example() {
        let salt = [
            0x5b, 0x6d, 0x99, 0x68, 0x9d, 0x12, 0x35, 0x8e, 0xec, 0xa0, 0x4b, 0x14, 0x12, 0x36,
            0xfa, 0x81,
        ];
        let mechanism = ScramMechanism::Sha256;
        let keys = mechanism.keys(&mechanism.salted_password(b"pencil", &salt, 4096));
        let message = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
                       r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                       s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
                       c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let signature = mechanism.mac(&keys.server_key, &[message.as_bytes()]);
        // v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=
        assert_eq!(
            signature[..6],
            [0xea, 0xba, 0xe2, 0x4d, 0x10, 0x62],
            "{signature:x?}"
        );
        assert_eq!(signature.len(), 32);
        assert_eq!(ScramMechanism::Sha512.keys(b"x").stored_key.len(), 64);
    }
}
