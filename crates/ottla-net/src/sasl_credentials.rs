//! The credentials for logins: those in the metadata image, and random nonces.
//!
//! An unknown user gets a decoy credential that is the same on every node and in each attempt. It
//! looks like the credential of an existing user, and is derived from the server keys of two users,
//! which the nodes know. A user knows the own one, and could compute decoys with it alone.
//!
//! Kafka: `CredentialProvider`, `ScramServerCallbackHandler`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_metadata::{MetadataImage, ScramImage};
use ottla_protocol::metadata_records::UserScramCredentialRecord;
use ottla_sasl::oauth_token::{TokenError, validate, validate_unsecured};
use ottla_sasl::scram::{ScramCredential, ScramKeys};
use ottla_sasl::{
    EnabledMechanism, ScramMechanism, Secret, TokenCredentials, TokenValidator, token_decoy,
};
use ottla_security::{Moment, OAuthIdentity, SaslCredentials, TokenCredential, token_login};
use ottla_types::Timestamp;

/// The credentials of the image. Before there is an image, the credentials with which the node was
/// formatted.
pub(crate) struct ClusterCredentials<'a> {
    pub image: Arc<MetadataImage>,
    pub bootstrap: &'a ScramImage,
    pub tokens: &'a TokenCredentials,
    pub config: &'a BrokerConfig,
    pub context: &'a NodeContext,
}

impl ClusterCredentials<'_> {
    /// Controllers must authenticate each other before they have replicated any metadata.
    fn scram(&self) -> &ScramImage {
        match self.image.features.metadata_version() {
            None => self.bootstrap,
            Some(_) => &self.image.kept.scram,
        }
    }
}

impl SaslCredentials for ClusterCredentials<'_> {
    fn scram(&self, mechanism: ScramMechanism, username: &str) -> Option<ScramCredential> {
        let found = self
            .scram()
            .get(mechanism.code(), &ByteString::from(username))?;
        credential(mechanism, found)
    }

    fn scram_decoy(&self, mechanism: ScramMechanism, username: &str) -> ScramCredential {
        decoy(mechanism, self.scram(), username)
    }

    fn delegation_token(
        &self,
        mechanism: ScramMechanism,
        token_id: &str,
        now: Moment,
    ) -> Option<TokenCredential> {
        let token = self.image.kept.delegation_tokens.get(token_id)?;
        let credential = self.tokens.get(mechanism, token_id)?;
        token_login(token, credential, Timestamp(now.time_of_day_ms))
    }

    fn token_decoy(&self, mechanism: ScramMechanism, token_id: &str) -> ScramCredential {
        match self.config.delegation_token_secret_key() {
            Some(secret_key) => token_decoy(secret_key, token_id, mechanism),
            None => self.scram_decoy(mechanism, token_id),
        }
    }

    fn oauth(
        &self,
        enabled: &EnabledMechanism,
        token: &Secret,
        now: Moment,
    ) -> Result<OAuthIdentity, String> {
        let (token, time) = (token.expose(), now.time_of_day_ms);
        let validated = match enabled.tokens.as_deref() {
            Some(TokenValidator::Unsecured(rules)) => validate_unsecured(token, rules, time),
            Some(TokenValidator::Signed { keys, rules }) => {
                let known = self.context.token_keys.of(keys).unwrap_or_default();
                let validated = validate(token, &known, rules, time);
                if let Err(TokenError::UnknownKey(Some(id))) = &validated {
                    self.context.token_keys.on_missing(keys, id, now.now_ms);
                }
                validated
            }
            // Cannot happen: the configuration was checked.
            None => Err(TokenError::UnknownKey(None)),
        };
        match validated {
            Ok(token) => Ok(OAuthIdentity {
                name: token.subject,
                expires_at_ms: token.expires_at_ms,
            }),
            Err(error) => {
                let complaints = &self.context.complaints;
                complaints.say(|| tracing::warn!("an OAuth token is not accepted: {error}"));
                Err(error.answer())
            }
        }
    }

    fn nonce(&self) -> String {
        nonce()
    }
}

fn decoy(mechanism: ScramMechanism, scram: &ScramImage, username: &str) -> ScramCredential {
    let known = scram.of_mechanism(mechanism.code());
    let mut known = known.filter_map(|record| credential(mechanism, record));
    let model = known.next();
    let two = model.iter().cloned().chain(known.next());
    let secret: Vec<u8> = two.flat_map(|it| it.keys.server_key).collect();
    mechanism.decoy(&secret, username, model.as_ref())
}

/// An unpredictable text.
pub(crate) fn nonce() -> String {
    format!(
        "{:032x}",
        ottla_sync::random::random::<u128>("nonces of logins")
    )
}

/// Converts a stored credential. `None` if it is unusable, or has fewer iterations than Kafka
/// accepts.
fn credential(
    mechanism: ScramMechanism,
    record: &UserScramCredentialRecord,
) -> Option<ScramCredential> {
    let iterations = u32::try_from(record.iterations).ok()?;
    let is_whole = record.stored_key.len() == mechanism.key_bytes()
        && record.server_key.len() == mechanism.key_bytes();
    (iterations >= ScramMechanism::MIN_ITERATIONS && is_whole).then(|| ScramCredential {
        salt: record.salt.to_vec(),
        iterations,
        keys: ScramKeys {
            stored_key: record.stored_key.to_vec(),
            server_key: record.server_key.to_vec(),
        },
    })
}

#[cfg(test)]
mod tests {
    use ottla_protocol::metadata_records::MetadataRecord;

    use super::*;

    #[test]
    fn a_decoy_depends_on_the_credentials_of_all_users() {
        for mechanism in ScramMechanism::ALL {
            check_decoys_of(mechanism);
        }
    }

    fn check_decoys_of(mechanism: ScramMechanism) {
        let with = |users: &[(&str, &str)]| {
            let mut scram = ScramImage::default();
            // Each user has a credential of the other mechanism too, which plays no part.
            let of_both = |user| ScramMechanism::ALL.map(|of| (user, of));
            for ((name, password), mechanism) in users.iter().flat_map(of_both) {
                let salt = format!("salt of {name}").into_bytes();
                let credential = mechanism.credential(password, salt, 4096);
                scram.apply(&MetadataRecord::UserScramCredential(
                    UserScramCredentialRecord {
                        name: (*name).into(),
                        mechanism: mechanism.code(),
                        salt: credential.salt.into(),
                        stored_key: credential.keys.stored_key.into(),
                        server_key: credential.keys.server_key.into(),
                        iterations: 4096,
                        ..Default::default()
                    },
                ));
            }
            decoy(mechanism, &scram, "nobody")
        };
        let both = with(&[("alice", "a"), ("bob", "b")]);
        assert!(both == with(&[("alice", "a"), ("bob", "b")]));
        assert_eq!(both.salt.len(), "salt of alice".len());
        for other in [
            with(&[("alice", "other"), ("bob", "b")]),
            with(&[("alice", "a"), ("bob", "other")]),
        ] {
            assert!(both.salt != other.salt);
        }
        // A new user does not change the decoys. Otherwise a client could recognize existing users
        // by the values that stay the same.
        assert!(both == with(&[("alice", "a"), ("bob", "b"), ("carol", "c")]));
    }
}
