//! Tells the controller how this broker's directories are: which have failed, which are cordoned.
//!
//! One task sends both with a heartbeat whenever either has changed, and again until the controller has
//! taken it. Where the controller is another process, the broker's heartbeats say it (`heartbeats`). A failed directory of which the controller does not learn within `log.dir.failure.timeout.ms`
//! ends the broker: what it led from there would stay without a leader.
//!
//! Kafka: `BrokerLifecycleManager.propagateDirectoryFailure`, `propagateDirectoryCordoned`.

use std::sync::Arc;
use std::time::Duration;

use ottla_protocol::messages::BrokerHeartbeatRequest;
use ottla_types::ErrorCode;
use tokio::sync::Notify;

use crate::Broker;

/// The first wait after a report that was not taken; each further one is twice as long.
const FIRST_RETRY: Duration = Duration::from_millis(100);
const MAX_RETRY: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
pub(crate) struct DirReports {
    changed: Notify,
}

impl DirReports {
    /// A directory has failed, or others are cordoned. May be called from any thread.
    pub(crate) fn on_changed(&self) {
        self.changed.notify_one();
    }

    /// Reports until the broker stops.
    pub(crate) async fn send_all(broker: Arc<Broker>) {
        loop {
            tokio::select! {
                () = broker.dir_reports.changed.notified() => {}
                () = broker.stopping() => return,
            }
            if let Some(heartbeats) = broker.heartbeats()
                && let Some(log_dirs) = broker.log_dirs()
            {
                heartbeats.on_directories_changed(
                    log_dirs.offline_directory_ids(),
                    log_dirs.cordoned_directory_ids(),
                );
                continue;
            }
            let since_ms = broker.now_ms();
            let mut wait = FIRST_RETRY;
            while let Err(code) = report(&broker).await {
                tracing::warn!("the controller is not told of the directories yet: {code}");
                let waited_ms = broker.now_ms() - since_ms;
                let has_failed = broker
                    .log_dirs()
                    .is_some_and(|log_dirs| !log_dirs.offline_directory_ids().is_empty());
                if has_failed
                    && waited_ms > broker.config().log_dir_failure_timeout_ms.max(0) as u64
                {
                    return broker.fail(
                        "the controller could not be told of a failed log directory within \
                         log.dir.failure.timeout.ms. Mend the directory and start again"
                            .to_owned(),
                    );
                }
                tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = broker.stopping() => return,
                }
                wait = (wait * 2).min(MAX_RETRY);
            }
        }
    }
}

async fn report(broker: &Broker) -> Result<(), ErrorCode> {
    let Some(log_dirs) = broker.log_dirs() else {
        return Ok(());
    };
    let request = BrokerHeartbeatRequest {
        broker_id: broker.broker_id().value(),
        broker_epoch: broker.broker_epoch().value(),
        current_metadata_offset: i64::MAX,
        offline_log_dirs: log_dirs.offline_directory_ids(),
        cordoned_log_dirs: Some(log_dirs.cordoned_directory_ids()),
        ..Default::default()
    };
    let response = broker.ask_controller(request).await?;
    ErrorCode::from_code(response.error_code).into_result()
}
