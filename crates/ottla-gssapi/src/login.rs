//! Logins for callers that must not block: each step runs on a thread that may block.
//!
//! The node has few threads that may block, and they also do its other work. So a step that may
//! wait for a KDC runs on its own thread, and a step that only computes or reads a keytab runs on a
//! shared one. Both are limited: further steps wait without a thread. So neither a KDC that does
//! not answer nor clients that begin many logins can take all threads.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ottla_sync::{Semaphore, oneshot, thread};

use ottla_sasl::{ClientCredentials, ClientLogin, KerberosService, Mechanism};

use crate::client_login::{ClientKerberos, ClientStep};
use crate::error::GssError;
use crate::realm::default_realm;
use crate::server_login::{ServerKerberos, ServerStep};

/// How many threads may wait for a KDC, or for DNS. Enough that some hosts whose names do not
/// resolve do not delay logins at others.
static KDC_STEPS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(16));
/// How many shared threads logins may use.
static LOCAL_STEPS: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(2));
/// The maximum duration of the first step of a client. It is also how long a broker waits for a
/// login.
const LONGEST: Duration = Duration::from_secs(30);

/// The client's side of a login, with any mechanism.
pub enum Login {
    Messages(ClientLogin),
    /// `None` after a failure.
    Kerberos(Option<ClientKerberos>),
}

impl Login {
    /// Begins a login at a host, and returns the first message. `nonce` is an unpredictable text
    /// without commas.
    pub async fn begin(
        mechanism: Mechanism,
        credentials: &ClientCredentials,
        host: &str,
        nonce: String,
    ) -> Result<(Login, Vec<u8>), GssError> {
        if let (Mechanism::Gssapi, ClientCredentials::Kerberos(login)) = (mechanism, credentials) {
            let (login, host) = (login.clone(), host.to_owned());
            let service = format!("{}/{host}", login.service);
            let begin = move || ClientKerberos::begin(&login, &host);
            let begun = asking_kdc(&KDC_STEPS, LONGEST, &service, begin).await;
            let (login, first) = begun?;
            return Ok((Login::Kerberos(Some(login)), first));
        }
        let mut login = ClientLogin::new(mechanism, credentials, nonce)
            .ok_or_else(|| GssError::new(format!("there are no credentials for {mechanism}")))?;
        let first = login.first_message();
        Ok((Login::Messages(login), first))
    }

    /// Returns the response to a message; `None` once the login is complete.
    pub async fn on_message(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, GssError> {
        let login = match self {
            Login::Messages(login) => return login.on_message(message).map_err(GssError::new),
            Login::Kerberos(login) => login,
        };
        let Some(mut under_way) = login.take() else {
            return Err(GssError::new("the login has failed"));
        };
        let message = message.to_vec();
        let step = blocking(&LOCAL_STEPS, move || {
            let step = under_way.on_message(&message)?;
            Ok((under_way, step))
        });
        let (under_way, step) = step.await?;
        *login = Some(under_way);
        Ok(match step {
            ClientStep::Response(response) => Some(response),
            ClientStep::Done => None,
        })
    }
}

/// The result of a message of a client.
pub enum Accepted {
    /// The login continues.
    Challenge(ServerKerberos, Vec<u8>),
    /// The ticket is valid. Contains the user to which the rules map its principal, or the reason
    /// why they map it to none.
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
    blocking(&LOCAL_STEPS, move || {
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

/// Runs a step that does not use the network.
async fn blocking<T: Send + 'static>(
    steps: &'static Semaphore,
    step: impl FnOnce() -> Result<T, GssError> + Send + 'static,
) -> Result<T, GssError> {
    let permit = steps.acquire().await.map_err(aborted)?;
    let step = move || {
        // Held until the thread is free, even if no caller waits for the result.
        let _permit = permit;
        step()
    };
    let done = ottla_sync::task::spawn_blocking(step).await;
    done.unwrap_or_else(|error| Err(aborted(error)))
}

/// Runs a step that may wait for a KDC. The end of the process does not wait for its thread.
async fn asking_kdc<T: Send + 'static>(
    steps: &'static Semaphore,
    longest: Duration,
    service: &str,
    step: impl FnOnce() -> Result<T, GssError> + Send + 'static,
) -> Result<T, GssError> {
    let asked = async move {
        let permit = steps.acquire().await.map_err(aborted)?;
        let (sender, result) = oneshot::channel();
        let run = move || {
            let _permit = permit;
            // The caller may have given up.
            let _ = sender.send(step());
        };
        let name = "kerberos".to_owned();
        thread::Builder::new()
            .name(name)
            .spawn(run)
            .map_err(aborted)?;
        result.await.unwrap_or_else(|error| Err(aborted(error)))
    };
    let timed = ottla_sync::time::timeout(longest, asked).await;
    timed.unwrap_or_else(|_| {
        Err(GssError::passing(format!(
            "no ticket for the service {service} within {} s; check that the KDC of krb5.conf answers",
            longest.as_secs()
        )))
    })
}

fn aborted(error: impl std::fmt::Display) -> GssError {
    GssError::new(format!("the login was aborted: {error}"))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    use super::*;

    static TWO: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(2));
    static ONE: LazyLock<Semaphore> = LazyLock::new(|| Semaphore::new(1));

    #[tokio::test]
    async fn logins_take_no_more_threads_than_they_may() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let mut all = ottla_sync::task::JoinSet::new();
        for _ in 0..8 {
            all.spawn(blocking(&TWO, || {
                let running = RUNNING.fetch_add(1, Ordering::SeqCst) + 1;
                MOST.fetch_max(running, Ordering::SeqCst);
                thread::sleep(Duration::from_millis(20));
                RUNNING.fetch_sub(1, Ordering::SeqCst);
                Ok(())
            }));
        }
        for done in all.join_all().await {
            assert_eq!(done, Ok(()));
        }
        let most = MOST.load(Ordering::SeqCst);
        assert!(most <= 2, "{most} steps ran at once");
    }

    /// A step that ends when the sender is dropped.
    fn stalled(kdc: Receiver<()>) -> impl FnOnce() -> Result<u8, GssError> + Send + 'static {
        move || {
            let _ = kdc.recv();
            Ok(1)
        }
    }

    #[tokio::test]
    async fn a_kdc_that_does_not_answer_fails_the_login_and_keeps_its_thread() {
        let (answer, kdc) = channel();
        let short = Duration::from_millis(20);
        let error = asking_kdc(&ONE, short, "kafka/here", stalled(kdc)).await;
        let error = error.unwrap_err();
        assert!(error.is_passing(), "the KDC may answer the next time");
        let error = error.to_string();
        assert!(error.contains("the service kafka/here within"), "{error}");
        // The thread is still waiting, and the next login gets no other.
        let next = asking_kdc(&ONE, short, "kafka/here", || Ok(2)).await;
        assert!(next.is_err(), "{next:?}");
        drop(answer);
        assert_eq!(
            asking_kdc(&ONE, LONGEST, "kafka/here", || Ok(3)).await,
            Ok(3)
        );
    }
}
