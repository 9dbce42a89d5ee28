//! Common parts of the codecs.

use std::fmt;

use crate::{BatchError, CompressionType};

pub(super) fn broken(codec: CompressionType, reason: impl fmt::Display) -> BatchError {
    BatchError::Decompression {
        codec,
        reason: reason.to_string(),
    }
}

/// One decompressed block of a block-based codec, and how much of it has been read.
pub(super) struct Block<'a> {
    pub(super) bytes: &'a mut Vec<u8>,
    pub(super) given: usize,
}

impl<'a> Block<'a> {
    pub(super) fn new(bytes: &'a mut Vec<u8>) -> Block<'a> {
        bytes.clear();
        Block { bytes, given: 0 }
    }

    pub(super) fn is_used_up(&self) -> bool {
        self.given == self.bytes.len()
    }

    pub(super) fn give(&mut self, out: &mut [u8]) -> usize {
        let rest = &self.bytes[self.given..];
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        self.given += length;
        length
    }
}
