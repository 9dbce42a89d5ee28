//! What goes over a client's connections (`org.apache.kafka.common.network.Selector`'s metrics), in all and
//! for each broker.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_sync::Mutex;

use super::{Beginning, Sensor, Sheet, Windows};
use crate::metadata::Metadata;

/// Shared by a client and all its connections. Each request and each response takes the lock once, briefly.
pub(crate) struct NetworkSensors {
    beginning: Beginning,
    windows: Windows,
    state: Mutex<State>,
}

struct State {
    opened: Sensor,
    closed: Sensor,
    authenticated: Sensor,
    refused: Sensor,
    traffic: Traffic,
    /// By address.
    brokers: BTreeMap<String, Traffic>,
}

struct Traffic {
    /// The sizes of requests; those of responses.
    sent: Sensor,
    received: Sensor,
    /// In milliseconds, of requests that carry records.
    latency: Sensor,
}

impl Traffic {
    fn new(windows: Windows) -> Traffic {
        Traffic {
            sent: Sensor::new(windows),
            received: Sensor::new(windows),
            latency: Sensor::new(windows),
        }
    }
}

impl State {
    /// Of all brokers together, and of this one.
    fn traffic(&mut self, address: &str, windows: Windows) -> [&mut Traffic; 2] {
        if !self.brokers.contains_key(address) {
            let traffic = Traffic::new(windows);
            self.brokers.insert(address.to_owned(), traffic);
        }
        let broker = self.brokers.get_mut(address).expect("it is there now");
        [&mut self.traffic, broker]
    }
}

impl NetworkSensors {
    pub(crate) fn new(windows: Windows) -> NetworkSensors {
        let sensor = || Sensor::new(windows);
        NetworkSensors {
            beginning: Beginning::now(),
            windows,
            state: Mutex::new(State {
                opened: sensor(),
                closed: sensor(),
                authenticated: sensor(),
                refused: sensor(),
                traffic: Traffic::new(windows),
                brokers: BTreeMap::new(),
            }),
        }
    }

    pub(crate) fn on_opened(&self) {
        let now = self.beginning.elapsed_ms();
        self.state.lock().opened.record(1.0, now);
    }

    pub(crate) fn on_closed(&self) {
        let now = self.beginning.elapsed_ms();
        self.state.lock().closed.record(1.0, now);
    }

    /// A broker has believed who this client is, or has not.
    pub(crate) fn on_authenticated(&self, is_believed: bool) {
        let now = self.beginning.elapsed_ms();
        let state = &mut *self.state.lock();
        match is_believed {
            true => state.authenticated.record(1.0, now),
            false => state.refused.record(1.0, now),
        }
    }

    /// Requests of these sizes are on their way.
    pub(crate) fn on_sent(&self, address: &str, sizes: &[usize]) {
        let now = self.beginning.elapsed_ms();
        let mut state = self.state.lock();
        for traffic in state.traffic(address, self.windows) {
            for size in sizes {
                traffic.sent.record(*size as f64, now);
            }
        }
    }

    /// A response of this size has come, to a request that took so long, if that is counted.
    pub(crate) fn on_received(&self, address: &str, size: usize, latency: Option<Duration>) {
        let now = self.beginning.elapsed_ms();
        let mut state = self.state.lock();
        for traffic in state.traffic(address, self.windows) {
            traffic.received.record(size as f64, now);
            if let Some(latency) = latency {
                traffic.latency.record(latency.as_secs_f64() * 1000.0, now);
            }
        }
    }

    /// Into `group`, and by broker into `node_group`.
    pub(crate) fn write(
        &self,
        sheet: &mut Sheet,
        group: &'static str,
        node_group: &'static str,
        metadata: &Metadata,
    ) {
        let now = self.beginning.elapsed_ms();
        let mut state = self.state.lock();
        let (opened, closed) = (state.opened.measure(now), state.closed.measure(now));
        sheet.begin(group, &[]);
        sheet.put("connection-count", opened.count - closed.count);
        sheet.put("connection-creation-rate", opened.event_rate);
        sheet.put("connection-creation-total", opened.count);
        sheet.put("connection-close-rate", closed.event_rate);
        sheet.put("connection-close-total", closed.count);
        let authenticated = state.authenticated.measure(now);
        sheet.put("successful-authentication-rate", authenticated.rate);
        sheet.put("successful-authentication-total", authenticated.total);
        let refused = state.refused.measure(now);
        sheet.put("failed-authentication-rate", refused.rate);
        sheet.put("failed-authentication-total", refused.total);
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
                // One of those that the client began with.
                None => {
                    unknown -= 1;
                    unknown
                }
            };
            sheet.begin(node_group, &[("node-id", &format!("node-{id}"))]);
            write_traffic(sheet, traffic, now);
            let latency = traffic.latency.measure(now);
            sheet.put("request-latency-avg", latency.avg);
            sheet.put("request-latency-max", latency.max);
        }
    }
}

fn write_traffic(sheet: &mut Sheet, traffic: &mut Traffic, now_ms: u64) {
    let sent = traffic.sent.measure(now_ms);
    sheet.put("outgoing-byte-rate", sent.rate);
    sheet.put("outgoing-byte-total", sent.total);
    sheet.put("request-rate", sent.event_rate);
    sheet.put("request-total", sent.count);
    sheet.put("request-size-avg", sent.avg);
    sheet.put("request-size-max", sent.max);
    let received = traffic.received.measure(now_ms);
    sheet.put("incoming-byte-rate", received.rate);
    sheet.put("incoming-byte-total", received.total);
    sheet.put("response-rate", received.event_rate);
    sheet.put("response-total", received.count);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latency_of_a_node_is_that_of_what_carries_records() {
        let sensors = NetworkSensors::new(Windows {
            count: 2,
            length_ms: 30_000,
        });
        let read = || {
            let mut sheet = Sheet::new("a");
            sensors.write(&mut sheet, "all", "node", &Metadata::default());
            sheet.finish()
        };
        // Not a broker of the metadata, and the first such.
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
