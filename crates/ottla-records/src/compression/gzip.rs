//! gzip (RFC 1952). Consecutive members are one stream. As in Java's `GZIPInputStream`, data after
//! the last member is ignored.

use std::io::{Read, Write};

use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;

use super::block::broken;
use crate::{BatchError, CompressionType};

pub(super) fn compress(data: &[u8], level: i32) -> Vec<u8> {
    let level = match u32::try_from(level) {
        Ok(level) => flate2::Compression::new(level),
        Err(_) => flate2::Compression::default(),
    };
    let mut encoder = GzEncoder::new(Vec::with_capacity(data.len() / 2 + 64), level);
    encoder.write_all(data).expect("a vector takes all");
    encoder.finish().expect("a vector takes all")
}

const MEMBER_START: [u8; 2] = [0x1f, 0x8b];

pub(super) struct MemberReader<'a> {
    decoder: Box<GzDecoder<&'a [u8]>>,
}

impl<'a> MemberReader<'a> {
    pub(super) fn new(data: &'a [u8]) -> MemberReader<'a> {
        MemberReader {
            decoder: Box::new(GzDecoder::new(data)),
        }
    }

    pub(super) fn read(&mut self, out: &mut [u8]) -> Result<usize, BatchError> {
        loop {
            let read = self
                .decoder
                .read(out)
                .map_err(|error| broken(CompressionType::Gzip, error))?;
            if read > 0 {
                return Ok(read);
            }
            // Each iteration consumes a member of at least 18 bytes, so the loop terminates.
            let rest = *self.decoder.get_ref();
            if !rest.starts_with(&MEMBER_START) {
                return Ok(0);
            }
            *self.decoder = GzDecoder::new(rest);
        }
    }
}
