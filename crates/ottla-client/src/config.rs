//! The configuration of a client.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::ClientError;
use crate::metrics::Windows;
use crate::properties::value::Value;
use crate::security::SecurityConfig;
use crate::slow_requests::SlowRequestListener;

/// A limit, because each window of each metric is kept in memory.
const MOST_METRICS_SAMPLES: u64 = 1000;

/// Settings that producers, consumers and admin clients share. The defaults are Kafka's.
///
/// ```
/// use std::time::Duration;
/// use ottla_client::ClientConfig;
///
/// let config = ClientConfig {
///     client_id: "billing".to_owned(),
///     request_timeout: Duration::from_secs(10),
///     ..ClientConfig::new("kafka-1.example.com:9092").unwrap()
/// };
/// # assert_eq!(config.client_id, "billing");
/// ```
#[derive(Clone, Debug)]
pub struct ClientConfig {
    /// `host:port` of one or more brokers, from which the others are discovered.
    pub bootstrap_servers: Vec<String>,
    pub client_id: String,
    /// The timeout of one request.
    pub request_timeout: Duration,
    /// The timeout of an operation including its retries.
    pub default_api_timeout: Duration,
    pub socket_connection_setup_timeout: Duration,
    pub retry_backoff: Duration,
    pub retry_backoff_max: Duration,
    /// The backoff before reconnecting to a leader: initial and maximum.
    pub reconnect_backoff: Duration,
    pub reconnect_backoff_max: Duration,
    pub metadata_max_age: Duration,
    /// The maximum size of a response.
    pub max_response_bytes: usize,
    /// The sizes of the socket buffers. `None` leaves them to the kernel, which grows them as
    /// needed. Kafka's own default values also mean `None`, as on the broker: they are rarely set
    /// on purpose, and reduce throughput.
    pub send_buffer_bytes: Option<u32>,
    pub receive_buffer_bytes: Option<u32>,
    /// The number of windows over which metrics are averaged, and the length of a window.
    pub metrics_num_samples: usize,
    pub metrics_sample_window: Duration,
    pub security: SecurityConfig,
    /// Reports requests that wait long for their answer.
    pub slow_requests: Option<SlowRequestListener>,
}

impl Default for ClientConfig {
    fn default() -> Self {
        ClientConfig {
            bootstrap_servers: Vec::new(),
            client_id: "ottla".into(),
            request_timeout: Duration::from_secs(30),
            default_api_timeout: Duration::from_secs(60),
            socket_connection_setup_timeout: Duration::from_secs(10),
            retry_backoff: Duration::from_millis(100),
            retry_backoff_max: Duration::from_secs(1),
            reconnect_backoff: Duration::from_millis(50),
            reconnect_backoff_max: Duration::from_secs(1),
            metadata_max_age: Duration::from_secs(300),
            max_response_bytes: 1 << 30,
            send_buffer_bytes: None,
            receive_buffer_bytes: None,
            metrics_num_samples: 2,
            metrics_sample_window: Duration::from_secs(30),
            security: SecurityConfig::default(),
            slow_requests: None,
        }
    }
}

impl ClientConfig {
    /// A client of the cluster of these brokers, given as `host:port` separated by commas.
    ///
    /// ```
    /// let config = ottla_client::ClientConfig::new("a:9092, b:9092").unwrap();
    /// assert_eq!(config.bootstrap_servers, ["a:9092", "b:9092"]);
    /// ```
    pub fn new(bootstrap_servers: &str) -> Result<ClientConfig, ClientError> {
        let mut config = ClientConfig::default();
        config.set_bootstrap_servers(bootstrap_servers)?;
        Ok(config)
    }

