//! The codecs of `compression.type`, with Kafka's levels, and bounded decompression.
//!
//! Data is decompressed in chunks and the output is counted, so that a small batch that expands to
//! gigabytes is rejected at the caller's limit, whatever sizes its headers claim. The file of each
//! codec documents what Kafka writes and what else it reads.

mod block;
mod gzip;
mod lz4;
mod snappy;
mod zstd;

use std::fmt;

use bytes::Bytes;

use crate::{BatchError, CompressionType};

/// A codec with its compression level. Converted from a `CompressionType`, it has Kafka's default
/// level.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Compression {
    #[default]
    None,
    /// `compression.gzip.level`: 1 to 9, or -1 for zlib's default.
    Gzip {
        level: i32,
    },
    Snappy,
    /// `compression.lz4.level`: 1 to 17. The default of 9 means the fast compressor, every other level
    /// the high-compression one (KIP-390), where more than 12 is the same as 12.
    Lz4 {
        level: i32,
    },
    /// `compression.zstd.level`: -131072 to 22.
    Zstd {
        level: i32,
    },
}

/// A level outside what Kafka accepts for the codec.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct InvalidLevel {
    pub codec: CompressionType,
    pub level: i32,
}

impl fmt::Display for InvalidLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InvalidLevel { codec, level } = self;
        match codec.levels() {
            Some(levels) => write!(
                f,
                "{level} is not a level of {codec}: give {} to {}, or {} for the default",
                levels.min, levels.max, levels.default
            ),
            None => write!(f, "{codec} has no levels, but {level} was given"),
        }
    }
}

impl std::error::Error for InvalidLevel {}

/// The levels that Kafka 4.3 accepts for a codec. The default may lie outside the range (gzip's -1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CompressionLevels {
    pub min: i32,
    pub max: i32,
    pub default: i32,
}

impl CompressionType {
    /// The codec's levels, `None` for the codecs that have none.
    pub const fn levels(self) -> Option<CompressionLevels> {
        let (min, max, default) = match self {
            CompressionType::None | CompressionType::Snappy => return None,
            CompressionType::Gzip => (1, 9, -1),
            CompressionType::Lz4 => (1, 17, lz4::DEFAULT_LEVEL),
            CompressionType::Zstd => (-131_072, 22, 3),
        };
        Some(CompressionLevels { min, max, default })
    }
}

impl Compression {
    /// The codec with this level.
    pub fn with_level(codec: CompressionType, level: i32) -> Result<Compression, InvalidLevel> {
        let levels = codec.levels().ok_or(InvalidLevel { codec, level })?;
        if !(levels.min..=levels.max).contains(&level) && level != levels.default {
            return Err(InvalidLevel { codec, level });
        }
        Ok(match codec {
            CompressionType::Gzip => Compression::Gzip { level },
            CompressionType::Lz4 => Compression::Lz4 { level },
            CompressionType::Zstd => Compression::Zstd { level },
            CompressionType::None | CompressionType::Snappy => unreachable!("they have no levels"),
        })
    }

    pub const fn codec(self) -> CompressionType {
        match self {
            Compression::None => CompressionType::None,
            Compression::Gzip { .. } => CompressionType::Gzip,
            Compression::Snappy => CompressionType::Snappy,
            Compression::Lz4 { .. } => CompressionType::Lz4,
            Compression::Zstd { .. } => CompressionType::Zstd,
        }
    }

    /// Compresses the records of a batch of magic 2.
    pub fn compress(self, data: &[u8]) -> Vec<u8> {
        match self {
            Compression::None => data.to_vec(),
            Compression::Gzip { level } => gzip::compress(data, level),
            Compression::Snappy => snappy::compress(data),
            Compression::Lz4 { level } => lz4::compress(data, level),
            Compression::Zstd { level } => zstd::compress(data, level),
        }
    }
}

impl From<CompressionType> for Compression {
    fn from(codec: CompressionType) -> Compression {
        match codec {
            CompressionType::None => Compression::None,
            CompressionType::Snappy => Compression::Snappy,
            CompressionType::Gzip => Compression::Gzip { level: -1 },
            CompressionType::Lz4 => Compression::Lz4 {
                level: lz4::DEFAULT_LEVEL,
            },
            CompressionType::Zstd => Compression::Zstd { level: 3 },
        }
    }
}

