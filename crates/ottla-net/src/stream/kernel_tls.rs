//! A TLS connection for which the kernel encrypts: it is sent to with the calls of a plain one, so
//! that file regions go from the page cache to the network without a copy in this process.
//!
//! What arrives is decrypted here (`ottla_tls::kernel`), because most of what a broker encrypts are
//! fetches, and because key updates of the peer then do not depend on the kernel.
//!
//! A key may encrypt a limited amount, and the peer may ask for another. Kernels since Linux 6.14 can
//! replace it. With others, and with TLS 1.2, the connection then ends in order: earlier requests are
//! answered, and clients connect again.

use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ottla_sync::atomic::{AtomicU64, Ordering};
use ottla_sync::net::{self, TcpStream};
use ottla_tls::kernel::{
    ALERT_RECORD, CLOSE_NOTIFY_ALERT, HANDSHAKE_RECORD, HandshakeStep, KEY_UPDATE_MESSAGE,
    KernelHandshake, KernelSession, Received, SendKey,
};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};

use super::read_ahead::read_ahead;
use crate::connections::Connection;

#[cfg(test)]
mod tests;

/// The kernel's TLS, if it was found to work.
#[derive(Debug)]
pub struct KernelTls {
    /// Whether the kernel can replace the key of a connection.
    can_replace_keys: bool,
    connections: AtomicU64,
}

impl KernelTls {
    /// Tries every version and cipher that a listener can agree on. The error says what is missing.
    pub fn probe() -> Result<KernelTls, String> {
        let mut can_replace_keys = true;
        for (name, key) in SendKey::all_for_trying() {
            let (socket, _peer) = net::loopback_pair().map_err(|error| error.to_string())?;
            net::attach_tls(&socket).map_err(|error| match error.kind() {
                io::ErrorKind::NotFound => "the kernel has no TLS".to_owned(),
                _ => error.to_string(),
            })?;
            net::set_tls_send_key(&socket, key.crypto_info())
                .map_err(|error| format!("the kernel has no {name}: {error}"))?;
            // With TLS 1.2, no key is ever replaced.
            if name.starts_with("TLS 1.3") {
                let replaced = net::set_tls_send_key(&socket, key.crypto_info());
                can_replace_keys &= replaced.is_ok();
            }
        }
        Ok(KernelTls {
            can_replace_keys,
            connections: AtomicU64::new(0),
        })
    }

    pub fn can_replace_keys(&self) -> bool {
        self.can_replace_keys
    }

