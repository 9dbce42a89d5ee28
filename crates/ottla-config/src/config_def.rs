//! The definition of a setting: its type, default, valid values, update mode, and support in Ottla.
//!
//! Values are parsed and validated only here, whether they come from a properties file, a command
//! line or an `AlterConfigs` request. Clients receive Kafka's message for a rejected value
//! ([`InvalidValue::kafka_message`]); the message for a properties file also says what to write
//! instead ([`InvalidValue`]'s `Display`).
//!
//! Kafka: `org.apache.kafka.common.config.ConfigDef`.

use std::collections::HashSet;
use std::fmt;

use ottla_types::{iso_duration_ms, named_enum};

named_enum! {
    /// The type of a setting's value. `DescribeConfigs` responses contain the discriminants.
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    #[repr(i8)]
    pub enum ConfigType {
        Boolean = 1 => "BOOLEAN",
        String = 2 => "STRING",
        Int = 3 => "INT",
        Short = 4 => "SHORT",
        Long = 5 => "LONG",
        Double = 6 => "DOUBLE",
        List = 7 => "LIST",
        Class = 8 => "CLASS",
        Password = 9 => "PASSWORD",
    }
}

impl ConfigType {
    /// The number in a `DescribeConfigs` response.
    pub const fn code(self) -> i8 {
        self as i8
    }
}

/// The default of a setting. Values are written as Kafka prints them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DefaultValue {
    /// The setting has no default and must be given.
    Required,
    /// No value: another setting applies, or the feature is off.
    Null,
    Text(&'static str),
}

/// The accepted values of a type.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Validator {
    Any,
    AtLeast(f64),
    Between(f64, f64),
    OneOf(&'static [&'static str]),
    OneOfAnyCase(&'static [&'static str]),
    NonEmpty,
    /// Any items, none empty; duplicates are removed.
    List,
    /// As `List`, with at least one value.
    NonEmptyList,
    /// As `List`, with items from this set.
    ListOf(&'static [&'static str]),
    /// As `NonEmptyList`, with items from this set.
    NonEmptyListOf(&'static [&'static str]),
    /// 1 to 9, or -1 for the default of the library.
    GzipLevel,
    /// `id@host:port` entries.
    QuorumVoters,
    /// One `host:port`.
    HostPort,
    /// `none` turns a listener off.
    HostPortOrNone,
    /// `host:port` entries.
    BootstrapServers,
    /// `partition:broker` entries, `*`, or empty.
    ThrottledReplicas,
    /// `latest`, `earliest` or `by_duration:` with an ISO 8601 duration.
    ShareOffsetReset,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Importance {
    High,
    Medium,
    Low,
}

named_enum! {
    /// Whether a broker setting can change while the broker runs (KIP-226).
    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub enum UpdateMode {
        ReadOnly => "read-only",
        /// Per broker only.
        PerBroker => "per-broker",
        /// Per broker, or as a default for all brokers.
        ClusterWide => "cluster-wide",
    }
}

/// How Ottla supports a setting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Support {
    Supported,
    /// Validated, stored and reported, but without effect, for this reason.
    AcceptedWithoutEffect(&'static str),
    /// Rejected for this reason, unless the value is the default or one of `except`, which do not
    /// need the missing feature.
    Refused {
        reason: &'static str,
        except: &'static [&'static str],
    },
}

/// One setting.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct ConfigDef {
    pub name: &'static str,
    pub config_type: ConfigType,
    pub default: DefaultValue,
    pub validator: Validator,
    pub importance: Importance,
    pub update_mode: UpdateMode,
    pub support: Support,
    /// Internal settings of Kafka: accepted, but never listed to clients.
    pub internal: bool,
}

/// A value of a setting.
#[derive(Clone, PartialEq, Debug)]
pub enum ConfigValue {
    Boolean(bool),
    /// `INT`, `SHORT` and `LONG`. The range of the type was checked.
    Integer(i64),
    Double(f64),
    /// `STRING`, `CLASS` and `PASSWORD`.
    Text(String),
    List(Vec<String>),
}

/// A value that a setting does not accept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidValue {
    pub key: String,
    pub value: String,
    /// The reason, in Kafka's words.
    pub problem: String,
    /// The reason, shorter, for a person.
    pub short: String,
    /// What to write instead.
    pub accepted: String,
}

