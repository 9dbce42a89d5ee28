//! The byte stream of a connection: plain TCP, TLS, or TLS for which the kernel encrypts.
//!
//! Plain connections use the kernel's calls directly, with `sendfile` for file regions. So do
//! connections for which the kernel encrypts (`stream/kernel_tls.rs`). With other TLS, reads go
//! through a buffer that holds several TLS records and is kept only while data arrives; writes are
//! encrypted piece by piece (`send.rs`). TLS is not simulated, because it uses the system's
//! randomness and clock.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ottla_sync::net::{OwnedReadHalf, OwnedWriteHalf, TcpStream};
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, HandshakeKind, ServerConfig};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf, ReadHalf, WriteHalf};
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

mod kernel_tls;
mod read_ahead;

pub use kernel_tls::{KernelTls, KernelTlsStream};
use read_ahead::ReadAhead;

/// The maximum time for sending TLS's close_notify.
const GOODBYE: Duration = Duration::from_secs(1);

/// A connection that a listener has accepted.
#[derive(Debug)]
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
    KernelTls(Box<KernelTlsStream>),
}

/// A TLS connection after the handshake.
pub type TlsStream = server::TlsStream<ReadAhead>;

impl Stream {
    /// Performs the server's part of the TLS handshake.
    pub async fn accept_tls(stream: TcpStream, config: Arc<ServerConfig>) -> io::Result<Stream> {
        let accepted = TlsAcceptor::from(config).accept(ReadAhead::new(stream));
        Ok(Stream::Tls(Box::new(accepted.await?)))
    }

    /// The certificate chain that the client presented, its own certificate first.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        match self {
            Stream::Plain(_) => &[],
            Stream::Tls(stream) => stream.get_ref().1.peer_certificates().unwrap_or_default(),
            Stream::KernelTls(stream) => stream.peer_certificates(),
        }
    }

    /// Whether the handshake resumed an earlier session, and so verified no certificate.
    pub fn is_resumed(&self) -> bool {
        match self {
            Stream::Plain(_) => false,
            Stream::Tls(stream) => {
                stream.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
            }
            Stream::KernelTls(stream) => stream.is_resumed(),
        }
    }

    /// Sends close_notify if this is a TLS connection, so that the peer can detect truncation. Does
    /// not wait long for a peer that does not read.
    pub async fn close(&mut self) {
        if let Stream::Plain(_) = self {
            return;
        }
        let closing = async {
            match self {
                Stream::Plain(_) => Ok(()),
                Stream::Tls(stream) => stream.shutdown().await,
                Stream::KernelTls(stream) => stream.close().await,
            }
        };
        // A failure has no consequence: the connection is closed anyway.
        let _ = ottla_sync::time::timeout(GOODBYE, closing).await;
    }

    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(stream) => stream,
            Stream::Tls(stream) => stream.get_ref().0.socket(),
            Stream::KernelTls(stream) => stream.socket(),
        }
    }

    /// Returns when there is data to read, or the stream has ended.
    pub async fn readable(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(stream) => stream.readable().await,
            // Not whether the socket has data, because earlier data may already be decrypted.
            Stream::Tls(stream) => {
                let fill = |context: &mut Context<'_>| {
                    Pin::new(&mut **stream).poll_fill_buf(context).map_ok(drop)
                };
                std::future::poll_fn(fill).await
            }
            Stream::KernelTls(stream) => {
                std::future::poll_fn(|context| stream.poll_readable(context)).await
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
            Stream::KernelTls(stream) => Pin::new(&mut **stream).poll_read(context, buffer),
        }
    }
}

/// Treats the end of the TCP stream without close_notify as a regular end, because many clients end
/// like this and Kafka accepts it. A request that is truncated by it is never complete.
fn of_end(read: Poll<io::Result<()>>) -> Poll<io::Result<()>> {
    match read {
        Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Poll::Ready(Ok(()))
        }
        read => read,
    }
}

/// The read half of a connection to another node.
pub enum PeerReader {
    Plain(OwnedReadHalf),
    Tls(ReadHalf<client::TlsStream<ReadAhead>>),
}

/// The write half of a connection to another node.
pub enum PeerWriter {
    Plain(OwnedWriteHalf),
    Tls(WriteHalf<client::TlsStream<ReadAhead>>),
}

/// Performs the client's part of the TLS handshake if `tls` is given. `host` is the name that this
/// node has connected to.
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
