//! The settings of a producer: names and defaults of Kafka's `ProducerConfig`.

use std::collections::BTreeMap;
use std::time::Duration;

use ottla_records::{Compression, CompressionType};

use crate::error::ClientError;
use crate::properties::value::Value;

/// The settings of a producer, with Kafka's keys and defaults.
///
/// ```
/// use std::time::Duration;
/// use ottla_client::ProducerConfig;
/// use ottla_client::ottla_records::CompressionType;
///
/// let config = ProducerConfig {
///     compression: CompressionType::Zstd.into(),
///     linger: Duration::from_millis(20),
///     ..ProducerConfig::default()
/// };
/// # assert!(config.is_idempotent());
/// ```
#[derive(Clone, Debug)]
pub struct ProducerConfig {
    /// 0, 1, or -1 for all in-sync replicas.
    pub acks: i16,
    /// `compression.type` with the level of the codec.
    pub compression: Compression,
    /// The size at which a batch is sent. 0 gives each record its own batch.
    pub batch_size: usize,
    /// How long a batch that is not full waits for more records.
    pub linger: Duration,
    /// The maximum memory of batches, beyond which `send` waits.
    pub buffer_memory: usize,
    /// How long `send` waits for memory and metadata, and how long a transactional call waits.
    pub max_block: Duration,
    pub max_request_size: usize,
    pub max_in_flight_requests_per_connection: usize,
    /// The timeout of a record from `send` on, including retries.
    pub delivery_timeout: Duration,
    pub retries: u32,
    /// `None` enables it if `acks` and `retries` allow it, as in Kafka.
    pub enable_idempotence: Option<bool>,
    /// Whether keys are ignored for the choice of partitions.
    pub partitioner_ignore_keys: bool,
    /// Whether partitions with longer queues get fewer records without keys.
    pub partitioner_adaptive_partitioning_enable: bool,
    /// A leader that accepts no batches for this time gets no records without keys. Zero disables
    /// this.
    pub partitioner_availability_timeout: Duration,
    pub transactional_id: Option<String>,
    pub transaction_timeout: Duration,
}

impl Default for ProducerConfig {
    fn default() -> Self {
        ProducerConfig {
            acks: -1,
            compression: Compression::None,
            batch_size: 16_384,
            linger: Duration::from_millis(5),
            buffer_memory: 32 * 1024 * 1024,
            max_block: Duration::from_secs(60),
            max_request_size: 1024 * 1024,
            max_in_flight_requests_per_connection: 5,
            delivery_timeout: Duration::from_secs(120),
            retries: i32::MAX as u32,
            enable_idempotence: None,
            partitioner_ignore_keys: false,
            partitioner_adaptive_partitioning_enable: true,
            partitioner_availability_timeout: Duration::ZERO,
            transactional_id: None,
            transaction_timeout: Duration::from_secs(60),
        }
    }
}

/// With more requests in flight, a broker could forget a batch that is retried.
const MAX_IN_FLIGHT_WITH_IDEMPOTENCE: usize = 5;

