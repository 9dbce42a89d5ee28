//! Puts committed metadata in force on a thread of its own, beside the thread of the quorum.
//!
//! Opening and deleting the logs of thousands of partitions takes seconds, and a disk that hangs takes any time. Neither may
//! keep the quorum's thread from answering votes and fetches, or from deciding for other nodes. So that thread only leaves
//! each change here. Changes are put in force in their order. Those that come while the thread is at work become one, so what
//! waits is never larger than the difference of two images.
//!
//! In Kafka: the event queue of `MetadataLoader`, beside that of `KafkaRaftClient`.

use ottla_sync::thread::{self, JoinHandle};
use std::io;
use std::sync::Arc;

use ottla_metadata::MetadataDelta;
use ottla_sync::watch;
use ottla_sync::{Condvar, Mutex};
use ottla_types::Offset;

/// Puts a committed change in force. Called for one change after the other, on the publisher's thread.
pub type Publish = Box<dyn FnMut(&MetadataDelta) + Send>;

/// The thread, and what waits for it.
pub(super) struct Publisher {
    shared: Arc<Shared>,
    /// `None` before the thread runs.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    /// Something was left in the inbox, or it was closed.
    changed: Condvar,
    /// Where the change that was put in force last ends in the log, exclusive.
    published: watch::Sender<Offset>,
}

#[derive(Default)]
struct Inbox {
    /// Everything that is committed and not in force, and where it ends in the log.
    waiting: Option<(MetadataDelta, Offset)>,
    is_closed: bool,
}

impl Publisher {
    pub fn new() -> Publisher {
        Publisher {
            shared: Arc::new(Shared {
                inbox: Mutex::default(),
                changed: Condvar::new(),
                published: watch::Sender::new(Offset::ZERO),
            }),
            thread: None,
        }
    }

    /// Starts the thread, within the runtime of its caller if that has one: what is put in force starts tasks.
    pub fn start(&mut self, publish: Publish) -> io::Result<()> {
        let shared = Arc::clone(&self.shared);
        let runtime = ottla_sync::task::Handle::try_current().ok();
        let thread = thread::Builder::new()
            .name("metadata".to_owned())
            .spawn(move || {
                let _runtime = runtime.as_ref().map(|runtime| runtime.enter());
                shared.work(publish);
            })?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Leaves a change that ends at `end` in the log, exclusive. Does not wait.
    pub fn publish(&self, delta: MetadataDelta, end: Offset) {
        let mut inbox = self.shared.inbox.lock();
        let all = match inbox.waiting.take() {
            Some((earlier, _)) => earlier.then(delta),
            None => delta,
        };
        inbox.waiting = Some((all, end));
        self.shared.changed.notify_one();
    }

    /// Where in the log the change ends that was put in force last.
    pub fn published(&self) -> watch::Receiver<Offset> {
        self.shared.published.subscribe()
    }

    /// Whether the thread has ended by itself, which only a panic makes it do.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Puts in force what waits, and ends the thread. What `publish` holds is dropped when this returns.
    pub fn stop(self) {
        self.shared.inbox.lock().is_closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread {
            // A panic has been reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self, mut publish: Publish) {
        while let Some((delta, end)) = self.next() {
            publish(&delta);
            self.published.send_replace(end);
        }
    }

    /// What is to be put in force next; `None` when the inbox is closed and empty.
    fn next(&self) -> Option<(MetadataDelta, Offset)> {
        let mut inbox = self.inbox.lock();
        loop {
            match inbox.waiting.take() {
                None if !inbox.is_closed => self.changed.wait(&mut inbox),
                waiting => return waiting,
            }
        }
    }
}
