//! Sends responses: all that are ready in as few calls as possible, and file regions from the page
//! cache.
//!
//! Consecutive buffers are sent with one vectored write. A file region is sent with `sendfile`, and
//! the bytes before it with `MSG_MORE`, so that length and header of a response do not travel in a
//! separate packet. If the file ends within a region (it was truncated in the meantime), the
//! connection must be closed, because the peer expects the announced length. A connection whose peer
//! reads without pause yields after a bounded number of bytes. With TLS, unless the
//! kernel encrypts, small buffers and the contents of file regions are collected into pieces of a
//! bounded size, which are encrypted and sent one by one. A region that is not in the page cache is
//! read on a thread that may block.
//!
//! A response with records from remote storage ([`SendQueue::is_remote`]) is sent by threads of low
//! priority (`connection.rs`), in small calls: many kernels let no other thread run before a call has
//! returned, whatever its priority.
//!
//! Kafka: `ByteBufferSend`, `FileRecords.writeTo`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use bytes::Buf;
use ottla_protocol::{Chunk, Encoded, FileRegion};
use ottla_sync::OwnedSemaphorePermit;
use ottla_sync::net::{self, TcpStream};
use tokio::io::{AsyncWriteExt, Interest};

use crate::unsent_answers::Unsent;
use ottla_metrics::stalls;

use crate::stream::{Stream, TlsStream};

/// The maximum number of buffers in one call.
const MAX_SLICES: usize = 64;
/// The maximum size of one `sendfile`, so that a connection does not occupy its thread for long.
const SENDFILE_BYTES: u64 = 1024 * 1024;
/// The maximum of one call for buffers, which the kernel copies. A peer that reads as fast as it is
/// sent to would otherwise get a response of many megabytes while other connections wait.
const BUFFERS_BYTES: usize = 256 * 1024;
/// The same with records from remote storage: about 20 µs of copies on loopback.
const REMOTE_BUFFERS_BYTES: usize = 64 * 1024;
/// The minimum of such a response that other threads send. Less is sent faster than a thread is woken.
const LEAST_MOVED_BYTES: usize = 16 * 1024;
/// After this many bytes, the task of a connection lets others run on its thread. At 1 GB/s of
/// copies this is a quarter of a millisecond.
const TURN_BYTES: u64 = 256 * 1024;
/// The maximum that is encrypted at once: four TLS records of the maximum size, which is as much as
/// rustls buffers.
const PIECE_BYTES: usize = 64 * 1024;
/// Where a piece begins in its buffer. rustls copies each record of a piece into a buffer of its own, 5 bytes after the
/// start of a page. With the piece itself at the start of a page, that copy runs at 3 GB/s instead of 45 on processors with
/// a fast `rep movsb` (measured on AMD's Zen 3): each load seems to depend on the store before it, because the addresses
/// have almost the same 12 low bits.
const PIECE_OFFSET: usize = 2048;
/// The size of a page, for the low bits of addresses.
const PAGE_BYTES: usize = 4096;
/// What counts as near the start of a page: more than a processor copies at once.
const NEAR_BYTES: usize = 256;

/// The unsent part of the responses of a connection.
#[derive(Debug, Default)]
pub struct SendQueue {
    chunks: VecDeque<Chunk>,
    /// Whether one of the responses has records from remote storage.
    has_remote_records: bool,
    /// The part of the budget for remote reads that they hold, until they are sent or count as unsent.
    /// Otherwise reads would go on while the responses before them are still in memory.
    remote_memory: Vec<OwnedSemaphorePermit>,
}

impl SendQueue {
    /// Appends a response. It already starts with its length.
    pub fn push(&mut self, response: Encoded) {
        self.chunks.extend(response.chunks);
    }

