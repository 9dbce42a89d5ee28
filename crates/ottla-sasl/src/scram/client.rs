//! The client's side of SCRAM.
//!
//! Kafka: `ScramSaslClient`.

use subtle::ConstantTimeEq;

use super::message::{base64, encode_name, to_base64};
use super::{ScramMechanism, exclusive_or};
use crate::secret::Secret;

/// A limit on the work that a broker can demand from a client.
const MAX_ITERATIONS: u32 = 1 << 20;

/// One login.
#[derive(Debug)]
pub struct ScramClient {
    mechanism: ScramMechanism,
    username: String,
    password: Secret,
    /// The user name is the ID of a delegation token.
    is_token: bool,
    nonce: String,
    state: State,
}

#[derive(Debug)]
enum State {
    Started,
    /// The first message without its GS2 header.
    Named {
        client_first_bare: String,
    },
    /// The signature that the broker must send to prove that it knows the credential.
    Proving {
        server_signature: Vec<u8>,
    },
    Done,
}

impl ScramClient {
    /// `nonce` is an unpredictable text without commas.
    pub fn new(
        mechanism: ScramMechanism,
        username: &str,
        password: Secret,
        is_token: bool,
        nonce: String,
    ) -> ScramClient {
        ScramClient {
            mechanism,
            username: username.to_owned(),
            password,
            is_token,
            nonce,
            state: State::Started,
        }
    }

    pub fn first_message(&mut self) -> Vec<u8> {
        let extension = match self.is_token {
            true => ",tokenauth=true",
            false => "",
        };
        let name = encode_name(&self.username);
        let client_first_bare = format!("n={name},r={}{extension}", self.nonce);
        let message = format!("n,,{client_first_bare}").into_bytes();
        self.state = State::Named { client_first_bare };
        message
    }

    /// Returns the response to a message of the broker; `None` once the broker has proved that it
    /// knows the credential. The error is for people.
    pub fn on_message(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let text = std::str::from_utf8(message).map_err(|_| "it is not text".to_owned())?;
        match std::mem::replace(&mut self.state, State::Done) {
            State::Named { client_first_bare } => self.prove(&client_first_bare, text).map(Some),
            State::Proving { server_signature } => {
                let first = text.split(',').next().unwrap_or_default();
                if let Some(error) = first.strip_prefix("e=") {
                    return Err(error.to_owned());
                }
                let given = first
                    .strip_prefix("v=")
                    .and_then(base64)
                    .unwrap_or_default();
                match given.ct_eq(&server_signature).into() {
                    true => Ok(None),
                    false => Err("the broker does not know the password either".to_owned()),
                }
            }
            State::Started | State::Done => Err("it is out of turn".to_owned()),
        }
    }

    fn prove(&mut self, client_first_bare: &str, server_first: &str) -> Result<Vec<u8>, String> {
        let field = |name: &str| {
            server_first
                .split(',')
                .find_map(|part| part.strip_prefix(name))
                .ok_or_else(|| format!("it has no {name}"))
        };
        let nonce = field("r=")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("its nonce does not continue ours".to_owned());
        }
        let salt = base64(field("s=")?).ok_or("its salt is not base64")?;
        let iterations = field("i=")?.parse();
        let iterations = iterations.map_err(|_| "its iterations are not a number")?;
        // Kafka's brokers store at least the minimum. A smaller number could be an attempt to find
        // the password.
        if !(ScramMechanism::MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations) {
            return Err(format!("{iterations} iterations are not believable"));
        }
        let mechanism = self.mechanism;
        let password = self.password.expose().as_bytes();
        let salted = mechanism.salted_password(password, &salt, iterations);
        let keys = mechanism.keys(&salted);
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{client_first_bare},{server_first},{without_proof}");
        let signature = mechanism.mac(&keys.stored_key, &[signed.as_bytes()]);
        let proof = exclusive_or(&mechanism.client_key(&salted), &signature);
        self.state = State::Proving {
            server_signature: mechanism.mac(&keys.server_key, &[signed.as_bytes()]),
        };
        Ok(format!("{without_proof},p={}", to_base64(&proof)).into_bytes())
    }
}
