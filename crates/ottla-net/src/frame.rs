//! Splits the bytes of a connection into frames: a length of four bytes, then a request or the
//! response of a peer.
//!
//! A frame is a slice of the buffer that it was read into, so that records reach the file without a
//! copy. To make that cheap, a large frame is read exactly to its end, plus the four bytes of the
//! next length. Once the frame is dropped, the same memory takes the next frame, and only those
//! four bytes are moved.
//!
//! Small frames are read many at a time. Where a peer sends them faster than they are read, the reads
//! grow, because each costs a system call and an acknowledgement to the peer, and because the responses
//! to requests that were read together leave together.
//!
//! A length that is negative or above `socket.request.max.bytes` is rejected before its body is
//! read. Memory for a body that has not arrived is taken from a budget that all connections share.
//! Kafka: `org.apache.kafka.common.network.NetworkReceive`.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::{Context, Poll};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};

/// The size of the length before each frame.
const LENGTH_SIZE: usize = 4;
/// The size of a read of small frames, so that one call returns many of them.
const READ_BYTES: usize = 16 * 1024;
/// What such a read grows to while each returns as many bytes as it has room for. The thread works on
/// frames that it has just read, so they should not leave the processor's cache meanwhile.
const MOST_READ_BYTES: usize = 64 * 1024;
/// The largest buffer that an idle connection keeps.
const KEPT_BYTES: usize = 256 * 1024;

/// The bytes of a connection that were read and not yet returned as frames.
#[derive(Debug)]
pub struct FrameReader {
    buffer: BytesMut,
    max_frame_bytes: usize,
    /// The size of the last frame including its length, as an estimate for the next one.
    last_frame_bytes: usize,
    /// The size of the next read of small frames, from [`READ_BYTES`] to [`MOST_READ_BYTES`].
    small_read_bytes: usize,
}

/// Why the bytes of a connection are not a sequence of frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    #[error("a request of {0} bytes: a length cannot be negative")]
    NegativeLength(i32),
    #[error("a request of {length} bytes, and socket.request.max.bytes is {max}")]
    TooLarge { length: usize, max: usize },
}

/// The state of the first frame in the buffer.
#[derive(PartialEq, Eq, Debug)]
pub enum Front {
    /// Fewer than four bytes.
    Nothing,
    /// The length and an incomplete body; this many bytes are missing.
    Partial { missing: usize },
    /// A complete frame of this many bytes.
    Complete { length: usize },
}

impl FrameReader {
    pub fn new(max_frame_bytes: usize) -> Self {
        FrameReader {
            buffer: BytesMut::new(),
            max_frame_bytes,
            last_frame_bytes: 0,
            small_read_bytes: READ_BYTES,
        }
    }

    /// Changes the maximum length of frames.
    pub fn set_max_frame_bytes(&mut self, max_frame_bytes: usize) {
        self.max_frame_bytes = max_frame_bytes;
    }

    /// Examines the first frame without taking it.
    pub fn front(&self) -> Result<Front, FrameError> {
        let Some(length) = self.buffer.first_chunk::<LENGTH_SIZE>() else {
            return Ok(Front::Nothing);
        };
        let length = i32::from_be_bytes(*length);
        let length = usize::try_from(length).map_err(|_| FrameError::NegativeLength(length))?;
        if length > self.max_frame_bytes {
            return Err(FrameError::TooLarge {
                length,
                max: self.max_frame_bytes,
            });
        }
        let available = self.buffer.len() - LENGTH_SIZE;
        Ok(if available >= length {
            Front::Complete { length }
        } else {
            Front::Partial {
                missing: length - available,
            }
        })
    }

