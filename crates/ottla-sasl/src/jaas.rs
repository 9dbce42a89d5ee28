//! JAAS entries, Java's notation for login credentials. A property contains one entry:
//!
//! ```text
//! org.apache.kafka.common.security.plain.PlainLoginModule required username="alice" password="…";
//! ```
//!
//! A file contains sections of entries:
//!
//! ```text
//! KafkaServer { <entries> };
//! ```
//!
//! Java parses both with a `StreamTokenizer`. Its rules are reproduced, including the unusual ones:
//! a slash starts a comment, and a token that starts with a digit is a number, which is not a valid
//! value.
//!
//! Kafka: `JaasConfig`, `JaasContext`. The file: `sun.security.provider.ConfigFile`.

mod error;
mod file;
mod property;
mod tokens;

use std::collections::BTreeMap;
use std::fmt;

pub use error::JaasError;
pub use file::JaasFile;
pub use property::parse_property;

use crate::mechanism::Mechanism;
use crate::scram::ScramMechanism;
use crate::secret::Secret;

/// The control flag of an entry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ControlFlag {
    Required,
    Requisite,
    Sufficient,
    Optional,
}

impl ControlFlag {
    pub(crate) fn from_name(name: &str) -> Option<ControlFlag> {
        Some(match name.to_ascii_uppercase().as_str() {
            "REQUIRED" => ControlFlag::Required,
            "REQUISITE" => ControlFlag::Requisite,
            "SUFFICIENT" => ControlFlag::Sufficient,
            "OPTIONAL" => ControlFlag::Optional,
            _ => return None,
        })
    }
}

/// One entry: a login module and its options. `Debug` does not show the values of options.
#[derive(Clone, PartialEq, Eq)]
pub struct LoginModule {
    class: String,
    flag: ControlFlag,
    options: BTreeMap<String, Secret>,
}

/// Java's login modules that perform remote lookups. Kafka rejects them too.
const REFUSED_BY_KAFKA: &[&str] = &[
    "com.sun.security.auth.module.JndiLoginModule",
    "com.sun.security.auth.module.LdapLoginModule",
];

impl LoginModule {
    /// The name of the Java class.
    pub fn class(&self) -> &str {
        &self.class
    }

    pub fn flag(&self) -> ControlFlag {
        self.flag
    }

    pub fn option(&self, name: &str) -> Option<&str> {
        self.options.get(name).map(Secret::expose)
    }

    pub fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let options = self.options.iter();
        options.map(|(name, value)| (name.as_str(), value.expose()))
    }

    /// Whether the entry contains credentials for this mechanism.
    pub fn is_of(&self, mechanism: Mechanism) -> bool {
        self.class == mechanism.login_module()
    }

    /// Returns an error for a class that is not supported. The error is for people.
    pub fn check_class(&self) -> Result<(), String> {
        let class = &self.class;
        if Mechanism::ALL
            .iter()
            .any(|mechanism| self.is_of(*mechanism))
        {
            return Ok(());
        }
        if REFUSED_BY_KAFKA.contains(&class.as_str()) {
            return Err(format!(
                "{class} is not allowed: it lets a setting make this process load code from elsewhere"
            ));
        }
        let last_part = |class: &str| class.rsplit('.').next().map(str::to_ascii_lowercase);
        let all = Mechanism::ALL.iter().map(|it| it.login_module());
        if let Some(meant) = all.into_iter().find(|it| last_part(it) == last_part(class)) {
            return Err(format!(
                "{class} is no login module; probably meant {meant}"
            ));
        }
        Err(format!(
            "{class} is a Java class, which Ottla cannot load; give {}, {}, {} or {}",
            Mechanism::Plain.login_module(),
            Mechanism::Scram(ScramMechanism::Sha256).login_module(),
            Mechanism::OAuthBearer.login_module(),
            Mechanism::Gssapi.login_module(),
        ))
    }

    /// `username` and `password`: the credentials for logins to other nodes.
    pub fn credentials(&self) -> Option<(&str, &str)> {
        Some((self.option("username")?, self.option("password")?))
    }

    /// The users of PLAIN: `user_<name>="password"`.
    pub fn users(&self) -> impl Iterator<Item = (&str, &str)> {
        let named = |(name, value): (_, _)| Some((str::strip_prefix(name, "user_")?, value));
        self.options().filter_map(named)
    }
}

impl fmt::Debug for LoginModule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoginModule")
            .field("class", &self.class)
            .field("flag", &self.flag)
            .field("options", &self.options.keys())
            .finish()
    }
}

#[cfg(test)]
mod tests;