impl InvalidValue {
    /// Kafka's response to a request with this value.
    pub fn kafka_message(&self) -> String {
        if self.problem.starts_with("Configuration '") {
            // Kafka's list validators provide the whole message.
            return self.problem.clone();
        }
        format!(
            "Invalid value {} for configuration {}: {}",
            self.value, self.key, self.problem
        )
    }
}

impl fmt::Display for InvalidValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}={}: {}; give {}",
            self.key, self.value, self.short, self.accepted
        )
    }
}

impl std::error::Error for InvalidValue {}

impl ConfigDef {
    /// Parses `text`, ignoring white space around it.
    pub fn parse(&self, text: &str) -> Result<ConfigValue, InvalidValue> {
        let trimmed = text.trim();
        let value = match self.config_type {
            ConfigType::Boolean => {
                if trimmed.eq_ignore_ascii_case("true") {
                    ConfigValue::Boolean(true)
                } else if trimmed.eq_ignore_ascii_case("false") {
                    ConfigValue::Boolean(false)
                } else {
                    return Err(self.invalid(
                        text,
                        "Expected value to be either true or false".into(),
                        "neither true nor false",
                    ));
                }
            }
            ConfigType::Int | ConfigType::Short | ConfigType::Long => {
                let (min, max) = match self.config_type {
                    ConfigType::Int => (i64::from(i32::MIN), i64::from(i32::MAX)),
                    ConfigType::Short => (i64::from(i16::MIN), i64::from(i16::MAX)),
                    _ => (i64::MIN, i64::MAX),
                };
                match trimmed.parse::<i64>() {
                    Ok(number) if (min..=max).contains(&number) => ConfigValue::Integer(number),
                    parsed => {
                        let short = match parsed {
                            Ok(_) => "does not fit the type of the setting",
                            Err(_) => "not a number",
                        };
                        return Err(self.invalid(text, self.not_a_number(), short));
                    }
                }
            }
            ConfigType::Double => match parse_java_double(trimmed) {
                Some(number) => ConfigValue::Double(number),
                None => return Err(self.invalid(text, self.not_a_number(), "not a number")),
            },
            ConfigType::List => ConfigValue::List(self.list_items(trimmed)),
            ConfigType::String | ConfigType::Class | ConfigType::Password => {
                ConfigValue::Text(trimmed.to_owned())
            }
        };
        self.validator.check(self, text, &value)?;
        Ok(value)
    }

    /// The items of a list. Kafka's `ConfigDef.parseValue` removes duplicates.
    pub(crate) fn list_items(&self, text: &str) -> Vec<String> {
        let mut items = split_list(text);
        if self.validator.takes_items_once() {
            let mut seen = HashSet::new();
            items.retain(|item| seen.insert(item.clone()));
        }
        items
    }

    /// The first duplicate item of a list. Duplicates are removed.
    pub fn repeated_item(&self, text: &str) -> Option<String> {
        if self.config_type != ConfigType::List || !self.validator.takes_items_once() {
            return None;
        }
        let mut seen = HashSet::new();
        split_list(text.trim())
            .into_iter()
            .find(|item| !seen.insert(item.clone()))
    }

    /// The default as a value, if any.
    pub fn default_value(&self) -> Option<ConfigValue> {
        match self.default {
            DefaultValue::Required | DefaultValue::Null => None,
            DefaultValue::Text(text) => Some(
                self.parse(text)
                    .expect("the tables' defaults are valid: a test checks it"),
            ),
        }
    }