    /// The next response has records from remote storage if it holds memory for them.
    pub fn hold(&mut self, remote_memory: Vec<OwnedSemaphorePermit>) {
        if !remote_memory.is_empty() {
            self.has_remote_records = true;
            self.remote_memory.extend(remote_memory);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// Whether the threads of the store are to send this.
    pub fn is_remote(&self) -> bool {
        self.has_remote_records && self.bytes_in_memory() >= LEAST_MOVED_BYTES
    }

    /// Sends everything and returns the number of bytes. Waits while the peer does not read; during
    /// the wait, the bytes in memory count as `unsent`. Calls `on_progress` after each send that
    /// leaves something.
    pub async fn send_all(
        &mut self,
        stream: &mut Stream,
        unsent: &Unsent,
        on_progress: impl FnMut(),
    ) -> io::Result<u64> {
        let sent = match stream {
            Stream::Plain(stream) => {
                self.send_plain(stream, unsent, &mut |_| {}, on_progress)
                    .await
            }
            Stream::Tls(stream) => self.send_encrypted(stream, unsent, on_progress).await,
            Stream::KernelTls(stream) => {
                if stream.is_new_key_due() {
                    // Announcing it also waits while the peer does not read.
                    self.count_as_unsent(unsent);
                    stream.replace_key().await?;
                }
                let (socket, mut on_sent) = stream.for_sending();
                self.send_plain(socket, unsent, &mut on_sent, on_progress)
                    .await
            }
        };
        self.has_remote_records = false;
        self.remote_memory = Vec::new();
        sent
    }

    /// From now on, the peer may keep the responses in memory by not reading them. They hold no part
    /// of the budget for remote reads then, because others would wait for it as long.
    fn count_as_unsent(&mut self, unsent: &Unsent) {
        unsent.set(self.bytes_in_memory());
        self.remote_memory = Vec::new();
    }

    async fn send_plain(
        &mut self,
        stream: &TcpStream,
        unsent: &Unsent,
        on_sent: &mut (dyn FnMut(u64) + Send),
        mut on_progress: impl FnMut(),
    ) -> io::Result<u64> {
        let mut sent = 0;
        let mut turn = Turn::default();
        while !self.chunks.is_empty() {
            // Threads of low priority stall, as they should.
            let watched = (!self.has_remote_records).then(stalls::watch);
            let result = stream.try_io(Interest::WRITABLE, || self.try_send(stream));
            if let Some(watched) = watched {
                watched.end("sending", &Peer(stream));
            }
            match result {
                Ok(bytes) => {
                    sent += bytes;
                    on_sent(bytes);
                    unsent.on_taken(bytes);
                    if !self.chunks.is_empty() {
                        on_progress();
                        turn.on_sent(bytes).await;
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.count_as_unsent(unsent);
                    stream.writable().await?;
                    turn = Turn::default();
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        unsent.set(0);
        Ok(sent)
    }

    async fn send_encrypted(
        &mut self,
        stream: &mut TlsStream,
        unsent: &Unsent,
        mut on_progress: impl FnMut(),
    ) -> io::Result<u64> {
        let mut sent = 0;
        let mut turn = Turn::default();
        let mut piece = Vec::new();
        // Each write may wait for the peer. What is larger than a piece counts as unsent at once.
        self.remote_memory = Vec::new();
        while !self.chunks.is_empty() {
            let in_memory = self.bytes_in_memory();
            if in_memory > PIECE_BYTES {
                unsent.set(in_memory);
            }
            let before = sent;
            if let Some(Chunk::Bytes(bytes)) = self.chunks.front_mut()
                && bytes.len() >= PIECE_BYTES
            {
                let taken = stream.write(encrypted_first(bytes)).await?;
                bytes.advance(taken);
                sent += taken as u64;
            } else {
                let filled = self.fill(&mut piece).await?;
                let filled_piece = &piece[PIECE_OFFSET..PIECE_OFFSET + filled];
                stream.write_all(filled_piece).await?;
                sent += filled as u64;
            }
            self.drop_empty();
            unsent.on_taken(sent - before);
            if !self.chunks.is_empty() {
                on_progress();
                turn.on_sent(sent - before).await;
            }
        }
        stream.flush().await?;
        unsent.set(0);
        Ok(sent)
    }

    /// Fills `piece` from [`PIECE_OFFSET`] on, from the front of the queue, up to the size of a piece or to
    /// a buffer that is as large as one.
    async fn fill(&mut self, piece: &mut Vec<u8>) -> io::Result<usize> {
        let waiting: u64 = self.chunks.iter().take(MAX_SLICES).map(Chunk::len).sum();
        let size = waiting.min(PIECE_BYTES as u64) as usize;
        if piece.len() < PIECE_OFFSET + size {
            piece.resize(PIECE_OFFSET + size, 0);
        }
        let mut filled = 0;
        while filled < size {
            let room = &mut piece[PIECE_OFFSET + filled..PIECE_OFFSET + size];
            filled += match self.chunks.front_mut() {
                Some(Chunk::Bytes(bytes)) if bytes.len() >= PIECE_BYTES && filled > 0 => break,
                Some(Chunk::Bytes(bytes)) => {
                    let taken = bytes.len().min(room.len());
                    bytes.copy_to_slice(&mut room[..taken]);
                    taken
                }
                Some(Chunk::File(region)) => {
                    let wanted = region.len.min(room.len() as u64) as usize;
                    let read = read_region(region, &mut room[..wanted]).await?;
                    region.position += read as u64;
                    region.len -= read as u64;
                    read
                }
                None => break,
            };
            self.drop_empty();
        }
        Ok(filled)
    }

    fn drop_empty(&mut self) {
        while self.chunks.front().is_some_and(Chunk::is_empty) {
            self.chunks.pop_front();
        }
    }

    fn bytes_in_memory(&self) -> usize {
        let in_memory = self.chunks.iter().map(|chunk| match chunk {
            Chunk::Bytes(bytes) => bytes.len(),
            Chunk::File(_) => 0,
        });
        in_memory.sum()
    }

    /// Makes one call for the front of the queue.
    fn try_send(&mut self, stream: &TcpStream) -> io::Result<u64> {
        if let Some(Chunk::File(region)) = self.chunks.front_mut() {
            let sent = send_file(stream, region)?;
            if region.len == 0 {
                self.chunks.pop_front();
            }
            return Ok(sent);
        }
        let mut slices = [io::IoSlice::new(&[]); MAX_SLICES];
        let mut count = 0;
        let mut room = match self.has_remote_records {
            true => REMOTE_BUFFERS_BYTES,
            false => BUFFERS_BYTES,
        };
        let mut is_more = false;
        for chunk in &self.chunks {
            match chunk {
                Chunk::Bytes(bytes) if count < MAX_SLICES && room > 0 => {
                    let taken = bytes.len().min(room);
                    slices[count] = io::IoSlice::new(&bytes[..taken]);
                    count += 1;
                    room -= taken;
                    is_more = taken < bytes.len();
                }
                Chunk::Bytes(_) | Chunk::File(_) => {
                    is_more = true;
                    break;
                }
            }
        }
        let sent = net::send_vectored(stream, &slices[..count], is_more)?;
        self.advance(sent);
        Ok(sent as u64)
    }

    /// Removes bytes that were sent from the buffers at the front.
    fn advance(&mut self, mut sent: usize) {
        while sent > 0 {
            let Some(Chunk::Bytes(bytes)) = self.chunks.front_mut() else {
                unreachable!("only buffers were sent");
            };
            if bytes.len() > sent {
                bytes.advance(sent);
                return;
            }
            sent -= bytes.len();
            self.chunks.pop_front();
        }
    }
}

/// What is encrypted next of a large buffer: all of it, or so much that the rest does not begin near the
/// start of a page, as large allocations do ([`PIECE_OFFSET`]).
fn encrypted_first(bytes: &[u8]) -> &[u8] {
    let in_page = bytes.as_ptr().addr() % PAGE_BYTES;
    let is_far = (NEAR_BYTES..PAGE_BYTES - NEAR_BYTES).contains(&in_page);
    match bytes.get(..PIECE_OFFSET) {
        Some(first) if !is_far => first,
        _ => bytes,
    }
}

/// What a connection has sent since others could last run on its thread.
#[derive(Debug, Default)]
struct Turn {
    bytes: u64,
}

impl Turn {
    /// Lets others run if the turn is over.
    async fn on_sent(&mut self, bytes: u64) {
        self.bytes += bytes;
        if self.bytes >= TURN_BYTES {
            self.bytes = 0;
            ottla_sync::task::yield_now().await;
        }
    }
}

/// Displays the peer of a connection.
struct Peer<'a>(&'a TcpStream);

impl std::fmt::Display for Peer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.peer_addr() {
            Ok(address) => write!(f, "{address}"),
            Err(_) => f.write_str("a closed connection"),
        }
    }
}

/// Reads from the start of a region. Bytes in the page cache are read inline; if there are none, a
/// thread that may block reads.
async fn read_region(region: &FileRegion, buffer: &mut [u8]) -> io::Result<usize> {
    let position = region.position;
    let read = match ottla_sync::fs::read_if_cached_at(&*region.file, buffer, position)? {
        Some(read) => read,
        None => {
            let file = Arc::clone(&region.file);
            let mut bytes = vec![0; buffer.len()];
            let reading = move || file.read_at(&mut bytes, position).map(|read| (bytes, read));
            let read = ottla_sync::task::spawn_blocking(reading).await;
            let (bytes, read) = read.map_err(io::Error::other)??;
            buffer[..read].copy_from_slice(&bytes[..read]);
            read
        }
    };
    match read {
        0 => Err(cut_short()),
        read => Ok(read),
    }
}

fn cut_short() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "a log file ended before the records that were promised from it",
    )
}

/// Sends from the start of the region and advances it.
fn send_file(stream: &TcpStream, region: &mut FileRegion) -> io::Result<u64> {
    let wanted = region.len.min(SENDFILE_BYTES) as usize;
    let sent = net::send_file(stream, &*region.file, region.position, wanted)? as u64;
    if sent == 0 {
        return Err(cut_short());
    }
    region.position += sent;
    region.len -= sent;
    Ok(sent)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::sync::Arc;

    use bytes::Bytes;

    use super::*;
    use crate::unsent_answers::UnsentAnswers;

    fn region(bytes: &[u8], position: u64, len: u64) -> Chunk {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Chunk::File(FileRegion {
            file: Arc::new(file),
            position,
            len,
        })
    }

    async fn connected() -> (Stream, std::net::TcpStream) {
        let listener = ottla_sync::net::TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap();
        let peer = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Stream::Plain(listener.accept().await.unwrap().0), peer)
    }

