//! Brokers whose connection to the active controller has closed: whether that was because their process has ended. The
//! controller fences such a broker at once, in place of waiting for its session to end.
//!
//! That a connection has closed says little by itself: whoever lives opens another one. So the listeners that the broker has
//! registered are tried. Where each of them refuses, nobody listens any more: the kernel of its machine says so, and goes on
//! accepting for a process that is merely held up. The files of a process that ends are closed one after the other, and with
//! those of thousands of partitions among them the connection may close long before the listeners do: where somebody accepts,
//! it is looked again for a while. Anything else, and be it silence, leaves the broker its session. A refusal that
//! meant something else costs the broker its leaders until its next heartbeat, and nothing is lost by that: it is
//! fenced as it would be a session later (`docs/decisions/0023-closed-connection.md`).
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

/// A machine that has no process to give a connection to says so at once; one that is silent for so long is not asked further.
const PATIENCE: Duration = Duration::from_secs(1);
/// Before each look.
const PAUSES: [Duration; 6] = [
    Duration::ZERO,
    Duration::from_millis(10),
    Duration::from_millis(40),
    Duration::from_millis(150),
    Duration::from_millis(500),
    Duration::from_millis(1500),
];

/// What an attempt to connect came to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Attempt {
    Refused,
    Accepted,
    /// Nobody knows the name, or nobody answers, or it could not be made.
    Unclear,
}

/// Looks whether the process of a broker has ended, whose heartbeats came over a connection that it has closed.
pub async fn on_connection_closed(node: Arc<Node>, id: BrokerId, epoch: BrokerEpoch) {
    let Some(controller) = node.controller() else {
        return;
    };
    let listeners = controller.decide(move |context, _| {
        let registration = context.image.cluster.broker(id);
        let registration = registration.filter(|it| it.epoch == epoch && !it.fenced);
        Decision::unchanged(registration.map(|it| it.listeners.clone()))
    });
    // Who does not lead has nobody to fence.
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
    // The lead may have gone elsewhere meanwhile.
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

/// Refused where all of them refuse.
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

/// At every address that the name stands for.
async fn attempt(host: &str, port: u16) -> Attempt {
    let Ok(addresses) = lookup_host((host, port)).await else {
        return Attempt::Unclear;
    };
    let mut outcome = Attempt::Unclear;
    for address in addresses {
        outcome = match TcpStream::connect(address).await {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Attempt::Refused,
            // It was accepted, and closed before it was told.
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
