//! The client's side of SCRAM.
//!
//! Kafka: `ScramSaslClient`.

use std::fmt;

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
    /// The last derivation from the password, also of earlier logins.
    salted: Option<Salted>,
}

/// A salted password, with its salt and iteration count.
#[derive(Clone)]
struct Salted {
    salt: Vec<u8>,
    iterations: u32,
    password: Vec<u8>,
}

impl fmt::Debug for Salted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Salted").finish_non_exhaustive()
    }
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
            salted: None,
        }
    }

    /// Takes over the salted password of an earlier login with the same mechanism and password, as
    /// RFC 5802 permits: its derivation is by far the longest part of a login.
    pub fn reuse_salted(&mut self, earlier: &ScramClient) {
        if self.mechanism == earlier.mechanism && self.password == earlier.password {
            self.salted.clone_from(&earlier.salted);
        }
    }

    pub fn first_message(&mut self) -> Vec<u8> {
        let extension = if self.is_token { ",tokenauth=true" } else { "" };
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
        let salted = self.salted_password(salt, iterations);
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

    fn salted_password(&mut self, salt: Vec<u8>, iterations: u32) -> Vec<u8> {
        if let Some(known) = &self.salted
            && known.salt == salt
            && known.iterations == iterations
        {
            return known.password.clone();
        }
        let password = self.password.expose().as_bytes();
        let salted = self.mechanism.salted_password(password, &salt, iterations);
        self.salted = Some(Salted {
            salt,
            iterations,
            password: salted.clone(),
        });
        salted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHALLENGE: &[u8] = b"r=abcd,s=AAAA,i=4096";
    const OTHER_SALT: &[u8] = b"r=abcd,s=BBBB,i=4096";

    fn login(password: &str) -> ScramClient {
        let password = Secret::new(password);
        let mut login = ScramClient::new(
            ScramMechanism::Sha256,
            "user",
            password,
            false,
            "abc".into(),
        );
        login.first_message();
        login
    }

    #[test]
    fn a_salted_password_is_reused_for_the_same_password_and_salt_only() {
        let mut first = login("hush");
        let proof = first.on_message(CHALLENGE).unwrap();
        // Whatever was kept is taken, so a kept value that is wrong shows.
        let mut wrong = first;
        wrong.salted.as_mut().unwrap().password = vec![0; 32];
        assert!(!format!("{wrong:?}").contains("0, 0, 0"), "{wrong:?}");
        let after = |password, challenge| {
            let mut next = login(password);
            next.reuse_salted(&wrong);
            next.on_message(challenge).unwrap()
        };
        assert_ne!(after("hush", CHALLENGE), proof);
        assert_eq!(
            after("hush", OTHER_SALT),
            login("hush").on_message(OTHER_SALT).unwrap()
        );
        assert_eq!(
            after("other", CHALLENGE),
            login("other").on_message(CHALLENGE).unwrap()
        );
    }
}
