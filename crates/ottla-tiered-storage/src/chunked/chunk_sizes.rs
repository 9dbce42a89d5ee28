//! Chunk sizes in a few bytes: `transformedChunks` of a manifest.
//!
//! Base64 of one zstd frame of: the count (i32, big endian); nothing more for 0; the size (i32) for
//! 1; otherwise the smallest size but for the last chunk (i32), a width of 1 to 4 bytes (u8), the
//! differences from the smallest in that width, and the last size (i32).
//!
//! Aiven's plugin: `ChunkSizesBinaryCodec`, `TransformedChunksSerializer`.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::{Buf, BufMut};

/// More chunks than a segment of 2 GiB has with chunks of 1 KiB.
pub const MAX_CHUNKS: usize = 1 << 21;
/// The plugin's limit of decompressed bytes.
const MAX_DECOMPRESSED: usize = 10 * 1024 * 1024;

/// The text cannot be decoded.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("transformedChunks cannot be read: {0}")]
pub struct ChunkSizesError(String);

fn error(cause: impl std::fmt::Display) -> ChunkSizesError {
    ChunkSizesError(cause.to_string())
}

pub fn encode(sizes: &[u32]) -> String {
    let binary = to_binary(sizes);
    let compressed = zstd::bulk::compress(&binary, zstd::DEFAULT_COMPRESSION_LEVEL)
        .expect("a frame in memory is not refused");
    BASE64_STANDARD.encode(compressed)
}

pub fn decode(text: &str) -> Result<Vec<u32>, ChunkSizesError> {
    let compressed = BASE64_STANDARD.decode(text).map_err(error)?;
    let size = zstd::bulk::Decompressor::upper_bound(&compressed).unwrap_or(MAX_DECOMPRESSED);
    let binary = zstd::bulk::decompress(&compressed, size.min(MAX_DECOMPRESSED)).map_err(error)?;
    from_binary(&binary)
}

fn to_binary(sizes: &[u32]) -> Vec<u8> {
    let mut out = Vec::new();
    out.put_u32(sizes.len() as u32);
    let Some((&last, before)) = sizes.split_last() else {
        return out;
    };
    if let (Some(&smallest), Some(&largest)) = (before.iter().min(), before.iter().max()) {
        let width = match largest - smallest {
            0..=0xff => 1,
            0x100..=0xffff => 2,
            0x1_0000..=0xff_ffff => 3,
            _ => 4,
        };
        out.put_u32(smallest);
        out.put_u8(width);
        for size in before {
            out.put_uint(u64::from(size - smallest), usize::from(width));
        }
    }
    out.put_u32(last);
    out
}

fn from_binary(mut bytes: &[u8]) -> Result<Vec<u32>, ChunkSizesError> {
    let short = |_| error("it ends too early");
    let size = |value: u32| {
        i32::try_from(value)
            .map(|_| value)
            .map_err(|_| error("a negative size"))
    };
    let count = bytes.try_get_u32().map_err(short)? as usize;
    if count > MAX_CHUNKS {
        return Err(error(format_args!("it counts {count} chunks")));
    }
    let mut sizes = Vec::with_capacity(count.min(bytes.len()));
    if count == 0 {
        return Ok(sizes);
    }
    if count > 1 {
        let base = size(bytes.try_get_u32().map_err(short)?)?;
        let width = usize::from(bytes.try_get_u8().map_err(short)?);
        if !(1..=4).contains(&width) {
            return Err(error(format_args!("{width} bytes for a size")));
        }
        for _ in 1..count {
            let difference = bytes.try_get_uint(width).map_err(short)? as u32;
            let sum = base
                .checked_add(difference)
                .ok_or_else(|| error("a negative size"))?;
            sizes.push(size(sum)?);
        }
    }
    sizes.push(size(bytes.try_get_u32().map_err(short)?)?);
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_the_bytes_of_the_plugin() {
        assert_eq!(to_binary(&[]), [0, 0, 0, 0]);
        assert_eq!(to_binary(&[7]), [0, 0, 0, 1, 0, 0, 0, 7]);
        let binary = to_binary(&[300, 301, 812, 5]);
        assert_eq!(
            binary,
            [0, 0, 0, 4, 0, 0, 1, 44, 2, 0, 0, 0, 1, 2, 0, 0, 0, 0, 5]
        );
    }

    #[test]
    fn damaged_text_is_an_error() {
        for text in ["", "!", "AAAA", &encode(&[1, 2, 3])[..20]] {
            assert!(decode(text).is_err(), "{text}");
        }
        assert!(from_binary(&[0x7f, 0xff, 0xff, 0xff]).is_err());
        assert!(from_binary(&[0, 0, 0, 2, 0, 0, 0, 1, 9, 1, 0, 0, 0, 1]).is_err());
    }

    proptest! {
        #[test]
        fn sizes_survive(sizes in prop::collection::vec(0u32..=i32::MAX as u32, 0..50)) {
            prop_assert_eq!(decode(&encode(&sizes)), Ok(sizes));
        }
    }
}
