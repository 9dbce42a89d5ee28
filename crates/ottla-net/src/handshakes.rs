//! TLS handshakes and SASL logins in progress. They are limited in time, and in number by closing
//! the oldest, so that peers that connect and send nothing cannot block other clients.
//!
//! After a restart of a node, all its clients connect at once. If that closed the oldest, it would
//! close those that have waited longest for the CPU, which then come back: a young one is therefore
//! closed only at a larger number.
//!
//! Kafka leaves a handshake that stalls to `connections.max.idle.ms`.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use ottla_security::Principal;
use ottla_sync::Mutex;
use ottla_sync::net::TcpStream;
use ottla_tls::TlsContext;

use crate::connections::Connection;
use crate::failed_logins::FailedLogins;
use crate::stream::{KernelTls, KernelTlsStream, Stream};

/// The maximum duration of a TLS handshake.
const LONGEST: Duration = Duration::from_secs(10);
/// The maximum number of handshakes and logins in progress that are older than [`YOUNG`].
const MOST: usize = 1024;
/// The maximum number of all.
const MOST_AT_ONCE: usize = 4096;
/// One that makes progress takes less, even among many.
const YOUNG: Duration = Duration::from_secs(1);

/// Oldest first, with the time at which each began.
type UnderWayQueue = Mutex<VecDeque<(Instant, Arc<Connection>)>>;

#[derive(Debug, Default)]
pub struct Handshakes {
    under_way: Arc<UnderWayQueue>,
    /// What is logged about those that failed.
    pub(crate) failed: Arc<FailedLogins>,
    /// With it, the kernel encrypts for new connections.
    pub(crate) kernel_tls: OnceLock<Arc<KernelTls>>,
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
    /// Performs the TLS handshake and, without SASL, sets the principal of the connection.
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
        let accepting = async {
            let Some(kernel) = self.kernel_tls.get() else {
                return Stream::accept_tls(stream, config).await;
            };
            let (kernel, owner) = (Arc::clone(kernel), Arc::clone(connection));
            let accepted = KernelTlsStream::accept(stream, config, kernel, owner).await?;
            Ok(Stream::KernelTls(Box::new(accepted)))
        };
        let accepting = ottla_sync::time::timeout(LONGEST, accepting);
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
        if stream.is_resumed() {
            let now = ottla_sync::time::wall_clock();
            let verified = tls.verify_again(stream.peer_certificates(), now);
            verified.map_err(|error| HandshakeError::Failed { reason: error.0 })?;
        }
        if connection.listener.protocol.uses_sasl() {
            // The login names the user, and the certificate need not have a name.
            return Ok(stream);
        }
        let principal = tls.principal(stream.peer_certificates());
        let principal = principal.map_err(|error| HandshakeError::NoPrincipal(error.0))?;
        if let Some(name) = principal {
            connection.set_principal(Principal::user(&name));
        }
        Ok(stream)
    }

    /// Registers a handshake or a login. It ends when the returned guard is dropped.
    pub fn begin(&self, connection: &Arc<Connection>) -> UnderWay {
        self.begin_at(connection, ottla_sync::time::now())
    }

    fn begin_at(&self, connection: &Arc<Connection>, now: Instant) -> UnderWay {
        let mut under_way = self.under_way.lock();
        under_way.push_back((now, Arc::clone(connection)));
        while let Some((began, oldest)) = under_way.front() {
            let is_young = now.saturating_duration_since(*began) < YOUNG;
            let most = if is_young { MOST_AT_ONCE } else { MOST };
            if under_way.len() <= most {
                break;
            }
            oldest.close();
            under_way.pop_front();
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
        if let Some(at) = under_way.iter().position(|(_, it)| it.id == self.id) {
            under_way.remove(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use ottla_config::SecurityProtocol;

    use super::*;
    use crate::connections::ListenerInfo;

    fn connections(ids: std::ops::Range<u64>) -> Vec<Arc<Connection>> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let listener = Arc::new(ListenerInfo {
            name: "SSL".to_owned(),
            protocol: SecurityProtocol::Ssl,
            local_addr: address,
            is_controller: false,
        });
        let connection = |id| Arc::new(Connection::new(id, Arc::clone(&listener), address, 0));
        ids.map(connection).collect()
    }

    fn closed(connections: &[Arc<Connection>]) -> usize {
        connections.iter().filter(|it| it.is_closed()).count()
    }

    #[test]
    fn the_oldest_are_closed_for_new_ones_and_young_ones_only_if_there_are_many() {
        let handshakes = Handshakes::default();
        let (begin, most) = (ottla_sync::time::now(), MOST as u64);
        let stalled = connections(0..most);
        let at_once = connections(most..MOST_AT_ONCE as u64);
        let begin_all = |all: &[Arc<Connection>], now| -> Vec<UnderWay> {
            all.iter().map(|it| handshakes.begin_at(it, now)).collect()
        };
        let _stalled = begin_all(&stalled, begin);
        let guards = begin_all(&at_once, begin + YOUNG / 2);
        assert_eq!(closed(&stalled) + closed(&at_once), 0);
        // What ends makes room.
        drop(guards);
        assert_eq!(handshakes.under_way.lock().len(), MOST);
        let one = connections(10_000..10_001);
        let _one = begin_all(&one, begin + YOUNG);
        assert_eq!(closed(&stalled), 1);
        assert!(stalled[0].is_closed() && !one[0].is_closed());

        let flood = connections(20_000..20_000 + MOST_AT_ONCE as u64);
        let _flood = begin_all(&flood, begin + YOUNG * 2);
        assert_eq!(closed(&stalled), MOST);
        assert_eq!((closed(&one), closed(&flood)), (1, 0));
        let last = connections(30_000..30_001);
        let _last = begin_all(&last, begin + YOUNG * 2);
        assert_eq!((closed(&flood), closed(&last)), (1, 0));
    }
}