impl ProducerConfig {
    /// Applies the settings of a producer in a properties file. Returns the keys of other settings.
    /// [`crate::properties::producer`] refuses these.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use std::time::Duration;
    /// use ottla_client::ProducerConfig;
    ///
    /// let settings = BTreeMap::from([("linger.ms".to_owned(), "20".to_owned())]);
    /// let mut config = ProducerConfig::default();
    /// assert!(config.apply(&settings).unwrap().is_empty());
    /// assert_eq!(config.linger, Duration::from_millis(20));
    /// ```
    pub fn apply(
        &mut self,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ClientError> {
        let mut unknown = Vec::new();
        for (key, value) in settings {
            let value = Value::new(key, value);
            match key.as_str() {
                "acks" => {
                    self.acks = match value.text() {
                        "all" | "-1" => -1,
                        "0" => 0,
                        "1" => 1,
                        _ => return Err(value.refused("all, -1, 0 or 1")),
                    };
                }
                "compression.type" => {
                    let codec = CompressionType::from_name(value.text())
                        .ok_or_else(|| value.refused("none, gzip, snappy, lz4 or zstd"))?;
                    if codec != self.compression.codec() {
                        self.compression = codec.into();
                    }
                }
                // Applied below, when the codec is known.
                "compression.gzip.level" | "compression.lz4.level" | "compression.zstd.level" => {}
                "batch.size" => self.batch_size = value.size(0)? as usize,
                "linger.ms" => self.linger = value.milliseconds()?,
                "buffer.memory" => {
                    self.buffer_memory = value.number(0..=i64::MAX as u64)? as usize;
                }
                "max.block.ms" => self.max_block = value.milliseconds()?,
                "max.request.size" => self.max_request_size = value.size(0)? as usize,
                "max.in.flight.requests.per.connection" => {
                    self.max_in_flight_requests_per_connection = value.size(1)? as usize;
                }
                "delivery.timeout.ms" => self.delivery_timeout = value.milliseconds()?,
                "retries" => self.retries = value.size(0)? as u32,
                "enable.idempotence" => self.enable_idempotence = Some(value.boolean()?),
                "partitioner.ignore.keys" => self.partitioner_ignore_keys = value.boolean()?,
                "partitioner.adaptive.partitioning.enable" => {
                    self.partitioner_adaptive_partitioning_enable = value.boolean()?;
                }
                "partitioner.availability.timeout.ms" => {
                    self.partitioner_availability_timeout = value.milliseconds()?;
                }
                "transactional.id" => {
                    self.transactional_id = Some(value.non_empty()?.to_owned());
                }
                "transaction.timeout.ms" => {
                    self.transaction_timeout = value.milliseconds()?;
                }
                "transaction.two.phase.commit.enable" => {
                    value.only(&["false"], "this client has no two-phase commit")?;
                }
                "partitioner.class" | "interceptor.classes" => {
                    value.only(&[""], "Java classes cannot be loaded here")?;
                }
                "key.serializer" | "value.serializer" => value.java_serde("Serializer")?,
                _ => unknown.push(key.clone()),
            }
        }
        for codec in ["gzip", "lz4", "zstd"] {
            let key = format!("compression.{codec}.level");
            let Some(text) = settings.get(&key) else {
                continue;
            };
            let value = Value::new(&key, text);
            let codec = CompressionType::from_name(codec).expect("Kafka has it");
            let levels = codec.levels().expect("it has levels");
            let accepted = format!(
                "a level from {} to {}, or {} for the default",
                levels.min, levels.max, levels.default
            );
            let level = value.text().parse().map_err(|_| value.refused(&accepted))?;
            let compression =
                Compression::with_level(codec, level).map_err(|_| value.refused(&accepted))?;
            if self.compression.codec() == codec {
                self.compression = compression;
            }
        }
        Ok(unknown)
    }

    /// Whether the producer is idempotent.
    ///
    /// ```
    /// use ottla_client::ProducerConfig;
    ///
    /// assert!(ProducerConfig::default().is_idempotent());
    /// assert!(!ProducerConfig { acks: 1, ..ProducerConfig::default() }.is_idempotent());
    /// ```
    pub fn is_idempotent(&self) -> bool {
        self.enable_idempotence.unwrap_or_else(|| {
            self.transactional_id.is_some() || self.acks == -1 && self.retries > 0
        })
    }

    /// Refuses contradictory settings.
    ///
    /// ```
    /// use std::time::Duration;
    /// use ottla_client::ProducerConfig;
    ///
    /// let config = ProducerConfig { acks: 1, enable_idempotence: Some(true), ..Default::default() };
    /// let refused = config.validate(Duration::from_secs(30)).unwrap_err().to_string();
    /// assert!(refused.starts_with("acks=1: idempotence needs acks=all"));
    /// ```
    pub fn validate(&self, request_timeout: Duration) -> Result<(), ClientError> {
        let refuse = |text: String| Err(ClientError::Config(text));
        // As in Kafka, checked even if `acks` or `retries` turn the default off: the order of
        // records is not guaranteed only if idempotence is disabled explicitly.
        let in_flight = self.max_in_flight_requests_per_connection;
        if self.enable_idempotence != Some(false) && in_flight > MAX_IN_FLIGHT_WITH_IDEMPOTENCE {
            return refuse(format!(
                "max.in.flight.requests.per.connection={in_flight}: idempotence allows \
                 {MAX_IN_FLIGHT_WITH_IDEMPOTENCE} at most; or give enable.idempotence=false"
            ));
        }
        if self.is_idempotent() {
            if self.acks != -1 {
                return refuse(format!(
                    "acks={}: idempotence needs acks=all; or give enable.idempotence=false",
                    self.acks
                ));
            }
            if self.retries == 0 {
                return refuse("retries=0: idempotence needs at least 1 retry".into());
            }
        } else if self.transactional_id.is_some() {
            return refuse("enable.idempotence=false: transactions need idempotence".into());
        }
        let least = self.linger + request_timeout;
        // The default is raised, as in Kafka; an explicit value is not.
        if self.delivery_timeout < least
            && self.delivery_timeout != ProducerConfig::default().delivery_timeout
        {
            return refuse(format!(
                "delivery.timeout.ms={}: give at least linger.ms + request.timeout.ms, which is {}",
                self.delivery_timeout.as_millis(),
                least.as_millis()
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn applied(settings: &[(&str, &str)]) -> Result<ProducerConfig, ClientError> {
        let settings = settings
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let mut config = ProducerConfig::default();
        config.apply(&settings).map(|_| config)
    }

    #[test]
    fn a_compression_level_applies_to_its_codec() {
        let zstd = applied(&[
            ("compression.type", "zstd"),
            ("compression.zstd.level", "7"),
            ("compression.gzip.level", "9"),
        ]);
        assert_eq!(zstd.unwrap().compression, Compression::Zstd { level: 7 });
        let refused = applied(&[("compression.gzip.level", "10")]).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "compression.gzip.level=10: not accepted; give a level from 1 to 9, or -1 for the default"
        );
    }

    #[test]
    fn idempotence_is_enabled_unless_other_settings_conflict() {
        let timeout = Duration::from_secs(30);
        assert!(applied(&[]).unwrap().is_idempotent());
        for setting in [("acks", "1"), ("retries", "0")] {
            let config = applied(&[setting]).unwrap();
            assert!(!config.is_idempotent(), "{setting:?}");
            config.validate(timeout).unwrap();
            let asked_for = applied(&[setting, ("enable.idempotence", "true")]).unwrap();
            let refused = asked_for.validate(timeout).unwrap_err().to_string();
            assert!(refused.contains(setting.0), "{refused}");
        }
        let six = ("max.in.flight.requests.per.connection", "6");
        for settings in [&[six][..], &[six, ("acks", "1")]] {
            let refused = applied(settings)
                .unwrap()
                .validate(timeout)
                .unwrap_err()
                .to_string();
            assert!(
                refused.ends_with("or give enable.idempotence=false"),
                "{refused}"
            );
        }
        let without = applied(&[six, ("enable.idempotence", "false")]).unwrap();
        without.validate(timeout).unwrap();
        let short = applied(&[("delivery.timeout.ms", "30000")]).unwrap();
        let refused = short.validate(timeout).unwrap_err().to_string();
        assert!(refused.contains("which is 30005"), "{refused}");
    }
}
