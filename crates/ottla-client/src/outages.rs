//! The brokers that a client cannot reach, for programs that report them to a user.
//!
//! A broker is unreachable from the time when its last connection broke, or when the first one
//! could not be opened, until a connection is open. Connections that the client closed itself do
//! not count.

use std::collections::BTreeMap;
use std::time::Instant;

use ottla_sync::Mutex;

use crate::error::ClientError;

/// A broker that cannot be reached at the moment.
///
/// ```no_run
/// # fn example(client: &ottla_client::Client) {
/// for outage in client.outages() {
///     let what = if outage.was_connected { "lost" } else { "never reached" };
///     println!("{what} {}: {}", outage.address, outage.reason);
/// }
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Outage {
    /// `host:port`
    pub address: String,
    pub since: Instant,
    /// The error of the last attempt; before there is one, the error that closed the connection.
    pub reason: ClientError,
    /// Whether there was a connection before.
    pub was_connected: bool,
}

/// Shared by a client and all its connections.
#[derive(Default)]
pub(crate) struct Outages {
    /// By address.
    brokers: Mutex<BTreeMap<String, Reach>>,
}

#[derive(Default)]
struct Reach {
    open: usize,
    was_connected: bool,
    outage: Option<(Instant, ClientError)>,
}

impl Outages {
    pub(crate) fn on_opened(&self, address: &str) {
        let mut brokers = self.brokers.lock();
        let broker = brokers.entry(address.to_owned()).or_default();
        broker.open += 1;
        broker.was_connected = true;
        broker.outage = None;
    }

    /// An open connection was closed.
    pub(crate) fn on_closed(&self, address: &str, reason: &ClientError) {
        let mut brokers = self.brokers.lock();
        let broker = brokers.entry(address.to_owned()).or_default();
        broker.open = broker.open.saturating_sub(1);
        let is_wanted = matches!(reason, ClientError::ClientClosed);
        if broker.open == 0 && !is_wanted {
            broker.outage = Some((ottla_sync::time::now(), reason.clone()));
        }
    }

    /// A connection could not be opened.
    pub(crate) fn on_refused(&self, address: &str, reason: &ClientError) {
        let mut brokers = self.brokers.lock();
        let broker = brokers.entry(address.to_owned()).or_default();
        if broker.open == 0 {
            let began = broker.outage.take().map(|(since, _)| since);
            let since = began.unwrap_or_else(ottla_sync::time::now);
            broker.outage = Some((since, reason.clone()));
        }
    }

    pub(crate) fn all(&self) -> Vec<Outage> {
        let brokers = self.brokers.lock();
        let outage = |(address, broker): (&String, &Reach)| {
            let (since, reason) = broker.outage.clone()?;
            Some(Outage {
                address: address.clone(),
                since,
                reason,
                was_connected: broker.was_connected,
            })
        };
        brokers.iter().filter_map(outage).collect()
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.brokers.lock().values().any(|broker| broker.open > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken() -> ClientError {
        ClientError::Closed {
            address: "a:1".into(),
            reason: "reset".into(),
        }
    }

    fn refused() -> ClientError {
        ClientError::Connect {
            address: "a:1".into(),
            reason: "refused".into(),
        }
    }

    #[test]
    fn an_outage_lasts_from_the_last_connection_to_the_next() {
        let outages = Outages::default();
        outages.on_opened("a:1");
        outages.on_opened("a:1");
        outages.on_closed("a:1", &broken());
        assert!(outages.all().is_empty() && outages.is_connected());
        outages.on_closed("a:1", &broken());
        assert!(!outages.is_connected());
        let first = outages.all().pop().expect("it is out");
        assert!(first.was_connected);
        outages.on_refused("a:1", &refused());
        let later = outages.all().pop().expect("it is still out");
        assert_eq!(later.since, first.since);
        assert!(matches!(later.reason, ClientError::Connect { .. }));
        outages.on_opened("a:1");
        assert!(outages.all().is_empty() && outages.is_connected());
    }

    #[test]
    fn a_connection_closed_by_the_client_is_no_outage() {
        let outages = Outages::default();
        outages.on_opened("a:1");
        outages.on_closed("a:1", &ClientError::ClientClosed);
        assert!(outages.all().is_empty() && !outages.is_connected());
        outages.on_refused("b:1", &refused());
        assert!(!outages.all()[0].was_connected);
    }
}
