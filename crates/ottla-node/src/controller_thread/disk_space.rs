//! Waits for space on the disk where the quorum's state machine counts on what is to be written.
//!
//! What a leader decides for others can be refused (`deciding`). What comes from the leader, who votes for whom, and what
//! the quorum itself appends cannot: the state machine goes on as if it were there. So this thread waits and tries again.
//! To the other nodes it is one that does not answer; a broker goes on with the metadata that it has, and catches up when
//! there is space.

use ottla_sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use super::Controller;
use ottla_storage::metadata::metadata_log::{MetadataLog, MetadataLogError};

/// How often it is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// How often a thread that waits looks whether it is to end.
const LOOK_FOR_STOP: Duration = Duration::from_millis(50);

impl Controller {
    /// Raised when the thread is to end, before it is told so.
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

    /// Does something to the log, again and again while the disk is full. The error of a full disk comes only where the
    /// thread is to end, or does not run yet: a start says at once what is wrong.
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