    /// The default as Kafka prints it, if any.
    pub const fn default_text(&self) -> Option<&'static str> {
        match self.default {
            DefaultValue::Required | DefaultValue::Null => None,
            DefaultValue::Text(text) => Some(text),
        }
    }

    /// Whether values must not be shown.
    pub const fn is_sensitive(&self) -> bool {
        matches!(self.config_type, ConfigType::Password)
    }

    /// The reason why Ottla rejects this value; `None` if it accepts it.
    pub fn refusal(&self, text: &str) -> Option<&'static str> {
        let Support::Refused { reason, except } = self.support else {
            return None;
        };
        let text = text.trim();
        let accepted =
            text.is_empty() || self.default_text() == Some(text) || except.contains(&text);
        (!accepted).then_some(reason)
    }

    fn not_a_number(&self) -> String {
        format!("Not a number of type {}", self.config_type.name())
    }

    pub(crate) fn invalid(&self, value: &str, problem: String, short: &str) -> InvalidValue {
        let value = if self.is_sensitive() {
            "[hidden]".to_owned()
        } else {
            value.trim().to_owned()
        };
        InvalidValue {
            key: self.name.to_owned(),
            value,
            problem,
            short: short.to_owned(),
            accepted: self.accepted(),
        }
    }

    /// The accepted values, as a phrase to follow "give": "a number of milliseconds, at least 1".
    pub fn accepted(&self) -> String {
        let mut text = match self.validator {
            Validator::OneOf(values) | Validator::OneOfAnyCase(values) => {
                return format!("one of {}", values.join(", "));
            }
            Validator::ListOf(values) => {
                return format!("any of {}, separated by commas", values.join(", "));
            }
            Validator::NonEmptyListOf(values) => {
                return format!("one or more of {}, separated by commas", values.join(", "));
            }
            Validator::List => return "values separated by commas".into(),
            Validator::NonEmptyList => {
                return "one or more values separated by commas".into();
            }
            Validator::GzipLevel => return "1 to 9, or -1 for the default level".into(),
            Validator::QuorumVoters => {
                return "voters as id@host:port, separated by commas".into();
            }
            Validator::HostPort => return "host:port, for example 127.0.0.1:9404".into(),
            Validator::HostPortOrNone => return "host:port, or none".into(),
            Validator::BootstrapServers => {
                return "controllers as host:port, separated by commas".into();
            }
            Validator::ThrottledReplicas => {
                return "partition:broker pairs separated by commas, or * for all".into();
            }
            Validator::ShareOffsetReset => {
                return "latest, earliest, or by_duration: and a duration such as PT12H".into();
            }
            Validator::NonEmpty => "a text that is not empty".to_owned(),
            Validator::Any | Validator::AtLeast(_) | Validator::Between(..) => {
                match self.config_type {
                    ConfigType::Boolean => return "true or false".into(),
                    ConfigType::Double => "a number".to_owned(),
                    ConfigType::Int | ConfigType::Short | ConfigType::Long => self.unit(),
                    _ => "a text".to_owned(),
                }
            }
        };
        match self.validator {
            Validator::AtLeast(min) if min != -1.0 || !self.is_unlimited_below_zero() => {
                text += &format!(", at least {}", number(min));
            }
            Validator::Between(min, max) => {
                text += &format!(", {} to {}", number(min), number(max));
            }
            Validator::Any if self.config_type == ConfigType::Int && !self.has_unit() => {
                text += &format!(", at most {}", i32::MAX);
            }
            _ => {}
        }
        if self.is_unlimited_below_zero() {
            text += ", -1 for no limit";
        }
        text
    }

    fn unit(&self) -> String {
        for (suffix, unit) in UNITS {
            if self.name.ends_with(suffix) {
                return (*unit).to_owned();
            }
        }
        "a whole number".to_owned()
    }

    fn has_unit(&self) -> bool {
        UNITS.iter().any(|(suffix, _)| self.name.ends_with(suffix))
    }

    /// Retention settings, for which a negative number means no limit, and the bound on queued
    /// bytes.
    fn is_unlimited_below_zero(&self) -> bool {
        matches!(
            self.name,
            "log.retention.hours"
                | "log.retention.minutes"
                | "log.retention.ms"
                | "log.retention.bytes"
                | "retention.ms"
                | "retention.bytes"
                | "metadata.max.retention.bytes"
                | "metadata.max.retention.ms"
                | "queued.max.request.bytes"
        )
    }
}

const UNITS: &[(&str, &str)] = &[
    (".hours", "hours"),
    (".minutes", "minutes"),
    (".ms", "milliseconds"),
    (".millis", "milliseconds"),
    (".seconds", "seconds"),
    (".secs", "seconds"),
    (".bytes", "a number of bytes"),
    (".bytes.per.second", "a number of bytes per second"),
];

/// Formats a bound without a fraction if it is integral.
fn number(bound: f64) -> String {
    if bound.fract() == 0.0 {
        format!("{}", bound as i64)
    } else {
        format!("{bound}")
    }
}

/// Java accepts a type suffix after a floating-point number.
fn parse_java_double(text: &str) -> Option<f64> {
    let digits = text.strip_suffix(['d', 'D', 'f', 'F']).unwrap_or(text);
    // Rust also reads "inf" and "infinity"; Java only "Infinity" and "NaN".
    let numeric = digits.bytes().any(|byte| byte.is_ascii_digit());
    if !numeric && !matches!(digits.trim_start_matches(['+', '-']), "Infinity" | "NaN") {
        return None;
    }
    digits.parse().ok()
}

