//! zstd. Frames after each other are one stream. The window may be 128 MiB at most (zstd's own default),
//! and is only touched as far as data comes out.

use std::io::Read;

use zstd::stream::read::Decoder;

use super::broken;
use crate::{BatchError, CompressionType};

pub(super) fn compress(data: &[u8], level: i32) -> Vec<u8> {
    zstd::bulk::compress(data, level).expect("the buffer has the size that zstd asks for")
}

pub(super) struct FrameReader<'a> {
    decoder: Decoder<'static, &'a [u8]>,
}

impl<'a> FrameReader<'a> {
    pub(super) fn new(data: &'a [u8]) -> Result<FrameReader<'a>, BatchError> {
        let decoder =
            Decoder::with_buffer(data).map_err(|error| broken(CompressionType::Zstd, error))?;
        Ok(FrameReader { decoder })
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, BatchError> {
        self.decoder
            .read(out)
            .map_err(|error| broken(CompressionType::Zstd, error))
    }
}
