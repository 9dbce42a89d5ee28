//! snappy in the framing of snappy-java (xerial), and raw snappy, which its reader also accepts.
//!
//! ```text
//! 82 'SNAPPY' 00 | version i32 | least compatible version i32 | (length i32 | raw snappy)*
//! ```
//!
//! Numbers are big-endian, and both versions are 1. A stream can be followed by another one with
//! its own header. Data that does not start with the header is one raw block.

use super::block::{Block, broken};
use crate::{BatchError, CompressionType};

const MAGIC: [u8; 8] = *b"\x82SNAPPY\0";
const HEADER_SIZE: usize = 16;
const VERSION: i32 = 1;
/// The block size of snappy-java.
const BLOCK_SIZE: usize = 32 * 1024;

pub(super) fn compress(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_SIZE + data.len() / 2 + 64);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_be_bytes());
    out.extend_from_slice(&VERSION.to_be_bytes());
    let mut encoder = snap::raw::Encoder::new();
    for block in data.chunks(BLOCK_SIZE) {
        let at = out.len();
        out.resize(at + 4 + snap::raw::max_compress_len(block.len()), 0);
        let length = encoder
            .compress(block, &mut out[at + 4..])
            .expect("the buffer has the size that snappy asks for");
        out[at..at + 4].copy_from_slice(&(length as i32).to_be_bytes());
        out.truncate(at + 4 + length);
    }
    out
}

pub(super) struct ChunkReader<'a> {
    rest: &'a [u8],
    framed: bool,
    /// Larger blocks are refused: snappy states the size of a block before its data.
    limit: usize,
    decoder: snap::raw::Decoder,
    block: Block<'a>,
}

impl<'a> ChunkReader<'a> {
    pub(super) fn new(
        data: &'a [u8],
        limit: usize,
        block: &'a mut Vec<u8>,
    ) -> Result<ChunkReader<'a>, BatchError> {
        let framed = data.len() >= HEADER_SIZE && data.starts_with(&MAGIC);
        let mut reader = ChunkReader {
            rest: data,
            framed,
            limit,
            decoder: snap::raw::Decoder::new(),
            block: Block::new(block),
        };
        if framed {
            reader.skip_header()?;
        }
        Ok(reader)
    }

    fn skip_header(&mut self) -> Result<(), BatchError> {
        let header = self
            .rest
            .first_chunk::<HEADER_SIZE>()
            .ok_or_else(|| broken(CompressionType::Snappy, "its header is cut off"))?;
        let compatible = i32::from_be_bytes([header[12], header[13], header[14], header[15]]);
        let version = i32::from_be_bytes([header[8], header[9], header[10], header[11]]);
        if version < VERSION || compatible > VERSION {
            return Err(broken(
                CompressionType::Snappy,
                format_args!("version {version}, compatible with {compatible}, is not known"),
            ));
        }
        self.rest = &self.rest[HEADER_SIZE..];
        Ok(())
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, BatchError> {
        while self.block.is_used_up() {
            match self.next_chunk()? {
                Some(chunk) => self.decompress(chunk)?,
                None => return Ok(0),
            }
        }
        Ok(self.block.give(out))
    }

    fn next_chunk(&mut self) -> Result<Option<&'a [u8]>, BatchError> {
        if !self.framed {
            let chunk = std::mem::take(&mut self.rest);
            return Ok((!chunk.is_empty()).then_some(chunk));
        }
        while self.rest.starts_with(&MAGIC) {
            self.skip_header()?;
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let cut_off = || broken(CompressionType::Snappy, "a block is cut off");
        let (length, rest) = self.rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
        let length = usize::try_from(i32::from_be_bytes(*length)).map_err(|_| cut_off())?;
        let (chunk, rest) = rest.split_at_checked(length).ok_or_else(cut_off)?;
        self.rest = rest;
        Ok(Some(chunk))
    }

    fn decompress(&mut self, chunk: &[u8]) -> Result<(), BatchError> {
        let size = snap::raw::decompress_len(chunk)
            .map_err(|error| broken(CompressionType::Snappy, error))?;
        if size > self.limit {
            return Err(BatchError::DecompressedTooLarge {
                codec: CompressionType::Snappy,
                limit: self.limit,
            });
        }
        // A byte of snappy expands to at most 64, so no memory is allocated for a larger claim.
        if size / 64 > chunk.len() {
            return Err(broken(
                CompressionType::Snappy,
                "a block claims an impossible size",
            ));
        }
        self.block.given = 0;
        self.block.bytes.resize(size, 0);
        let result = self.decoder.decompress(chunk, self.block.bytes);
        if let Err(error) = result {
            self.block.bytes.clear();
            return Err(broken(CompressionType::Snappy, error));
        }
        Ok(())
    }
}
