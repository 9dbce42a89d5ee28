//! The part of the lz4 frame format (1.5.1) that Kafka's `Lz4BlockOutputStream` writes and
//! `Lz4BlockInputStream` reads: independent blocks, no dictionary, one frame.
//!
//! ```text
//! 04 22 4d 18 | FLG | BD | [content size u64] | header checksum | (size u32 | block | [checksum u32])* | 0 u32 | [checksum u32]
//! ```
//!
//! Numbers are little-endian; the top bit of a block's size says that the block is stored. A content
//! checksum is skipped without verification, as in Kafka; block checksums are verified.

use super::block::{Block, broken};
use crate::{BatchError, CompressionType};

/// The level that means lz4's fast compressor (KIP-390).
pub(super) const DEFAULT_LEVEL: i32 = 9;

const MAGIC: [u8; 4] = 0x184d_2204_u32.to_le_bytes();
const VERSION_1: u8 = 0b0100_0000;
const BLOCK_INDEPENDENCE: u8 = 0b0010_0000;
const BLOCK_CHECKSUM: u8 = 0b0001_0000;
const CONTENT_SIZE: u8 = 0b0000_1000;
const CONTENT_CHECKSUM: u8 = 0b0000_0100;
/// 64 KiB, which is what Kafka writes.
const BLOCK_SIZE_CODE: u8 = 4;
const BLOCK_SIZE: usize = 64 * 1024;
const STORED: u32 = 1 << 31;
/// lz4-java takes levels up to 17, the library below it stops at 12.
const MAX_NATIVE_LEVEL: i32 = 12;

pub(super) fn compress(data: &[u8], level: i32) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() / 2 + 64);
    let descriptor = [VERSION_1 | BLOCK_INDEPENDENCE, BLOCK_SIZE_CODE << 4];
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&descriptor);
    out.push(descriptor_checksum(&descriptor));
    for block in data.chunks(BLOCK_SIZE) {
        write_block(&mut out, block, level);
    }
    out.extend_from_slice(&0u32.to_le_bytes());
    out
}

fn write_block(out: &mut Vec<u8>, block: &[u8], level: i32) {
    let at = out.len();
    let bound = lz4_flex::block::get_maximum_output_size(block.len());
    out.resize(at + 4 + bound, 0);
    let space = &mut out[at + 4..];
    let length = if level == DEFAULT_LEVEL {
        lz4_flex::block::compress_into(block, space).expect("the buffer has the size lz4 asks for")
    } else {
        let mode = lz4::block::CompressionMode::HIGHCOMPRESSION(level.min(MAX_NATIVE_LEVEL));
        lz4::block::compress_to_buffer(block, Some(mode), false, space)
            .expect("the buffer has the size lz4 asks for")
    };
    if length >= block.len() {
        out.truncate(at + 4);
        out[at..].copy_from_slice(&(block.len() as u32 | STORED).to_le_bytes());
        out.extend_from_slice(block);
    } else {
        out.truncate(at + 4 + length);
        out[at..at + 4].copy_from_slice(&(length as u32).to_le_bytes());
    }
}

fn descriptor_checksum(descriptor: &[u8]) -> u8 {
    (xxhash_rust::xxh32::xxh32(descriptor, 0) >> 8) as u8
}

/// How the checksum of the frame header is verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HeaderChecksum {
    Verified,
    /// Messages of magic 0: clients before 0.10 included the frame's magic in it (KIP-57).
    Ignored,
}

pub(super) struct FrameReader<'a> {
    rest: &'a [u8],
    flags: u8,
    max_block_size: usize,
    finished: bool,
    block: Block<'a>,
}

impl<'a> FrameReader<'a> {
    pub(super) fn new(
        data: &'a [u8],
        header_checksum: HeaderChecksum,
        block: &'a mut Vec<u8>,
    ) -> Result<FrameReader<'a>, BatchError> {
        let cut_off = || error("its header is cut off");
        let rest = data
            .strip_prefix(&MAGIC)
            .ok_or_else(|| error("it does not start as a frame"))?;
        let [flags, block_descriptor, ..] = *rest else {
            return Err(cut_off());
        };
        if flags & 0b11 != 0 || block_descriptor & 0b1000_1111 != 0 {
            return Err(error("reserved bits are set"));
        }
        if flags >> 6 != VERSION_1 >> 6 {
            return Err(error("its version is not 1"));
        }
        if flags & BLOCK_INDEPENDENCE == 0 {
            return Err(error("its blocks depend on each other"));
        }
        let max_block_size = match block_descriptor >> 4 & 0b111 {
            code @ 4..=7 => 1 << (8 + 2 * code),
            _ => return Err(error("its block size is unknown")),
        };
        let descriptor_size = 2 + if flags & CONTENT_SIZE != 0 { 8 } else { 0 };
        let (descriptor, rest) = rest.split_at_checked(descriptor_size).ok_or_else(cut_off)?;
        let (&checksum, rest) = rest.split_first().ok_or_else(cut_off)?;
        if header_checksum == HeaderChecksum::Verified
            && checksum != descriptor_checksum(descriptor)
        {
            return Err(error("the checksum of its header is wrong"));
        }
        Ok(FrameReader {
            rest,
            flags,
            max_block_size,
            finished: false,
            block: Block::new(block),
        })
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, BatchError> {
        while self.block.is_used_up() {
            if self.finished {
                return Ok(0);
            }
            self.next_block()?;
        }
        Ok(self.block.give(out))
    }

    fn next_block(&mut self) -> Result<(), BatchError> {
        let size = self.take_u32()?;
        if size == 0 {
            if self.flags & CONTENT_CHECKSUM != 0 {
                self.take_u32()?;
            }
            self.finished = true;
            return Ok(());
        }
        let stored = size & STORED != 0;
        let size = (size & !STORED) as usize;
        if size > self.max_block_size {
            return Err(error("a block is larger than the header allows"));
        }
        let (data, rest) = self
            .rest
            .split_at_checked(size)
            .ok_or_else(|| error("a block is cut off"))?;
        self.rest = rest;
        if self.flags & BLOCK_CHECKSUM != 0
            && self.take_u32()? != xxhash_rust::xxh32::xxh32(data, 0)
        {
            return Err(error("the checksum of a block is wrong"));
        }
        self.block.given = 0;
        if stored {
            self.block.bytes.clear();
            self.block.bytes.extend_from_slice(data);
            return Ok(());
        }
        self.block.bytes.resize(self.max_block_size, 0);
        let result = lz4_flex::block::decompress_into(data, self.block.bytes);
        self.block.bytes.truncate(*result.as_ref().unwrap_or(&0));
        result.map(drop).map_err(error)
    }

    fn take_u32(&mut self) -> Result<u32, BatchError> {
        let (number, rest) = self
            .rest
            .split_first_chunk::<4>()
            .ok_or_else(|| error("it ends without an end mark"))?;
        self.rest = rest;
        Ok(u32::from_le_bytes(*number))
    }
}

fn error(reason: impl std::fmt::Display) -> BatchError {
    broken(CompressionType::Lz4, reason)
}
