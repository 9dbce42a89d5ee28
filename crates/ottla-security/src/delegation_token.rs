//! Delegation tokens (KIP-48): their owner and expiry.
//!
//! In Kafka: `DelegationTokenControlManager`, `DelegationTokenPublisher`.

use ottla_protocol::metadata_records::DelegationTokenRecord;
use ottla_sasl::scram::ScramCredential;
use ottla_types::Timestamp;

use crate::principal::Principal;
use crate::sasl_authenticator::TokenCredential;

/// Whether a token has expired.
pub fn is_token_expired(token: &DelegationTokenRecord, now: Timestamp) -> bool {
    token.max_timestamp < now.0 || token.expiration_timestamp < now.0
}

/// The credential for a login with the token; `None` if the token has expired. `credential` is the
/// one derived for the token.
pub fn token_login(
    token: &DelegationTokenRecord,
    credential: &ScramCredential,
    now: Timestamp,
) -> Option<TokenCredential> {
    if is_token_expired(token, now) {
        return None;
    }
    Some(TokenCredential {
        credential: credential.clone(),
        owner: Principal::parse(&token.owner).ok()?,
        expires_at_ms: token.expiration_timestamp,
    })
}

#[cfg(test)]
mod tests {
    use ottla_sasl::{ScramMechanism, token_credential};

    use super::*;

    #[test]
    fn a_token_lets_its_owner_in_until_its_time_is_over() {
        let token = DelegationTokenRecord {
            owner: "User:alice".into(),
            token_id: "id".into(),
            max_timestamp: 2_000,
            expiration_timestamp: 1_000,
            ..Default::default()
        };
        let credential = token_credential("secret", "id", ScramMechanism::Sha512);
        let login = |now| token_login(&token, &credential, Timestamp(now));
        let found = login(1_000).expect("its time is not over");
        assert_eq!(found.owner, Principal::user("alice"));
        assert_eq!(found.expires_at_ms, 1_000);
        assert!(found.credential == credential);
        assert_eq!(login(1_001), None);
    }
}
