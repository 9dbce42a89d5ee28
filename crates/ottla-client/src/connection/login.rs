//! Logs a connection in with SASL, and again before its session expires (KIP-368).

use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_gssapi::{GssError, Login};
use ottla_protocol::messages::{SaslAuthenticateRequest, SaslHandshakeRequest};
use ottla_sasl::ClientCredentials;
use ottla_types::ErrorCode;

use super::wire::Wire;
use crate::error::ClientError;
use crate::security::SecurityConfig;

/// The part of a session after which it is renewed, in thousandths; at random between these, as in Kafka, so that many
/// connections do not do it at the same time.
const RENEWED_AFTER: std::ops::Range<u64> = 850..950;

/// The versions of the two requests that both sides support.
#[derive(Clone, Copy)]
pub(super) struct LoginVersions {
    pub handshake: i16,
    pub authenticate: i16,
}

/// Returns when the session has to be renewed, if the broker limits it.
pub(super) async fn log_in(
    wire: &Wire,
    versions: LoginVersions,
    config: &SecurityConfig,
) -> Result<Option<Instant>, ClientError> {
    let nonce = format!("{:032x}", ottla_sync::random::random::<u128>("nonces"));
    let credentials = config.credentials_now().await?;
    let mechanism = config.mechanism();
    let Some(credentials) = &credentials else {
        let missing = "there is no sasl.jaas.config";
        return Err(ClientError::Config(missing.into()));
    };
    let what = match credentials {
        ClientCredentials::Password { username, .. } => {
            format!(
                "logging in at {} with {mechanism} as {username}",
                wire.address
            )
        }
        ClientCredentials::Token { .. } | ClientCredentials::Kerberos(_) => {
            format!("logging in at {} with {mechanism}", wire.address)
        }
    };
    let request = SaslHandshakeRequest {
        mechanism: mechanism.name().into(),
    };
    let answer = wire.exchange_for_login(&request, versions.handshake);
    let answer = answer.await?;
    let enabled: Vec<&str> = answer.mechanisms.iter().map(|it| &**it).collect();
    let message = format!(
        "it failed: the broker does not take {mechanism}; it takes {}; set sasl.mechanism to one that it takes",
        enabled.join(", ")
    );
    ClientError::check(what.clone(), answer.error_code, Some(message))?;
    let begun = Login::begin(mechanism, credentials, host(&wire.address), nonce).await;
    let (mut login, first) = begun.map_err(|error| {
        failed(&wire.address, error, |reason| {
            ClientError::Config(format!("sasl.jaas.config: {what}: {reason}"))
        })
    })?;
    let mut message = Some(first);
    let mut lifetime_ms = 0;
    while let Some(auth_bytes) = message {
        let request = SaslAuthenticateRequest {
            auth_bytes: auth_bytes.into(),
            ..Default::default()
        };
        let answer = wire.exchange_for_login(&request, versions.authenticate);
        let answer = answer.await?;
        let said = refusal(
            answer.error_code,
            answer.error_message.as_deref(),
            credentials,
        );
        ClientError::check(what.clone(), answer.error_code, said)?;
        lifetime_ms = u64::try_from(answer.session_lifetime_ms).unwrap_or(0);
        let next = login.on_message(&answer.auth_bytes).await;
        message = next.map_err(|error| {
            failed(&wire.address, error, |reason| ClientError::Unreadable {
                address: wire.address.clone(),
                what: "an answer to a login".into(),
                reason,
            })
        })?;
    }
    if lifetime_ms == 0 {
        return Ok(None);
    }
    let part = ottla_sync::random::random_range("session renewals", RENEWED_AFTER);
    let lasts = Duration::from_millis(lifetime_ms.saturating_mul(part) / 1000);
    Ok(ottla_sync::time::now().checked_add(lasts))
}

/// The message of a refused login: the broker's own, and what to check. It begins as one that names its context
/// ([`ClientError::broker_message`]), because users of several clusters and files need address and user.
fn refusal(code: i16, said: Option<&str>, credentials: &ClientCredentials) -> Option<String> {
    let code = ErrorCode::from_code(code);
    let said = said.filter(|said| !said.is_empty());
    if code != ErrorCode::SaslAuthenticationFailed {
        return said.map(str::to_owned);
    }
    let said = said.unwrap_or(code.message());
    let check = match credentials {
        ClientCredentials::Password { is_token: true, .. } => {
            "check token ID and HMAC in sasl.jaas.config, and that the token has not expired"
        }
        ClientCredentials::Password { .. } => {
            "check username and password in sasl.jaas.config, and that the user has a password for this mechanism"
        }
        ClientCredentials::Token { .. } | ClientCredentials::Kerberos(_) => {
            "check sasl.jaas.config"
        }
    };
    Some(format!("it was refused: {said}; {check}"))
}

/// A step of the login failed on this side. A transient failure counts as a lost connection, so
/// that the client connects again (`SaslClientAuthenticator.createSaslToken`).
fn failed(
    address: &str,
    error: GssError,
    lasting: impl FnOnce(String) -> ClientError,
) -> ClientError {
    let reason = error.to_string();
    match error.is_passing() {
        true => ClientError::Closed {
            address: address.to_owned(),
            reason,
        },
        false => lasting(reason),
    }
}

/// The host of an address, without the brackets of an IPv6 address.
fn host(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Renews the session whenever a request finds it due. A failure closes the connection.
pub(super) async fn renew_sessions(
    wire: Arc<Wire>,
    versions: LoginVersions,
    config: SecurityConfig,
) {
    loop {
        wire.renewal_due().await;
        let began = ottla_sync::time::now();
        let renewed = log_in(&wire, versions, &config).await;
        let took = ottla_sync::time::elapsed(began);
        wire.pending
            .network
            .on_reauthenticated(renewed.is_ok(), took);
        match renewed {
            Ok(renewal_at) => wire.resume(renewal_at),
            Err(error) => return wire.give_up(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_login_names_address_user_and_mechanism_and_what_to_check() {
        let alice = ClientCredentials::password("alice", "a");
        let refused = |code: ErrorCode, said: Option<&str>| {
            let said = refusal(code.code(), said, &alice);
            let what = "logging in at h:9092 with PLAIN as alice";
            ClientError::broker(what, code.code(), said).broker_message()
        };
        assert_eq!(
            refused(
                ErrorCode::SaslAuthenticationFailed,
                Some("Invalid username")
            ),
            "logging in at h:9092 with PLAIN as alice was refused: Invalid username; check username and password in \
             sasl.jaas.config, and that the user has a password for this mechanism"
        );
        let silent = refused(ErrorCode::SaslAuthenticationFailed, Some(""));
        assert!(silent.contains(ErrorCode::SaslAuthenticationFailed.message()));
        assert_eq!(refused(ErrorCode::IllegalSaslState, Some("late")), "late");
    }

    #[tokio::test]
    async fn a_transient_kerberos_error_is_retried() {
        let tried = |error: GssError| failed("here:9092", error, ClientError::Config);
        let error = tried(GssError::passing("Request is a replay"));
        assert!(error.is_retriable(), "{error}");
        assert!(error.to_string().contains("Request is a replay"), "{error}");
        let mut login = Login::Kerberos(None);
        let lasting = login.on_message(b"").await.unwrap_err();
        let error = tried(lasting);
        assert!(matches!(error, ClientError::Config(_)), "{error}");
        assert!(!error.is_retriable());
    }
}
