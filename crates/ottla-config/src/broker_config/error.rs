//! Errors and warnings about a configuration.

use std::fmt;

use crate::config_def::InvalidValue;
use crate::properties::PropertiesError;

/// A rejected configuration. The message is one sentence with the place, the key, the value and the
/// remedy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The file is not a valid properties file.
    Properties(PropertiesError),
    /// The setting does not accept the value.
    Value {
        place: String,
        error: Box<InvalidValue>,
    },
    /// The value requires a feature that Ottla does not have.
    Refused {
        place: String,
        key: String,
        value: String,
        reason: String,
    },
    /// Settings contradict each other, or one is missing.
    Conflict { place: String, message: String },
}

impl ConfigError {
    /// The line of the file, or the option of the command line.
    pub fn place(&self) -> String {
        match self {
            ConfigError::Properties(_) => String::new(),
            ConfigError::Value { place, .. }
            | ConfigError::Refused { place, .. }
            | ConfigError::Conflict { place, .. } => place.clone(),
        }
    }

    /// Changes each text that may contain a value of the file.
    pub(super) fn map_texts(&mut self, change: impl Fn(&str) -> String) {
        match self {
            ConfigError::Properties(_) => {}
            ConfigError::Value { error, .. } => {
                let error = error.as_mut();
                for text in [&mut error.value, &mut error.problem, &mut error.short] {
                    *text = change(text);
                }
            }
            ConfigError::Refused { value, .. } => *value = change(value),
            ConfigError::Conflict { message, .. } => *message = change(message),
        }
    }

    /// The problem and its remedy, without the place.
    pub fn message(&self) -> String {
        match self {
            ConfigError::Properties(error) => error.to_string(),
            ConfigError::Value { error, .. } => error.to_string(),
            ConfigError::Refused {
                key, value, reason, ..
            } => format!("{key}={value} is refused: {reason}"),
            ConfigError::Conflict { message, .. } => message.clone(),
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConfigError::Properties(error) => error.fmt(f),
            _ => write!(f, "{}: {}", self.place(), self.message()),
        }
    }
}

impl std::error::Error for ConfigError {}

impl From<PropertiesError> for ConfigError {
    fn from(error: PropertiesError) -> Self {
        ConfigError::Properties(error)
    }
}

/// A harmless but probably unintended setting.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Warning {
    pub place: String,
    pub message: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.message)
    }
}
