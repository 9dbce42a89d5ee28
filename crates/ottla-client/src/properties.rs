//! Settings as text, with the names of Kafka's clients.
//!
//! A key that the client does not have, or a value that it does not accept, is an error that names
//! the key, the value and the accepted values: a misspelt setting that is silently ignored costs
//! days. Kafka's clients warn about unknown keys and continue.
//!
//! ```
//! use std::collections::BTreeMap;
//! use ottla_client::properties;
//!
//! let settings = BTreeMap::from([("acks".to_owned(), "2".to_owned())]);
//! let refused = properties::producer(&settings).err().unwrap();
//! assert_eq!(refused.to_string(), "acks=2: not accepted; give all, -1, 0 or 1");
//! ```

use std::collections::BTreeMap;

use crate::config::ClientConfig;
use crate::consumer::ConsumerConfig;
use crate::error::ClientError;
use crate::producer::ProducerConfig;
use crate::share_consumer::ShareConsumerConfig;

pub(crate) mod value;

/// Keys that every Kafka client has and that have no effect here, because they tune Java's
/// networking and metrics. They are accepted, so that a file for Kafka's clients can be used.
const WITHOUT_EFFECT: &[&str] = &[
    "auto.include.jmx.reporter",
    "client.dns.lookup",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "metadata.max.idle.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.recording.level",
    "security.providers",
    "socket.connection.setup.timeout.max.ms",
];

/// The settings of a producer. Unknown keys are an error.
///
/// ```
/// use std::collections::BTreeMap;
///
/// let mistyped = BTreeMap::from([("akcs".to_owned(), "1".to_owned())]);
/// let refused = ottla_client::properties::producer(&mistyped).err().unwrap();
/// assert!(refused.to_string().contains("akcs"));
/// ```
pub fn producer(
    settings: &BTreeMap<String, String>,
) -> Result<(ClientConfig, ProducerConfig), ClientError> {
    let (mut client, mut producer) = (ClientConfig::default(), ProducerConfig::default());
    let unknown = [client.apply(settings)?, producer.apply(settings)?];
    refuse_unknown(settings, &unknown, "producer")?;
    producer.validate(client.request_timeout)?;
    Ok((client, producer))
}

/// The settings of a consumer. Unknown keys are an error.
///
/// ```
/// use std::collections::BTreeMap;
/// use ottla_client::properties;
///
/// let settings = BTreeMap::from([
///     ("bootstrap.servers".to_owned(), "127.0.0.1:9092".to_owned()),
///     ("group.id".to_owned(), "billing".to_owned()),
/// ]);
/// let (client, consumer) = properties::consumer(&settings).unwrap();
/// assert_eq!(client.bootstrap_servers, ["127.0.0.1:9092"]);
/// assert_eq!(consumer.group_id.as_deref(), Some("billing"));
/// ```
pub fn consumer(
    settings: &BTreeMap<String, String>,
) -> Result<(ClientConfig, ConsumerConfig), ClientError> {
    let (mut client, mut consumer) = (ClientConfig::default(), ConsumerConfig::default());
    let unknown = [client.apply(settings)?, consumer.apply(settings)?];
    refuse_unknown(settings, &unknown, "consumer")?;
    Ok((client, consumer))
}

/// The settings of a share consumer. Unknown keys are an error.
///
/// ```
/// use std::collections::BTreeMap;
/// use ottla_client::{AcknowledgementMode, properties};
///
/// let settings = BTreeMap::from([
///     ("group.id".to_owned(), "workers".to_owned()),
///     ("share.acknowledgement.mode".to_owned(), "explicit".to_owned()),
/// ]);
/// let (_, consumer) = properties::share_consumer(&settings).unwrap();
/// assert_eq!(consumer.acknowledgement_mode, AcknowledgementMode::Explicit);
/// ```
pub fn share_consumer(
    settings: &BTreeMap<String, String>,
) -> Result<(ClientConfig, ShareConsumerConfig), ClientError> {
    let (mut client, mut consumer) = (ClientConfig::default(), ShareConsumerConfig::default());
    let unknown = [client.apply(settings)?, consumer.apply(settings)?];
    refuse_unknown(settings, &unknown, "share consumer")?;
    Ok((client, consumer))
}

/// The settings of an admin client. Unknown keys are an error.
///
/// ```
/// use std::collections::BTreeMap;
/// use std::time::Duration;
/// use ottla_client::properties;
///
/// let settings = BTreeMap::from([("request.timeout.ms".to_owned(), "5000".to_owned())]);
/// let client = properties::admin(&settings).unwrap();
/// assert_eq!(client.request_timeout, Duration::from_secs(5));
/// ```
pub fn admin(settings: &BTreeMap<String, String>) -> Result<ClientConfig, ClientError> {
    let mut client = ClientConfig::default();
    let unknown = [client.apply(settings)?];
    let unknown = unknown.map(|keys| {
        let retries = |key: &String| key != "retries" && key != "bootstrap.controllers";
        keys.into_iter().filter(retries).collect()
    });
    refuse_unknown(settings, &unknown, "admin client")?;
    Ok(client)
}