    #[tokio::test]
    async fn buffers_and_regions_leave_in_order() {
        let (mut stream, mut peer) = connected().await;
        let large = vec![b'x'; 3 * 1024 * 1024];
        let mut queue = SendQueue::default();
        queue.push(Encoded {
            chunks: vec![
                Chunk::Bytes(Bytes::from_static(b"head")),
                region(b"..records..", 2, 7),
                Chunk::Bytes(Bytes::from_static(b"tail")),
            ],
        });
        queue.push(Encoded {
            chunks: vec![region(&large, 0, large.len() as u64)],
        });
        for _ in 0..100 {
            queue.push(Encoded {
                chunks: vec![Chunk::Bytes(Bytes::from_static(b"z"))],
            });
        }
        let mut expected = b"headrecordstail".to_vec();
        expected.extend(large);
        expected.extend(b"z".repeat(100));
        let length = expected.len();
        let reader = ottla_sync::thread::spawn(move || {
            let mut received = vec![0; length];
            peer.read_exact(&mut received).unwrap();
            received
        });
        let mut calls = 0;
        let unsent = Unsent::of(&Arc::new(UnsentAnswers::new(0)));
        let sent = queue
            .send_all(&mut stream, &unsent, || calls += 1)
            .await
            .unwrap();
        assert_eq!(sent, length as u64);
        assert!(calls > 3, "progress was reported {calls} times");
        assert!(queue.is_empty());
        assert!(reader.join().unwrap() == expected);
    }

