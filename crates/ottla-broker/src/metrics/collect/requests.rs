//! `kafka.network:type=RequestMetrics`: the number of requests per API, and their durations.

use ottla_protocol::ApiKey;

use crate::Broker;
use ottla_metrics::family::Family;
use ottla_metrics::histogram::QUANTILES;
use ottla_metrics::request_metrics::RequestTime;

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let mut requests = Family::counter(
        "kafka_network_requestmetrics_requests",
        "Requests by API and version",
    );
    let mut errors = Family::counter(
        "kafka_network_requestmetrics_errors",
        "Error codes in responses, per partition, topic or group, by API and error; NONE is success",
    );
    for (api_key, api) in broker.context.metrics.requests().apis() {
        for name in names(api_key) {
            for (version, count) in api.requests_by_version() {
                let labels = [
                    ("request", name.to_owned()),
                    ("version", version.to_string()),
                ];
                requests.push(labels, count as f64);
            }
        }
        for (error, count) in api.errors() {
            let labels = [
                ("request", api_key.name().to_owned()),
                ("error", error.name().to_owned()),
            ];
            errors.push(labels, count as f64);
        }
    }
    families.extend([requests, errors]);
    for time in RequestTime::ALL {
        let name = time.name().to_lowercase();
        let name = format!("kafka_network_requestmetrics_{name}");
        let mut quantiles = Family::gauge(name.clone(), help(time));
        let mut count = Family::gauge(format!("{name}_count"), "Requests that were timed");
        let mut sum = Family::gauge(format!("{name}_sum"), "Milliseconds of all requests");
        for (api_key, api) in broker.context.metrics.requests().apis() {
            let summary = api.time(time);
            if summary.count == 0 {
                continue;
            }
            for name in names(api_key) {
                let request = ("request", name.to_owned());
                for (quantile, value) in QUANTILES.into_iter().zip(summary.quantiles_ms) {
                    let labels = [request.clone(), ("quantile", quantile.to_owned())];
                    quantiles.push(labels, value);
                }
                count.push([request.clone()], summary.count as f64);
                sum.push([request], summary.sum_ms);
            }
        }
        families.extend([quantiles, count, sum]);
    }
}

/// The names under which Kafka exports the requests of an API. Fetches of consumers have a second
/// name, which includes all fetches here.
fn names(api_key: ApiKey) -> impl Iterator<Item = &'static str> {
    let on_their_own = (api_key == ApiKey::Fetch).then_some("FetchConsumer");
    std::iter::once(api_key.name()).chain(on_their_own)
}

#[rustfmt::skip]
fn help(time: RequestTime) -> &'static str {
    match time {
        RequestTime::Total => "Time from a request's complete arrival to the last byte of its response in the last minutes, in milliseconds",
        RequestTime::Local => "The broker's own work on a request in the last minutes, in milliseconds",
        RequestTime::Remote => "Time that requests waited for acknowledgements or records in the last minutes, in milliseconds",
        RequestTime::ResponseSend => "From the complete answer to its last byte's being with the kernel, milliseconds, of the last minutes",
    }
}
