//! The SASL settings of a listener, and the credentials of this node at the listeners of other
//! nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::client_login::ClientCredentials;
use crate::kerberos::KerberosService;
use crate::mechanism::Mechanism;
use crate::oauth_rules::TokenValidator;
use crate::secret::{Secret, is_same_secret};
use crate::token_source::TokenSource;

/// `sasl.enabled.mechanisms` of a listener.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct SaslListener {
    pub mechanisms: Vec<EnabledMechanism>,
}

/// An enabled mechanism and its settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnabledMechanism {
    pub mechanism: Mechanism,
    /// `connections.max.reauth.ms`; `None` if a session lasts as long as its connection.
    pub max_reauth_ms: Option<u64>,
    /// The users of PLAIN and their passwords.
    pub users: BTreeMap<String, Secret>,
    /// How OAUTHBEARER tokens are validated.
    pub tokens: Option<Arc<TokenValidator>>,
    /// The service of GSSAPI.
    pub kerberos: Option<Arc<KerberosService>>,
}

/// How this node logs in to a listener of other nodes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SaslPeer {
    pub mechanism: Mechanism,
    pub credentials: PeerCredentials,
}

/// Where the credentials for it come from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerCredentials {
    Known(ClientCredentials),
    /// A token, which must be requested first.
    Token(Box<TokenSource>),
}

impl PeerCredentials {
    /// The user name in the credentials; `None` for a token.
    pub fn username(&self) -> Option<&str> {
        match self {
            PeerCredentials::Known(known) => known.username(),
            PeerCredentials::Token(_) => None,
        }
    }
}

impl SaslListener {
    pub fn find(&self, name: &str) -> Option<&EnabledMechanism> {
        self.mechanisms
            .iter()
            .find(|it| it.mechanism.name() == name)
    }
}

impl EnabledMechanism {
    /// Whether this is the password of a PLAIN user. Takes the same time for an unknown user.
    pub fn is_password(&self, username: &str, password: &Secret) -> bool {
        let known = self.users.get(username);
        let expected = known.map_or("", Secret::expose);
        let is_same = is_same_secret(password.expose().as_bytes(), expected.as_bytes());
        is_same && known.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_belong_to_their_users() {
        let plain = EnabledMechanism {
            mechanism: Mechanism::Plain,
            max_reauth_ms: None,
            users: BTreeMap::from([
                ("alice".to_owned(), Secret::new("hush")),
                ("empty".to_owned(), Secret::new("")),
            ]),
            tokens: None,
            kerberos: None,
        };
        let is_password = |user, password| plain.is_password(user, &Secret::new(password));
        assert!(is_password("alice", "hush"));
        assert!(!is_password("alice", "hus"));
        assert!(!is_password("bob", "hush"));
        assert!(!is_password("bob", ""));
    }
}
