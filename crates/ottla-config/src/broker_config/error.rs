//! What can be wrong with a configuration.

use std::fmt;

use crate::config_def::InvalidValue;
use crate::properties::PropertiesError;

/// A refused configuration. The message is one sentence that names the place, the key, the value and
/// what to do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConfigError {
    /// The file cannot be read as properties.
    Properties(PropertiesError),
    /// A value that its setting does not accept.
    Value {
        place: String,
        error: Box<InvalidValue>,
    },
    /// A value that asks for something that Ottla does not have.
    Refused {
        place: String,
        key: String,
        value: String,
        reason: String,
    },
    /// Settings that do not go together, or one that is missing.
    Conflict { place: String, message: String },
}

impl ConfigError {
    /// The line of the file, or what was given on the command line.
    pub fn place(&self) -> String {
        match self {
            ConfigError::Properties(_) => String::new(),
            ConfigError::Value { place, .. }
            | ConfigError::Refused { place, .. }
            | ConfigError::Conflict { place, .. } => place.clone(),
        }
    }

    /// What is wrong and what to do, without the place.
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

/// Something in a configuration that is probably not meant, but harms nothing.
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
