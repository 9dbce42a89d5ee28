//! Splits the data from a broker into frames.
//!
//! Responses to Produce have a hundred bytes and arrive many at a time; responses to Fetch have
//! megabytes. Data is read into a small buffer, from which small frames are copied, several per
//! read. The rest of a large frame is read directly into its own buffer; the consumer's records are
//! slices of it.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The buffer size, which is also the maximum that is copied of a large frame.
const BUFFER_BYTES: usize = 8 << 10;

/// The maximum allocation based on the length of a frame alone; more is allocated when that much
/// has arrived. Untouched memory is free, and growing copies. The value holds a default response of
/// six partitions.
const BELIEVED_BYTES: usize = 8 << 20;

const LENGTH_BYTES: usize = 4;
/// The minimum size of a response: its correlation id.
const LEAST_BYTES: usize = 4;
const HUNG_UP_IN_A_RESPONSE: &str = "the broker hung up in the middle of a response";

pub(super) struct FrameReader<R> {
    socket: R,
    /// The maximum size of a frame.
    max_bytes: usize,
    /// Data that was read and not split yet.
    buffer: BytesMut,
    /// Whether no frame was read yet.
    is_first: bool,
}

/// The record type of a TLS alert, and the first byte of all protocol versions. As a length, they
/// mean more than 336 MiB, which no first response has: it answers ApiVersions.
const TLS_ALERT: [u8; 2] = [0x15, 0x03];

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(super) fn new(socket: R, max_bytes: usize) -> FrameReader<R> {
        FrameReader {
            socket,
            max_bytes,
            buffer: BytesMut::with_capacity(BUFFER_BYTES),
            is_first: true,
        }
    }

    /// Whether no frame has arrived.
    pub(super) fn is_unanswered(&self) -> bool {
        self.is_first
    }

    /// Whether the first bytes are those with which a TLS port refuses a request that is not
    /// encrypted.
    pub(super) fn is_refused_by_tls(&self) -> bool {
        self.is_first && self.buffer.starts_with(&TLS_ALERT)
    }

    /// The next frame without its length prefix. It contains at least the correlation id.
    pub(super) async fn next(&mut self) -> Result<Bytes, String> {
        while self.buffer.len() < LENGTH_BYTES {
            self.fill("the broker hung up").await?;
        }
        if self.is_refused_by_tls() {
            return Err("it sent a TLS alert".to_owned());
        }
        let length = i32::from_be_bytes([
            self.buffer[0],
            self.buffer[1],
            self.buffer[2],
            self.buffer[3],
        ]);
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length < LEAST_BYTES || length > self.max_bytes {
            return Err(format!(
                "it sent a frame of {length} bytes, which is not a Kafka response"
            ));
        }
        self.is_first = false;
        let end = LENGTH_BYTES + length;
        if end <= BUFFER_BYTES {
            while self.buffer.len() < end {
                self.fill(HUNG_UP_IN_A_RESPONSE).await?;
            }
            let frame = Bytes::copy_from_slice(&self.buffer[LENGTH_BYTES..end]);
            self.cut(end);
            return Ok(frame);
        }
        let mut frame = BytesMut::with_capacity(length.min(BELIEVED_BYTES));
        let here = self.buffer.len().min(end);
        frame.extend_from_slice(&self.buffer[LENGTH_BYTES..here]);
        self.cut(here);
        while frame.len() < length {
            let missing = length - frame.len();
            let read = (&mut self.socket)
                .take(missing as u64)
                .read_buf(&mut frame)
                .await;
            match read {
                Ok(0) => return Err(HUNG_UP_IN_A_RESPONSE.into()),
                Ok(_) => {}
                Err(error) => return Err(failure(&error, HUNG_UP_IN_A_RESPONSE)),
            }
        }
        Ok(frame.freeze())
    }

    /// Removes bytes from the front, and moves the rest there, so that the buffer never grows.
    fn cut(&mut self, count: usize) {
        let left = self.buffer.len() - count;
        self.buffer.copy_within(count.., 0);
        self.buffer.truncate(left);
    }

    /// Reads at least one byte from the socket, as far as there is space. There always is while a
    /// small frame is incomplete.
    async fn fill(&mut self, hung_up: &str) -> Result<(), String> {
        let room = (BUFFER_BYTES - self.buffer.len()) as u64;
        let read = (&mut self.socket)
            .take(room)
            .read_buf(&mut self.buffer)
            .await;
        match read {
            Ok(0) => Err(hung_up.to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(failure(&error, hung_up)),
        }
    }
}

/// Why a read failed. A TLS stream reports a TCP connection that ended without close_notify as an
/// error; many brokers end connections like this.
fn failure(error: &io::Error, hung_up: &str) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => hung_up.to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncWriteExt;

    use super::*;

    const MAX_BYTES: usize = 20 << 20;

    fn framed(frame: &[u8]) -> Vec<u8> {
        let mut bytes = (frame.len() as i32).to_be_bytes().to_vec();
        bytes.extend_from_slice(frame);
        bytes
    }

    /// Frames of all kinds of sizes, independently of how the bytes arrive.
    #[tokio::test]
    async fn frames_round_trip() {
        let sizes = [
            4, 5, 100, 8187, 8188, 8189, 8192, 4, 30_000, 7, 9_000_000, 60,
        ];
        let frames: Vec<Vec<u8>> = sizes
            .iter()
            .enumerate()
            .map(|(index, size)| (0..*size).map(|at: usize| (at * 7 + index) as u8).collect())
            .collect();
        let bytes: Vec<u8> = frames.iter().flat_map(|frame| framed(frame)).collect();
        for piece in [1000, 8192, 100_000, usize::MAX] {
            let (mut one, other) = tokio::io::duplex(1 << 20);
            let bytes = bytes.clone();
            let writer = ottla_sync::task::spawn(async move {
                for piece in bytes.chunks(piece.min(bytes.len())) {
                    one.write_all(piece).await.unwrap();
                }
            });
            let mut reader = FrameReader::new(other, MAX_BYTES);
            for frame in &frames {
                assert!(*frame == reader.next().await.unwrap(), "{}", frame.len());
                assert!(reader.buffer.capacity() <= 2 * BUFFER_BYTES);
            }
            writer.await.unwrap();
            assert_eq!(reader.next().await.unwrap_err(), "the broker hung up");
        }
    }

    #[tokio::test]
    async fn invalid_frames_are_refused() {
        for (bytes, complaint) in [
            (&[0, 0, 0, 3, 1, 2, 3][..], "a frame of 3 bytes"),
            (&[0xff, 0, 0, 0], "not a Kafka response"),
            (&[0x7f, 0, 0, 0], "not a Kafka response"),
            (&[0, 0], "hung up"),
            (&[0, 0, 0, 9, 1, 2, 3, 4], "in the middle"),
            // The prefix claims megabytes.
            (&[0, 0xff, 0, 0, 1], "in the middle"),
        ] {
            let mut reader = FrameReader::new(bytes, MAX_BYTES);
            let refused = reader.next().await.unwrap_err();
            assert!(refused.contains(complaint), "{bytes:?}: {refused}");
        }
    }
}
