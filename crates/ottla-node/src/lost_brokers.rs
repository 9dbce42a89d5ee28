//! Detects brokers whose process has ended after their connection to the active controller was
//! closed. The controller fences such a broker at once instead of waiting for its session to
//! expire.
//!
//! A closed connection alone proves little, because a living broker opens another one. So the
//! controller tries to connect to the registered listeners of the broker. If all of them refuse the
//! connection, the process is gone: the kernel refuses when no process listens, and continues to
//! accept for a process that merely hangs. When a process ends, the kernel closes its files one
//! after the other. With the files of thousands of partitions among them, the connection can close
//! long before the listeners. So while a listener accepts, the attempt is repeated for a while.
//! With any other result, including silence, the broker keeps its session. A wrong conclusion costs
//! the broker its leaderships until its next heartbeat and loses no data: it is fenced as it would
//! be when its session expires (`docs/decisions/0023-closed-connection.md`).
//!
//! Kafka's controller only waits for the session to end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ottla_controller::Decision;
use ottla_metadata::Endpoint;
use ottla_sync::net::{TcpStream, lookup_host};
use ottla_sync::time::timeout;
use ottla_types::{BrokerEpoch, BrokerId};

use crate::node::Node;

/// The connect timeout. A machine without a listening process refuses at once, so a longer wait
/// would prove nothing.
const PATIENCE: Duration = Duration::from_secs(1);
/// The pauses before the attempts.
const PAUSES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(150),
    Duration::from_millis(500),
    Duration::from_millis(1500),
];

/// The outcome of an attempt to connect.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Refused,
    Accepted,
    /// The name does not resolve, the peer does not answer, or the attempt itself failed.
    Unclear,
}

/// Checks whether the process of a broker has ended, after the connection of its heartbeats was
/// closed.
pub async fn on_connection_closed(node: Arc<Node>, id: BrokerId, epoch: BrokerEpoch) {
    let Some(controller) = node.controller() else {
        return;
    };
    let listeners = controller.decide(move |context, _| {
        let registration = context.image.cluster.broker(id);
        let registration = registration.filter(|it| it.epoch == epoch && !it.fenced);
        Decision::unchanged(registration.map(|it| it.listeners.clone()))
    });
    // Only the active controller can fence a broker.
    let Ok(Some(listeners)) = listeners.await else {
        return;
    };
    if !is_gone(&listeners).await {
        return;
    }
    tracing::info!(
        "broker {id} closed its connection and its listeners refuse connections: it is dead"
    );
    let noted = controller.decide(move |context, facts| {
        facts.sessions.on_process_gone(context.image, id, epoch);
        Decision::unchanged(())
    });
    // This node may have lost the leadership in the meantime.
    let _ = noted.await;
}

async fn is_gone(listeners: &[Endpoint]) -> bool {
    for pause in PAUSES {
        ottla_sync::time::sleep(pause).await;
        match attempt_all(listeners).await {
            Attempt::Refused => return true,
            Attempt::Accepted => {}
            Attempt::Unclear => return false,
        }
    }
    false
}

/// Tries all listeners. Refused only if all of them refuse.
async fn attempt_all(listeners: &[Endpoint]) -> Attempt {
    let mut outcome = Attempt::Unclear;
    for listener in listeners {
        let attempted = timeout(PATIENCE, attempt(&listener.host, listener.port)).await;
        outcome = attempted.unwrap_or(Attempt::Unclear);
        if outcome != Attempt::Refused {
            break;
        }
    }
    outcome
}

/// Tries every address of the host name.
async fn attempt(host: &str, port: u16) -> Attempt {
    let Ok(addresses) = lookup_host((host, port)).await else {
        return Attempt::Unclear;
    };
    let mut outcome = Attempt::Unclear;
    for address in addresses {
        outcome = match TcpStream::connect(address).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Attempt::Refused,
            // The connection was accepted by the kernel and closed before the process took it.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Attempt::Accepted,
            Ok(_) => Attempt::Accepted,
            Err(_) => Attempt::Unclear,
        };
        if outcome != Attempt::Refused {
            break;
        }
    }
    outcome
}
