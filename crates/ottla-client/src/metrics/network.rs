//! The metrics of a client's connections, in total and for each broker
//! (`org.apache.kafka.common.network.Selector`'s metrics).

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_sync::Mutex;

use super::{Clock, Moment, Sensor, Sheet, Windows};
use crate::metadata::Metadata;

/// Shared by a client and all its connections. Each request and each response locks it once,
/// briefly.
pub(crate) struct NetworkSensors {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    opened: Sensor,
    closed: Sensor,
    authenticated: Sensor,
    refused: Sensor,
    renewed: Sensor,
    renewals_refused: Sensor,
    /// In milliseconds.
    renewal_latency: Sensor,
    traffic: Traffic,
    /// By address.
    brokers: BTreeMap<String, Traffic>,
}

#[derive(Default)]
struct Traffic {
    /// The sizes of requests and of responses.
    sent: Sensor,
    received: Sensor,
    /// In milliseconds, of requests with records.
    latency: Sensor,
}

impl State {
    /// The totals of all brokers, and of this one.
    fn traffic(&mut self, address: &str) -> [&mut Traffic; 2] {
        if !self.brokers.contains_key(address) {
            self.brokers.insert(address.to_owned(), Traffic::default());
        }
        let broker = self.brokers.get_mut(address).expect("it is there now");
        [&mut self.traffic, broker]
    }
}

impl NetworkSensors {
    pub(crate) fn new(windows: Windows) -> NetworkSensors {
        NetworkSensors {
            clock: Clock::start(windows),
            state: Mutex::default(),
        }
    }

    pub(crate) fn on_opened(&self) {
        let now = self.clock.now();
        self.state.lock().opened.record(1.0, now);
    }

    pub(crate) fn on_closed(&self) {
        let now = self.clock.now();
        self.state.lock().closed.record(1.0, now);
    }

    /// An authentication has succeeded or failed.
    pub(crate) fn on_authenticated(&self, is_believed: bool) {
        let now = self.clock.now();
        let state = &mut *self.state.lock();
        match is_believed {
            true => state.authenticated.record(1.0, now),
            false => state.refused.record(1.0, now),
        }
    }

    /// A re-authentication has succeeded or failed.
    pub(crate) fn on_reauthenticated(&self, is_believed: bool, took: Duration) {
        let now = self.clock.now();
        let state = &mut *self.state.lock();
        if is_believed {
            state.renewed.record(1.0, now);
            state.renewal_latency.record_time(took, now);
        } else {
            state.renewals_refused.record(1.0, now)
        }
    }

    /// Requests of these sizes were sent.
    pub(crate) fn on_sent(&self, address: &str, sizes: &[usize]) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        for traffic in state.traffic(address) {
            for size in sizes {
                traffic.sent.record(*size as f64, now);
            }
        }
    }

    /// A response of this size was received; `latency` is that of its request, if it is counted.
    pub(crate) fn on_received(&self, address: &str, size: usize, latency: Option<Duration>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        for traffic in state.traffic(address) {
            traffic.received.record(size as f64, now);
            if let Some(latency) = latency {
                traffic.latency.record_time(latency, now);
            }
        }
    }

    /// The totals go into `group`, those per broker into `node_group`.
    pub(crate) fn write(
        &self,
        sheet: &mut Sheet,
        group: &'static str,
        node_group: &'static str,
        metadata: &Metadata,
    ) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        let (opened, closed) = (state.opened.measure(now), state.closed.measure(now));
        sheet.begin(group, &[]);
        sheet.put("connection-count", opened.count - closed.count);
        sheet.put_events("connection-creation", opened);
        sheet.put_events("connection-close", closed);
        sheet.put_sums(
            "successful-authentication",
            state.authenticated.measure(now),
        );
        sheet.put_sums("failed-authentication", state.refused.measure(now));
        sheet.put_sums("successful-reauthentication", state.renewed.measure(now));
        sheet.put_sums(
            "failed-reauthentication",
            state.renewals_refused.measure(now),
        );
        sheet.put_avg_and_max(
            "reauthentication-latency",
            state.renewal_latency.measure(now),
        );
        let (sent, received) = (
            state.traffic.sent.measure(now),
            state.traffic.received.measure(now),
        );
        sheet.put("network-io-rate", sent.event_rate + received.event_rate);
        sheet.put("network-io-total", sent.count + received.count);
        write_traffic(sheet, &mut state.traffic, now);
        let mut unknown = 0;
        for (address, traffic) in &mut state.brokers {
            let mut brokers = metadata.brokers.values();
            let id = match brokers.find(|broker| broker.address() == *address) {
                Some(broker) => broker.id,
                // A bootstrap server.
                None => {
                    unknown -= 1;
                    unknown
                }
            };
            sheet.begin(node_group, &[("node-id", &format!("node-{id}"))]);
            write_traffic(sheet, traffic, now);
            sheet.put_avg_and_max("request-latency", traffic.latency.measure(now));
        }
    }
}

fn write_traffic(sheet: &mut Sheet, traffic: &mut Traffic, now: Moment) {
    let sent = traffic.sent.measure(now);
    sheet.put_sums("outgoing-byte", sent);
    sheet.put_events("request", sent);
    sheet.put_avg_and_max("request-size", sent);
    let received = traffic.received.measure(now);
    sheet.put_sums("incoming-byte", received);
    sheet.put_events("response", received);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_of_a_node_covers_produce_and_fetch_only() {
        let sensors = NetworkSensors::new(Windows {
            count: 2,
            length_ms: 30_000,
        });
        let read = || {
            let mut sheet = Sheet::new("a");
            sensors.write(&mut sheet, "all", "node", &Metadata::default());
            sheet.finish()
        };
        // The first broker that is not in the metadata.
        let node = [("node-id", "node--1")];
        sensors.on_received("h:1", 10, None);
        let measured = read();
        let latency = measured.value_of("request-latency-avg", &node);
        assert!(latency.is_some_and(f64::is_nan), "{latency:?}");
        assert_eq!(measured.value_of("response-total", &node), Some(1.0));
        sensors.on_received("h:1", 10, Some(Duration::from_millis(7)));
        let measured = read();
        assert_eq!(measured.value_of("request-latency-max", &node), Some(7.0));
        assert_eq!(measured.value_of("response-total", &node), Some(2.0));
    }
}
