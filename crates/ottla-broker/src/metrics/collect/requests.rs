//! `kafka.network:type=RequestMetrics`: how many requests of each API, and how long they took.

use crate::Broker;
use crate::metrics::family::Family;
use crate::metrics::histogram::QUANTILES;
use crate::metrics::request_metrics::RequestTime;

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let mut requests = Family::counter(
        "kafka_network_requestmetrics_requests",
        "Requests by API and version",
    );
    for (api_key, api) in broker.metrics.requests().apis() {
        for (version, count) in api.requests_by_version() {
            let labels = [
                ("request", api_key.name().to_owned()),
                ("version", version.to_string()),
            ];
            requests.push(labels, count as f64);
        }
    }
    families.push(requests);
    for time in RequestTime::ALL {
        let name = time.name().to_lowercase();
        let name = format!("kafka_network_requestmetrics_{name}");
        let mut quantiles = Family::gauge(name.clone(), help(time));
        let mut count = Family::gauge(format!("{name}_count"), "Requests that were timed");
        let mut sum = Family::gauge(format!("{name}_sum"), "Milliseconds of all requests");
        for (api_key, api) in broker.metrics.requests().apis() {
            let request = ("request", api_key.name().to_owned());
            let summary = api.time(time);
            if summary.count == 0 {
                continue;
            }
            for (quantile, value) in QUANTILES.into_iter().zip(summary.quantiles_ms) {
                let labels = [request.clone(), ("quantile", quantile.to_owned())];
                quantiles.push(labels, value);
            }
            count.push([request.clone()], summary.count as f64);
            sum.push([request], summary.sum_ms);
        }
        families.extend([quantiles, count, sum]);
    }
}

fn help(time: RequestTime) -> &'static str {
    match time {
        RequestTime::Total => {
            "From the whole request's arrival to its answer's last byte, milliseconds, of the last minutes"
        }
        RequestTime::Local => {
            "The broker's own work on a request, milliseconds, of the last minutes"
        }
        RequestTime::Remote => {
            "Waiting for acknowledgements or for records to come, milliseconds, of the last minutes"
        }
        RequestTime::ResponseSend => {
            "From the complete answer to its last byte's being with the kernel, milliseconds, of the last \
             minutes"
        }
    }
}
