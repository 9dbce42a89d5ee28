//! The thread that writes a snapshot. There is at most one at a time.

use std::sync::Weak;

use ottla_sync::thread::{self, JoinHandle};
use ottla_sync::thread_channel;

use crate::quorum::work::{SnapshotWritten, Work};

/// The snapshot that is being written, if there is one.
#[derive(Default)]
pub struct SnapshotWriter {
    thread: Option<JoinHandle<()>>,
    /// Receives the completion. Weak, because the quorum thread ends when no other sender is left.
    work: Weak<thread_channel::Sender<Work>>,
}

impl SnapshotWriter {
    pub fn new(work: Weak<thread_channel::Sender<Work>>) -> SnapshotWriter {
        SnapshotWriter { thread: None, work }
    }

    pub fn is_writing(&self) -> bool {
        self.thread.is_some()
    }

    pub fn start(&mut self, write: impl FnOnce() -> SnapshotWritten + Send + 'static) {
        let work = Weak::clone(&self.work);
        let spawned = thread::Builder::new()
            .name("snapshot".to_owned())
            .spawn(move || {
                let written = write();
                if let Some(work) = work.upgrade() {
                    // The quorum thread may have ended.
                    let _ = work.send(Work::SnapshotWritten(written));
                }
            });
        match spawned {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::error!("cannot start a thread to write a snapshot: {error}"),
        }
    }

    /// Waits until the snapshot that is being written is complete.
    pub fn finish(&mut self) {
        if let Some(thread) = self.thread.take() {
            // The panic was reported where it happened.
            let _ = thread.join();
        }
    }
}
