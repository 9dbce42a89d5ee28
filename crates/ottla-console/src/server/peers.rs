//! The number of connections of each address, so that one address cannot take all of them.
//!
//! Loopback addresses are not counted: all users may connect through a proxy there.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::attempts::network;

#[derive(Clone)]
pub(super) struct Peers {
    most: usize,
    /// Without entries of none.
    connections: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// A connection that is counted until this is dropped.
#[must_use]
pub(super) struct Counted {
    peers: Peers,
    address: IpAddr,
}

impl Peers {
    pub(super) fn new(most: usize) -> Peers {
        Peers {
            most,
            connections: Arc::default(),
        }
    }

    /// Counts a connection. An error if its address has as many as it may have.
    pub(super) fn count(&self, address: IpAddr) -> Result<Option<Counted>, TooMany> {
        let address = network(address);
        if address.is_loopback() {
            return Ok(None);
        }
        let mut connections = self.connections.lock();
        let count = connections.entry(address).or_default();
        if *count >= self.most {
            return Err(TooMany);
        }
        *count += 1;
        Ok(Some(Counted {
            peers: self.clone(),
            address,
        }))
    }
}

#[derive(Debug)]
pub(super) struct TooMany;

impl Drop for Counted {
    fn drop(&mut self) {
        let mut connections = self.peers.connections.lock();
        if let Some(count) = connections.get_mut(&self.address) {
            *count -= 1;
            if *count == 0 {
                connections.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_cannot_take_all_connections() {
        let peers = Peers::new(2);
        let count = |address: &str| peers.count(address.parse().unwrap());
        let first = count("2001:db8::1").unwrap();
        let _second = count("2001:db8::2").unwrap();
        assert!(count("2001:db8::3").is_err());
        let other = count("10.0.0.1").unwrap();
        assert!(other.is_some());
        drop(first);
        let third = count("2001:db8::3").unwrap();
        assert!(third.is_some());
        for _ in 0..5 {
            assert!(count("127.0.0.1").unwrap().is_none());
            assert!(count("::1").unwrap().is_none());
        }
        drop((third, other));
        assert_eq!(peers.connections.lock().len(), 1);
    }
}
