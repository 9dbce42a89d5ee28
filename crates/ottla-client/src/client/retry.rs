//! Retries of a client's operations, and what it says when it gives up.

use std::future::Future;
use std::time::{Duration, Instant};

use ottla_protocol::ApiKey;
use ottla_sync::BoxFuture;
use ottla_types::ErrorCode;

use super::Client;
use crate::config::ClientConfig;
use crate::error::ClientError;

/// How long a broker is asked whether it answers at all.
const PROBE: Duration = Duration::from_secs(2);

impl Client {
    /// Retries an operation until it succeeds, fails with an error that is not retriable, or
    /// reaches the timeout.
    ///
    /// ```no_run
    /// # async fn example(client: &ottla_client::Client) -> Result<(), ottla_client::ClientError> {
    /// use ottla_client::ottla_protocol::messages::list_groups_request::ListGroupsRequest;
    ///
    /// let listed = client
    ///     .retrying("listing groups of broker 1", async || {
    ///         client.node(1).await?.send(&ListGroupsRequest::default()).await
    ///     })
    ///     .await?;
    /// println!("{} groups", listed.groups.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn retrying<T, F>(
        &self,
        what: &str,
        mut attempt: impl FnMut() -> F,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let mut retry = Retry::new(&self.inner.config);
        loop {
            match attempt().await {
                Err(error) if error.is_retriable() => {
                    if let Err(given_up) = retry.wait(what, error).await {
                        return Err(self.explain(given_up).await);
                    }
                }
                result => return result,
            }
        }
    }

    /// Names the metadata quorum if it is why an operation was given up.
    fn explain(&self, given_up: ClientError) -> BoxFuture<'_, ClientError> {
        Box::pin(async move {
            let (what, after, last) = match given_up {
                ClientError::GaveUp { what, after, last } => (what, after, last),
                other => return other,
            };
            let last = match *last {
                ClientError::TimedOut {
                    address,
                    what,
                    after,
                } if is_forwarded(&what) => {
                    // The timeout has closed the connection. A new one shows whether the broker answers.
                    let opened = ottla_sync::time::timeout(PROBE, self.connection(&address)).await;
                    match opened {
                        Ok(Ok(_)) => ClientError::NoController {
                            address,
                            what,
                            after,
                        },
                        _ => ClientError::TimedOut {
                            address,
                            what,
                            after,
                        },
                    }
                }
                ClientError::Broker {
                    what,
                    code: code @ ErrorCode::NotController,
                    message: None,
                } => ClientError::Broker {
                    what,
                    code,
                    message: Some(
                        "the broker knows no active controller; check the metadata quorum".into(),
                    ),
                },
                other => other,
            };
            ClientError::GaveUp {
                what,
                after,
                last: Box::new(last),
            }
        })
    }
}

/// Whether brokers pass requests with this name to the active controller.
fn is_forwarded(name: &str) -> bool {
    let mut forwarded = ApiKey::ALL.iter().filter(|api| api.is_forwardable());
    forwarded.any(|api| api.name() == name)
}

/// The schedule of retries: exponential backoff with jitter, until a deadline.
struct Retry {
    started: Instant,
    limit: Duration,
    backoff: Duration,
    backoff_max: Duration,
}

impl Retry {
    fn new(config: &ClientConfig) -> Retry {
        Retry {
            started: ottla_sync::time::now(),
            limit: config.default_api_timeout,
            backoff: config.retry_backoff,
            backoff_max: config.retry_backoff_max,
        }
    }

    /// Waits before the next attempt. Returns the error, wrapped, when the deadline has passed.
    async fn wait(&mut self, what: &str, error: ClientError) -> Result<(), ClientError> {
        let pause = self
            .backoff
            .mul_f64(ottla_sync::random::random_range("backoff", 0.8..1.2));
        if ottla_sync::time::elapsed(self.started) + pause >= self.limit {
            return Err(ClientError::GaveUp {
                what: what.to_owned(),
                after: self.limit,
                last: Box::new(error),
            });
        }
        tracing::debug!(%error, "{what} failed; trying again");
        ottla_sync::time::sleep(pause).await;
        self.backoff = (self.backoff * 2).min(self.backoff_max);
        Ok(())
    }
}
