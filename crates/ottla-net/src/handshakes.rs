//! Handshakes that are under way: bounded in time, and in number by cutting off the oldest, so that peers who connect and
//! then say nothing keep nobody out.
//!
//! Kafka leaves a handshake that stalls to `connections.max.idle.ms`.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ottla_security::Principal;
use ottla_sync::Mutex;
use ottla_sync::net::TcpStream;
use ottla_tls::TlsContext;

use crate::connections::Connection;
use crate::stream::Stream;

/// How long a handshake may take.
const LONGEST: Duration = Duration::from_secs(10);
/// How many may be under way at once.
const MOST: usize = 1024;

/// The oldest first.
type UnderWayQueue = Mutex<VecDeque<Arc<Connection>>>;

#[derive(Debug, Default)]
pub struct Handshakes {
    under_way: Arc<UnderWayQueue>,
}

/// Why a peer is not let in.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The peer went away, or this node closed the connection.
    #[error("the connection ended")]
    Ended,
    /// What Kafka reports as a failed authentication; the reason is for the log.
    #[error("SSL handshake failed")]
    Failed { reason: String },
    /// Its certificate is good, and no principal comes of it.
    #[error("{0}")]
    NoPrincipal(String),
}

impl Handshakes {
    /// Speaks TLS with a peer and finds out who it is.
    pub async fn accept(
        &self,
        stream: TcpStream,
        tls: &TlsContext,
        connection: &Arc<Connection>,
    ) -> Result<Stream, HandshakeError> {
        let Some(config) = tls.server() else {
            let reason = "the listener has no certificate".to_owned();
            return Err(HandshakeError::Failed { reason });
        };
        let _under_way = self.begin(connection);
        let accepting = ottla_sync::time::timeout(LONGEST, Stream::accept_tls(stream, config));
        let accepted = ottla_sync::select! {
            biased;
            accepted = accepting => accepted,
            () = connection.closed() => return Err(HandshakeError::Ended),
        };
        let stream = match accepted {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                let reason = error.to_string();
                return Err(HandshakeError::Failed { reason });
            }
            Ok(Err(_)) => return Err(HandshakeError::Ended),
            Err(_) => {
                let reason = format!("it has not ended within {LONGEST:?}");
                return Err(HandshakeError::Failed { reason });
            }
        };
        let principal = tls.principal(stream.peer_certificates());
        let principal = principal.map_err(|error| HandshakeError::NoPrincipal(error.0))?;
        if let Some(name) = principal {
            connection.set_principal(Principal::user(&name));
        }
        Ok(stream)
    }

    /// A handshake or a login begins; it ends when what this returns is dropped.
    pub fn begin(&self, connection: &Arc<Connection>) -> UnderWay {
        let mut under_way = self.under_way.lock();
        under_way.push_back(Arc::clone(connection));
        if under_way.len() > MOST
            && let Some(oldest) = under_way.pop_front()
        {
            oldest.close();
        }
        UnderWay {
            under_way: Arc::clone(&self.under_way),
            id: connection.id,
        }
    }
}

#[derive(Debug)]
pub struct UnderWay {
    under_way: Arc<UnderWayQueue>,
    id: u64,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut under_way = self.under_way.lock();
        if let Some(at) = under_way.iter().position(|it| it.id == self.id) {
            under_way.remove(at);
        }
    }
}
