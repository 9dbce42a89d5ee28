//! The bytes of a connection: plain, or through TLS.
//!
//! Plain ones take the ways of the kernel, with file regions by `sendfile`. Through TLS, what is read comes through a
//! buffer that many records fit into, kept only while something arrives; what is sent is encrypted piece by piece
//! (`send.rs`). TLS is not simulated: its keys and times are the system's.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ottla_sync::net::{OwnedReadHalf, OwnedWriteHalf, TcpStream};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

/// What one read takes from the socket at most: four records of the largest size, as rustls by itself would ask for a
/// quarter of one.
const READ_AHEAD_BYTES: usize = 64 * 1024;

/// How long a goodbye may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection that a listener has accepted.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

/// One through TLS, after the handshake.
pub type TlsStream = server::TlsStream<ReadAhead>;

impl Stream {
    /// Speaks TLS with a client that has connected.
    pub async fn accept_tls(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Stream> {
        let accepted = TlsAcceptor::from(config).accept(ReadAhead::new(stream));
        Ok(Stream::Tls(Box::new(accepted.await?)))
    }

    /// The certificates that the client has shown, its own first.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        match self {
            Stream::Plain(_) => &[],
            Stream::Tls(stream) => stream.get_ref().1.peer_certificates().unwrap_or_default(),
        }
    }

    /// Says goodbye where TLS has one, so that the peer knows that nothing was cut off. One that does not read is not
    /// waited for.
    pub async fn close(&mut self) {
        if let Stream::Tls(stream) = self {
            // It is only a courtesy.
            let _ = ottla_sync::time::timeout(GOODBYE, stream.shutdown()).await;
        }
    }

    /// Returns when there is something to read, or the end.
    pub async fn readable(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.readable().await,
            // Not whether the socket has bytes: what it had may be decrypted already.
            Stream::Tls(stream) => {
                let fill = |context: &mut Context<'_>| {
                    Pin::new(&mut **stream).poll_fill_buf(context).map_ok(drop)
                };
                std::future::poll_fn(fill).await
            }
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(context, buffer),
            Stream::Tls(stream) => of_end(Pin::new(&mut **stream).poll_read(context, buffer)),
        }
    }
}

/// Many clients close the socket without TLS's goodbye; that is an end all the same, as for Kafka. A request that is cut
/// short by it is never complete.
fn of_end(read: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
    match read {
        Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Poll::Ready(Ok(()))
        }
        read => read,
    }
}

/// Reads from a socket in large pieces, for rustls, which reads in small ones.
#[derive(Debug)]
pub struct ReadAhead {
    stream: TcpStream,
    /// Empty while nothing arrives, so that an idle connection has none.
    buffer: Vec<u8>,
    position: usize,
}

impl ReadAhead {
    fn new(stream: TcpStream) -> ReadAhead {
        ReadAhead {
            stream,
            buffer: Vec::new(),
            position: 0,
        }
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
            this.buffer.reserve(READ_AHEAD_BYTES);
            let mut unfilled =
                ReadBuf::uninit(&mut this.buffer.spare_capacity_mut()[..READ_AHEAD_BYTES]);
            let read = Pin::new(&mut this.stream).poll_read(context, &mut unfilled);
            let filled = unfilled.filled().len();
            if filled == 0 {
                this.buffer = Vec::new();
                return read;
            }
            // SAFETY: the read has filled the first `filled` bytes of the spare capacity, which begins at length 0.
            unsafe { this.buffer.set_len(filled) };
            ready!(read)?;
        }
        let rest = &this.buffer[this.position..];
        let taken = rest.len().min(buffer.remaining());
        buffer.put_slice(&rest[..taken]);
        this.position += taken;
        Poll::Ready(Ok(()))
    }
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

/// What comes from a node that this one has connected to.
pub enum PeerReader {
    Plain(OwnedReadHalf),
    Tls(ReadHalf<client::TlsStream<ReadAhead>>),
}

/// What goes to it.
pub enum PeerWriter {
    Plain(OwnedWriteHalf),
    Tls(WriteHalf<client::TlsStream<ReadAhead>>),
}

/// Speaks TLS, if there is a configuration for it, with a node that this one has connected to by the name `host`.
pub async fn to_peer(
    stream: TcpStream,
    host: &str,
    tls: Option<Arc<ClientConfig>>,
) -> io::Result<(PeerReader, PeerWriter)> {
    let Some(config) = tls else {
        let (reader, writer) = stream.into_split();
        return Ok((PeerReader::Plain(reader), PeerWriter::Plain(writer)));
    };
    let name = ServerName::try_from(host.to_owned())
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    let connecting = TlsConnector::from(config).connect(name, ReadAhead::new(stream));
    let (reader, writer) = tokio::io::split(connecting.await?);
    Ok((PeerReader::Tls(reader), PeerWriter::Tls(writer)))
}

impl AsyncRead for PeerReader {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerReader::Plain(reader) => Pin::new(reader).poll_read(context, buffer),
            PeerReader::Tls(reader) => of_end(Pin::new(reader).poll_read(context, buffer)),
        }
    }
}

impl AsyncWrite for PeerWriter {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PeerWriter::Plain(writer) => Pin::new(writer).poll_write(context, bytes),
            PeerWriter::Tls(writer) => Pin::new(writer).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            PeerWriter::Plain(writer) => Pin::new(writer).poll_write_vectored(context, slices),
            PeerWriter::Tls(writer) => Pin::new(writer).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerWriter::Plain(writer) => Pin::new(writer).poll_flush(context),
            PeerWriter::Tls(writer) => Pin::new(writer).poll_flush(context),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            PeerWriter::Plain(writer) => Pin::new(writer).poll_shutdown(context),
            PeerWriter::Tls(writer) => Pin::new(writer).poll_shutdown(context),
        }
    }
}
