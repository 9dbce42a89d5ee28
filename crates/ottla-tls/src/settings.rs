//! What the `ssl.*` settings of one listener, or of one client, say.

use std::collections::BTreeMap;

use crate::TlsError;

/// A setting as it was given: its key may have the prefix of a listener.
#[derive(Clone, PartialEq, Eq)]
pub struct Given {
    pub key: String,
    pub value: String,
}

/// What a certificate is shown and checked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// A listener: it needs a key.
    Listener,
    /// A listener over which nodes of the cluster talk to each other: what it shows has to be trusted by what it trusts.
    ListenerOfNodes,
    /// Only connections to others.
    Client,
}

/// `ssl.client.auth`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ClientAuth {
    #[default]
    None,
    /// A client may show a certificate, which then has to be good.
    Requested,
    Required,
}

/// The keys that are read, without prefix.
const KEYS: &[&str] = &[
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
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

/// The settings as given. Empty values count as none, but for the algorithm that identifies endpoints, of which the empty
/// one is a value.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsSettings {
    pub purpose: Purpose,
    /// Whom this is of, for people: `listener SSL`.
    pub owner: String,
    given: BTreeMap<&'static str, Given>,
}

impl std::fmt::Debug for TlsSettings {
    /// Without passwords and keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TlsSettings")
            .field("owner", &self.owner)
            .field("purpose", &self.purpose)
            .finish_non_exhaustive()
    }
}

impl TlsSettings {
    /// `lookup` returns what stands for a key without prefix.
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

    /// A password is taken as it is, spaces and all.
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

    /// How the setting is called, for an error about it.
    pub(crate) fn name(&self, key: &str) -> String {
        self.given
            .get(key)
            .map_or(key, |given| given.key.as_str())
            .to_owned()
    }

    /// An error about one setting. Its value is shown where it is no secret.
    pub(crate) fn error(&self, key: &str, message: impl std::fmt::Display) -> TlsError {
        let name = self.name(key);
        let is_shown = key.ends_with(".location") || key.ends_with(".type");
        let value = self.text(key).filter(|_| is_shown);
        let value = value.map_or(String::new(), |value| format!("={value}"));
        TlsError(format!("{name}{value}: {message}"))
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

    /// Whether the name of a server has to be that of its certificate: `https`, and not the empty text.
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

    /// Forgets a setting, as for a listener that a rule of Kafka keeps it from.
    pub fn without(mut self, key: &str) -> TlsSettings {
        self.given.retain(|known, _| *known != key);
        self
    }
}
