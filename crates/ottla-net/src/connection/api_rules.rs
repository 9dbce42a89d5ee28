//! What the connection does differently for single APIs.

use std::io;
use std::time::Duration;

use ottla_protocol::ApiKey;
use ottla_sync::net::{TcpStream, is_closed_by_peer};

/// How often a waiting Fetch checks whether its client is still there. Longer than a consumer waits
/// by default, so that most fetches never do.
const CLIENT_CHECK: Duration = Duration::from_secs(1);

/// Whether a request waits while too many responses are unread. Requests that keep replicas and
/// members alive do not: their responses are small, or file regions.
pub(super) fn has_large_answer(api_key: ApiKey) -> bool {
    !matches!(
        api_key,
        ApiKey::Fetch
            | ApiKey::Heartbeat
            | ApiKey::ConsumerGroupHeartbeat
            | ApiKey::ShareGroupHeartbeat
            | ApiKey::StreamsGroupHeartbeat
            | ApiKey::OffsetCommit
            | ApiKey::ApiVersions
    )
}

/// Completes when the client has closed the connection of a Fetch, which may wait for long: for new
/// records, or for remote storage. Other requests are finished, because they may change something.
pub(super) async fn left_by_client(api_key: ApiKey, socket: &TcpStream) -> io::Error {
    if api_key != ApiKey::Fetch {
        std::future::pending::<()>().await;
    }
    loop {
        ottla_sync::time::sleep(CLIENT_CHECK).await;
        if is_closed_by_peer(socket) {
            return io::ErrorKind::ConnectionReset.into();
        }
    }
}
