//! Limits on the rate of new connections: `max.connection.creation.rate` of the broker and of each
//! listener, and the quota `connection_creation_rate` of an address.
//!
//! Above the rate of the broker or listener, the listener admits the next connection later, by at
//! most one window. A connection above the quota of its address is accepted but not served, and
//! closed after that time, so that other addresses do not wait for it.
//!
//! Kafka: `ConnectionQuotas.recordConnectionAndGetThrottleTimeMs`, `recordIpConnectionMaybeThrottle`.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_security::quota::{Applied, Ledger, Rate, Windows};
use ottla_sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use ottla_sync::{ArcSwap, Mutex};

/// The maximum number of addresses that are counted. The address that was idle longest is dropped.
const MAX_ADDRESSES: usize = 10_000;
/// The maximum number of connections that are kept open only to be closed later. Further
/// connections are closed at once.
const MAX_HELD: usize = 1_000;

/// Counts a connection, and returns how long it must wait to stay within `per_second`.
pub(super) fn delay(rate: &mut Rate, windows: Windows, per_second: i32, now_ms: u64) -> Duration {
    rate.record(windows, 1.0, now_ms);
    let wait_ms = match per_second {
        1.. => rate.throttle_ms(windows, f64::from(per_second), now_ms),
        // No connection is permitted; as in Kafka, each one waits the longest time.
        _ => u64::MAX,
    };
    Duration::from_millis(wait_ms.min(windows.length_ms))
}

/// The connection rates of addresses.
#[derive(Debug)]
pub struct AddressQuotas {
    is_set: AtomicBool,
    limits: ArcSwap<AddressRates>,
    rates: Mutex<Ledger<Rate>>,
    windows: Windows,
    held: AtomicUsize,
}

/// The connections that an address may open per second.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AddressRates {
    pub by_address: BTreeMap<IpAddr, i32>,
    pub default: Option<i32>,
}

/// A connection that is kept open for a while before it is closed.
#[derive(Debug)]
pub(super) struct Held<'a>(&'a AddressQuotas);

impl AddressQuotas {
    pub fn new(config: &BrokerConfig) -> AddressQuotas {
        AddressQuotas {
            is_set: AtomicBool::new(false),
            limits: ArcSwap::default(),
            rates: Mutex::new(Ledger::new(MAX_ADDRESSES)),
            windows: Windows::new(config.quota_window_num, config.quota_window_size_seconds),
            held: AtomicUsize::new(0),
        }
    }

    pub fn set(&self, rates: AddressRates) {
        let is_set = rates != AddressRates::default();
        self.limits.store(rates.into());
        self.is_set.store(is_set, Ordering::Release);
        if !is_set {
            self.rates.lock().clear();
        }
    }

    /// Counts a connection. If it exceeds the quota of its address, it is not counted, and the
    /// result is the time after which it should be closed.
    pub(super) fn record(&self, address: IpAddr, now_ms: u64) -> Option<Duration> {
        if !self.is_set.load(Ordering::Acquire) {
            return None;
        }
        let address = address.to_canonical();
        let limits = self.limits.load();
        let limit = limits.by_address.get(&address).copied();
        let limit = limit.or(limits.default)?;
        let of_each = Applied {
            limit: None,
            by_user: true,
            by_client_id: false,
        };
        let mut rates = self.rates.lock();
        let rate = rates.usage(of_each, &address.to_string(), "", now_ms);
        let delay = delay(&mut rate.usage, self.windows, limit, now_ms);
        if delay.is_zero() {
            return None;
        }
        rate.usage.record(self.windows, -1.0, now_ms);
        Some(delay)
    }

    /// Registers a connection that will be closed later; `None` if there are too many.
    pub(super) fn hold(&self) -> Option<Held<'_>> {
        let before = self.held.fetch_add(1, Ordering::Relaxed);
        let held = Held(self);
        (before < MAX_HELD).then_some(held)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use ottla_config::{BrokerConfig, single_node_properties};

    use super::*;

    const WINDOWS: Windows = Windows {
        count: 11,
        length_ms: 1_000,
    };

    #[test]
    fn connections_after_the_burst_wait() {
        let mut rate = Rate::default();
        // Ten windows of 2 per second allow 20 connections.
        for _ in 0..20 {
            assert_eq!(delay(&mut rate, WINDOWS, 2, 5_000), Duration::ZERO);
        }
        assert_eq!(
            delay(&mut rate, WINDOWS, 2, 5_000),
            Duration::from_millis(500)
        );
        // The wait is at most one window, for any number of connections.
        for _ in 0..20 {
            delay(&mut rate, WINDOWS, 2, 5_500);
        }
        assert_eq!(delay(&mut rate, WINDOWS, 2, 5_500), Duration::from_secs(1));
        // After all windows have passed, nothing is counted.
        assert_eq!(delay(&mut rate, WINDOWS, 2, 17_000), Duration::ZERO);
    }

    #[test]
    fn a_rate_of_zero_makes_each_connection_wait_for_a_whole_window() {
        let mut rate = Rate::default();
        assert_eq!(delay(&mut rate, WINDOWS, 0, 0), Duration::from_secs(1));
    }

    #[test]
    fn an_address_over_its_quota_does_not_delay_other_addresses() {
        let properties = single_node_properties("./data", "127.0.0.1:0", "127.0.0.1:0");
        let quotas = AddressQuotas::new(&BrokerConfig::from_properties(&properties).unwrap().0);
        let [greedy, modest]: [IpAddr; 2] =
            ["10.0.0.1", "::ffff:10.0.0.2"].map(|it| it.parse().unwrap());
        assert_eq!(quotas.record(greedy, 0), None);
        quotas.set(AddressRates {
            by_address: BTreeMap::from([(greedy, 1)]),
            default: Some(3),
        });
        let let_in = |address, now_ms| {
            (0..50)
                .filter(|_| quotas.record(address, now_ms).is_none())
                .count()
        };
        assert_eq!(let_in(greedy, 0), 10);
        assert_eq!(let_in(modest, 0), 30);
        // Rejected connections were not counted.
        assert_eq!(let_in(greedy, 11_000), 10);
        quotas.set(AddressRates::default());
        assert_eq!(let_in(greedy, 11_000), 50);
    }

    #[test]
    fn the_number_of_held_connections_is_bounded() {
        let properties = single_node_properties("./data", "127.0.0.1:0", "127.0.0.1:0");
        let quotas = AddressQuotas::new(&BrokerConfig::from_properties(&properties).unwrap().0);
        let held: Vec<_> = std::iter::from_fn(|| quotas.hold()).collect();
        assert_eq!(held.len(), MAX_HELD);
        drop(held);
        assert!(quotas.hold().is_some());
    }
}
