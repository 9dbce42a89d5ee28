//! The usage of client quotas: `kafka.server:type=Produce`, `Fetch`, `Request` and
//! `ControllerMutation`, by `user` and `client-id`. As in Kafka, they exist only while some client
//! has a quota of this kind, and for clients that were active within the last hour. Kafka:
//! `ClientQuotaManager`, `ControllerMutationQuotaManager`, `ClientRequestQuotaManager`.

use ottla_metrics::family::Family;
use ottla_security::quota::{ClientUsage, Rate};

use crate::Broker;
use crate::quotas::{ClientQuota, MutationUsage, SHOWN};

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let now_ms = broker.now_ms();
    let quotas = &broker.quotas;
    #[rustfmt::skip]
    let kinds = [
        ("produce", &quotas.produce, "byte_rate", "Bytes of Produce requests per second"),
        ("fetch", &quotas.fetch, "byte_rate", "Bytes of fetched records per second"),
        ("request", &quotas.request, "request_time", "Thread time of requests, in percent"),
    ];
    for (kind, of_kind, name, help) in kinds {
        let windows = of_kind.windows();
        let mut rates = family(kind, name, help);
        let measure = |rate: &mut Rate| rate.measure(windows, now_ms);
        let throttled = throttle_times(kind, of_kind, now_ms, |usage| {
            rates.push(labels(usage), measure(&mut usage.usage));
        });
        families.extend([rates, throttled]);
    }
    let mut tokens = family(
        "controllermutation",
        "tokens",
        "Partitions that may be created or deleted at once",
    );
    let mut rates = family(
        "controllermutation",
        "mutation_rate",
        "Partitions created and deleted per second",
    );
    let mutations = &*quotas.mutations;
    mutations.for_each(now_ms, |usage, limit| {
        let labels = labels(usage);
        let MutationUsage { bucket, rate } = &mut usage.usage;
        if let Some(limit) = limit {
            let windows = mutations.windows();
            tokens.push(labels.clone(), bucket.tokens(windows, limit, now_ms));
        }
        rates.push(labels, rate.measure(SHOWN, now_ms));
    });
    let throttled = throttle_times("controllermutation", mutations, now_ms, |_| {});
    families.extend([tokens, rates, throttled]);
    let help = "Thread time of requests that are never throttled, in percent, while there is a quota for it";
    let exempt = family("request", "exempt_request_time", help);
    families.push(exempt.value(quotas.exempt_request_time(now_ms)));
    let mut muted = 0;
    broker.network.connections.for_each(|connection| {
        muted += usize::from(!connection.muted_for(|| now_ms).is_zero());
    });
    let help = "Connections that are not read because their client is over a quota";
    families.push(Family::gauge("ottla_connections_muted", help).value(muted as f64));
}

fn family(kind: &str, name: &str, help: &'static str) -> Family {
    Family::gauge(format!("kafka_server_{kind}_{name}"), help)
}

/// The average throttle times. Calls `look` for each client.
fn throttle_times<U: Default>(
    kind: &str,
    quota: &ClientQuota<U>,
    now_ms: u64,
    mut look: impl FnMut(&mut ClientUsage<U>),
) -> Family {
    let mut times = family(
        kind,
        "throttle_time",
        "Average recent throttle time of the client, in milliseconds",
    );
    quota.for_each(now_ms, |usage, _| {
        look(usage);
        // Kafka reports NaN here, which exporters omit.
        if let Some(average) = usage.average_throttle_ms(now_ms) {
            times.push(labels(usage), average);
        }
    });
    times
}

fn labels<U>(usage: &ClientUsage<U>) -> [(&'static str, String); 2] {
    [
        ("user", sanitized(&usage.user)),
        ("client_id", usage.client_id.to_string()),
    ]
}

/// The user name as in the names of MBeans. Kafka: `Sanitizer.sanitize`.
fn sanitized(user: &str) -> String {
    let mut sanitized = String::with_capacity(user.len());
    for byte in user.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b'~' => {
                sanitized.push(char::from(byte));
            }
            other => sanitized.push_str(&format!("%{other:02X}")),
        }
    }
    sanitized
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_escaped_as_in_mbean_names() {
        assert_eq!(sanitized("CN=a b,O=*+~é"), "CN%3Da%20b%2CO%3D%2A%2B~%C3%A9");
    }
}
