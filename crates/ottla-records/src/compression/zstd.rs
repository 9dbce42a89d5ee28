//! zstd. Consecutive frames are one stream. The window is limited to 128 MiB (zstd's default), and
//! its memory is only used as far as data is decompressed.

use std::io::Read;

use zstd::stream::read::Decoder;
use zstd::zstd_safe::{DCtx, ResetDirective};

use super::block::broken;
use crate::{BatchError, CompressionType};

pub(super) fn compress(data: &[u8], level: i32) -> Vec<u8> {
    zstd::bulk::compress(data, level).expect("the buffer has the size that zstd asks for")
}

/// The decoder's state of more than 100 KiB, created on first use.
#[derive(Default)]
pub(super) struct Context(Option<DCtx<'static>>);

pub(super) struct FrameReader<'a> {
    decoder: Decoder<'a, &'a [u8]>,
}

impl<'a> FrameReader<'a> {
    pub(super) fn new(data: &'a [u8], context: &'a mut Context) -> Result<Self, BatchError> {
        let context = context.0.get_or_insert_with(DCtx::create);
        // The previous user may have stopped in the middle of a frame.
        context
            .reset(ResetDirective::SessionAndParameters)
            .map_err(|code| broken(CompressionType::Zstd, format_args!("error code {code}")))?;
        Ok(FrameReader {
            decoder: Decoder::with_context(data, context),
        })
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, BatchError> {
        self.decoder
            .read(out)
            .map_err(|error| broken(CompressionType::Zstd, error))
    }
}
