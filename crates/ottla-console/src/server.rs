//! The HTTP server of a console: bounded connections, and the routes with their guard.

mod peers;

mod watched;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::middleware;
use axum::routing::get;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::api;
use crate::assets;
use crate::audit::Peer;
use crate::config::ConsoleConfig;
use crate::console::Console;
use crate::guard::guard;
use peers::Peers;
use watched::Watched;

/// Connections at once; further ones wait in the kernel's queue.
const CONNECTIONS: usize = 1024;
/// Of one address that is not of this machine. Further ones are closed.
const CONNECTIONS_OF_PEER: usize = CONNECTIONS / 4;
/// The time for the head of a request, and the maximum idle time between requests.
const HEAD: Duration = Duration::from_secs(30);
/// The size of a head. A client needs no login to send one, and it needs no reservation. The
/// longest address within it that the HTTP library takes has 64 KiB.
const HEAD_BYTES: usize = 96 << 10;
/// After an error of the listener, which is mostly a lack of file handles.
const PAUSE: Duration = Duration::from_millis(100);
/// How long a peer may leave written bytes unread.
const STALLED: Duration = Duration::from_secs(60);
const EXPIRY: Duration = Duration::from_secs(60);

/// The routes of a console that listens on an address.
pub(crate) fn router(console: Arc<Console>) -> Router {
    Router::new()
        .merge(api::router())
        .fallback(get(assets::serve))
        .layer(middleware::from_fn_with_state(console.clone(), guard))
        .with_state(console)
}

/// Serves a console on a listener, without end. No request is sent to the cluster before the page
/// is first opened.
///
/// # Errors
///
/// A sentence for people: the address cannot be determined, or needs logins that the configuration
/// does not allow.
pub async fn serve(listener: TcpListener, config: ConsoleConfig) -> Result<(), String> {
    serve_from(listener, None, config).await
}

/// As [`serve`], with a connection that was accepted before.
pub async fn serve_from(
    listener: TcpListener,
    first: Option<(TcpStream, SocketAddr)>,
    config: ConsoleConfig,
) -> Result<(), String> {
    let address = listener.local_addr().map_err(|error| error.to_string())?;
    config.check(address)?;
    let console = Arc::new(Console::new(config, address));
    let router = TowerToHyperService::new(router(console.clone()));
    tokio::spawn(expire(Arc::downgrade(&console)));
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    let peers = Peers::new(CONNECTIONS_OF_PEER);
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .max_buf_size(HEAD_BYTES);
    let mut waiting = first;
    loop {
        let place = places.clone().acquire_owned().await;
        let (stream, peer) = match waiting.take() {
            Some(first) => first,
            None => match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::debug!(%error, "the console cannot accept a connection");
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            },
        };
        let Ok(counted) = peers.count(peer.ip()) else {
            continue;
        };
        let router = router.clone();
        let service = service_fn(move |mut request: hyper::Request<hyper::body::Incoming>| {
            request.extensions_mut().insert(Peer(peer));
            router.call(request)
        });
        // Small events must not wait for larger ones.
        let _ = stream.set_nodelay(true);
        let connection =
            http.serve_connection(TokioIo::new(Watched::new(stream, STALLED)), service);
        tokio::spawn(async move {
            let _kept = (place, counted);
            // Errors of a connection concern its peer only.
            let _ = connection.await;
        });
    }
}

async fn expire(console: std::sync::Weak<Console>) {
    loop {
        tokio::time::sleep(EXPIRY).await;
        let Some(console) = console.upgrade() else {
            return;
        };
        console.sessions.expire(Instant::now());
    }
}

/// Binds an address. The error names it and the way out.
pub async fn bind(address: &str, setting: &str) -> Result<TcpListener, String> {
    let bound: io::Result<TcpListener> = TcpListener::bind(address).await;
    bound.map_err(|error| {
        format!("{setting}={address}: cannot listen there: {error}; give a free host:port")
    })
}

#[cfg(test)]
mod tests;
