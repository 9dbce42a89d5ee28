//! Logins for those who must not block: each step runs on a thread that may.

use std::sync::Arc;

use ottla_sasl::{ClientCredentials, ClientLogin, KerberosService, Mechanism};

use crate::client_login::{ClientKerberos, ClientStep};
use crate::error::GssError;
use crate::realm::default_realm;
use crate::server_login::{ServerKerberos, ServerStep};

/// The client's side of a login, with any mechanism.
pub enum Login {
    Messages(ClientLogin),
    /// `None` after a failure.
    Kerberos(Option<ClientKerberos>),
}

impl Login {
    /// Begins a login at a host, and returns the first message. `nonce` is an unpredictable text
    /// without commas. The error is for people.
    pub async fn begin(
        mechanism: Mechanism,
        credentials: &ClientCredentials,
        host: &str,
        nonce: String,
    ) -> Result<(Login, Vec<u8>), String> {
        if let (Mechanism::Gssapi, ClientCredentials::Kerberos(login)) = (mechanism, credentials) {
            let (login, host) = (login.clone(), host.to_owned());
            let begun = blocking(move || ClientKerberos::begin(&login, &host)).await;
            let (login, first) = begun.map_err(|error| error.to_string())?;
            return Ok((Login::Kerberos(Some(login)), first));
        }
        let mut login = ClientLogin::new(mechanism, credentials, nonce)
            .ok_or_else(|| format!("there are no credentials for {mechanism}"))?;
        let first = login.first_message();
        Ok((Login::Messages(login), first))
    }

    /// Returns the response to a message; `None` once the login is complete. The error is for
    /// people.
    pub async fn on_message(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, String> {
        let login = match self {
            Login::Messages(login) => return login.on_message(message),
            Login::Kerberos(login) => login,
        };
        let Some(mut under_way) = login.take() else {
            return Err("the login has failed".to_owned());
        };
        let message = message.to_vec();
        let step = blocking(move || {
            let step = under_way.on_message(&message)?;
            Ok((under_way, step))
        });
        let (under_way, step) = step.await.map_err(|error| error.to_string())?;
        *login = Some(under_way);
        Ok(match step {
            ClientStep::Response(response) => Some(response),
            ClientStep::Done => None,
        })
    }
}

/// The result of a message of a client.
pub enum Accepted {
    /// The login goes on.
    Challenge(ServerKerberos, Vec<u8>),
    /// The ticket is good. The user is whom the rules make of its principal, or why they do not.
    Done {
        principal: String,
        user: Result<String, String>,
    },
}

/// Processes a message of a client; `under_way` is its login if this is not its first message.
pub async fn accept(
    under_way: Option<ServerKerberos>,
    service: Arc<KerberosService>,
    message: Vec<u8>,
) -> Result<Accepted, GssError> {
    blocking(move || {
        let mut login = match under_way {
            Some(login) => login,
            None => ServerKerberos::begin(&service)?,
        };
        Ok(match login.on_message(&message)? {
            ServerStep::Challenge(challenge) => Accepted::Challenge(login, challenge),
            ServerStep::Done { client } => {
                let realm = default_realm().unwrap_or_default();
                let user = service.rules.short_name(&client, &realm);
                let principal = client;
                Accepted::Done { principal, user }
            }
        })
    })
    .await
}

async fn blocking<T: Send + 'static>(
    step: impl FnOnce() -> Result<T, GssError> + Send + 'static,
) -> Result<T, GssError> {
    let done = ottla_sync::task::spawn_blocking(step).await;
    done.unwrap_or_else(|error| Err(GssError::new(format!("the login was aborted: {error}"))))
}
