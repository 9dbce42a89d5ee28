//! TLS handshakes and SASL logins in progress. They are limited in time, and in number by closing
//! the oldest, so that peers that connect and send nothing cannot block other clients.
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
use crate::failed_logins::FailedLogins;
use crate::stream::Stream;

/// The maximum duration of a TLS handshake.
const LONGEST: Duration = Duration::from_secs(10);
/// The maximum number of handshakes and logins in progress.
const MOST: usize = 1024;

/// Oldest first.
type UnderWayQueue = Mutex<VecDeque<Arc<Connection>>>;

#[derive(Debug, Default)]
pub struct Handshakes {
    under_way: Arc<UnderWayQueue>,
    /// What is logged about those that failed.
    pub(crate) failed: Arc<FailedLogins>,
}

/// Why a peer is not admitted.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The peer closed the connection, or this node did.
    #[error("the connection ended")]
    Ended,
    /// Kafka reports this as a failed authentication. The reason is for the log only.
    #[error("SSL handshake failed")]
    Failed { reason: String },
    /// The certificate is valid, but no principal can be derived from it.
    #[error("{0}")]
    NoPrincipal(String),
}

impl Handshakes {
    /// Performs the TLS handshake and sets the principal of the connection.
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

    /// Registers a handshake or a login. It ends when the returned guard is dropped.
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
