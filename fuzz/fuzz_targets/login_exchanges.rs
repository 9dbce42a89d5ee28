//! A client that has not logged in, and its requests in any order: no sequence of them lets it in without a credential.

#![no_main]

use std::collections::BTreeMap;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use ottla_protocol::ApiKey;
use ottla_sasl::scram::ScramCredential;
use ottla_sasl::{EnabledMechanism, Mechanism, SaslListener, ScramMechanism, Secret, token_decoy};
use ottla_security::{Moment, OAuthIdentity, Outcome, SaslAuthenticator, SaslCredentials, TokenCredential};

/// Users and tokens exist, but nobody knows a password.
struct Credentials;

impl SaslCredentials for Credentials {
    fn scram(&self, mechanism: ScramMechanism, username: &str) -> Option<ScramCredential> {
        (username == "alice").then(|| mechanism.decoy(b"alice's", username, None))
    }

    fn scram_decoy(&self, mechanism: ScramMechanism, username: &str) -> ScramCredential {
        mechanism.decoy(b"nobody's", username, None)
    }

    fn delegation_token(&self, _: ScramMechanism, _: &str, _: Moment) -> Option<TokenCredential> {
        None
    }

    fn token_decoy(&self, mechanism: ScramMechanism, token_id: &str) -> ScramCredential {
        token_decoy("a secret key", token_id, mechanism)
    }

    fn oauth(&self, _: &EnabledMechanism, _: &Secret, _: Moment) -> Result<OAuthIdentity, String> {
        Err("{\"status\":\"invalid_token\"}".to_owned())
    }

    fn nonce(&self) -> String {
        "def".to_owned()
    }
}

fn listener() -> Arc<SaslListener> {
    let mechanisms = Mechanism::ALL.into_iter();
    let enabled = mechanisms.filter(|it| *it != Mechanism::Gssapi).map(|mechanism| EnabledMechanism {
        mechanism,
        max_reauth_ms: None,
        users: BTreeMap::from([("alice".to_owned(), Secret::new("a password that no input contains"))]),
        tokens: None,
        kerberos: None,
    });
    Arc::new(SaslListener { mechanisms: enabled.collect() })
}

fuzz_target!(|bytes: &[u8]| {
    let mut login = SaslAuthenticator::new(listener());
    let now = Moment { now_ms: 1_000, time_of_day_ms: 1_000_000 };
    let mut rest = bytes;
    // Each request is its kind, a length, and this many bytes.
    while let Some((&[kind, length], after)) = rest.split_first_chunk::<2>() {
        let (message, after) = after.split_at(usize::from(length).min(after.len()));
        rest = after;
        let (kind, variant) = (kind % 5, kind / 5);
        let outcome = match kind {
            0 if login.may_ask_versions() => {
                login.on_versions_answered(variant == 0);
                continue;
            }
            0 => login.on_other(ApiKey::ApiVersions),
            1 => login.on_other(ApiKey::Metadata),
            2 => login.on_invalid_frame(),
            3 => {
                let text = String::from_utf8_lossy(message);
                let named = Mechanism::ALL.get(usize::from(variant / 2));
                login.on_handshake(i16::from(variant % 2), named.map_or(&*text, |it| it.name()))
            }
            _ => {
                let version = (!login.expects_token()).then_some(i16::from(variant % 3));
                login.on_token(version, message, &Credentials, now)
            }
        };
        match outcome {
            Outcome::Continue(_) => {}
            Outcome::Failed { .. } | Outcome::Misplaced { .. } | Outcome::Closed(_) => return,
            other => panic!("{other:?}"),
        }
    }
});
