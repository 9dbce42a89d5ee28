//! How every store is connected to: time limits, and the budget of a request.

use std::time::Duration;

use object_store::{BackoffConfig, ClientOptions, RetryConfig};

/// Attempts of one request after the first.
const MAX_RETRIES: usize = 4;
/// How long a request is tried again, unless the settings say it.
const RETRY_TIME: Duration = Duration::from_secs(60);
const CONNECT_TIME: Duration = Duration::from_secs(5);
/// How long a store may say nothing, in the middle of an answer or of an upload of a part.
const SILENCE: Duration = Duration::from_secs(60);
/// How long a connection is kept after its last request, or up to twice as long. It keeps the buffer that
/// it reads into, which grows to 400 KiB. Readers that want several chunks at once have as many
/// connections, and no setting of a cache covers these buffers.
const IDLE: Duration = Duration::from_secs(4);

/// HTTP is allowed where an endpoint says it.
pub fn client_options(endpoint: Option<&str>) -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(is_plain_http(endpoint))
        .with_connect_timeout(CONNECT_TIME)
        .with_timeout_disabled()
        .with_read_timeout(SILENCE)
        .with_pool_idle_timeout(IDLE)
}

pub fn is_plain_http(endpoint: Option<&str>) -> bool {
    endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"))
}

/// The budget of one request: attempts and time, whichever is used up first.
pub fn retries(timeout: Option<Duration>) -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig {
            init_backoff: Duration::from_millis(100),
            max_backoff: Duration::from_secs(5),
            base: 2.0,
        },
        max_retries: MAX_RETRIES,
        retry_timeout: timeout.unwrap_or(RETRY_TIME),
    }
}
