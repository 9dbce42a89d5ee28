//! JKS, the key store format that `keytool` wrote up to Java 8, and the default of
//! `ssl.keystore.type` in Kafka. Newer versions of Java write PKCS12 even with that setting. As in
//! Java, the formats are distinguished by their first bytes.
//!
//! Layout, with big-endian numbers: magic, version (1 or 2), number of entries; for each entry: tag
//! (1: a key with its chain, 2: a certificate), alias, time in milliseconds, and the key or
//! certificate; finally the SHA-1 of the password, `Mighty Aphrodite` and everything before it. A
//! key is an `EncryptedPrivateKeyInfo` with Sun's own cipher: a keystream of chained SHA-1 hashes.
//!
//! The file is named by an operator. It is parsed defensively nevertheless: a truncated or forged
//! file leads to an error.
//!
//! Java: `sun.security.provider.JavaKeyStore`, `KeyProtector`.

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{Context, SHA1_FOR_LEGACY_USE_ONLY};
use x509_parser::asn1_rs::{Any, FromDer, OctetString, Oid, Sequence};

const MAGIC: [u8; 4] = [0xfe, 0xed, 0xfe, 0xed];
/// The magic of JCEKS, which uses another cipher for keys.
const MAGIC_OF_JCEKS: [u8; 4] = [0xce, 0xce, 0xce, 0xce];
const DIGEST_BYTES: usize = 20;
const SALT_BYTES: usize = 20;
/// `1.3.6.1.4.1.42.2.17.1.1`: Sun's key protection algorithm.
const SUN_KEY_PROTECTOR: &str = "1.3.6.1.4.1.42.2.17.1.1";

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JksError {
    #[error("it is not a JKS file")]
    NotJks,
    #[error("it is a JCEKS file; convert it with `keytool -importkeystore -deststoretype PKCS12`")]
    Jceks,
    #[error("it is cut short or damaged")]
    Damaged,
    #[error("the password is wrong, or the file was changed")]
    WrongPassword,
    #[error("the password of the key is wrong")]
    WrongKeyPassword,
    #[error("its key is protected in a way that is not JKS's")]
    UnknownProtection,
}

/// The contents of a JKS file.
#[derive(Debug, Default)]
pub struct Jks {
    pub keys: Vec<KeyEntry>,
    /// Alias and DER-encoded certificate.
    pub trusted: Vec<(String, Vec<u8>)>,
}

pub struct KeyEntry {
    pub alias: String,
    protected: Vec<u8>,
    /// DER-encoded, the leaf first.
    pub chain: Vec<Vec<u8>>,
}

impl std::fmt::Debug for KeyEntry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KeyEntry")
            .field("alias", &self.alias)
            .finish_non_exhaustive()
    }
}

pub fn is_jks(bytes: &[u8]) -> bool {
    bytes.starts_with(&MAGIC) || bytes.starts_with(&MAGIC_OF_JCEKS)
}

/// Parses a store. Without a password its checksum is not verified, as in Java.
pub fn read(bytes: &[u8], password: Option<&str>) -> Result<Jks, JksError> {
    if bytes.starts_with(&MAGIC_OF_JCEKS) {
        return Err(JksError::Jceks);
    }
    if !bytes.starts_with(&MAGIC) {
        return Err(JksError::NotJks);
    }
    let body = bytes.len().checked_sub(DIGEST_BYTES);
    let (body, digest) = body.map(|at| bytes.split_at(at)).ok_or(JksError::Damaged)?;
    if let Some(password) = password {
        let mut expected = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
        expected.update(&utf16(password));
        expected.update(b"Mighty Aphrodite");
        expected.update(body);
        verify_slices_are_equal(expected.finish().as_ref(), digest)
            .map_err(|_| JksError::WrongPassword)?;
    }
    let mut input = Input(body);
    input.take(MAGIC.len())?;
    let version = input.number()?;
    let mut jks = Jks::default();
    for _ in 0..input.number()? {
        let tag = input.number()?;
        let alias = input.text()?;
        input.take(8)?;
        match tag {
            1 => {
                let protected = input.block()?.to_vec();
                let mut chain = Vec::new();
                for _ in 0..input.number()? {
                    chain.push(input.certificate(version)?);
                }
                jks.keys.push(KeyEntry {
                    alias,
                    protected,
                    chain,
                });
            }
            2 => jks.trusted.push((alias, input.certificate(version)?)),
            _ => return Err(JksError::Damaged),
        }
    }
    Ok(jks)
}

