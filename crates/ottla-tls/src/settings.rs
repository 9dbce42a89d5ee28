//! The `ssl.*` settings of one listener or client.

use std::collections::BTreeMap;

use crate::TlsError;

/// A setting as configured. Its key may have the prefix of a listener.
#[derive(Clone, PartialEq, Eq)]
pub struct Given {
    pub key: String,
    pub value: String,
}

/// The role in which certificates are presented and verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A listener. It needs a key.
    Listener,
    /// A listener through which nodes of the cluster connect to each other. Its trust store must
    /// trust its own certificate.
    ListenerOfNodes,
    /// Only outgoing connections.
    Client,
}

/// `ssl.client.auth`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuth {
    #[default]
    None,
    /// A client may present a certificate, which then must be valid.
    Requested,
    Required,
}

/// The supported keys, without prefix.
const KEYS: &[&str] = &[
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.engine.factory.class",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
];

/// The settings as configured. Empty values count as absent, except for
/// `ssl.endpoint.identification.algorithm`, where empty is a value, and for passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSettings {
    pub purpose: Purpose,
    /// The owner of the settings, for people: `listener SSL`.
    pub owner: String,
    given: BTreeMap<&'static str, Given>,
}

impl std::fmt::Debug for TlsSettings {
    /// Omits passwords and keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSettings")
            .field("owner", &self.owner)
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl TlsSettings {
    /// `lookup` returns the setting for a key without prefix.
    pub fn read(
        owner: impl Into<String>,
        purpose: Purpose,
        lookup: impl Fn(&str) -> Option<Given>,
    ) -> TlsSettings {
        let given = KEYS.iter().filter_map(|key| Some((*key, lookup(key)?)));
        TlsSettings {
            purpose,
            owner: owner.into(),
            given: given.collect(),
        }
    }

    pub(crate) fn given(&self, key: &str) -> Option<&Given> {
        self.given
            .get(key)
            .filter(|given| !given.value.trim().is_empty())
    }

    pub(crate) fn text(&self, key: &str) -> Option<&str> {
        self.given(key).map(|given| given.value.trim())
    }

    /// A password is not trimmed.
    pub(crate) fn password(&self, key: &str) -> Option<&str> {
        self.given.get(key).map(|given| given.value.as_str())
    }

    pub(crate) fn list(&self, key: &str) -> Vec<String> {
        let items = self.text(key).unwrap_or_default().split(',');
        let items = items.map(str::trim).filter(|item| !item.is_empty());
        items.map(str::to_owned).collect()
    }

    pub(crate) fn is_true(&self, key: &str) -> bool {
        self.text(key)
            .is_some_and(|text| text.eq_ignore_ascii_case("true"))
    }

    /// The name of a setting in error messages.
    pub(crate) fn name(&self, key: &str) -> String {
        self.given
            .get(key)
            .map_or(key, |given| given.key.as_str())
            .to_owned()
    }

    /// An error about one setting. Contains the value unless it may be secret.
    pub(crate) fn error(&self, key: &str, message: impl std::fmt::Display) -> TlsError {
        let name = self.name(key);
        let is_shown = key.ends_with(".location") || key.ends_with(".type");
        let value = self.text(key).filter(|_| is_shown);
        let value = value.map_or(String::new(), |value| format!("={value}"));
        TlsError(format!("{name}{value}: {message}"))
    }

    /// Whether clients whose certificate has expired are named in the log: what the factory of Kafka
    /// that is not the default does.
    pub(crate) fn names_expired_clients(&self) -> bool {
        let factory = "org.apache.kafka.common.security.ssl.CommonNameLoggingSslEngineFactory";
        self.text("ssl.engine.factory.class") == Some(factory)
    }

    pub fn client_auth(&self) -> Result<ClientAuth, TlsError> {
        let text = self.text("ssl.client.auth").unwrap_or("none");
        match text.to_ascii_lowercase().as_str() {
            "none" => Ok(ClientAuth::None),
            "requested" => Ok(ClientAuth::Requested),
            "required" => Ok(ClientAuth::Required),
            _ => Err(self.error(
                "ssl.client.auth",
                format!("there is no {text}; give none, requested or required"),
            )),
        }
    }

    /// Whether host names are verified: true for `https` and by default, false for an empty value.
    pub fn checks_hostname(&self) -> Result<bool, TlsError> {
        let key = "ssl.endpoint.identification.algorithm";
        let Some(given) = self.given.get(key) else {
            return Ok(true);
        };
        match given.value.trim() {
            "" => Ok(false),
            text if text.eq_ignore_ascii_case("https") => Ok(true),
            text => Err(self.error(
                key,
                format!("there is no {text}; give https, or nothing to accept any name"),
            )),
        }
    }

    /// Removes a setting that does not apply to this listener.
    pub fn without(mut self, key: &str) -> TlsSettings {
        self.given.retain(|known, _| *known != key);
        self
    }
}
