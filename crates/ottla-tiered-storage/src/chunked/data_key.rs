//! AES-256-GCM with a separate key for each segment.
//!
//! An encrypted chunk or index is the IV (12 bytes), the text, and the tag (16 bytes). The
//! associated data is the same for all of a segment: 32 random bytes from its manifest.
//!
//! Aiven's plugin: `AesEncryptionProvider`, `EncryptionChunkEnumeration`.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ottla_sync::random::random;

pub const KEY_SIZE: usize = 32;
pub const IV_SIZE: usize = NONCE_LEN;
pub const TAG_SIZE: usize = 16;

/// The key of one segment. `Debug` shows nothing of it.
#[derive(Clone)]
pub struct DataKey {
    secret: [u8; KEY_SIZE],
    aad: Arc<[u8]>,
    key: Arc<LessSafeKey>,
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DataKey")
    }
}

/// The bytes were not encrypted with this key, or have changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("its authentication tag does not match its bytes")]
pub struct NotAuthentic;

impl DataKey {
    pub fn new(secret: [u8; KEY_SIZE], aad: Arc<[u8]>) -> DataKey {
        let key = UnboundKey::new(&AES_256_GCM, &secret).expect("the key has 32 bytes");
        DataKey {
            secret,
            aad,
            key: Arc::new(LessSafeKey::new(key)),
        }
    }

    pub fn generate() -> DataKey {
        let secret: [u8; KEY_SIZE] = random("data key of a remote segment");
        let aad: [u8; 32] = random("associated data of a remote segment");
        DataKey::new(secret, Arc::new(aad))
    }

    /// What it takes in memory besides itself.
    pub fn heap_bytes(&self) -> u64 {
        (self.aad.len() + std::mem::size_of::<LessSafeKey>()) as u64
    }

    pub fn secret(&self) -> &[u8; KEY_SIZE] {
        &self.secret
    }

    pub fn aad(&self) -> &[u8] {
        &self.aad
    }

    /// Encrypts in place: `buffer` starts with [`IV_SIZE`] bytes of any content before the text,
    /// and becomes [`TAG_SIZE`] bytes longer.
    pub fn encrypt(&self, buffer: &mut Vec<u8>) {
        let iv: [u8; IV_SIZE] = random("IV of a remote chunk");
        let (front, text) = buffer.split_at_mut(IV_SIZE);
        front.copy_from_slice(&iv);
        let nonce = Nonce::assume_unique_for_key(iv);
        let aad = Aad::from(&self.aad[..]);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, aad, text)
            .expect("a chunk is shorter than the limit of GCM");
        buffer.extend_from_slice(tag.as_ref());
    }

    /// Checks the tag, and gives the text within `buffer`.
    pub fn decrypt<'a>(&self, buffer: &'a mut [u8]) -> Result<&'a mut [u8], NotAuthentic> {
        let (iv, sealed) = buffer
            .split_first_chunk_mut::<IV_SIZE>()
            .ok_or(NotAuthentic)?;
        let nonce = Nonce::assume_unique_for_key(*iv);
        let aad = Aad::from(&self.aad[..]);
        self.key
            .open_in_place(nonce, aad, sealed)
            .map_err(|_| NotAuthentic)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_encrypted_bytes_are_accepted() {
        let key = DataKey::generate();
        let mut sealed = vec![0; IV_SIZE];
        sealed.extend_from_slice(b"records");
        key.encrypt(&mut sealed);
        assert_eq!(sealed.len(), IV_SIZE + 7 + TAG_SIZE);
        let open = |mut bytes: Vec<u8>| key.decrypt(&mut bytes).map(|text| text.to_vec());
        assert_eq!(open(sealed.clone()).as_deref(), Ok(&b"records"[..]));
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert_eq!(open(damaged), Err(NotAuthentic));
        }
        assert_eq!(open(sealed[..20].to_vec()), Err(NotAuthentic));
        let other = DataKey::new(*key.secret(), Arc::new([1; 32]));
        assert_eq!(other.decrypt(&mut sealed), Err(NotAuthentic));
    }
}
