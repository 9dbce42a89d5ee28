//! Principals, and the spelling of client addresses.
//!
//! Kafka: `KafkaPrincipal`, `DefaultKafkaPrincipalBuilder` for the bytes in an Envelope,
//! `InetAddress.getHostAddress` for the spelling of addresses.

use std::fmt;
use std::net::IpAddr;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use bytestring::ByteString;
use ottla_protocol::messages::DefaultPrincipalData;
use ottla_protocol::{EncodeError, Message, Reader};

/// The type of all principals that Kafka itself creates.
const USER_TYPE: &str = "User";
/// The newest version of `DefaultPrincipalData`. The version precedes the data.
const PRINCIPAL_VERSION: i16 = 0;

/// A type and a name, such as `User:alice`. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Principal {
    /// Type, colon, name.
    text: ByteString,
    /// The position of the colon. The type contains none.
    colon: usize,
    /// Whether the client logged in with a delegation token. Such a client cannot create tokens.
    is_token_authenticated: bool,
}

/// A text that is not a principal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct InvalidPrincipal(pub String);

impl fmt::Display for InvalidPrincipal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = &self.0;
        write!(
            f,
            "expected a string in format principalType:principalName but got {text}"
        )
    }
}

impl Principal {
    /// The principal of an unauthenticated client: `User:ANONYMOUS`.
    pub fn anonymous() -> Principal {
        Principal {
            text: ByteString::from_static("User:ANONYMOUS"),
            colon: USER_TYPE.len(),
            is_token_authenticated: false,
        }
    }

    /// `User:` and a name.
    pub fn user(name: &str) -> Principal {
        Principal {
            text: ByteString::from(format!("{USER_TYPE}:{name}")),
            colon: USER_TYPE.len(),
            is_token_authenticated: false,
        }
    }

    /// Parses `type:name`. The name may contain colons. Kafka: `SecurityUtils.parseKafkaPrincipal`.
    pub fn parse(text: &str) -> Result<Principal, InvalidPrincipal> {
        match text.find(':') {
            Some(colon) => Ok(Principal {
                text: ByteString::from(text),
                colon,
                is_token_authenticated: false,
            }),
            None => Err(InvalidPrincipal(text.to_owned())),
        }
    }

    /// `User:alice`.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub fn principal_type(&self) -> &str {
        &self.text[..self.colon]
    }

    pub fn name(&self) -> &str {
        &self.text[self.colon + 1..]
    }

    pub fn is_token_authenticated(&self) -> bool {
        self.is_token_authenticated
    }

    /// The same principal, authenticated by a delegation token.
    pub fn token_authenticated(self) -> Principal {
        Principal {
            is_token_authenticated: true,
            ..self
        }
    }

    /// Encodes the principal for an Envelope: the version, then `DefaultPrincipalData`.
    pub fn to_bytes(&self) -> Result<Bytes, EncodeError> {
        let data = DefaultPrincipalData {
            r#type: ByteString::from(self.principal_type()),
            name: ByteString::from(self.name()),
            token_authenticated: self.is_token_authenticated,
            ..Default::default()
        };
        let mut bytes = BytesMut::new();
        bytes.put_i16(PRINCIPAL_VERSION);
        bytes.extend_from_slice(&data.encode_to_bytes(PRINCIPAL_VERSION)?);
        Ok(bytes.freeze())
    }

    /// Decodes the result of [`to_bytes`](Self::to_bytes); `None` for malformed bytes or an unknown
    /// version.
    pub fn from_bytes(mut bytes: Bytes) -> Option<Principal> {
        let version = bytes.try_get_i16().ok()?;
        if version != PRINCIPAL_VERSION {
            return None;
        }
        let data = DefaultPrincipalData::decode(&mut Reader::new(bytes), version).ok()?;
        if data.r#type.contains(':') {
            return None;
        }
        Some(Principal {
            text: ByteString::from(format!("{}:{}", data.r#type, data.name)),
            colon: data.r#type.len(),
            is_token_authenticated: data.token_authenticated,
        })
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// An address in Java's spelling, which ACLs use: IPv6 as eight groups without leading zeros and
/// without `::`, and an IPv4-mapped address as IPv4.
pub fn host_address(ip: IpAddr) -> String {
    match ip.to_canonical() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => {
            let groups = ip.segments().map(|group| format!("{group:x}"));
            groups.join(":")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_spelled_as_java_spells_them() {
        for (ip, java) in [
            ("127.0.0.1", "127.0.0.1"),
            ("::1", "0:0:0:0:0:0:0:1"),
            ("2001:db8::a", "2001:db8:0:0:0:0:0:a"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
        ] {
            assert_eq!(host_address(ip.parse().unwrap()), java);
        }
    }

    #[test]
    fn a_principal_is_a_type_and_a_name() {
        let principal = Principal::parse("User:CN=a:b,O=c").unwrap();
        assert_eq!(principal.principal_type(), "User");
        assert_eq!(principal.name(), "CN=a:b,O=c");
        assert_eq!(
            Principal::parse("alice").unwrap_err().to_string(),
            "expected a string in format principalType:principalName but got alice"
        );
    }

    #[test]
    fn a_principal_survives_its_envelope() {
        let mut principal = Principal::parse("User:CN=a:b").unwrap();
        principal.is_token_authenticated = true;
        let bytes = principal.to_bytes().unwrap();
        assert_eq!(&bytes[..2], [0, 0]);
        assert_eq!(Principal::from_bytes(bytes.clone()), Some(principal));
        for cut in 0..bytes.len() {
            assert_eq!(Principal::from_bytes(bytes.slice(..cut)), None, "{cut}");
        }
        let mut newer = BytesMut::from(&bytes[..]);
        newer[1] = 1;
        assert_eq!(Principal::from_bytes(newer.freeze()), None);
    }
}
