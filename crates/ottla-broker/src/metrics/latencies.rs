//! Connections, and the request latencies and slow requests of the last minutes, for the console in the
//! broker's process.

use std::collections::BTreeMap;

use ottla_metrics::histogram::{QUANTILES, Summary};
use ottla_metrics::request_metrics::RequestTime;
use ottla_metrics::slow_requests::SlowRequest;
use ottla_protocol::ApiKey;

use crate::Broker;

/// How long the requests of one API took lately.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequestLatency {
    pub api_key: ApiKey,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

/// The requests of one API: their number since the start, and how long those of the last minutes took.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequestActivity {
    pub api_key: ApiKey,
    pub count: u64,
    pub p50_ms: f64,
    pub p99_ms: f64,
    /// Without the time in which a request waits for data, for other members or for other brokers.
    pub own_p99_ms: f64,
}

fn quantile_ms(summary: &Summary, quantile: &str) -> f64 {
    let index = QUANTILES.iter().position(|it| *it == quantile);
    index.map_or(0.0, |index| summary.quantiles_ms[index])
}

impl Broker {
    /// The open connections of each listener for clients.
    pub fn open_connections(&self) -> BTreeMap<String, usize> {
        let config = self.config();
        let listeners = config.listeners.iter().filter(|it| !it.is_controller);
        let mut open: BTreeMap<String, usize> = listeners.map(|it| (it.name.clone(), 0)).collect();
        self.network.connections.for_each(|connection| {
            *open.entry(connection.listener.name.clone()).or_default() += 1;
        });
        open
    }

    /// Of each API that was requested since the start.
    pub fn request_activity(&self) -> Vec<RequestActivity> {
        let apis = self.context.metrics.requests().apis();
        let activity = apis.map(|(api_key, api)| {
            let total = api.time(RequestTime::Total);
            RequestActivity {
                api_key,
                count: total.count,
                p50_ms: quantile_ms(&total, "0.50"),
                p99_ms: quantile_ms(&total, "0.99"),
                own_p99_ms: quantile_ms(&api.time(RequestTime::Local), "0.99"),
            }
        });
        activity.collect()
    }

    /// The slowest requests of the last minutes, the slowest first.
    pub fn slow_requests(&self) -> Vec<SlowRequest> {
        self.context.metrics.requests().slowest()
    }

    /// Of Produce, from the request to the complete answer, and of Fetch, without the time that it
    /// waits for data. An API without requests in the last minutes is left out.
    pub fn request_latencies(&self) -> Vec<RequestLatency> {
        let apis = self.context.metrics.requests().apis();
        apis.filter_map(|(api_key, api)| {
            let time = match api_key {
                ApiKey::Produce => RequestTime::Total,
                ApiKey::Fetch => RequestTime::Local,
                _ => return None,
            };
            let summary = api.time(time);
            let of = |quantile: &str| Some(quantile_ms(&summary, quantile)).filter(|it| *it > 0.0);
            Some(RequestLatency {
                api_key,
                p50_ms: of("0.50")?,
                p99_ms: of("0.99")?,
            })
        })
        .collect()
    }
}