impl KeyEntry {
    /// The decrypted key in PKCS#8.
    pub fn key(&self, password: &str) -> Result<Vec<u8>, JksError> {
        let damaged = |_| JksError::Damaged;
        let (_, outer) = Sequence::from_der(&self.protected).map_err(damaged)?;
        let (rest, algorithm) = Sequence::from_der(&outer.content).map_err(damaged)?;
        let (_, oid) = Any::from_der(&algorithm.content).map_err(damaged)?;
        let oid = Oid::try_from(oid).map_err(|_| JksError::Damaged)?;
        if oid.to_id_string() != SUN_KEY_PROTECTOR {
            return Err(JksError::UnknownProtection);
        }
        let (_, sealed) = OctetString::from_der(rest).map_err(damaged)?;
        let sealed = sealed.as_ref();
        if sealed.len() < SALT_BYTES + DIGEST_BYTES {
            return Err(JksError::Damaged);
        }
        let (salt, sealed) = sealed.split_at(SALT_BYTES);
        let (sealed, digest) = sealed.split_at(sealed.len() - DIGEST_BYTES);
        let password = utf16(password);
        let sha1 = |second: &[u8]| {
            let mut context = Context::new(&SHA1_FOR_LEGACY_USE_ONLY);
            context.update(&password);
            context.update(second);
            context.finish()
        };
        let mut key = Vec::with_capacity(sealed.len());
        let mut stream = sha1(salt);
        for block in sealed.chunks(DIGEST_BYTES) {
            key.extend(block.iter().zip(stream.as_ref()).map(|(a, b)| a ^ b));
            stream = sha1(stream.as_ref());
        }
        verify_slices_are_equal(sha1(&key).as_ref(), digest)
            .map_err(|_| JksError::WrongKeyPassword)?;
        Ok(key)
    }
}

/// The encoding in which Java hashes a password: UTF-16, big-endian.
fn utf16(password: &str) -> Vec<u8> {
    password.encode_utf16().flat_map(u16::to_be_bytes).collect()
}

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], JksError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(JksError::Damaged)?;
        self.0 = rest;
        Ok(taken)
    }

    fn number(&mut self) -> Result<u32, JksError> {
        let bytes = self.take(4)?.try_into().map_err(|_| JksError::Damaged)?;
        Ok(u32::from_be_bytes(bytes))
    }

    fn block(&mut self) -> Result<&'a [u8], JksError> {
        let length = self.number()?;
        self.take(length as usize)
    }

    /// Text in the format of Java's `writeUTF`. It equals UTF-8 except for null and supplementary
    /// characters, which do not occur in practice.
    fn text(&mut self) -> Result<String, JksError> {
        let length = self.take(2)?;
        let length = u16::from_be_bytes([length[0], length[1]]);
        let text = self.take(usize::from(length))?;
        Ok(String::from_utf8_lossy(text).into_owned())
    }

    /// In version 2, the type of the certificate precedes it.
    fn certificate(&mut self, version: u32) -> Result<Vec<u8>, JksError> {
        if version == 2 && self.text()? != "X.509" {
            return Err(JksError::Damaged);
        }
        Ok(self.block()?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_and_truncated_jks_files_are_refused() {
        assert_eq!(read(b"", None).unwrap_err(), JksError::NotJks);
        assert_eq!(read(&MAGIC, None).unwrap_err(), JksError::Damaged);
        // Long enough for the digest, but not for the mark and the digest.
        let mut short = MAGIC.to_vec();
        short.extend([0; DIGEST_BYTES - 1]);
        assert_eq!(read(&short, None).unwrap_err(), JksError::Damaged);
        assert_eq!(read(&MAGIC_OF_JCEKS, None).unwrap_err(), JksError::Jceks);
        // Announces more entries than it contains.
        let mut forged = MAGIC.to_vec();
        forged.extend([0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff]);
        forged.extend([0; DIGEST_BYTES]);
        assert_eq!(read(&forged, None).unwrap_err(), JksError::Damaged);
        assert_eq!(
            read(&forged, Some("x")).unwrap_err(),
            JksError::WrongPassword
        );
    }
}