/// The keys among these settings that no client of Kafka 4.3 has, for programs that only warn about
/// them. `unknown` are the keys that the parts of a client did not know.
///
/// ```
/// use std::collections::BTreeMap;
/// use ottla_client::{ClientConfig, properties};
///
/// let settings = BTreeMap::from([
///     ("linger.ms".to_owned(), "5".to_owned()),
///     ("akcs".to_owned(), "1".to_owned()),
/// ]);
/// let unknown = [ClientConfig::default().apply(&settings).unwrap()];
/// let keys: Vec<&str> = properties::unknown_keys(&settings, &unknown).collect();
/// assert_eq!(keys, ["akcs"]);
/// ```
pub fn unknown_keys<'a>(
    settings: &'a BTreeMap<String, String>,
    unknown: &'a [Vec<String>],
) -> impl Iterator<Item = &'a str> {
    let is_unknown = |key: &str| {
        unknown.iter().all(|keys| keys.iter().any(|it| it == key))
            && !WITHOUT_EFFECT.contains(&key)
            && key != "retries"
            && !known_keys().any(|known| known == key)
    };
    let keys = settings.keys().map(String::as_str);
    keys.filter(move |key| is_unknown(key))
}

/// The keys of Kafka 4.3's producers, consumers and admin clients. Some occur more than once.
///
/// ```
/// assert!(ottla_client::properties::known_keys().any(|key| key == "acks"));
/// ```
pub fn known_keys() -> impl Iterator<Item = &'static str> {
    let lines = include_str!("properties/kafka_defaults.txt").lines();
    lines.filter_map(|line| line.split('\t').nth(1))
}

/// Refuses a key that is unknown to all parts.
fn refuse_unknown(
    settings: &BTreeMap<String, String>,
    unknown: &[Vec<String>],
    whose: &str,
) -> Result<(), ClientError> {
    for (key, value) in settings {
        let is_unknown = unknown.iter().all(|keys| keys.contains(key));
        if is_unknown && !WITHOUT_EFFECT.contains(&key.as_str()) {
            return Err(ClientError::Config(format!(
                "{key}={value}: the {whose} has no such setting; \
                 give one of Kafka 4.3's, or leave it out"
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod kafka_defaults;

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
    }

    #[test]
    fn the_error_names_an_unknown_key() {
        let given = settings(&[("bootstrap.servers", "a:1"), ("linger.sm", "5")]);
        let refused = producer(&given).unwrap_err().to_string();
        assert!(
            refused.starts_with("linger.sm=5: the producer has no such setting"),
            "{refused}"
        );
        // A producer's setting is not valid for a consumer.
        let given = settings(&[("linger.ms", "5")]);
        producer(&given).unwrap();
        assert!(consumer(&given).is_err());
        assert!(admin(&given).is_err());
    }

    #[test]
    fn keys_of_other_client_types_are_known() {
        let given = settings(&[("linger.ms", "5"), ("group.id", "g"), ("akcs", "1")]);
        let unknown = ClientConfig::default().apply(&given).unwrap();
        let unknown = [unknown];
        let keys: Vec<_> = unknown_keys(&given, &unknown).collect();
        assert_eq!(keys, ["akcs"]);
        assert!(known_keys().any(|key| key == "acks"));
    }

    #[test]
    fn errors_name_invalid_and_accepted_values() {
        for (key, value, message) in [
            (
                "linger.ms",
                "-1",
                "linger.ms=-1: not accepted; give a number of milliseconds, 0 or more",
            ),
            ("acks", "2", "acks=2: not accepted; give all, -1, 0 or 1"),
            (
                "batch.size",
                "3000000000",
                "batch.size=3000000000: not accepted; give a number from 0 to 2147483647",
            ),
            (
                "enable.idempotence",
                "yes",
                "enable.idempotence=yes: not accepted; give true or false",
            ),
        ] {
            let refused = producer(&settings(&[(key, value)])).unwrap_err();
            assert_eq!(refused.to_string(), message);
        }
    }

    #[test]
    fn files_of_kafkas_clients_are_read() {
        let given = settings(&[
            (
                "key.serializer",
                "org.apache.kafka.common.serialization.StringSerializer",
            ),
            ("metrics.recording.level", "INFO"),
            ("send.buffer.bytes", "131072"),
        ]);
        producer(&given).unwrap();
        let given = settings(&[("key.serializer", "com.example.AvroSerializer")]);
        assert!(producer(&given).is_err());
    }
}
