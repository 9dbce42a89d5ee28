//! The client's side of a login, with any mechanism but GSSAPI, which is in `ottla-gssapi`. Nodes use
//! it too to log in to each other.

use std::collections::BTreeMap;
use std::fmt;

use crate::kerberos::KerberosLogin;
use crate::mechanism::Mechanism;
use crate::oauthbearer::{self, InitialResponse};
use crate::plain::PlainResponse;
use crate::scram::ScramClient;
use crate::secret::Secret;

/// The credentials of a client.
#[derive(Clone, PartialEq, Eq)]
pub enum ClientCredentials {
    Password {
        username: String,
        password: Secret,
        /// The name is the ID of a delegation token, and the password is its HMAC.
        is_token: bool,
    },
    /// An OAuth token.
    Token {
        token: Secret,
        extensions: BTreeMap<String, String>,
    },
    /// A key or ticket, which the Kerberos library finds.
    Kerberos(KerberosLogin),
}

impl fmt::Debug for ClientCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientCredentials::Password { username, .. } => {
                write!(f, "Password({username:?})")
            }
            ClientCredentials::Token { .. } => f.write_str("Token"),
            ClientCredentials::Kerberos(login) => f.debug_tuple("Kerberos").field(login).finish(),
        }
    }
}

impl ClientCredentials {
    pub fn password(username: &str, password: &str) -> ClientCredentials {
        ClientCredentials::Password {
            username: username.to_owned(),
            password: Secret::new(password),
            is_token: false,
        }
    }

    /// The user name; `None` where a token or ticket has it.
    pub fn username(&self) -> Option<&str> {
        match self {
            ClientCredentials::Password { username, .. } => Some(username),
            ClientCredentials::Token { .. } | ClientCredentials::Kerberos(_) => None,
        }
    }
}

/// One login: takes the broker's messages and returns the responses.
#[derive(Debug)]
pub struct ClientLogin {
    mechanism: Mechanism,
    state: State,
}

#[derive(Debug)]
enum State {
    Plain {
        username: String,
        password: Secret,
    },
    Scram(ScramClient),
    OAuthBearer(Secret, BTreeMap<String, String>),
    /// The broker has rejected the token with this reason. The client must acknowledge it.
    Refused(String),
    Sent,
}

impl ClientLogin {
    /// `nonce` is an unpredictable text without commas. `None` if the credentials do not suit the
    /// mechanism.
    pub fn new(
        mechanism: Mechanism,
        credentials: &ClientCredentials,
        nonce: String,
    ) -> Option<ClientLogin> {
        let state = match (mechanism, credentials.clone()) {
            (
                Mechanism::Plain,
                ClientCredentials::Password {
                    username, password, ..
                },
            ) => State::Plain { username, password },
            (
                Mechanism::Scram(scram),
                ClientCredentials::Password {
                    username,
                    password,
                    is_token,
                },
            ) => State::Scram(ScramClient::new(
                scram, &username, password, is_token, nonce,
            )),
            (Mechanism::OAuthBearer, ClientCredentials::Token { token, extensions }) => {
                State::OAuthBearer(token, extensions)
            }
            _ => return None,
        };
        Some(ClientLogin { mechanism, state })
    }

    /// Reuses the keys that an earlier login of the same user derived from the password, as long as
    /// the broker sends the same salt.
    #[must_use]
    pub fn after(mut self, earlier: &ClientLogin) -> ClientLogin {
        if let (State::Scram(login), State::Scram(earlier)) = (&mut self.state, &earlier.state) {
            login.reuse_salted(earlier);
        }
        self
    }

    pub fn mechanism(&self) -> Mechanism {
        self.mechanism
    }

    pub fn first_message(&mut self) -> Vec<u8> {
        let message = match &mut self.state {
            State::Scram(scram) => return scram.first_message(),
            State::Plain { username, password } => {
                PlainResponse::encode(username, password.expose())
            }
            State::OAuthBearer(token, extensions) => {
                InitialResponse::encode(token.expose(), extensions)
            }
            State::Refused(_) | State::Sent => Vec::new(),
        };
        self.state = State::Sent;
        message
    }

    /// Returns the response to a message; `None` once the login is complete. The error is for
    /// people.
    pub fn on_message(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, String> {
        match &mut self.state {
            State::Scram(scram) => scram.on_message(message),
            State::Refused(reason) => Err(std::mem::take(reason)),
            _ if self.mechanism == Mechanism::OAuthBearer && !message.is_empty() => {
                let reason = String::from_utf8_lossy(message).into_owned();
                self.state = State::Refused(reason);
                Ok(Some(oauthbearer::ACKNOWLEDGED_ERROR.to_vec()))
            }
            _ => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(mechanism: Mechanism, credentials: &ClientCredentials) -> Option<ClientLogin> {
        ClientLogin::new(mechanism, credentials, "abc".to_owned())
    }

    #[test]
    fn plain_is_one_message() {
        let credentials = ClientCredentials::password("alice", "hush");
        let mut login = login(Mechanism::Plain, &credentials).unwrap();
        assert!(!format!("{login:?} {credentials:?}").contains("hush"));
        assert_eq!(login.first_message(), b"\0alice\0hush");
        assert_eq!(login.on_message(b""), Ok(None));
    }

    #[test]
    fn a_token_that_is_not_believed_is_acknowledged() {
        let credentials = ClientCredentials::Token {
            token: Secret::new("a.b.c"),
            extensions: BTreeMap::new(),
        };
        let mut login = login(Mechanism::OAuthBearer, &credentials).unwrap();
        assert_eq!(login.first_message(), b"n,,\x01auth=Bearer a.b.c\x01\x01");
        let answer = login.on_message(b"{\"status\":\"invalid_token\"}");
        assert_eq!(answer, Ok(Some(vec![1])));
        assert!(login.on_message(b"").unwrap_err().contains("invalid_token"));
    }

    #[test]
    fn credentials_have_to_fit() {
        let password = ClientCredentials::password("alice", "hush");
        for mechanism in [Mechanism::OAuthBearer, Mechanism::Gssapi] {
            assert!(login(mechanism, &password).is_none());
        }
    }
}