    #[tokio::test]
    async fn one_call_sends_a_bounded_number_of_bytes_from_buffers() {
        let (stream, _peer) = connected().await;
        let Stream::Plain(socket) = &stream else {
            unreachable!("it has no TLS");
        };
        let mut queue = SendQueue::default();
        for size in [BUFFERS_BYTES - 1000, BUFFERS_BYTES * 4] {
            queue.push(Encoded {
                chunks: vec![Chunk::Bytes(Bytes::from(vec![b'x'; size]))],
            });
        }
        socket.writable().await.unwrap();
        // A socket on loopback has room for megabytes, unless the system has another default.
        let sent = queue.try_send(socket).unwrap() as usize;
        assert!((1..=BUFFERS_BYTES).contains(&sent), "{sent}");
        let rest = BUFFERS_BYTES * 5 - 1000 - sent;
        assert_eq!(queue.bytes_in_memory(), rest);
        assert!(!queue.is_remote());

        // Less of what is read from remote storage.
        let memory = Arc::new(ottla_sync::Semaphore::new(1)).try_acquire_owned();
        queue.hold(vec![memory.unwrap()]);
        assert!(queue.is_remote());
        socket.writable().await.unwrap();
        let sent = queue.try_send(socket).unwrap() as usize;
        assert!((1..=REMOTE_BUFFERS_BYTES).contains(&sent), "{sent}");
    }

