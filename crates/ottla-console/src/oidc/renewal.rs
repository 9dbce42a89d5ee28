//! The tokens of one session: the access token is replaced before it expires, and the session ends when it cannot be.

use std::sync::Arc;
use std::time::Duration;

use ottla_client::SuppliedToken;
use ottla_sasl::Secret;
use tokio::time::Instant;

use super::provider::{Failure, Provider};
use crate::visit::Visit;

/// Between two attempts to get a new token from a provider that does not answer.
const RETRY: Duration = Duration::from_secs(10);

/// The login of a session.
pub(crate) struct Login {
    /// The provider's fixed ID of the user, whose name may change.
    pub(crate) subject: String,
    /// With which the session's client logs in.
    pub(crate) token: SuppliedToken,
    pub(crate) refresh: Option<Secret>,
    pub(crate) lasts: Duration,
}

/// Keeps the token of a session valid until the session ends, whatever ends it; then the provider forgets the refresh token.
pub(crate) async fn keep(provider: Arc<Provider>, visit: Arc<Visit>, mut login: Login) {
    let mut expires = Instant::now() + login.lasts;
    let mut due = Instant::now() + login.lasts * 4 / 5;
    loop {
        // Without a refresh token, nothing is to be done before the end.
        let next = match login.refresh {
            Some(_) => due,
            None => expires,
        };
        tokio::select! {
            () = visit.ended() => break,
            () = tokio::time::sleep_until(next) => {}
        }
        match renew(&provider, &mut login).await {
            Ok(()) => {
                expires = Instant::now() + login.lasts;
                due = Instant::now() + login.lasts * 4 / 5;
            }
            Err(Failure::Unusable(reason)) if Instant::now() + RETRY < expires => {
                tracing::debug!("a token is not replaced yet: {reason}");
                due = Instant::now() + RETRY;
            }
            Err(error) => {
                tracing::info!("a session of the console ends: {}", error.reason());
                visit.end();
                break;
            }
        }
    }
    if let Some(refresh) = &login.refresh {
        provider.revoke(refresh).await;
    }
}

/// Replaces the tokens by new ones, of the same person.
async fn renew(provider: &Provider, login: &mut Login) -> Result<(), Failure> {
    let Some(refresh) = &login.refresh else {
        return Err(Failure::Refused("there is no refresh token".into()));
    };
    let tokens = provider.refresh(refresh).await?;
    // Whatever becomes of the others: a refresh token may be good once. Without a new one, the old one stays good
    // (RFC 6749, 6).
    if tokens.refresh.is_some() {
        login.refresh = tokens.refresh;
    }
    // A name can change and be given to another user; the subject cannot (OpenID Connect Core 1.0, 12.2).
    if let Some(id) = &tokens.id
        && provider.identify(id, None).await?.subject != login.subject
    {
        return Err(Failure::Refused(
            "the new tokens belong to another user".into(),
        ));
    }
    login.lasts = tokens.lasts;
    login.token.replace(tokens.access);
    Ok(())
}
