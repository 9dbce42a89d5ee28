//! The tokens of one session: the access token is replaced before it expires, and the session ends when it cannot be.

use std::sync::Arc;
use std::time::Duration;

use ottla_client::SuppliedToken;
use ottla_sasl::Secret;
use tokio::time::Instant;

use super::answer::Tokens;
use super::provider::{Failure, Provider};
use crate::visit::Visit;

/// Between two attempts to get a new token from a provider that does not answer.
const RETRY: Duration = Duration::from_secs(10);

/// What a session has of its login.
pub(crate) struct Login {
    /// Whom the provider means, whatever it calls the person.
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
        let renewed = match &login.refresh {
            Some(refresh) => renewed(&provider, &login.subject, refresh).await,
            None => Err(Failure::Refused("there is no refresh token".into())),
        };
        match renewed {
            Ok(tokens) => {
                expires = Instant::now() + tokens.lasts;
                due = Instant::now() + tokens.lasts * 4 / 5;
                login.token.replace(tokens.access);
                // Otherwise the old one stays good (RFC 6749, 6).
                login.refresh = tokens.refresh.or(login.refresh);
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

/// New tokens, of the same person.
async fn renewed(provider: &Provider, subject: &str, refresh: &Secret) -> Result<Tokens, Failure> {
    let tokens = provider.refresh(refresh).await?;
    // A name can change and go to somebody else; the subject never does (OpenID Connect Core 1.0, 12.2).
    if let Some(id) = &tokens.id
        && provider.identify(id, None).await?.subject != subject
    {
        return Err(Failure::Refused(
            "the new tokens are of somebody else".into(),
        ));
    }
    Ok(tokens)
}
