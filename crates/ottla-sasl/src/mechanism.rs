//! Kafka's SASL mechanisms.

use std::fmt;

use crate::scram::ScramMechanism;

/// A SASL mechanism. GSSAPI is Kerberos.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash)]
pub enum Mechanism {
    Plain,
    Scram(ScramMechanism),
    OAuthBearer,
    Gssapi,
}

impl Mechanism {
    pub const ALL: [Mechanism; 5] = [
        Mechanism::Plain,
        Mechanism::Scram(ScramMechanism::Sha256),
        Mechanism::Scram(ScramMechanism::Sha512),
        Mechanism::OAuthBearer,
        Mechanism::Gssapi,
    ];

    /// Parses the name on the wire and in `sasl.enabled.mechanisms`.
    pub fn from_name(name: &str) -> Option<Mechanism> {
        Self::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Mechanism::Plain => "PLAIN",
            Mechanism::Scram(scram) => scram.name(),
            Mechanism::OAuthBearer => "OAUTHBEARER",
            Mechanism::Gssapi => "GSSAPI",
        }
    }

    /// The class of the login module with the credentials of the mechanism.
    pub fn login_module(self) -> &'static str {
        match self {
            Mechanism::Plain => "org.apache.kafka.common.security.plain.PlainLoginModule",
            Mechanism::Scram(_) => "org.apache.kafka.common.security.scram.ScramLoginModule",
            Mechanism::OAuthBearer => {
                "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
            }
            Mechanism::Gssapi => "com.sun.security.auth.module.Krb5LoginModule",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