/// Splits at commas and trims the items. An empty text is an empty list.
pub(crate) fn split_list(text: &str) -> Vec<String> {
    let text = text.trim();
    if text.is_empty() {
        return Vec::new();
    }
    text.split(',').map(|item| item.trim().to_owned()).collect()
}

impl Validator {
    /// Whether this is one of Kafka's `ValidList`s, which remove duplicates.
    fn takes_items_once(self) -> bool {
        matches!(
            self,
            Validator::List
                | Validator::NonEmptyList
                | Validator::ListOf(_)
                | Validator::NonEmptyListOf(_)
        )
    }

    fn check(self, def: &ConfigDef, text: &str, value: &ConfigValue) -> Result<(), InvalidValue> {
        match (self, value) {
            (Validator::AtLeast(min), _) => check_range(def, text, value, min, f64::INFINITY),
            (Validator::Between(min, max), _) => check_range(def, text, value, min, max),
            (Validator::GzipLevel, ConfigValue::Integer(level)) => {
                if (1..=9).contains(level) || *level == -1 {
                    return Ok(());
                }
                Err(def.invalid(
                    text,
                    format!("Value must be between 1 and 9 or equal to -1, got {level}"),
                    "not a gzip level",
                ))
            }
            (Validator::OneOf(values), ConfigValue::Text(given)) => {
                if values.contains(&given.as_str()) {
                    return Ok(());
                }
                let problem = format!("String must be one of: {}", values.join(", "));
                Err(def.invalid(text, problem, "unknown value"))
            }
            (Validator::OneOfAnyCase(values), ConfigValue::Text(given)) => {
                if values.iter().any(|value| value.eq_ignore_ascii_case(given)) {
                    return Ok(());
                }
                let problem = format!(
                    "String must be one of (case insensitive): {}",
                    values.join(", ")
                );
                Err(def.invalid(text, problem, "unknown value"))
            }
            (Validator::NonEmpty, ConfigValue::Text(given)) if given.is_empty() => {
                Err(def.invalid(text, "String must be non-empty".into(), "empty"))
            }
            (Validator::ShareOffsetReset, ConfigValue::Text(given)) => {
                if is_share_offset_reset(given) {
                    return Ok(());
                }
                let problem = format!(
                    "Invalid value `{given}` for configuration {}. The value must be either 'earliest', 'latest' or of \
                     the format 'by_duration:<PnDTnHnMn.nS>'.",
                    def.name
                );
                Err(def.invalid(text, problem, "unknown value"))
            }
            (Validator::List, ConfigValue::List(items)) => check_list(def, text, items, true, &[]),
            (Validator::NonEmptyList, ConfigValue::List(items)) => {
                check_list(def, text, items, false, &[])
            }
            (Validator::ListOf(values), ConfigValue::List(items)) => {
                check_list(def, text, items, true, values)
            }
            (Validator::NonEmptyListOf(values), ConfigValue::List(items)) => {
                check_list(def, text, items, false, values)
            }
            (Validator::QuorumVoters, ConfigValue::List(items)) => {
                for item in items {
                    if parse_voter(item).is_none() {
                        let problem = format!("No voter id and address in {item}");
                        return Err(def.invalid(text, problem, &format!("{item} is not a voter")));
                    }
                }
                Ok(())
            }
            (Validator::HostPortOrNone, ConfigValue::Text(given)) if given == "none" => Ok(()),
            (Validator::HostPort | Validator::HostPortOrNone, ConfigValue::Text(given)) => {
                if parse_host_port(given).is_some() {
                    return Ok(());
                }
                let problem = format!("Unable to parse {given} to a host and port");
                Err(def.invalid(text, problem, "not a host and a port"))
            }
            (Validator::BootstrapServers, ConfigValue::List(items)) => {
                for item in items {
                    if parse_host_port(item).is_none() {
                        let problem = format!("Unable to parse {item} to a host and port");
                        return Err(def.invalid(text, problem, &format!("{item} has no port")));
                    }
                }
                Ok(())
            }
            (Validator::ThrottledReplicas, ConfigValue::List(items)) => {
                let is_pair = |item: &String| {
                    item.split_once(':').is_some_and(|(partition, broker)| {
                        let is_number = |text: &str| {
                            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
                        };
                        is_number(partition) && is_number(broker)
                    })
                };
                if items.iter().all(is_pair) || items.as_slice() == ["*"] {
                    return Ok(());
                }
                let problem = format!(
                    "{} must be the literal '*' or a list of replicas in the following format: \
                     [partitionId]:[brokerId],[partitionId]:[brokerId],...",
                    def.name
                );
                Err(def.invalid(text, problem, "not a list of replicas"))
            }
            _ => Ok(()),
        }
    }

