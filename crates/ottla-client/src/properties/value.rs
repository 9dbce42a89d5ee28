//! The text of one setting, and its conversions.

use std::fmt;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::error::ClientError;

/// The value of a setting with its key.
#[derive(Clone, Copy)]
pub(crate) struct Value<'a> {
    pub(super) key: &'a str,
    pub(super) value: &'a str,
}

impl<'a> Value<'a> {
    pub(crate) fn new(key: &'a str, value: &'a str) -> Value<'a> {
        let value = value.trim();
        Value { key, value }
    }

    pub(crate) fn text(self) -> &'a str {
        self.value
    }

    pub(crate) fn refused(self, accepted: impl fmt::Display) -> ClientError {
        // Secret values are not repeated in messages.
        let secret = ["password", "jaas", "private", "keystore.key"];
        let value = match secret.iter().any(|part| self.key.contains(part)) {
            true => "[hidden]",
            false => self.value,
        };
        let key = self.key;
        ClientError::Config(format!("{key}={value}: not accepted; give {accepted}"))
    }

    pub(crate) fn number(self, range: RangeInclusive<u64>) -> Result<u64, ClientError> {
        match self.value.parse() {
            Ok(number) if range.contains(&number) => Ok(number),
            _ => Err(self.refused(format_args!(
                "a number from {} to {}",
                range.start(),
                range.end()
            ))),
        }
    }

    /// A number in the range of Java's `int`.
    pub(crate) fn size(self, least: u64) -> Result<i32, ClientError> {
        let size = self.number(least..=i32::MAX as u64)?;
        Ok(size as i32)
    }

    /// `None` if it is empty.
    pub(crate) fn optional(self) -> Option<String> {
        Some(self.value.to_owned()).filter(|value| !value.is_empty())
    }

    pub(crate) fn milliseconds(self) -> Result<Duration, ClientError> {
        match self.value.parse::<u64>() {
            Ok(number) if i64::try_from(number).is_ok() => Ok(Duration::from_millis(number)),
            _ => Err(self.refused("a number of milliseconds, 0 or more")),
        }
    }

    pub(crate) fn boolean(self) -> Result<bool, ClientError> {
        match self.value.to_ascii_lowercase().as_str() {
            "true" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.refused("true or false")),
        }
    }

    pub(crate) fn non_empty(self) -> Result<&'a str, ClientError> {
        match self.value {
            "" => Err(self.refused("a text that is not empty")),
            value => Ok(value),
        }
    }

    /// Only these values; `why` is the reason why other values are not supported.
    pub(crate) fn only(self, values: &[&str], why: &str) -> Result<(), ClientError> {
        if values
            .iter()
            .any(|value| self.value.eq_ignore_ascii_case(value))
        {
            return Ok(());
        }
        let listed: Vec<&str> = values
            .iter()
            .map(|value| if value.is_empty() { "nothing" } else { value })
            .collect();
        Err(self.refused(format_args!("{}: {why}", listed.join(" or "))))
    }

    /// Accepts only serializers and deserializers that do not change bytes, because this client
    /// handles bytes only.
    pub(crate) fn java_serde(self, kind: &str) -> Result<(), ClientError> {
        let known = ["ByteArray", "ByteBuffer", "Bytes", "String", "Void"]
            .map(|name| format!("org.apache.kafka.common.serialization.{name}{kind}"));
        if known.iter().any(|name| name == self.value) {
            return Ok(());
        }
        Err(self.refused(format_args!(
            "org.apache.kafka.common.serialization.ByteArray{kind} or leave it out: \
             Java classes cannot be loaded here, and keys and values are bytes"
        )))
    }
}
