//! The settings of a consumer: names and defaults of Kafka's `ConsumerConfig`.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_types::iso_duration_ms;

use super::assignors::Assignor;
use super::records::MAX_BATCH_BYTES;
use crate::error::ClientError;
use crate::properties::value::Value;

/// Where to start if there is no committed offset, or if the log does not have it any more.
///
/// ```
/// use std::time::Duration;
/// use ottla_client::{ConsumerConfig, OffsetReset};
///
/// let config = ConsumerConfig {
///     offset_reset: OffsetReset::ByDuration(Duration::from_secs(86_400)),
///     ..ConsumerConfig::default()
/// };
/// # assert!(matches!(config.offset_reset, OffsetReset::ByDuration(_)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OffsetReset {
    Earliest,
    Latest,
    /// The first record that is not older than this (KIP-1106).
    ByDuration(Duration),
    /// Returns an error.
    None,
}

/// The protocol that assigns the partitions of a group: `group.protocol`.
///
/// ```
/// use ottla_client::{ConsumerConfig, GroupProtocol};
///
/// let config = ConsumerConfig {
///     group_id: Some("billing".to_owned()),
///     group_protocol: GroupProtocol::Consumer,
///     ..ConsumerConfig::default()
/// };
/// # assert_eq!(config.group_protocol, GroupProtocol::Consumer);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum GroupProtocol {
    /// One of the members.
    Classic,
    /// The coordinator (KIP-848).
    Consumer,
}

/// The settings of a consumer, with Kafka's keys and defaults.
///
/// ```
/// use ottla_client::{ConsumerConfig, OffsetReset};
///
/// let config = ConsumerConfig {
///     group_id: Some("billing".to_owned()),
///     offset_reset: OffsetReset::Earliest,
///     read_committed: true,
///     auto_commit: false,
///     ..ConsumerConfig::default()
/// };
/// # assert_eq!(config.max_poll_records, 500);
/// ```
#[derive(Clone, Debug)]
pub struct ConsumerConfig {
    pub group_id: Option<String>,
    pub group_instance_id: Option<String>,
    pub group_protocol: GroupProtocol,
    /// The coordinator's assignor, with [`GroupProtocol::Consumer`]; `None` for the coordinator's
    /// default.
    pub group_remote_assignor: Option<String>,
    /// In order of preference, with [`GroupProtocol::Classic`].
    pub partition_assignment_strategy: Vec<Assignor>,
    /// `auto.offset.reset`.
    pub offset_reset: OffsetReset,
    /// `enable.auto.commit`.
    pub auto_commit: bool,
    pub auto_commit_interval: Duration,
    /// `isolation.level=read_committed`.
    pub read_committed: bool,
    pub check_crcs: bool,
    /// The rack of this consumer, so that a replica in the same rack can serve it.
    pub client_rack: Option<String>,
    pub fetch_min_bytes: i32,
    pub fetch_max_bytes: i32,
    pub fetch_max_wait: Duration,
    /// The maximum per partition in one response. Up to two such pieces of a partition are held.
    pub max_partition_fetch_bytes: i32,
    /// The maximum decompressed size of a batch, whose reading fails otherwise. Kafka has no such
    /// setting.
    pub max_batch_bytes: usize,
    pub max_poll_records: usize,
    pub session_timeout: Duration,
    pub heartbeat_interval: Duration,
    pub max_poll_interval: Duration,
    pub allow_auto_create_topics: bool,
    /// Whether a pattern matches only topics that are not internal.
    pub exclude_internal_topics: bool,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        ConsumerConfig {
            group_id: None,
            group_instance_id: None,
            group_protocol: GroupProtocol::Classic,
            group_remote_assignor: None,
            partition_assignment_strategy: vec![Assignor::Range, Assignor::CooperativeSticky],
            offset_reset: OffsetReset::Latest,
            auto_commit: true,
            auto_commit_interval: Duration::from_secs(5),
            read_committed: false,
            check_crcs: true,
            client_rack: None,
            fetch_min_bytes: 1,
            fetch_max_bytes: 50 * 1024 * 1024,
            fetch_max_wait: Duration::from_millis(500),
            max_partition_fetch_bytes: 1024 * 1024,
            max_batch_bytes: MAX_BATCH_BYTES,
            max_poll_records: 500,
            session_timeout: Duration::from_secs(45),
            heartbeat_interval: Duration::from_secs(3),
            max_poll_interval: Duration::from_secs(300),
            allow_auto_create_topics: true,
            exclude_internal_topics: true,
        }
    }
}