    /// Takes the first frame if it is complete, without its length.
    pub fn next_frame(&mut self) -> Result<Option<Bytes>, FrameError> {
        let Front::Complete { length } = self.front()? else {
            return Ok(None);
        };
        self.buffer.advance(LENGTH_SIZE);
        self.last_frame_bytes = LENGTH_SIZE + length;
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    /// Reads from the socket, by an amount that suits the current frame. If the frame is subject to
    /// the budget, reads at most the `covered` part of it. If memory is low, reads less ahead.
    /// Returns 0 at the end of the stream.
    pub fn poll_read_from(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut (impl AsyncRead + Unpin),
        front: &Front,
        covered: Option<usize>,
        is_memory_low: bool,
    ) -> Poll<io::Result<usize>> {
        let small_read_bytes = match is_memory_low {
            true => READ_BYTES,
            false => self.small_read_bytes,
        };
        let read_bytes = match front {
            Front::Partial { missing } if *missing + LENGTH_SIZE >= READ_BYTES => {
                missing + LENGTH_SIZE
            }
            Front::Partial { .. } => small_read_bytes,
            _ if is_memory_low => READ_BYTES,
            // A read that returns less than it has room for shows that the socket is empty. One that
            // ends with the frame would be followed by a read that finds nothing.
            Front::Nothing | Front::Complete { .. } => {
                let frame_bytes = self.last_frame_bytes + LENGTH_SIZE;
                small_read_bytes.max(frame_bytes.min(KEPT_BYTES))
            }
        };
        // For the whole frame, so that received bytes are never moved. Pages that are not written
        // use no memory.
        self.buffer.reserve(read_bytes);
        let covered = covered.map_or(read_bytes, |covered| covered + LENGTH_SIZE);
        let mut buffer = (&mut self.buffer).limit(read_bytes.min(covered));
        let read = pin!(stream.read_buf(&mut buffer)).poll(context);
        if let Poll::Ready(Ok(read)) = read
            && read == read_bytes
            && read == self.small_read_bytes
        {
            self.small_read_bytes = MOST_READ_BYTES.min(2 * read);
        }
        read
    }

    /// Releases memory before a wait that may be long: everything if the connection is quiet, or if
    /// the buffer is either small and cheap to allocate again, or too large to keep.
    pub fn shrink(&mut self, is_quiet: bool) {
        let capacity = self.buffer.capacity();
        let is_worth_keeping = (READ_BYTES + 1..=KEPT_BYTES).contains(&capacity);
        if self.buffer.is_empty() && (is_quiet || !is_worth_keeping) {
            self.buffer = BytesMut::new();
        }
        if is_quiet {
            self.small_read_bytes = READ_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(bytes: &[u8]) -> FrameReader {
        let mut reader = FrameReader::new(100);
        reader.buffer.extend_from_slice(bytes);
        reader
    }

    #[test]
    fn frames_come_out_one_by_one() {
        let mut reader = reader(b"\0\0\0\x03abc\0\0\0\0\0\0\0\x02x");
        assert_eq!(reader.next_frame(), Ok(Some(Bytes::from_static(b"abc"))));
        assert_eq!(reader.next_frame(), Ok(Some(Bytes::new())));
        assert_eq!(reader.next_frame(), Ok(None));
        assert_eq!(reader.front(), Ok(Front::Partial { missing: 1 }));
        reader.buffer.extend_from_slice(b"y");
        assert_eq!(reader.next_frame(), Ok(Some(Bytes::from_static(b"xy"))));
        assert_eq!(reader.front(), Ok(Front::Nothing));
    }

    #[test]
    fn invalid_lengths_are_refused_before_the_body_arrives() {
        assert_eq!(
            reader(&[0xff, 0xff, 0xff, 0xff]).next_frame(),
            Err(FrameError::NegativeLength(-1))
        );
        assert_eq!(
            reader(&[0, 0, 0, 101]).next_frame(),
            Err(FrameError::TooLarge {
                length: 101,
                max: 100
            })
        );
        assert_eq!(
            reader(&[0, 0, 0, 100]).front(),
            Ok(Front::Partial { missing: 100 })
        );
    }

    /// Reads all of `stream`, and returns the size of each read.
    fn read_all(reader: &mut FrameReader, mut stream: &[u8], is_memory_low: bool) -> Vec<usize> {
        let mut context = Context::from_waker(std::task::Waker::noop());
        let mut sizes = Vec::new();
        loop {
            while reader.next_frame().unwrap().is_some() {}
            let front = reader.front().unwrap();
            let low = is_memory_low;
            match reader.poll_read_from(&mut context, &mut stream, &front, None, low) {
                Poll::Ready(Ok(0)) => return sizes,
                Poll::Ready(Ok(read)) => sizes.push(read),
                other => panic!("a slice is always ready: {other:?}"),
            }
        }
    }

    #[test]
    fn reads_of_small_frames_grow_while_each_is_full() {
        const KIB: usize = 1024;
        let frame = [&1020_u32.to_be_bytes()[..], &[7; 1020][..]].concat();
        let frames = frame.repeat(200);
        let mut reader = FrameReader::new(KIB);
        let kib = |sizes: &[usize]| sizes.iter().map(|size| size * KIB).collect::<Vec<_>>();
        let sizes = read_all(&mut reader, &frames[..10 * KIB], false);
        assert_eq!(sizes, kib(&[10]));
        let sizes = read_all(&mut reader, &frames, false);
        assert_eq!(sizes, kib(&[16, 32, 64, 64, 24]));
        let sizes = read_all(&mut reader, &frames[..40 * KIB], true);
        assert_eq!(sizes, kib(&[16, 16, 8]), "memory is low");
        let sizes = read_all(&mut reader, &frames[..100 * KIB], false);
        assert_eq!(sizes, kib(&[64, 36]));
        reader.shrink(true);
        let sizes = read_all(&mut reader, &frames[..20 * KIB], false);
        assert_eq!(sizes, kib(&[16, 4]), "it was idle meanwhile");
    }

    #[test]
    fn a_read_of_a_large_frame_has_room_for_the_next_length() {
        const BODY: usize = 100_000;
        let frame = [&(BODY as u32).to_be_bytes()[..], &[7; BODY][..]].concat();
        let mut reader = FrameReader::new(BODY);
        read_all(&mut reader, &frame, false);
        let sizes = read_all(&mut reader, &frame.repeat(2), false);
        assert_eq!(sizes, [BODY + 2 * LENGTH_SIZE, BODY]);
    }

    #[tokio::test]
    async fn a_large_frame_is_read_together_with_the_next_length() {
        let listener = ottla_sync::net::TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap();
        let mut peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().await.unwrap();
        const BODY: usize = 100_000;
        let writer = ottla_sync::thread::spawn(move || {
            use std::io::Write;
            for _ in 0..2 {
                peer.write_all(&(BODY as u32).to_be_bytes()).unwrap();
                peer.write_all(&vec![7; BODY]).unwrap();
            }
            peer
        });
        let mut reader = FrameReader::new(BODY);
        let mut frames = 0;
        while frames < 2 {
            let front = reader.front().unwrap();
            if let Front::Complete { .. } = front {
                assert_eq!(reader.next_frame().unwrap().unwrap().len(), BODY);
                frames += 1;
                assert!(
                    reader.buffer.len() <= LENGTH_SIZE || frames == 2,
                    "only the next length is read ahead of a large frame"
                );
                continue;
            }
            let read = std::future::poll_fn(|cx| {
                reader.poll_read_from(cx, &mut stream, &front, None, false)
            });
            assert_ne!(read.await.unwrap(), 0);
        }
        drop(writer.join().unwrap());
    }
}
