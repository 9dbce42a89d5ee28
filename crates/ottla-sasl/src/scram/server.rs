//! The broker's side of SCRAM.
//!
//! 1. The client's first message contains a user name ([`ScramServer::on_client_first`]).
//! 2. The broker looks up the credential, or creates a decoy ([`ScramServer::challenge`]).
//! 3. The client proves that it knows the password, and the broker that it has the credential
//!    ([`ScramServer::on_client_final`]).
//!
//! Kafka: `ScramSaslServer`, whose response to the first message reveals whether the user exists.

use subtle::ConstantTimeEq;

use super::message::{
    attribute, base64, decode_name, extensions, is_printable, is_sasl_name, skip_reserved,
    to_base64,
};
use super::{ScramCredential, ScramMechanism, exclusive_or};

/// Why a SCRAM login fails. Only the first message is sent to the client; for the others, Kafka
/// sends one common message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScramError {
    #[error(
        "Authentication failed: Client requested an authorization id that is different from username"
    )]
    OtherAuthorizationId,
    #[error("Invalid SCRAM client first message format")]
    FirstMessage,
    #[error("Invalid SCRAM client final message format")]
    FinalMessage,
    #[error("Invalid client nonce in the final client message.")]
    Nonce,
    #[error("Invalid client credentials")]
    Proof,
    #[error("Authentication failed: Invalid user credentials")]
    UnknownUser,
    #[error("a message that is out of turn")]
    OutOfTurn,
}

/// The contents of the client's first message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientFirst {
    /// A user name, or the ID of a delegation token.
    pub username: String,
    /// The extension `tokenauth=true`: the name is the ID of a delegation token.
    pub is_token: bool,
}

/// One login.
#[derive(Debug)]
pub struct ScramServer {
    mechanism: ScramMechanism,
    state: State,
}

#[derive(Debug)]
enum State {
    Started,
    Named {
        client_first_bare: String,
        client_nonce: String,
    },
    Challenged {
        nonce: String,
        /// The first messages of both sides, each followed by a comma.
        signed: String,
        credential: ScramCredential,
        is_known: bool,
    },
    Done,
}

impl ScramServer {
    pub fn new(mechanism: ScramMechanism) -> ScramServer {
        ScramServer {
            mechanism,
            state: State::Started,
        }
    }

    pub fn mechanism(&self) -> ScramMechanism {
        self.mechanism
    }

    /// Whether no message has been received.
    pub fn is_started(&self) -> bool {
        matches!(self.state, State::Started)
    }

    pub fn on_client_first(&mut self, message: &[u8]) -> Result<ClientFirst, ScramError> {
        if !self.is_started() {
            return Err(ScramError::OutOfTurn);
        }
        let text = std::str::from_utf8(message).map_err(|_| ScramError::FirstMessage)?;
        let first = FirstMessage::parse(text).ok_or(ScramError::FirstMessage)?;
        let username = decode_name(first.name);
        if !first.authorization_id.is_empty() && first.authorization_id != username {
            return Err(ScramError::OtherAuthorizationId);
        }
        let is_token = |(name, value): &(&str, &str)| {
            *name == "tokenauth" && value.eq_ignore_ascii_case("true")
        };
        self.state = State::Named {
            client_first_bare: first.bare.to_owned(),
            client_nonce: first.nonce.to_owned(),
        };
        Ok(ClientFirst {
            username,
            is_token: first.extensions.iter().any(is_token),
        })
    }

    /// Returns the broker's first message. If `is_known` is false, `credential` is a decoy: the
    /// login proceeds like any other, and fails at the end. `nonce` is an unpredictable text
    /// without commas.
    pub fn challenge(
        &mut self,
        credential: ScramCredential,
        is_known: bool,
        nonce: &str,
    ) -> Result<Vec<u8>, ScramError> {
        let State::Named {
            client_first_bare,
            client_nonce,
        } = std::mem::replace(&mut self.state, State::Done)
        else {
            return Err(ScramError::OutOfTurn);
        };
        let nonce = format!("{client_nonce}{nonce}");
        let server_first = format!(
            "r={nonce},s={},i={}",
            to_base64(&credential.salt),
            credential.iterations
        );
        self.state = State::Challenged {
            nonce,
            signed: format!("{client_first_bare},{server_first},"),
            credential,
            is_known,
        };
        Ok(server_first.into_bytes())
    }

    /// Returns the broker's last message if the client knows the password.
    pub fn on_client_final(&mut self, message: &[u8]) -> Result<Vec<u8>, ScramError> {
        let State::Challenged {
            nonce,
            mut signed,
            credential,
            is_known,
        } = std::mem::replace(&mut self.state, State::Done)
        else {
            return Err(ScramError::OutOfTurn);
        };
        let text = std::str::from_utf8(message).map_err(|_| ScramError::FinalMessage)?;
        let last = FinalMessage::parse(text).ok_or(ScramError::FinalMessage)?;
        if last.nonce != nonce {
            return Err(ScramError::Nonce);
        }
        signed.push_str(last.without_proof);
        let mechanism = self.mechanism;
        let signature = mechanism.mac(&credential.keys.stored_key, &[signed.as_bytes()]);
        let client_key = exclusive_or(&last.proof, &signature);
        let stored_key = mechanism.hash(&client_key);
        let is_proven: bool = stored_key.ct_eq(&credential.keys.stored_key).into();
        if !is_proven || last.proof.len() != signature.len() {
            return Err(ScramError::Proof);
        }
        if !is_known {
            return Err(ScramError::UnknownUser);
        }
        let signature = mechanism.mac(&credential.keys.server_key, &[signed.as_bytes()]);
        Ok(format!("v={}", to_base64(&signature)).into_bytes())
    }
}

struct FirstMessage<'a> {
    authorization_id: &'a str,
    /// Starts at the name.
    bare: &'a str,
    name: &'a str,
    nonce: &'a str,
    extensions: Vec<(&'a str, &'a str)>,
}

impl<'a> FirstMessage<'a> {
    fn parse(text: &'a str) -> Option<FirstMessage<'a>> {
        // Without channel binding, which Kafka does not support.
        let rest = text.strip_prefix("n,")?;
        let (authorization_id, bare) = match attribute(rest, "a") {
            Some((name, rest)) if is_sasl_name(name) => (name, rest.strip_prefix(',')?),
            Some(_) => return None,
            None => ("", rest.strip_prefix(',')?),
        };
        let (name, rest) = attribute(skip_reserved(bare)?, "n")?;
        let (nonce, rest) = attribute(rest.strip_prefix(',')?, "r")?;
        let extensions = extensions(rest)?;
        (is_sasl_name(name) && is_printable(nonce)).then_some(FirstMessage {
            authorization_id,
            bare,
            name,
            nonce,
            extensions,
        })
    }
}

struct FinalMessage<'a> {
    without_proof: &'a str,
    nonce: &'a str,
    proof: Vec<u8>,
}

impl<'a> FinalMessage<'a> {
    fn parse(text: &'a str) -> Option<FinalMessage<'a>> {
        let (without_proof, proof) = text.rsplit_once(",p=")?;
        let (binding, rest) = attribute(without_proof, "c")?;
        base64(binding)?;
        let (nonce, rest) = attribute(rest.strip_prefix(',')?, "r")?;
        extensions(rest)?;
        Some(FinalMessage {
            without_proof,
            nonce: Some(nonce).filter(|nonce| is_printable(nonce))?,
            proof: base64(proof)?,
        })
    }
}