/// Decompresses all of `data`, at most `limit` bytes.
pub fn decompress(codec: CompressionType, data: &[u8], limit: usize) -> Result<Bytes, BatchError> {
    let mut memory = CodecMemory::default();
    let decompressor = Decompressor::new(codec, data, limit, &mut memory)?;
    read_to_end(decompressor, data.len())
}

/// Decompresses the value of a wrapper message of magic 0. Old clients computed the header checksum
/// of lz4 frames wrongly, so Kafka does not verify it in such messages.
pub(crate) fn decompress_magic_0(
    codec: CompressionType,
    data: &[u8],
    limit: usize,
) -> Result<Bytes, BatchError> {
    let mut memory = CodecMemory::default();
    let decompressor = match codec {
        CompressionType::Lz4 => {
            let ignored = lz4::HeaderChecksum::Ignored;
            let reader = lz4::FrameReader::new(data, ignored, &mut memory.block)?;
            Decompressor {
                codec,
                limit,
                read: 0,
                inner: Inner::Lz4(reader),
            }
        }
        _ => Decompressor::new(codec, data, limit, &mut memory)?,
    };
    read_to_end(decompressor, data.len())
}

fn read_to_end(mut decompressor: Decompressor<'_>, compressed: usize) -> Result<Bytes, BatchError> {
    // Grows with the actual output: sizes claimed by the data are not trusted.
    let mut out = vec![0; compressed.saturating_mul(3).clamp(4 * 1024, 256 * 1024)];
    let mut length = 0;
    loop {
        if length == out.len() {
            out.resize(out.len() * 2, 0);
        }
        let read = decompressor.read(&mut out[length..])?;
        if read == 0 {
            break;
        }
        length += read;
    }
    out.truncate(length);
    Ok(Bytes::from(out))
}

/// Buffers of a decompressor that are reused for the next batch.
#[derive(Default)]
pub(crate) struct CodecMemory {
    block: Vec<u8>,
    zstd: zstd::Context,
}

/// A block buffer larger than this is not kept.
const LARGEST_KEPT_BLOCK: usize = 4 << 20;

/// Decompresses in chunks, up to a limit.
pub(crate) struct Decompressor<'a> {
    codec: CompressionType,
    limit: usize,
    read: usize,
    inner: Inner<'a>,
}

enum Inner<'a> {
    None(&'a [u8]),
    Gzip(gzip::MemberReader<'a>),
    Snappy(snappy::ChunkReader<'a>),
    Lz4(lz4::FrameReader<'a>),
    Zstd(zstd::FrameReader<'a>),
}

impl<'a> Decompressor<'a> {
    pub(crate) fn new(
        codec: CompressionType,
        data: &'a [u8],
        limit: usize,
        memory: &'a mut CodecMemory,
    ) -> Result<Decompressor<'a>, BatchError> {
        let CodecMemory { block, zstd } = memory;
        if block.capacity() > LARGEST_KEPT_BLOCK {
            *block = Vec::new();
        }
        let inner = match codec {
            CompressionType::None => Inner::None(data),
            CompressionType::Gzip => Inner::Gzip(gzip::MemberReader::new(data)),
            CompressionType::Snappy => Inner::Snappy(snappy::ChunkReader::new(data, limit, block)?),
            CompressionType::Lz4 => Inner::Lz4(lz4::FrameReader::new(
                data,
                lz4::HeaderChecksum::Verified,
                block,
            )?),
            CompressionType::Zstd => Inner::Zstd(zstd::FrameReader::new(data, zstd)?),
        };
        Ok(Decompressor {
            codec,
            limit,
            read: 0,
            inner,
        })
    }

    /// Reads at least one byte into `out`, which is not empty. Returns 0 at the end of the data.
    pub(crate) fn read(&mut self, out: &mut [u8]) -> Result<usize, BatchError> {
        let read = match &mut self.inner {
            Inner::None(data) => {
                let length = data.len().min(out.len());
                let (now, later) = data.split_at(length);
                out[..length].copy_from_slice(now);
                *data = later;
                length
            }
            Inner::Gzip(reader) => reader.read(out)?,
            Inner::Snappy(reader) => reader.read(out)?,
            Inner::Lz4(reader) => reader.read(out)?,
            Inner::Zstd(reader) => reader.read(out)?,
        };
        self.read += read;
        if self.read > self.limit {
            return Err(BatchError::DecompressedTooLarge {
                codec: self.codec,
                limit: self.limit,
            });
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
