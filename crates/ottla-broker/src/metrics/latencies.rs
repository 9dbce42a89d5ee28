//! The request latencies of the last minutes, for the console in the broker's process.

use ottla_metrics::histogram::QUANTILES;
use ottla_metrics::request_metrics::RequestTime;
use ottla_protocol::ApiKey;

use crate::Broker;

/// How long the requests of one API took lately.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct RequestLatency {
    pub api_key: ApiKey,
    pub p50_ms: f64,
    pub p99_ms: f64,
}

impl Broker {
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
            let of = |quantile: &str| {
                let index = QUANTILES.iter().position(|it| *it == quantile)?;
                Some(summary.quantiles_ms[index]).filter(|it| *it > 0.0)
            };
            Some(RequestLatency {
                api_key,
                p50_ms: of("0.50")?,
                p99_ms: of("0.99")?,
            })
        })
        .collect()
    }
}