    #[test]
    fn the_most_of_a_large_buffer_is_encrypted_away_from_the_start_of_a_page() {
        let buffer = vec![0_u8; PIECE_BYTES + PAGE_BYTES];
        let (mut whole, mut split) = (0, 0);
        for at in (0..PAGE_BYTES).step_by(64) {
            let bytes = &buffer[at..];
            let first = encrypted_first(bytes);
            let most = if first.len() == bytes.len() {
                whole += 1;
                bytes
            } else {
                split += 1;
                assert!(first.len() <= PAGE_BYTES && first.as_ptr() == bytes.as_ptr());
                &bytes[first.len()..]
            };
            let in_page = most.as_ptr().addr() % PAGE_BYTES;
            let from_start = in_page.min(PAGE_BYTES - in_page);
            assert!(from_start >= 256, "{from_start} bytes");
        }
        assert!(split > 0 && whole > split, "{whole}, {split}");
    }

    #[tokio::test]
    async fn a_remote_response_counts_in_one_of_two_budgets_until_it_is_sent() {
        let (mut stream, mut peer) = connected().await;
        if let Stream::Plain(socket) = &stream {
            socket.writable().await.unwrap();
        }
        let length = 4 * TURN_BYTES as usize;
        let budget = Arc::new(ottla_sync::Semaphore::new(1));
        let memory = Arc::clone(&budget).try_acquire_owned().unwrap();
        let mut queue = SendQueue::default();
        queue.hold(vec![memory]);
        queue.push(Encoded {
            chunks: vec![Chunk::Bytes(Bytes::from(vec![b'x'; length]))],
        });
        let answers = Arc::new(UnsentAnswers::new(0));
        let unsent = Unsent::of(&answers);
        {
            let mut sending = std::pin::pin!(queue.send_all(&mut stream, &unsent, || {}));
            // Up to the end of its turn, or until the socket is full.
            let first = std::future::poll_fn(|context| {
                std::task::Poll::Ready(sending.as_mut().poll(context).is_ready())
            });
            assert!(!first.await);
            assert!(budget.available_permits() == 0 || answers.bytes() > 0);
            let reader = ottla_sync::thread::spawn(move || {
                let mut received = vec![0; length];
                peer.read_exact(&mut received).unwrap();
                received
            });
            assert_eq!(sending.await.unwrap(), length as u64);
            assert!(reader.join().unwrap().iter().all(|&byte| byte == b'x'));
        }
        assert_eq!((budget.available_permits(), answers.bytes()), (1, 0));
    }

    #[tokio::test]
    async fn others_run_when_a_turn_is_over() {
        let others = ottla_sync::task::spawn(async {});
        let mut turn = Turn::default();
        turn.on_sent(TURN_BYTES - 1).await;
        assert!(!others.is_finished());
        turn.on_sent(1).await;
        assert!(others.is_finished());
    }

    #[tokio::test]
    async fn a_region_is_read_into_memory_up_to_the_end_of_its_file() {
        let Chunk::File(mut region) = region(b"..records", 2, 9) else {
            unreachable!("it is a region");
        };
        let mut buffer = [0; 9];
        assert_eq!(read_region(&region, &mut buffer).await.unwrap(), 7);
        assert_eq!(&buffer[..7], b"records");
        region.position = 9;
        let error = read_region(&region, &mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[tokio::test]
    async fn a_region_cut_short_is_an_error() {
        let (mut stream, _peer) = connected().await;
        let mut queue = SendQueue::default();
        queue.push(Encoded {
            chunks: vec![region(b"short", 0, 9)],
        });
        let unsent = Unsent::of(&Arc::new(UnsentAnswers::new(0)));
        let sent = queue.send_all(&mut stream, &unsent, || {}).await;
        let error = sent.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}
