//! Reads of the bytes of TLS connections.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ottla_sync::net::TcpStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The maximum that one read takes from the socket: four TLS records of the maximum size. rustls by
/// itself reads a quarter of a record at a time.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// Reads from a socket in large pieces on behalf of rustls, which reads in small ones.
#[derive(Debug)]
pub struct ReadAhead {
    stream: TcpStream,
    /// Empty while no data arrives, so that an idle connection has no buffer.
    buffer: Vec<u8>,
    position: usize,
}

impl ReadAhead {
    pub fn new(stream: TcpStream) -> ReadAhead {
        ReadAhead {
            stream,
            buffer: Vec::new(),
            position: 0,
        }
    }

    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for ReadAhead {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.position == this.buffer.len() {
            this.position = 0;
            this.buffer.clear();
            let read = read_ahead(&mut this.stream, &mut this.buffer, context);
            if this.buffer.is_empty() {
                return read.map_ok(drop);
            }
        }
        let rest = &this.buffer[this.position..];
        let taken = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..taken]);
        this.position += taken;
        Poll::Ready(Ok(()))
    }
}

/// Reads a large piece to the end of `buffer`. Returns its size, which is 0 at the end of the stream.
/// A buffer that stays empty takes no memory, so that peers that send nothing hold none.
pub fn read_ahead(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let length = buffer.len();
    buffer.reserve_exact(READ_AHEAD_BYTES);
    let mut unfilled = ReadBuf::uninit(&mut buffer.spare_capacity_mut()[..READ_AHEAD_BYTES]);
    let read = Pin::new(stream).poll_read(context, &mut unfilled);
    let filled = unfilled.filled().len();
    // SAFETY: the read has initialised the first `filled` bytes of the spare capacity, which begins
    // at `length`.
    unsafe { buffer.set_len(length + filled) };
    if buffer.is_empty() {
        *buffer = Vec::new();
    }
    read.map_ok(|()| filled)
}

impl AsyncWrite for ReadAhead {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn a_read_that_waits_leaves_no_buffer() {
        let listening = ottla_sync::net::TcpListener::bind("127.0.0.1:0").await;
        let listening = listening.unwrap();
        let address = listening.local_addr().unwrap();
        let mut peer = std::net::TcpStream::connect(address).unwrap();
        let (mut stream, _) = listening.accept().await.unwrap();
        let mut buffer = Vec::new();
        let once = poll_fn(|context| Poll::Ready(read_ahead(&mut stream, &mut buffer, context)));
        assert!(once.await.is_pending());
        assert_eq!(buffer.capacity(), 0);
        peer.write_all(b"data").unwrap();
        let read = poll_fn(|context| read_ahead(&mut stream, &mut buffer, context)).await;
        assert_eq!(read.unwrap(), 4);
        assert_eq!(buffer, b"data");
    }
}
