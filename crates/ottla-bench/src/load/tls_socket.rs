//! A blocking socket with TLS. Two threads can share it: a sender and a receiver.
//!
//! No thread holds the session while it waits for the network.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::{ClientConfig, ClientConnection, HandshakeKind};

/// The maximum that one call takes from the socket: four TLS records of the maximum size.
const READ_BYTES: usize = 64 * 1024;

#[derive(Debug)]
pub struct TlsSocket {
    socket: TcpStream,
    session: Arc<Mutex<ClientConnection>>,
    /// Bytes from the socket that the session has not taken yet.
    incoming: Vec<u8>,
    position: usize,
    filled: usize,
    /// Encrypted bytes, on their way to the socket.
    outgoing: Vec<u8>,
}

impl TlsSocket {
    /// Performs the handshake with the broker at `address`, and verifies it.
    pub fn connect(
        mut socket: TcpStream,
        address: &str,
        config: &Arc<ClientConfig>,
    ) -> io::Result<TlsSocket> {
        let name = ottla_client::server_name(address)
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let session = ClientConnection::new(Arc::clone(config), name);
        let mut session = session.map_err(io::Error::other)?;
        session.complete_io(&mut socket)?;
        Ok(TlsSocket::of(socket, Arc::new(Mutex::new(session))))
    }

    fn of(socket: TcpStream, session: Arc<Mutex<ClientConnection>>) -> TlsSocket {
        TlsSocket {
            socket,
            session,
            incoming: Vec::new(),
            position: 0,
            filled: 0,
            outgoing: Vec::new(),
        }
    }

    /// The same connection for another thread. Only one of the two may receive, and only one may
    /// send.
    pub fn try_clone(&self) -> io::Result<TlsSocket> {
        let session = Arc::clone(&self.session);
        Ok(TlsSocket::of(self.socket.try_clone()?, session))
    }

    pub fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether the handshake resumed an earlier session.
    pub fn is_resumed(&self) -> bool {
        lock(&self.session).handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

fn lock(session: &Mutex<ClientConnection>) -> MutexGuard<'_, ClientConnection> {
    session.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Read for TlsSocket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match lock(&self.session).reader().read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                read => return read,
            }
            if self.position == self.filled {
                self.incoming.resize(READ_BYTES, 0);
                self.position = 0;
                self.filled = self.socket.read(&mut self.incoming)?;
                if self.filled == 0 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let mut rest = &self.incoming[self.position..self.filled];
            let mut session = lock(&self.session);
            self.position += session.read_tls(&mut rest)?;
            session
                .process_new_packets()
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

impl Write for TlsSocket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.clear();
        let mut session = lock(&self.session);
        let taken = session.writer().write(bytes)?;
        while session.wants_write() {
            session.write_tls(&mut self.outgoing)?;
        }
        drop(session);
        self.socket.write_all(&self.outgoing)?;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
