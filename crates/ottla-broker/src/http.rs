//! The HTTP listener (`ottla.http.listener`): metrics for Prometheus, and liveness and readiness
//! for supervisors.
//!
//! | path | answer |
//! | --- | --- |
//! | `/metrics` | all metrics as OpenMetrics text |
//! | `/healthz` | 200 while the process works; 503 with the reason when it is about to fail |
//! | `/readyz` | 200 while clients are served; 503 before that and while the broker stops, with its state |
//!
//! It listens from before the logs are opened until everything is closed. It is read-only and has
//! no authentication: bind it to an address that only trusted hosts can reach.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "a simulated broker has no HTTP listener"
)]

mod bounded_listener;

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use self::bounded_listener::BoundedListener;
use crate::{Broker, BrokerState};
use ottla_metrics::openmetrics::{CONTENT_TYPE, to_openmetrics};

use crate::metrics::collect;

/// A running listener. Dropping it stops it.
#[derive(Debug)]
pub(crate) struct HttpServer {
    pub(crate) local_addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl HttpServer {
    /// Binds the address of `ottla.http.listener`. The error is a sentence for people.
    pub(crate) async fn bind(address: &str) -> Result<TcpListener, String> {
        TcpListener::bind(address).await.map_err(|error| {
            format!(
                "ottla.http.listener={address}: cannot listen there: {error}; give a free host:port, or \
                 remove the line"
            )
        })
    }

    pub(crate) fn start(broker: Arc<Broker>, listener: TcpListener) -> Result<HttpServer, String> {
        let local_addr = listener
            .local_addr()
            .map_err(|error| format!("ottla.http.listener: no address: {error}"))?;
        let router = Router::new()
            .route("/", get(index))
            .route("/metrics", get(metrics))
            .route("/healthz", get(healthz))
            .route("/readyz", get(readyz))
            .with_state(broker);
        let task = tokio::spawn(BoundedListener::new(listener).serve(router));
        Ok(HttpServer { local_addr, task })
    }
}

async fn index() -> &'static str {
    "Ottla\n\n/metrics  for Prometheus\n/healthz  whether the process can continue\n/readyz   whether clients are served\n"
}

async fn metrics(State(broker): State<Arc<Broker>>) -> Response {
    // One scrape at a time, because frequent scrapes must not take the threads that read files for
    // clients.
    static ONE_AT_A_TIME: Semaphore = Semaphore::const_new(1);
    let _turn = ONE_AT_A_TIME.acquire().await;
    // Iterates over all partitions and queries file systems, so it must not run on a thread that
    // serves connections.
    let text = tokio::task::spawn_blocking(move || to_openmetrics(collect(&broker))).await;
    match text {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn healthz(State(broker): State<Arc<Broker>>) -> Response {
    match broker.failure() {
        Some(reason) => (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({"healthy": false, "reason": reason})),
        )
            .into_response(),
        None => Json(json!({"healthy": true})).into_response(),
    }
}

async fn readyz(State(broker): State<Arc<Broker>>) -> Response {
    let state = broker.state();
    let is_ready = state == BrokerState::Running && broker.failure().is_none();
    let status = match is_ready {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    let mut body = json!({"ready": is_ready, "state": state.description()});
    let loading = broker.loading.load();
    if !loading.is_empty() {
        let dirs = loading.iter().map(|dir| {
            json!({
                "logDirectory": dir.path.display().to_string(),
                "recovering": dir.is_recovering,
                "remainingLogs": dir.remaining_logs(),
                "remainingBytes": dir.remaining_bytes(),
            })
        });
        body["loading"] = dirs.collect();
    }
    (status, Json(body)).into_response()
}