    /// Replaces the bootstrap servers, given as `host:port` separated by commas.
    ///
    /// ```
    /// use ottla_client::ClientConfig;
    ///
    /// let mut config = ClientConfig::default();
    /// config.set_bootstrap_servers("a:9092,b:9092").unwrap();
    /// assert!(config.set_bootstrap_servers("a:99999").is_err());
    /// ```
    pub fn set_bootstrap_servers(&mut self, servers: &str) -> Result<(), ClientError> {
        let mut parsed = Vec::new();
        for server in servers
            .split(',')
            .map(str::trim)
            .filter(|server| !server.is_empty())
        {
            // A protocol prefix is accepted, as in Kafka's clients.
            let address = server
                .rsplit_once("://")
                .map_or(server, |(_, address)| address);
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            let is_number = !port.is_empty() && port.bytes().all(|it| it.is_ascii_digit());
            let is_port = port.parse::<u16>().is_ok_and(|port| port > 0);
            if is_number && !is_port {
                return Err(ClientError::Config(format!(
                    "bootstrap.servers={server}: {port} is not a port; give 1 to 65535"
                )));
            }
            if !is_port {
                return Err(ClientError::Config(format!(
                    "bootstrap.servers={server}: not an address; give host:port"
                )));
            }
            parsed.push(address.to_owned());
        }
        if parsed.is_empty() {
            return Err(ClientError::Config(
                "bootstrap.servers is empty; give host:port".into(),
            ));
        }
        self.bootstrap_servers = parsed;
        Ok(())
    }

