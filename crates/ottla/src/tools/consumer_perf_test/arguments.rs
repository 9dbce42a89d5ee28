//! Flags shared by the performance tests of consumers and share consumers.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, bail};
use clap::Args;

use crate::tools::settings::{key_values, load_client_properties_if_given};
use crate::tools::simple_date_format::SimpleDateFormat;

/// Kafka's default. It leaves the buffer size to the kernel, which can grow it beyond the limit for
/// programs.
const SOCKET_BUFFER_SIZE: &str = "2097152";

#[derive(Args, Debug)]
pub(in crate::tools) struct MeasuringArgs {
    /// Brokers to connect to first: host:port, separated by commas.
    #[arg(long, value_name = "SERVERS")]
    pub(in crate::tools) bootstrap_server: Option<String>,
    /// A consumer setting; repeatable.
    #[arg(long, value_name = "KEY=VALUE")]
    command_property: Vec<String>,
    /// Bytes of the socket's receive buffer (receive.buffer.bytes).
    #[arg(long, value_name = "BYTES", default_value = SOCKET_BUFFER_SIZE)]
    socket_buffer_size: String,
    /// Deprecated: write --command-config.
    #[arg(long = "consumer.config", value_name = "FILE", hide = true)]
    consumer_config: Option<String>,
    /// Properties file with settings of the consumer.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// Print the consumer's metrics at the end.
    #[arg(long)]
    pub(in crate::tools) print_metrics: bool,
    /// Print progress every --reporting-interval.
    #[arg(long)]
    pub(in crate::tools) show_detailed_stats: bool,
    /// Exit when no record has arrived for this long.
    #[arg(long, value_name = "MS", default_value = "10000", num_args = 0..=1, default_missing_value = "10000")]
    timeout: String,
    /// Deprecated: write --num-records.
    #[arg(long, value_name = "NUMBER", hide = true)]
    messages: Option<String>,
    /// How many records to consume.
    #[arg(long, value_name = "NUMBER")]
    num_records: Option<String>,
    /// How often to print progress.
    #[arg(long, value_name = "MS", default_value = "5000")]
    reporting_interval: String,
    /// How times are shown, a pattern of java.text.SimpleDateFormat.
    #[arg(long, value_name = "FORMAT", default_value = "yyyy-MM-dd HH:mm:ss:SSS")]
    date_format: String,
    /// Do not print the names of the columns.
    #[arg(long)]
    pub(in crate::tools) hide_header: bool,
    /// Words that are no flags have no effect, as in Kafka's tool.
    #[arg(hide = true)]
    ignored: Vec<String>,
}

/// The measurement to make.
pub(in crate::tools) struct Wanted {
    pub(in crate::tools) records: u64,
    /// Maximum time without a record.
    pub(in crate::tools) timeout: Duration,
    /// Time between two progress lines.
    pub(in crate::tools) interval: Duration,
    pub(in crate::tools) format: SimpleDateFormat,
}

impl Wanted {
    pub(in crate::tools) fn warn_of_too_few(&self) {
        println!(
            "WARNING: Exiting before consuming the expected number of records: timeout ({} ms) exceeded. You can use \
             the --timeout option to increase the timeout.",
            self.timeout.as_millis()
        );
    }
}

impl MeasuringArgs {
    /// Rejects the arguments that Kafka's tools reject before they print anything, with the same
    /// messages.
    pub(in crate::tools) fn check(&self) -> Result<(), String> {
        if self.messages.is_some() == self.num_records.is_some() {
            return Err(
                "Exactly one of the following arguments is required: [messages], [num-records]"
                    .into(),
            );
        }
        if self.consumer_config.is_some() && self.command_config.is_some() {
            return Err(
                "Option \"[consumer.config]\" can't be used with option \"[command-config]\""
                    .into(),
            );
        }
        Ok(())
    }

    pub(in crate::tools) fn warn_of_deprecated(&self) {
        if self.messages.is_some() {
            println!("Warning: --messages is deprecated. Use --num-records instead.");
        }
        if self.consumer_config.is_some() {
            println!("Warning: --consumer.config is deprecated. Use --command-config instead.");
        }
    }

    /// Flags override properties, which override the file. `own` holds the settings from the tool's
    /// own flags.
    pub(in crate::tools) fn settings<const N: usize>(
        &self,
        own: [(&str, String); N],
        client_id: &str,
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let file = self.consumer_config.as_ref();
        let file = file.or(self.command_config.as_ref());
        let mut settings = load_client_properties_if_given(file)?;
        settings.extend(key_values(&self.command_property));
        let socket_buffer_size: i32 = number("socket-buffer-size", &self.socket_buffer_size)?;
        let receive_buffer = if self.socket_buffer_size == SOCKET_BUFFER_SIZE {
            "-1".to_owned()
        } else {
            socket_buffer_size.to_string()
        };
        let bootstrap = self.bootstrap_server.clone().unwrap_or_default();
        let of_both = [
            ("bootstrap.servers", bootstrap),
            ("receive.buffer.bytes", receive_buffer),
            ("check.crcs", "false".to_owned()),
        ];
        let flags = of_both.into_iter().chain(own);
        settings.extend(flags.map(|(key, value)| (key.to_owned(), value)));
        settings
            .entry("client.id".into())
            .or_insert_with(|| client_id.to_owned());
        Ok(settings)
    }

    pub(in crate::tools) fn wanted(&self) -> anyhow::Result<Wanted> {
        let (option, text) = match (&self.messages, &self.num_records) {
            (Some(text), _) => ("messages", text),
            (None, text) => ("num-records", text.as_ref().context("checked before")?),
        };
        let records: i64 = number(option, text)?;
        let timeout_ms: i64 = number("timeout", &self.timeout)?;
        let interval_ms: u64 = number("reporting-interval", &self.reporting_interval)?;
        if interval_ms == 0 {
            bail!("Reporting interval must be greater than 0.");
        }
        Ok(Wanted {
            records: u64::try_from(records).unwrap_or_default(),
            timeout: Duration::from_millis(timeout_ms.max(0).cast_unsigned()),
            interval: Duration::from_millis(interval_ms),
            format: SimpleDateFormat::new(&self.date_format)?,
        })
    }
}

/// Parses a number among the arguments.
pub(in crate::tools) fn number<T: std::str::FromStr>(
    option: &str,
    text: &str,
) -> anyhow::Result<T> {
    text.parse()
        .ok()
        .with_context(|| format!("Cannot parse argument '{text}' of option {option}"))
}
