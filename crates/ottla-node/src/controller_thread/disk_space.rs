//! Waits for disk space where the state machine of the quorum relies on a write.
//!
//! Decisions for other nodes can be refused (`deciding`). Records from the leader, votes and the
//! control records of the quorum cannot, because the state machine continues as if they were
//! written. So this thread blocks and retries. To the other nodes it looks like a node that does
//! not answer. A broker continues with the metadata that it has, and catches up when there is
//! space.

use ottla_sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::Controller;
use ottla_storage::metadata::metadata_log::{MetadataLog, MetadataLogError};

/// The pause between two attempts.
const RETRY: Duration = Duration::from_secs(1);
/// How often the waiting thread checks whether it must stop.
const LOOK_FOR_STOP: Duration = Duration::from_millis(50);

impl Controller {
    /// The flag that is set before the thread receives the stop request.
    pub fn stop_requested(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.stop_requested)
    }

    #[cfg(any(test, feature = "fault-injection"))]
    pub fn log(&mut self) -> &mut MetadataLog {
        &mut self.log
    }

    pub(super) fn is_stop_requested(&self) -> bool {
        self.stop_requested.load(Ordering::Acquire)
    }

    fn may_wait(&self) -> bool {
        self.network.is_some() && !self.is_stop_requested()
    }

    /// Runs an operation on the log, and retries it while the disk is full. Returns the disk-full
    /// error only if the thread must stop, or does not run yet: a start must report the problem at
    /// once.
    pub(super) fn when_there_is_space<T>(
        &mut self,
        mut act: impl FnMut(&mut MetadataLog) -> Result<T, MetadataLogError>,
    ) -> Result<T, MetadataLogError> {
        let mut waiting_since = None;
        loop {
            let outcome = act(&mut self.log);
            match outcome {
                Err(error) if error.is_temporary && self.may_wait() => {
                    if waiting_since.is_none() {
                        waiting_since = Some(ottla_sync::time::now());
                        tracing::error!(
                            "the disk is full: this node cannot follow the cluster's metadata log; \
                             it keeps the metadata that it has and catches up when there is space: \
                             {error}"
                        );
                        self.trouble.set(error.to_string());
                        self.update_status();
                    }
                }
                outcome => {
                    if let Some(since) = waiting_since
                        && outcome.is_ok()
                    {
                        tracing::info!(
                            "there is space for the metadata log again, after {} s",
                            (ottla_sync::time::now() - since).as_secs()
                        );
                        self.trouble.forget();
                        self.update_status();
                    }
                    return outcome;
                }
            }
            let tried = ottla_sync::time::now();
            while ottla_sync::time::now() - tried < RETRY && !self.is_stop_requested() {
                ottla_sync::thread::sleep(LOOK_FOR_STOP);
            }
        }
    }
}
