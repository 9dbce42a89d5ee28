//! Logging in: PLAIN (RFC 4616) and the client's side of SCRAM (RFC 5802).
//!
//! Pure: what the broker says goes in, what it is to be told comes out. Random numbers are arguments.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::config::{SaslMechanism, SecurityConfig};
use crate::scram::ScramMechanism;

/// Fewer iterations than Kafka's brokers store are taken for an attempt at the password.
const MIN_ITERATIONS: u32 = ScramMechanism::MIN_ITERATIONS;
/// More would keep this client busy for the broker's pleasure.
const MAX_ITERATIONS: u32 = 1 << 20;

/// One attempt to log in.
pub(crate) struct Login {
    mechanism: SaslMechanism,
    username: String,
    password: String,
    nonce: String,
    state: State,
}

enum State {
    Started,
    /// The first message without its header.
    Scram {
        client_first_bare: String,
    },
    /// What the broker has to prove that it knows.
    Proving {
        server_signature: Vec<u8>,
    },
    Done,
}

impl Login {
    /// `nonce` is text that nobody can guess, without commas.
    pub(crate) fn new(config: &SecurityConfig, nonce: String) -> Option<Login> {
        Some(Login {
            mechanism: config.sasl_mechanism?,
            username: config.username.clone(),
            password: config.password.clone(),
            nonce,
            state: State::Started,
        })
    }

    pub(crate) fn mechanism_name(&self) -> &'static str {
        match self.mechanism {
            SaslMechanism::Plain => "PLAIN",
            SaslMechanism::Scram(scram) => scram.name(),
        }
    }

    pub(crate) fn first_message(&mut self) -> Vec<u8> {
        match self.mechanism {
            SaslMechanism::Plain => {
                self.state = State::Done;
                format!("\0{}\0{}", self.username, self.password).into_bytes()
            }
            SaslMechanism::Scram(_) => {
                let name = self.username.replace('=', "=3D").replace(',', "=2C");
                let client_first_bare = format!("n={name},r={}", self.nonce);
                let message = format!("n,,{client_first_bare}").into_bytes();
                self.state = State::Scram { client_first_bare };
                message
            }
        }
    }

    /// What to answer; nothing once it is done.
    pub(crate) fn on_message(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let text = || std::str::from_utf8(message).map_err(|_| "it is no text".to_owned());
        match (
            std::mem::replace(&mut self.state, State::Done),
            self.mechanism,
        ) {
            (State::Scram { client_first_bare }, SaslMechanism::Scram(scram)) => {
                self.prove(scram, &client_first_bare, text()?).map(Some)
            }
            (State::Proving { server_signature }, _) => {
                let expected = format!("v={}", STANDARD.encode(server_signature));
                match text()? {
                    answer if answer.split(',').next() == Some(&expected) => Ok(None),
                    answer => match answer.strip_prefix("e=") {
                        Some(error) => Err(error.to_owned()),
                        None => Err("the broker does not know the password either".to_owned()),
                    },
                }
            }
            _ => Ok(None),
        }
    }

    fn prove(
        &mut self,
        scram: ScramMechanism,
        client_first_bare: &str,
        server_first: &str,
    ) -> Result<Vec<u8>, String> {
        let field = |name: &str| {
            server_first
                .split(',')
                .find_map(|part| part.strip_prefix(name))
                .ok_or_else(|| format!("it has no {name}"))
        };
        let nonce = field("r=")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("its nonce does not go on from ours".to_owned());
        }
        let salt = STANDARD
            .decode(field("s=")?)
            .map_err(|_| "its salt is not base64")?;
        let iterations = field("i=")?
            .parse()
            .map_err(|_| "its iterations are no number")?;
        if !(MIN_ITERATIONS..=MAX_ITERATIONS).contains(&iterations) {
            return Err(format!("{iterations} iterations are not believable"));
        }
        let salted = scram.salted_password(self.password.as_bytes(), &salt, iterations);
        let keys = scram.keys(&salted);
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{client_first_bare},{server_first},{without_proof}");
        let signature = scram.mac(&keys.stored_key, &[signed.as_bytes()]);
        let client_key = scram.client_key(&salted);
        let proof: Vec<u8> = client_key
            .iter()
            .zip(&signature)
            .map(|(one, other)| one ^ other)
            .collect();
        self.state = State::Proving {
            server_signature: scram.mac(&keys.server_key, &[signed.as_bytes()]),
        };
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof)).into_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(username: &str, nonce: &str) -> Login {
        let config = SecurityConfig {
            sasl_mechanism: Some(SaslMechanism::Scram(ScramMechanism::Sha256)),
            username: username.into(),
            password: "pencil".into(),
            ..SecurityConfig::default()
        };
        Login::new(&config, nonce.into()).unwrap()
    }

    /// The exchange of RFC 7677, section 3.
    #[test]
    fn scram_goes_as_in_the_standard() {
        let server_first = "r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                            s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096";
        let begin = || {
            let mut login = login("user", "rOprNGfwEbeRWgbNEkqO");
            assert_eq!(login.first_message(), b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO");
            let last = login.on_message(server_first.as_bytes()).unwrap().unwrap();
            let expected = "c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,\
                            p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=";
            assert_eq!(String::from_utf8(last).unwrap(), expected);
            login
        };
        let good = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert_eq!(begin().on_message(good), Ok(None));
        let bad = b"v=7rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=";
        assert!(begin().on_message(bad).is_err());
        assert!(
            begin()
                .on_message(b"e=invalid-proof")
                .unwrap_err()
                .contains("invalid-proof")
        );
    }

    #[test]
    fn a_broker_that_is_not_believable_gets_no_proof() {
        for answer in [
            "r=other,s=AAAA,i=4096",
            "r=abcd,s=AAAA,i=1",
            "r=abcd,s=!,i=4096",
            "x",
            "r=abc,s=AAAA,i=4096",
        ] {
            let mut login = login("a=b,c", "abc");
            assert_eq!(login.first_message(), b"n,,n=a=3Db=2Cc,r=abc");
            assert!(login.on_message(answer.as_bytes()).is_err(), "{answer}");
        }
    }
}
