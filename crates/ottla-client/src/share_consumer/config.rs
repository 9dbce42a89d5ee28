//! The settings of a share consumer: the settings of Kafka's `ConsumerConfig` that apply to share
//! groups.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ClientError;
use crate::properties::value::Value;

/// How records are acknowledged: `share.acknowledgement.mode`.
///
/// ```
/// use ottla_client::{AcknowledgementMode, ShareConsumerConfig};
///
/// let config = ShareConsumerConfig {
///     group_id: "workers".to_owned(),
///     acknowledgement_mode: AcknowledgementMode::Explicit,
///     ..ShareConsumerConfig::default()
/// };
/// # assert_eq!(config.acknowledgement_mode, AcknowledgementMode::Explicit);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AcknowledgementMode {
    /// The next poll or commit accepts all returned records.
    Implicit,
    /// The owner acknowledges each record before the next poll.
    Explicit,
}

/// How many records a poll returns: `share.acquire.mode`.
///
/// ```
/// use ottla_client::{AcquireMode, ShareConsumerConfig};
///
/// let config = ShareConsumerConfig {
///     group_id: "workers".to_owned(),
///     acquire_mode: AcquireMode::RecordLimit,
///     max_poll_records: 10,
///     ..ShareConsumerConfig::default()
/// };
/// # assert_eq!(config.acquire_mode, AcquireMode::RecordLimit);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(i8)]
pub enum AcquireMode {
    /// Whole batches, which can be more than `max.poll.records`.
    BatchOptimized = 0,
    /// At most `max.poll.records`.
    RecordLimit = 1,
}

/// Consumer settings that do not apply to share groups. Kafka's share consumer refuses them too
/// (`ShareConsumerConfig.SHARE_GROUP_UNSUPPORTED_CONFIGS`).
const UNSUPPORTED: [&str; 10] = [
    "auto.offset.reset",
    "enable.auto.commit",
    "group.instance.id",
    "isolation.level",
    "partition.assignment.strategy",
    "interceptor.classes",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "group.protocol",
    "group.remote.assignor",
];

/// The settings of a share consumer, with Kafka's keys and defaults. The first offset, the lock
/// duration and the delivery limit are settings of the group, which the cluster stores.
///
/// ```
/// use ottla_client::ShareConsumerConfig;
///
/// let config = ShareConsumerConfig {
///     group_id: "workers".to_owned(),
///     max_poll_records: 10,
///     ..ShareConsumerConfig::default()
/// };
/// # assert_eq!(config.max_poll_records, 10);
/// ```
#[derive(Clone, Debug)]
pub struct ShareConsumerConfig {
    pub group_id: String,
    pub acknowledgement_mode: AcknowledgementMode,
    pub acquire_mode: AcquireMode,
    pub check_crcs: bool,
    pub client_rack: Option<String>,
    pub fetch_min_bytes: i32,
    pub fetch_max_bytes: i32,
    pub fetch_max_wait: Duration,
    pub max_poll_records: usize,
    pub max_poll_interval: Duration,
}

impl Default for ShareConsumerConfig {
    fn default() -> Self {
        ShareConsumerConfig {
            group_id: String::new(),
            acknowledgement_mode: AcknowledgementMode::Implicit,
            acquire_mode: AcquireMode::BatchOptimized,
            check_crcs: true,
            client_rack: None,
            fetch_min_bytes: 1,
            fetch_max_bytes: 50 * 1024 * 1024,
            fetch_max_wait: Duration::from_millis(500),
            max_poll_records: 500,
            max_poll_interval: Duration::from_secs(300),
        }
    }
}

impl ShareConsumerConfig {
    /// Applies the settings of a share consumer. Returns the keys of other settings, which
    /// [`crate::properties::share_consumer`] refuses. Settings of ordinary consumers are always
    /// refused.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use ottla_client::ShareConsumerConfig;
    ///
    /// let mut config = ShareConsumerConfig::default();
    /// let settings = BTreeMap::from([("max.poll.records".to_owned(), "10".to_owned())]);
    /// assert!(config.apply(&settings).unwrap().is_empty());
    /// // The group has this setting, not its members.
    /// let settings = BTreeMap::from([("auto.offset.reset".to_owned(), "earliest".to_owned())]);
    /// assert!(config.apply(&settings).is_err());
    /// ```
    pub fn apply(
        &mut self,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ClientError> {
        let refused: Vec<&str> = UNSUPPORTED
            .iter()
            .filter(|key| settings.contains_key(**key))
            .copied()
            .collect();
        if !refused.is_empty() {
            return Err(ClientError::Config(format!(
                "{} cannot be set when using a share group.",
                refused.join(", ")
            )));
        }
        let mut unknown = Vec::new();
        for (key, value) in settings {
            let value = Value::new(key, value);
            match key.as_str() {
                "group.id" => self.group_id = value.non_empty()?.to_owned(),
                "share.acknowledgement.mode" => {
                    self.acknowledgement_mode = match value.text().to_ascii_lowercase().as_str() {
                        "implicit" => AcknowledgementMode::Implicit,
                        "explicit" => AcknowledgementMode::Explicit,
                        _ => return Err(value.refused("implicit or explicit")),
                    };
                }
                "share.acquire.mode" => {
                    self.acquire_mode = match value.text().to_ascii_lowercase().as_str() {
                        "batch_optimized" => AcquireMode::BatchOptimized,
                        "record_limit" => AcquireMode::RecordLimit,
                        _ => return Err(value.refused("batch_optimized or record_limit")),
                    };
                }
                "check.crcs" => self.check_crcs = value.boolean()?,
                "client.rack" => self.client_rack = value.optional(),
                "fetch.min.bytes" => self.fetch_min_bytes = value.size(0)?,
                "fetch.max.bytes" => self.fetch_max_bytes = value.size(0)?,
                "fetch.max.wait.ms" => self.fetch_max_wait = value.milliseconds()?,
                "max.poll.records" => self.max_poll_records = value.size(1)? as usize,
                "max.poll.interval.ms" => self.max_poll_interval = value.milliseconds()?,
                "key.deserializer" | "value.deserializer" => value.java_serde("Deserializer")?,
                _ => unknown.push(key.clone()),
            }
        }
        Ok(unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(settings: &[(&str, &str)]) -> Result<ShareConsumerConfig, ClientError> {
        let settings = settings.iter();
        let settings = settings.map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        let mut config = ShareConsumerConfig::default();
        config.apply(&settings.collect()).map(|_| config)
    }

    #[test]
    fn modes_are_case_insensitive_and_validated() {
        let config = applied(&[
            ("share.acquire.mode", "Record_Limit"),
            ("share.acknowledgement.mode", "EXPLICIT"),
        ]);
        let config = config.expect("modes");
        assert_eq!(config.acquire_mode, AcquireMode::RecordLimit);
        assert_eq!(config.acknowledgement_mode, AcknowledgementMode::Explicit);
        applied(&[("share.acquire.mode", "some")]).expect_err("no mode");
    }

    #[test]
    fn settings_of_ordinary_consumers_are_refused() {
        let error = applied(&[
            ("isolation.level", "read_committed"),
            ("auto.offset.reset", "earliest"),
        ]);
        assert_eq!(
            error.expect_err("they are refused").to_string(),
            "auto.offset.reset, isolation.level cannot be set when using a share group."
        );
    }
}