    /// The number of open connections for which the kernel encrypts.
    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

#[derive(Debug)]
pub struct KernelTlsStream {
    socket: TcpStream,
    session: KernelSession,
    /// Received records. Empty while no data arrives, so that an idle connection has no buffer.
    buffer: Vec<u8>,
    /// The decrypted bytes in the buffer that were not yet taken.
    plaintext: Range<usize>,
    /// Where the first record in the buffer begins that is not decrypted.
    encrypted: usize,
    has_ended: bool,
    /// What is wrong after the plaintext.
    error: Option<io::Error>,
    certificates: Vec<CertificateDer<'static>>,
    is_resumed: bool,
    owner: Arc<Connection>,
    kernel: Arc<KernelTls>,
}

impl Drop for KernelTlsStream {
    fn drop(&mut self) {
        self.kernel.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

impl KernelTlsStream {
    /// Performs the server's part of the TLS handshake.
    pub async fn accept(
        mut socket: TcpStream,
        config: Arc<ServerConfig>,
        kernel: Arc<KernelTls>,
        owner: Arc<Connection>,
    ) -> io::Result<KernelTlsStream> {
        let mut handshake = KernelHandshake::new(config).map_err(invalid)?;
        loop {
            match handshake.advance() {
                Ok(HandshakeStep::Send) => socket.write_all(&handshake.take_to_send()).await?,
                Ok(HandshakeStep::Receive) => {
                    let received = handshake.received();
                    let read =
                        std::future::poll_fn(|context| read_ahead(&mut socket, received, context));
                    if read.await? == 0 {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Ok(HandshakeStep::Finish) => break,
                Err(error) => {
                    // The reason counts, also if the peer does not get its alert.
                    let _ = socket.write_all(&handshake.take_to_send()).await;
                    return Err(invalid(error));
                }
            }
        }
        let certificates = handshake.peer_certificates().to_vec();
        let is_resumed = handshake.is_resumed();
        let (session, key, buffer) = handshake.finish().map_err(invalid)?;
        net::attach_tls(&socket)?;
        net::set_tls_send_key(&socket, key.crypto_info())?;
        kernel.connections.fetch_add(1, Ordering::Relaxed);
        Ok(KernelTlsStream {
            socket,
            session,
            buffer,
            plaintext: 0..0,
            encrypted: 0,
            has_ended: false,
            error: None,
            certificates,
            is_resumed,
            owner,
            kernel,
        })
    }

    /// The certificate chain that the client presented, its own certificate first.
    pub fn peer_certificates(&self) -> &[CertificateDer<'static>] {
        &self.certificates
    }

    /// Whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether the key for sending has to be replaced before the next data.
    pub fn is_new_key_due(&self) -> bool {
        self.session.needs_new_key() && self.can_replace_key()
    }

    /// Replaces the key for sending. Waits while the peer does not read.
    pub async fn replace_key(&mut self) -> io::Result<()> {
        self.send_record(HANDSHAKE_RECORD, &KEY_UPDATE_MESSAGE)
            .await?;
        let key = self.session.update_key().map_err(invalid)?;
        net::set_tls_send_key(&self.socket, key.crypto_info())
    }

    fn can_replace_key(&self) -> bool {
        self.kernel.can_replace_keys && self.session.can_update_key()
    }

    /// The socket, which encrypts what is written to it, and what has to be called with the number
    /// of bytes after each call that has sent something.
    pub fn for_sending(&mut self) -> (&TcpStream, impl FnMut(u64)) {
        let can_replace_key = self.can_replace_key();
        let KernelTlsStream {
            socket,
            session,
            owner,
            ..
        } = self;
        let on_sent = move |bytes| {
            session.on_sent(bytes);
            if !can_replace_key && session.needs_new_key() && !owner.is_draining() {
                owner.drain();
            }
        };
        (socket, on_sent)
    }

    async fn send_record(&self, record_type: u8, payload: &[u8]) -> io::Result<()> {
        loop {
            let send = || net::send_tls_record(&self.socket, record_type, payload);
            match self.socket.try_io(Interest::WRITABLE, send) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                sent => return sent,
            }
        }
    }

    /// Sends close_notify, so that the peer can detect truncation.
    pub async fn close(&mut self) -> io::Result<()> {
        self.send_record(ALERT_RECORD, &CLOSE_NOTIFY_ALERT).await?;
        self.socket.shutdown().await
    }

    /// Returns when there is data to read, or the stream has ended.
    pub fn poll_readable(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.decrypt_buffered()? {
            // Complete records were decrypted, and contained nothing for the application.
            self.buffer.drain(..self.encrypted);
            self.encrypted = 0;
            self.plaintext = 0..0;
            let read = read_ahead(&mut self.socket, &mut self.buffer, context);
            // The end of the TCP stream without close_notify is a regular end (`of_end`).
            self.has_ended = ready!(read)? == 0;
        }
        Poll::Ready(Ok(()))
    }

    /// Decrypts complete records up to one with application data. Returns whether there is data, or
    /// the stream has ended.
    fn decrypt_buffered(&mut self) -> io::Result<bool> {
        while self.plaintext.is_empty() && !self.has_ended {
            if let Some(error) = self.error.take() {
                return Err(error);
            }
            let rest = &mut self.buffer[self.encrypted..];
            let decrypted = match KernelSession::record_len(rest) {
                Ok(None) => return Ok(false),
                Ok(Some(length)) => {
                    let record = &mut rest[..length];
                    let decrypted = self.session.decrypt(record);
                    decrypted.map(|received| (received, length))
                }
                Err(error) => Err(error),
            };
            let (received, length) = decrypted.map_err(|error| {
                if let Some(alert) = KernelSession::alert(&error) {
                    // The connection ends, also if the peer does not get the reason.
                    let _ = net::send_tls_record(&self.socket, ALERT_RECORD, &alert);
                }
                invalid(error)
            })?;
            match received {
                Received::Data(at) => {
                    self.plaintext = self.encrypted + at.start..self.encrypted + at.end;
                }
                Received::Other => {}
                Received::Closed => self.has_ended = true,
            }
            self.encrypted += length;
        }
        Ok(true)
    }
}

impl AsyncRead for KernelTlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_readable(context))?;
        while buffer.remaining() > 0 && !this.plaintext.is_empty() {
            let plaintext = &this.buffer[this.plaintext.clone()];
            let taken = plaintext.len().min(buffer.remaining());
            buffer.put_slice(&plaintext[..taken]);
            this.plaintext.start += taken;
            match this.decrypt_buffered() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    this.error = Some(error);
                    break;
                }
            }
        }
        Poll::Ready(Ok(()))
    }
}
