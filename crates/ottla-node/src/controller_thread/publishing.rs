//! Publishes committed metadata on a separate thread.
//!
//! Opening and deleting the logs of thousands of partitions takes seconds, and a hung disk can take
//! any time. Neither may keep the quorum thread from answering votes and fetches, or from deciding
//! for other nodes. The quorum thread therefore only queues the changes. They are published in
//! order. Changes that arrive while the publisher is busy are merged into one, so that the queue is
//! never larger than the difference of two images.
//!
//! In Kafka: the event queue of `MetadataLoader`, beside that of `KafkaRaftClient`.

use ottla_sync::atomic::{AtomicI64, Ordering};
use ottla_sync::thread::{self, JoinHandle};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_metadata::MetadataDelta;
use ottla_sync::watch;
use ottla_sync::{Condvar, Mutex};
use ottla_types::Offset;

/// Publishes a committed change. Called on the publisher's thread, for one change after the other.
pub type Publish = Box<dyn FnMut(&MetadataDelta) + Send>;

/// The publisher thread and its inbox.
pub(super) struct Publisher {
    shared: Arc<Shared>,
    /// `None` before the thread runs.
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    inbox: Mutex<Inbox>,
    /// Notified when the inbox gets a change or is closed.
    changed: Condvar,
    /// The exclusive end offset of the change that was published last.
    published: watch::Sender<Offset>,
    unpublished: Arc<Unpublished>,
}

/// What is committed and not published on this node yet, for any thread.
#[derive(Debug, Default)]
pub struct Unpublished {
    /// The exclusive end offset of the newest queued change; 0 if all changes are published. Set
    /// under the lock of the inbox.
    end: AtomicI64,
    /// When the change that is being published began.
    began: Mutex<Option<Instant>>,
}

#[derive(Default)]
struct Inbox {
    /// Everything that is committed and not published yet, and its end offset in the log.
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
                unpublished: Arc::default(),
            }),
            thread: None,
        }
    }

    /// Starts the thread. It enters the runtime of the caller, if there is one, because publishing
    /// spawns tasks.
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

    /// Queues a change whose exclusive end offset in the log is `end`. Does not block.
    pub fn publish(&self, delta: MetadataDelta, end: Offset) {
        let mut inbox = self.shared.inbox.lock();
        let all = match inbox.waiting.take() {
            Some((earlier, _)) => earlier.then(delta),
            None => delta,
        };
        inbox.waiting = Some((all, end));
        self.shared.unpublished.grow_to(end);
        self.shared.changed.notify_one();
    }

    /// The end offset of the change that was published last.
    pub fn published(&self) -> watch::Receiver<Offset> {
        self.shared.published.subscribe()
    }

    pub fn unpublished(&self) -> Arc<Unpublished> {
        Arc::clone(&self.shared.unpublished)
    }

    /// Whether the thread has ended by itself, that is by a panic.
    pub fn has_failed(&self) -> bool {
        self.thread.as_ref().is_some_and(JoinHandle::is_finished)
    }

    /// Publishes the queued images and ends the thread. The state that `publish` holds has been
    /// dropped when this returns.
    pub fn stop(self) {
        self.shared.inbox.lock().is_closed = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread {
            // The panic was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn work(&self, mut publish: Publish) {
        while let Some((delta, end)) = self.next() {
            let began = ottla_sync::time::now();
            *self.unpublished.began.lock() = Some(began);
            publish(&delta);
            let micros = ottla_sync::time::elapsed(began).as_micros() as u64;
            tracing::debug!(end = end.0, micros, "metadata is applied");
            self.published.send_replace(end);
            let inbox = self.inbox.lock();
            if inbox.waiting.is_none() {
                self.unpublished.end.store(0, Ordering::Release);
            }
        }
    }

    /// The next change to publish; `None` when the inbox is closed and empty.
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

impl Unpublished {
    /// Called under the lock of the inbox.
    fn grow_to(&self, end: Offset) {
        if self.end.load(Ordering::Acquire) == 0 {
            *self.began.lock() = Some(ottla_sync::time::now());
        }
        self.end.store(end.0, Ordering::Release);
    }

    /// The exclusive end offset of the changes that are being published. `None` if all are published,
    /// or if one has taken longer than `at_most`. Costs no more than reading a number if all are.
    pub fn end(&self, at_most: Duration) -> Option<Offset> {
        let end = Offset(self.end.load(Ordering::Acquire));
        if end == Offset::ZERO {
            return None;
        }
        let began = (*self.began.lock())?;
        (ottla_sync::time::elapsed(began) < at_most).then_some(end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use ottla_metadata::MetadataImage;

    use super::*;

    #[test]
    fn a_change_is_unpublished_until_the_publisher_has_finished_it() {
        let (begun, has_begun) = channel();
        let (finish, may_finish) = channel();
        let mut publisher = Publisher::new();
        let started = publisher.start(Box::new(move |_| {
            begun.send(()).expect("the test waits for it");
            may_finish.recv().expect("the test sends it");
        }));
        started.expect("a thread");
        let published = publisher.published();
        let unpublished = publisher.unpublished();
        let waiting = || {
            let end = unpublished.end(Duration::from_secs(3600));
            end.map_or(0, |end| end.0)
        };
        let change = || MetadataDelta::between(MetadataImage::empty(), MetadataImage::empty());
        assert_eq!(waiting(), 0);
        publisher.publish(change(), Offset(5));
        has_begun.recv().expect("it begins");
        assert_eq!(waiting(), 5);
        assert_eq!(unpublished.end(Duration::ZERO), None, "it takes longer");
        publisher.publish(change(), Offset(7));
        assert_eq!(waiting(), 7);
        finish.send(()).expect("the thread runs");
        has_begun.recv().expect("it begins");
        assert_eq!((*published.borrow(), waiting()), (Offset(5), 7));
        finish.send(()).expect("the thread runs");
        publisher.stop();
        assert_eq!((*published.borrow(), waiting()), (Offset(7), 0));
    }
}
