//! PLAIN (RFC 4616): name and password in one message.
//!
//! Kafka: `PlainSaslServer`, `PlainSaslClient`.

use crate::secret::Secret;

/// The message of a client: user name, password, and the user on whose behalf it wants to act.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PlainResponse {
    /// Empty if the client acts on its own behalf.
    pub authorization_id: String,
    pub username: String,
    pub password: Secret,
}

/// Why a PLAIN login fails. The messages are Kafka's; the client receives them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlainError {
    #[error("Invalid SASL/PLAIN response: expected 3 tokens, got {0}")]
    Tokens(usize),
    #[error("Authentication failed: username not specified")]
    NoUsername,
    #[error("Authentication failed: password not specified")]
    NoPassword,
    #[error("Authentication failed: Invalid username or password")]
    InvalidCredentials,
    #[error(
        "Authentication failed: Client requested an authorization id that is different from username"
    )]
    OtherAuthorizationId,
}

impl PlainResponse {
    /// Encodes the message of a client that acts on its own behalf.
    pub fn encode(username: &str, password: &str) -> Vec<u8> {
        format!("\0{username}\0{password}").into_bytes()
    }

    /// Parses a client's message.
    pub fn parse(bytes: &[u8]) -> Result<PlainResponse, PlainError> {
        let text = String::from_utf8_lossy(bytes);
        // Kafka counts up to 4 tokens.
        let tokens: Vec<&str> = text.splitn(5, '\0').take(4).collect();
        let [authorization_id, username, password] = tokens[..] else {
            return Err(PlainError::Tokens(tokens.len()));
        };
        if username.is_empty() {
            return Err(PlainError::NoUsername);
        }
        if password.is_empty() {
            return Err(PlainError::NoPassword);
        }
        Ok(PlainResponse {
            authorization_id: authorization_id.to_owned(),
            username: username.to_owned(),
            password: Secret::new(password),
        })
    }

    /// Whether the client may act on behalf of the requested user. To be called after the password
    /// was verified.
    pub fn check_authorization_id(&self) -> Result<(), PlainError> {
        match self.authorization_id.is_empty() || self.authorization_id == self.username {
            true => Ok(()),
            false => Err(PlainError::OtherAuthorizationId),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let read = PlainResponse::parse(&PlainResponse::encode("alice", "se=cret")).unwrap();
        assert_eq!(
            (&*read.username, read.password.expose()),
            ("alice", "se=cret")
        );
        assert_eq!(read.check_authorization_id(), Ok(()));
        let other = PlainResponse::parse(b"bob\0alice\0x").unwrap();
        assert_eq!(
            other.check_authorization_id(),
            Err(PlainError::OtherAuthorizationId)
        );
        assert!(!format!("{read:?}").contains("se=cret"));
    }

    #[test]
    fn errors_are_kafkas() {
        for (message, error) in [
            (&b""[..], PlainError::Tokens(1)),
            (b"a\0b", PlainError::Tokens(2)),
            (b"a\0b\0c\0", PlainError::Tokens(4)),
            (b"a\0b\0c\0d\0e\0f", PlainError::Tokens(4)),
            (b"\0\0x", PlainError::NoUsername),
            (b"\0x\0", PlainError::NoPassword),
        ] {
            assert_eq!(PlainResponse::parse(message), Err(error), "{message:?}");
        }
    }
}
