//! The thread on which a snapshot is written: one at a time.

use std::sync::Weak;

use ottla_sync::thread::{self, JoinHandle};
use ottla_sync::thread_channel;

use crate::quorum::work::{SnapshotWritten, Work};

/// The writing of a snapshot, if one is under way.
#[derive(Default)]
pub struct SnapshotWriter {
    thread: Option<JoinHandle<()>>,
    /// Where the end of it is told; the quorum's thread ends when nobody else can reach it.
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
                    // The quorum's thread may have ended.
                    let _ = work.send(Work::SnapshotWritten(written));
                }
            });
        match spawned {
            Ok(thread) => self.thread = Some(thread),
            Err(error) => tracing::error!("no thread to write a snapshot: {error}"),
        }
    }

    /// Waits until nothing is written to the directory any more.
    pub fn finish(&mut self) {
        if let Some(thread) = self.thread.take() {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}