impl ConsumerConfig {
    /// Applies the settings of a consumer in a properties file. Returns the keys of other settings.
    /// [`crate::properties::consumer`] refuses these.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use ottla_client::{ConsumerConfig, OffsetReset};
    ///
    /// let settings = BTreeMap::from([("auto.offset.reset".to_owned(), "earliest".to_owned())]);
    /// let mut config = ConsumerConfig::default();
    /// assert!(config.apply(&settings).unwrap().is_empty());
    /// assert_eq!(config.offset_reset, OffsetReset::Earliest);
    /// ```
    pub fn apply(
        &mut self,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ClientError> {
        let mut unknown = Vec::new();
        for (key, value) in settings {
            let value = Value::new(key, value);
            match key.as_str() {
                "group.id" => self.group_id = value.optional(),
                "group.instance.id" => {
                    self.group_instance_id = Some(value.non_empty()?.to_owned());
                }
                "group.protocol" => {
                    self.group_protocol = match value.text().to_ascii_lowercase().as_str() {
                        "classic" => GroupProtocol::Classic,
                        "consumer" => GroupProtocol::Consumer,
                        _ => return Err(value.refused("classic or consumer")),
                    };
                }
                "group.remote.assignor" => {
                    self.group_remote_assignor = Some(value.non_empty()?.to_owned());
                }
                "partition.assignment.strategy" => {
                    let parts = value.text().split(',').map(str::trim);
                    let assignors = parts.map(|part| {
                        Assignor::from_name(part).ok_or_else(|| value.refused(Assignor::ACCEPTED))
                    });
                    self.partition_assignment_strategy = assignors.collect::<Result<_, _>>()?;
                }
                "auto.offset.reset" => self.offset_reset = offset_reset(value)?,
                "enable.auto.commit" => self.auto_commit = value.boolean()?,
                "auto.commit.interval.ms" => self.auto_commit_interval = value.milliseconds()?,
                "isolation.level" => {
                    self.read_committed = match value.text().to_ascii_lowercase().as_str() {
                        "read_committed" => true,
                        "read_uncommitted" => false,
                        _ => return Err(value.refused("read_committed or read_uncommitted")),
                    };
                }
                "check.crcs" => self.check_crcs = value.boolean()?,
                "client.rack" => self.client_rack = value.optional(),
                "fetch.min.bytes" => self.fetch_min_bytes = value.size(0)?,
                "fetch.max.bytes" => self.fetch_max_bytes = value.size(0)?,
                "fetch.max.wait.ms" => self.fetch_max_wait = value.milliseconds()?,
                "max.partition.fetch.bytes" => self.max_partition_fetch_bytes = value.size(0)?,
                "max.poll.records" => self.max_poll_records = value.size(1)? as usize,
                "session.timeout.ms" => self.session_timeout = value.milliseconds()?,
                "heartbeat.interval.ms" => self.heartbeat_interval = value.milliseconds()?,
                "max.poll.interval.ms" => self.max_poll_interval = value.milliseconds()?,
                "allow.auto.create.topics" => self.allow_auto_create_topics = value.boolean()?,
                "exclude.internal.topics" => self.exclude_internal_topics = value.boolean()?,
                "interceptor.classes" => value.only(&[""], "Java classes cannot be loaded here")?,
                // For share groups. An ordinary consumer ignores it.
                "share.acknowledgement.mode" => {
                    value.only(&["implicit"], "it is for share consumers")?
                }
                "share.acquire.mode" => {
                    value.only(&["batch_optimized"], "it is for share consumers")?
                }
                "key.deserializer" | "value.deserializer" => value.java_serde("Deserializer")?,
                _ => unknown.push(key.clone()),
            }
        }
        self.refuse_other_protocol(settings)?;
        Ok(unknown)
    }

    /// Settings of the other protocol are refused, as in Kafka, because they would have no effect.
    fn refuse_other_protocol(
        &self,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), ClientError> {
        let (protocol, others) = match self.group_protocol {
            GroupProtocol::Classic => ("classic", &["group.remote.assignor"][..]),
            GroupProtocol::Consumer => (
                "consumer",
                &[
                    "partition.assignment.strategy",
                    "heartbeat.interval.ms",
                    "session.timeout.ms",
                ][..],
            ),
        };
        match others.iter().find_map(|key| settings.get_key_value(*key)) {
            Some((key, value)) => Err(ClientError::Config(format!(
                "{key}={value}: has no meaning with group.protocol={protocol}; leave it out, or set the \
                 other protocol"
            ))),
            None => Ok(()),
        }
    }
}

fn offset_reset(value: Value<'_>) -> Result<OffsetReset, ClientError> {
    let text = value.text().to_ascii_lowercase();
    let accepted =
        "earliest, latest, none, or by_duration: with an ISO 8601 duration, as in by_duration:PT2H";
    match text.as_str() {
        "earliest" => Ok(OffsetReset::Earliest),
        "latest" => Ok(OffsetReset::Latest),
        "none" => Ok(OffsetReset::None),
        _ => text
            .strip_prefix("by_duration:")
            .and_then(iso_duration_ms)
            .and_then(|ms| u64::try_from(ms).ok())
            .map(|ms| OffsetReset::ByDuration(Duration::from_millis(ms)))
            .ok_or_else(|| value.refused(accepted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_checked() {
        let apply = |key: &str, value: &str| {
            let mut config = ConsumerConfig::default();
            let settings = BTreeMap::from([(key.to_owned(), value.to_owned())]);
            config.apply(&settings).map(|_| config)
        };
        let config = apply("auto.offset.reset", "by_duration:PT1M").unwrap();
        assert_eq!(
            config.offset_reset,
            OffsetReset::ByDuration(Duration::from_secs(60))
        );
        let assignors = apply(
            "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.RoundRobinAssignor, range",
        );
        assert_eq!(
            assignors.unwrap().partition_assignment_strategy,
            [Assignor::RoundRobin, Assignor::Range]
        );
        for (key, value) in [
            ("auto.offset.reset", "first"),
            ("auto.offset.reset", "by_duration:pt-1h"),
            ("max.poll.records", "0"),
            ("partition.assignment.strategy", "com.example.Own"),
            ("group.protocol", "new"),
        ] {
            let refused = apply(key, value).unwrap_err().to_string();
            assert!(
                refused.starts_with(&format!("{key}={value}: not accepted")),
                "{refused}"
            );
        }
    }
}
