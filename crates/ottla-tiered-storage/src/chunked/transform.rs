//! The transformation of a chunk between the segment and the object: zstd, then AES-GCM, each if
//! enabled.
//!
//! Each chunk is one zstd frame with its content size. Indexes are encrypted and never compressed.
//! All work runs on the caller's thread.
//!
//! Aiven's plugin: `CompressionChunkEnumeration`, `EncryptionChunkEnumeration` and their opposites.

use std::io::{self, Read};

use bytes::Bytes;
use zstd::bulk::Compressor;

use super::chunk_index::Chunk;
use super::data_key::{DataKey, IV_SIZE, TAG_SIZE};

/// Transforms the chunks of one segment for upload.
pub struct ChunkTransform {
    compressor: Option<Compressor<'static>>,
    key: Option<DataKey>,
    chunk_size: usize,
    /// A chunk as it was read, and as it was compressed, used again for each.
    read: Vec<u8>,
    compressed: Vec<u8>,
}

impl ChunkTransform {
    pub fn new(chunk_size: u32, compresses: bool, key: Option<DataKey>) -> ChunkTransform {
        ChunkTransform {
            compressor: compresses.then(|| {
                Compressor::new(zstd::DEFAULT_COMPRESSION_LEVEL)
                    .expect("the default level is a level")
            }),
            key,
            chunk_size: chunk_size as usize,
            read: Vec::new(),
            compressed: Vec::new(),
        }
    }

    /// Reads the next chunk and transforms it; `None` at the end. The last chunk may be shorter.
    pub fn next(&mut self, source: &mut impl Read) -> io::Result<Option<Bytes>> {
        let Some(compressor) = &mut self.compressor else {
            // Read to where it is encrypted, and from where it is sent.
            let front = if self.key.is_some() { IV_SIZE } else { 0 };
            let mut chunk = Vec::with_capacity(front + self.chunk_size + TAG_SIZE);
            chunk.resize(front, 0);
            source
                .take(self.chunk_size as u64)
                .read_to_end(&mut chunk)?;
            if chunk.len() == front {
                return Ok(None);
            }
            if let Some(key) = &self.key {
                key.encrypt(&mut chunk);
            }
            return Ok(Some(chunk.into()));
        };
        self.read.clear();
        source
            .take(self.chunk_size as u64)
            .read_to_end(&mut self.read)?;
        if self.read.is_empty() {
            return Ok(None);
        }
        let bound = zstd::zstd_safe::compress_bound(self.read.len());
        self.compressed.resize(bound.max(self.compressed.len()), 0);
        let size = compressor.compress_to_buffer(&self.read, &mut self.compressed[..])?;
        let compressed = &self.compressed[..size];
        // Exactly as large as needed: many of them wait in a part of an upload.
        let chunk = match &self.key {
            None => compressed.to_vec(),
            Some(key) => sealed(key, compressed),
        };
        Ok(Some(chunk.into()))
    }
}

/// Encrypts an index.
pub fn sealed(key: &DataKey, text: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(IV_SIZE + text.len() + TAG_SIZE);
    buffer.resize(IV_SIZE, 0);
    buffer.extend_from_slice(text);
    key.encrypt(&mut buffer);
    buffer
}

/// Why a chunk or an index differs from the uploaded one.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("{name} at byte {position}: {cause}")]
    Unreadable {
        /// `chunk 3`, or the name of an index.
        name: String,
        /// Where it begins in its object.
        position: u64,
        cause: String,
    },
}

/// Restores the bytes of the segment from the object.
pub fn restored(
    object: Bytes,
    chunk: &Chunk,
    is_compressed: bool,
    key: Option<&DataKey>,
) -> Result<Bytes, RestoreError> {
    let unreadable = |cause: String| RestoreError::Unreadable {
        name: format!("chunk {}", chunk.id),
        position: chunk.transformed_position,
        cause,
    };
    if object.len() != chunk.transformed_size as usize {
        return Err(unreadable(format!(
            "it has {} bytes instead of {}",
            object.len(),
            chunk.transformed_size
        )));
    }
    let plain = opened(object, key).map_err(unreadable)?;
    let size = chunk.original_size as usize;
    let original = if is_compressed {
        let bytes = zstd::bulk::decompress(&plain, size)
            .map_err(|error| unreadable(format!("it is no zstd frame: {error}")))?;
        Bytes::from(bytes)
    } else {
        plain
    };
    if original.len() != size {
        return Err(unreadable(format!(
            "it holds {} bytes of the segment instead of {size}",
            original.len()
        )));
    }
    Ok(original)
}

/// Restores the bytes of an index from the object.
pub fn restored_index(
    object: Bytes,
    name: &str,
    position: u64,
    key: Option<&DataKey>,
) -> Result<Bytes, RestoreError> {
    opened(object, key).map_err(|cause| RestoreError::Unreadable {
        name: name.to_owned(),
        position,
        cause,
    })
}

fn opened(object: Bytes, key: Option<&DataKey>) -> Result<Bytes, String> {
    let Some(key) = key else {
        return Ok(object);
    };
    // In most cases a response is one buffer without other references.
    let mut buffer = object
        .try_into_mut()
        .map_or_else(|shared| shared.to_vec(), |own| own.into());
    let text = key
        .decrypt(&mut buffer)
        .map_err(|error| error.to_string())?;
    let size = text.len();
    Ok(Bytes::from(buffer).slice(IV_SIZE..IV_SIZE + size))
}

#[cfg(test)]
mod tests {
    use super::super::chunk_index::ChunkIndex;
    use super::*;

    #[test]
    fn every_combination_round_trips() {
        let segment: Vec<u8> = (0..250_000u32).map(|n| (n / 40 % 251) as u8).collect();
        for compresses in [false, true] {
            for key in [None, Some(DataKey::generate())] {
                let mut transform = ChunkTransform::new(100_000, compresses, key.clone());
                let mut source = &segment[..];
                let mut chunks = Vec::new();
                while let Some(chunk) = transform.next(&mut source).unwrap() {
                    chunks.push(chunk);
                }
                let sizes: Vec<u32> = chunks.iter().map(|chunk| chunk.len() as u32).collect();
                let index = ChunkIndex::new(100_000, 250_000, &sizes).unwrap();
                assert_eq!(sizes.len(), 3);
                assert_eq!(compresses, sizes[0] < 50_000);
                let mut back = Vec::new();
                for (id, object) in (0..).zip(&chunks) {
                    let chunk = index.chunk(id).unwrap();
                    let original = restored(object.clone(), &chunk, compresses, key.as_ref());
                    back.extend_from_slice(&original.unwrap());
                    let cut = object.slice(1..);
                    let error = restored(cut, &chunk, compresses, key.as_ref()).unwrap_err();
                    assert!(
                        error
                            .to_string()
                            .starts_with(&format!("chunk {id} at byte "))
                    );
                }
                assert_eq!(back, segment);
            }
        }
    }

    #[test]
    fn a_frame_that_claims_more_than_its_chunk_is_refused() {
        let bomb = Bytes::from(zstd::bulk::compress(&vec![0; 1 << 20], 3).unwrap());
        let index = ChunkIndex::new(1000, 1000, &[bomb.len() as u32]).unwrap();
        let chunk = index.chunk(0).unwrap();
        assert!(restored(bomb, &chunk, true, None).is_err());
    }
}
