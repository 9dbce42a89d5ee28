//! Reads of the bytes of TLS connections.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

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
                this.buffer = Vec::new();
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
pub fn read_ahead(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
    context: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    let length = buffer.len();
    buffer.reserve_exact(READ_AHEAD_BYTES);
    let mut unfilled = ReadBuf::uninit(&mut buffer.spare_capacity_mut()[..READ_AHEAD_BYTES]);
    ready!(Pin::new(stream).poll_read(context, &mut unfilled))?;
    let filled = unfilled.filled().len();
    // SAFETY: the read has initialised the first `filled` bytes of the spare capacity, which begins
    // at `length`.
    unsafe { buffer.set_len(length + filled) };
    Poll::Ready(Ok(filled))
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