    /// Applies the settings of Kafka's clients in a properties file. Returns the settings that this
    /// client does not know.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use ottla_client::ClientConfig;
    ///
    /// let settings = BTreeMap::from([
    ///     ("client.id".to_owned(), "billing".to_owned()),
    ///     ("linger.ms".to_owned(), "5".to_owned()),
    /// ]);
    /// let mut config = ClientConfig::default();
    /// // `linger.ms` is a setting of producers.
    /// assert_eq!(config.apply(&settings).unwrap(), ["linger.ms"]);
    /// assert_eq!(config.client_id, "billing");
    /// ```
    pub fn apply(
        &mut self,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ClientError> {
        let unknown = self.apply_without_credentials(settings)?;
        self.validate()?;
        Ok(unknown)
    }

    /// As [`ClientConfig::apply`], for a program whose users log in themselves: credentials may be
    /// missing.
    ///
    /// ```
    /// use std::collections::BTreeMap;
    /// use ottla_client::{ClientConfig, SaslMechanism};
    ///
    /// let settings = [("security.protocol", "SASL_PLAINTEXT"), ("sasl.mechanism", "PLAIN")];
    /// let settings: BTreeMap<String, String> =
    ///     settings.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
    /// let mut config = ClientConfig::default();
    /// config.apply_without_credentials(&settings).unwrap();
    /// assert!(config.validate().is_err());
    /// config.security.log_in_as(SaslMechanism::Plain, "alice", "secret");
    /// config.validate().unwrap();
    /// ```
    pub fn apply_without_credentials(
        &mut self,
        settings: &BTreeMap<String, String>,
    ) -> Result<Vec<String>, ClientError> {
        let mut unknown = Vec::new();
        for (key, value) in settings {
            let value = value.trim();
            match key.as_str() {
                "bootstrap.servers" => self.set_bootstrap_servers(value)?,
                "client.id" => self.client_id = value.to_owned(),
                "request.timeout.ms" => self.request_timeout = milliseconds(key, value)?,
                "default.api.timeout.ms" => self.default_api_timeout = milliseconds(key, value)?,
                "socket.connection.setup.timeout.ms" => {
                    self.socket_connection_setup_timeout = milliseconds(key, value)?;
                }
                "retry.backoff.ms" => self.retry_backoff = milliseconds(key, value)?,
                "retry.backoff.max.ms" => self.retry_backoff_max = milliseconds(key, value)?,
                "reconnect.backoff.ms" => self.reconnect_backoff = milliseconds(key, value)?,
                "reconnect.backoff.max.ms" => {
                    self.reconnect_backoff_max = milliseconds(key, value)?;
                }
                "metadata.max.age.ms" => self.metadata_max_age = milliseconds(key, value)?,
                "config.providers" => {
                    Value::new(key, value).only(&[""], "Java classes cannot be loaded here")?;
                }
                "send.buffer.bytes" => {
                    self.send_buffer_bytes = socket_buffer(key, value, &[131_072])?;
                }
                // The default of a producer and that of other clients.
                "receive.buffer.bytes" => {
                    self.receive_buffer_bytes = socket_buffer(key, value, &[32_768, 65_536])?;
                }
                "metrics.num.samples" => {
                    let accepted = 1..=MOST_METRICS_SAMPLES;
                    self.metrics_num_samples = Value::new(key, value).number(accepted)? as usize;
                }
                "metrics.sample.window.ms" => {
                    self.metrics_sample_window = milliseconds(key, value)?;
                }
                _ if self.security.apply(key, Value::new(key, value))? => {}
                _ => unknown.push(key.clone()),
            }
        }
        self.security.validate_mechanism()?;
        Ok(unknown)
    }

    /// Refuses security settings with which no connection is possible, such as SASL without
    /// credentials.
    ///
    /// ```
    /// use ottla_client::{ClientConfig, SaslMechanism, SecurityProtocol};
    ///
    /// let mut config = ClientConfig::default();
    /// config.security.protocol = SecurityProtocol::SaslPlaintext;
    /// config.security.sasl_mechanism = Some(SaslMechanism::Plain);
    /// let refused = config.validate().unwrap_err().to_string();
    /// assert!(refused.starts_with("sasl.jaas.config"));
    /// ```
    pub fn validate(&self) -> Result<(), ClientError> {
        self.security.validate()
    }

    pub(crate) fn metrics_windows(&self) -> Windows {
        Windows {
            count: self.metrics_num_samples.max(1),
            length_ms: self.metrics_sample_window.as_millis() as u64,
        }
    }
}

/// `None` if the kernel decides.
fn socket_buffer(key: &str, text: &str, defaults: &[u32]) -> Result<Option<u32>, ClientError> {
    if text == "-1" {
        return Ok(None);
    }
    match text.parse::<u32>() {
        Ok(bytes) if defaults.contains(&bytes) => Ok(None),
        Ok(bytes) if i32::try_from(bytes).is_ok() => Ok(Some(bytes)),
        _ => Err(Value::new(key, text).refused("bytes, or -1 to leave it to the kernel")),
    }
}

pub(crate) fn milliseconds(key: &str, value: &str) -> Result<Duration, ClientError> {
    value
        .trim()
        .parse()
        .map(Duration::from_millis)
        .map_err(|_| ClientError::Config(format!("{key}={value}: not a number; give milliseconds")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked() {
        let config = ClientConfig::new("a:9092, PLAINTEXT://b:9093,").unwrap();
        assert_eq!(config.bootstrap_servers, ["a:9092", "b:9093"]);
        for bad in ["", "a", "a:0", "a:port"] {
            assert!(ClientConfig::new(bad).is_err(), "{bad}");
        }
        let error = ClientConfig::new("localhost:99999").unwrap_err();
        assert_eq!(
            error.to_string(),
            "bootstrap.servers=localhost:99999: 99999 is not a port; give 1 to 65535"
        );
    }

    #[test]
    fn settings_of_kafkas_clients_apply() {
        let settings = BTreeMap::from([
            ("request.timeout.ms".to_owned(), "5".to_owned()),
            ("acks".to_owned(), "all".to_owned()),
        ]);
        let mut config = ClientConfig::default();
        assert_eq!(config.apply(&settings).unwrap(), ["acks"]);
        assert_eq!(config.request_timeout, Duration::from_millis(5));
        let buffers = |send: &str, receive: &str| {
            let mut config = ClientConfig::default();
            let settings = [
                ("send.buffer.bytes", send),
                ("receive.buffer.bytes", receive),
            ];
            let settings = settings.map(|(key, value)| (key.to_owned(), value.to_owned()));
            let applied = config.apply(&BTreeMap::from(settings));
            applied.map(|_| (config.send_buffer_bytes, config.receive_buffer_bytes))
        };
        assert_eq!(buffers("7", "8").unwrap(), (Some(7), Some(8)));
        for receive in ["32768", "65536", "-1"] {
            assert_eq!(buffers("131072", receive).unwrap(), (None, None));
        }
        let refused = buffers("-2", "1").unwrap_err().to_string();
        assert!(
            refused.starts_with("send.buffer.bytes=-2: not accepted"),
            "{refused}"
        );
        let secure = BTreeMap::from([("security.protocol".to_owned(), "SASL_SSL".to_owned())]);
        let refused = config.apply(&secure).unwrap_err().to_string();
        assert!(
            refused.starts_with("sasl.jaas.config: there is no entry"),
            "{refused}"
        );
    }
}