    /// A short description of the valid values, for the table of settings.
    pub fn describe(self) -> String {
        match self {
            Validator::Any | Validator::List => String::new(),
            Validator::AtLeast(min) => format!("≥ {}", number(min)),
            Validator::Between(min, max) => format!("{} to {}", number(min), number(max)),
            Validator::OneOf(values) | Validator::ListOf(values) => values.join(", "),
            Validator::NonEmptyListOf(values) => values.join(", "),
            Validator::OneOfAnyCase(values) => values.join(", ").to_lowercase(),
            Validator::NonEmpty | Validator::NonEmptyList => "not empty".into(),
            Validator::GzipLevel => "1 to 9, -1".into(),
            Validator::QuorumVoters => "id@host:port".into(),
            Validator::HostPort | Validator::BootstrapServers => "host:port".into(),
            Validator::HostPortOrNone => "host:port, none".into(),
            Validator::ThrottledReplicas => "partition:broker, *".into(),
            Validator::ShareOffsetReset => "latest, earliest, by_duration:…".into(),
        }
    }
}

fn check_range(
    def: &ConfigDef,
    text: &str,
    value: &ConfigValue,
    min: f64,
    max: f64,
) -> Result<(), InvalidValue> {
    let value = match value {
        ConfigValue::Integer(value) => *value as f64,
        ConfigValue::Double(value) => *value,
        _ => return Ok(()),
    };
    if value < min {
        let problem = format!("Value must be at least {}", number(min));
        return Err(def.invalid(text, problem, "too small"));
    }
    if value > max {
        let problem = format!("Value must be no more than {}", number(max));
        return Err(def.invalid(text, problem, "too large"));
    }
    Ok(())
}

fn check_list(
    def: &ConfigDef,
    text: &str,
    items: &[String],
    empty_allowed: bool,
    values: &[&str],
) -> Result<(), InvalidValue> {
    let name = def.name;
    if items.is_empty() && !empty_allowed {
        let valid = match values {
            [] => "any non-empty value".to_owned(),
            values => format!("[{}]", values.join(", ")),
        };
        let problem =
            format!("Configuration '{name}' must not be empty. Valid values include: {valid}");
        return Err(def.invalid(text, problem, "empty"));
    }
    for item in items {
        if item.is_empty() {
            let problem = format!("Configuration '{name}' values must not be empty.");
            return Err(def.invalid(text, problem, "a value between the commas is empty"));
        }
        if !values.is_empty() && !values.contains(&item.as_str()) {
            // Kafka names the invalid item here, not the whole list.
            let problem = format!("String must be one of: {}", values.join(", "));
            let mut error = def.invalid(text, problem, &format!("{item} is unknown"));
            error.value = item.clone();
            return Err(error);
        }
    }
    Ok(())
}

fn is_share_offset_reset(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    value == "latest" || value == "earliest" || share_offset_reset_duration_ms(&value).is_some()
}

/// The duration in `share.auto.offset.reset=by_duration:…`; `None` for other values.
pub fn share_offset_reset_duration_ms(value: &str) -> Option<i64> {
    let value = value.to_ascii_lowercase();
    iso_duration_ms(value.strip_prefix("by_duration:")?).filter(|ms| *ms >= 0)
}

/// Parses `id@host:port`, the format of `controller.quorum.voters`.
pub fn parse_voter(text: &str) -> Option<(i32, String, u16)> {
    let (id, address) = text.trim().split_once('@')?;
    let id = id.parse().ok().filter(|id| *id >= 0)?;
    let (host, port) = parse_host_port(address)?;
    Some((id, host, port))
}

/// Parses `host:port` or `[v6]:port`.
pub fn parse_host_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.trim().rsplit_once(':')?;
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    if host.is_empty() || host.contains(['[', ']', '/', ' ', '@']) {
        return None;
    }
    Some((host.to_owned(), port.parse().ok()?))
}

#[cfg(test)]
mod tests;
