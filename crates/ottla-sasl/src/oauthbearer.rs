//! The messages of OAUTHBEARER (RFC 7628, KIP-255). Tokens are validated elsewhere (`oauth_token`).
//!
//! Kafka: `OAuthBearerClientInitialResponse`, `OAuthBearerSaslServer`, `OAuthBearerSaslClient`.

use std::collections::BTreeMap;

use crate::secret::Secret;

/// The client's response to an error that the broker has sent as JSON.
pub const ACKNOWLEDGED_ERROR: &[u8] = &[1];

const SEPARATOR: char = '\u{1}';

/// The client's first message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InitialResponse {
    /// Empty if the client acts on its own behalf.
    pub authorization_id: String,
    pub token: Secret,
    pub extensions: BTreeMap<String, String>,
}

/// The message is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InitialResponseError {
    #[error("Invalid OAUTHBEARER client first message")]
    Format,
    #[error("Invalid OAUTHBEARER client first message: 'auth' not specified")]
    NoAuth,
    #[error("Invalid OAUTHBEARER client first message: invalid 'auth' format")]
    AuthFormat,
    #[error("Invalid scheme in OAUTHBEARER client first message")]
    Scheme,
}

impl InitialResponse {
    pub fn encode(token: &str, extensions: &BTreeMap<String, String>) -> Vec<u8> {
        let mut text = format!("n,,{SEPARATOR}auth=Bearer {token}");
        for (name, value) in extensions {
            text.extend([SEPARATOR.to_string().as_str(), name, "=", value]);
        }
        text.extend([SEPARATOR, SEPARATOR]);
        text.into_bytes()
    }

    pub fn parse(bytes: &[u8]) -> Result<InitialResponse, InitialResponseError> {
        let format = InitialResponseError::Format;
        let text = std::str::from_utf8(bytes).map_err(|_| format)?;
        let rest = text.strip_prefix("n,").ok_or(format)?;
        let (header, pairs) = rest.split_once(SEPARATOR).ok_or(format)?;
        let header = header.strip_suffix(',').ok_or(format)?;
        let authorization_id = match header {
            "" => "",
            named => named
                .strip_prefix("a=")
                .filter(|name| crate::scram::is_sasl_name(name))
                .ok_or(format)?,
        };
        let mut pairs = pairs.strip_suffix(SEPARATOR).ok_or(format)?;
        let mut properties = BTreeMap::new();
        while !pairs.is_empty() {
            let (pair, rest) = pairs.split_once(SEPARATOR).ok_or(format)?;
            let (name, value) = pair.split_once('=').ok_or(format)?;
            if !is_name(name) || !is_value(value) {
                return Err(format);
            }
            properties.insert(name.to_owned(), value.to_owned());
            pairs = rest;
        }
        let auth = properties
            .remove("auth")
            .ok_or(InitialResponseError::NoAuth)?;
        let (scheme, token) = auth
            .split_once(' ')
            .ok_or(InitialResponseError::AuthFormat)?;
        let token = token.trim_start_matches(' ');
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if !scheme.bytes().all(is_word) || !is_token(token) {
            return Err(InitialResponseError::AuthFormat);
        }
        if !scheme.eq_ignore_ascii_case("bearer") {
            return Err(InitialResponseError::Scheme);
        }
        Ok(InitialResponse {
            authorization_id: authorization_id.to_owned(),
            token: Secret::new(token),
            extensions: properties,
        })
    }
}

/// Whether a client can send that along with a token.
pub(crate) fn is_extension(name: &str, value: &str) -> bool {
    is_name(name) && is_value(value)
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphabetic())
}

fn is_value(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| matches!(byte, 0x21..=0x7e | b' ' | b'\t' | b'\r' | b'\n'))
}

/// A token in the syntax of RFC 6750: equals signs only at the end.
fn is_token(token: &str) -> bool {
    let bare = token.trim_end_matches('=');
    !bare.is_empty()
        && bare
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_~+/.".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_read_as_it_was_written() {
        let extensions = BTreeMap::from([("trace".to_owned(), "a b".to_owned())]);
        let message = InitialResponse::encode("ab.cd.ef", &extensions);
        assert_eq!(message, b"n,,\x01auth=Bearer ab.cd.ef\x01trace=a b\x01\x01");
        let read = InitialResponse::parse(&message).unwrap();
        assert_eq!(read.token.expose(), "ab.cd.ef");
        assert_eq!(read.extensions, extensions);
        assert!(!format!("{read:?}").contains("ab.cd"));
    }

    #[test]
    fn other_messages_are_refused() {
        for (message, error) in [
            (&b""[..], InitialResponseError::Format),
            (b"n,,\x01auth=Bearer a\x01", InitialResponseError::Format),
            (
                b"y,,\x01auth=Bearer a\x01\x01",
                InitialResponseError::Format,
            ),
            (
                b"n,b=c,\x01auth=Bearer a\x01\x01",
                InitialResponseError::Format,
            ),
            (b"n,,\x01a1=x\x01\x01", InitialResponseError::Format),
            (b"n,,\x01\x01", InitialResponseError::NoAuth),
            (
                b"n,,\x01auth=Bearer\x01\x01",
                InitialResponseError::AuthFormat,
            ),
            (
                b"n,,\x01auth=Bearer a=b\x01\x01",
                InitialResponseError::AuthFormat,
            ),
            (b"n,,\x01auth=Basic a\x01\x01", InitialResponseError::Scheme),
        ] {
            assert_eq!(InitialResponse::parse(message), Err(error), "{message:?}");
        }
        let named = InitialResponse::parse(b"n,a=bob,\x01auth=bearer  a==\x01\x01").unwrap();
        assert_eq!(
            (&*named.authorization_id, named.token.expose()),
            ("bob", "a==")
        );
    }
}
