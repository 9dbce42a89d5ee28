//! The file beside a log that says of which topic it is, `partition.metadata` (KIP-516), and when a new log gets it.
//!
//! It has to be on disk before the first record: Kafka sets a log aside that has records and no id, as one that belongs to no
//! topic. Forcing it to disk costs more than everything else that a new log needs, and of thousands of partitions that are
//! created at once few are written to at once. So the first append has the file written and waits for it; logs without
//! records get theirs when no more are created, and at the latest when the broker is stopped.
//!
//! Kafka: `UnifiedLog.assignTopicId`, `maybeFlushMetadataFile`.

use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

use super::execute::Stepped;
use super::held_appends::AppendHold;
use super::{Partition, PartitionEvent};
use crate::Broker;

/// After so long the file is written again that found the disk full.
const RETRY: Duration = Duration::from_secs(1);
/// Files of logs without records are written when no log has been created for so long.
const QUIET: Duration = Duration::from_secs(2);
/// So many of them at once: flushes that somebody waits for go on beside them.
const AT_ONCE: usize = 4;

/// Whether a log has the file. Only the holder of the run token changes it.
#[derive(Default)]
pub(super) enum TopicIdFile {
    #[default]
    OnDisk,
    Missing,
    /// It is being written; whoever waits for that is told when it has been tried.
    Underway(Vec<oneshot::Sender<()>>),
}

pub(super) enum TopicIdEvent {
    /// A new log has none.
    Missing,
    /// It is to be there; whoever asks is told when that has been tried.
    Wanted(oneshot::Sender<()>),
    Tried {
        is_on_disk: bool,
    },
}

/// The partitions whose logs are without the file and have not been written to.
#[derive(Debug, Default)]
pub(crate) struct TopicIdsToWrite(Mutex<ToWrite>);

#[derive(Debug, Default)]
struct ToWrite {
    partitions: Vec<Weak<Partition>>,
    /// When the last one came. A task works them off where there is one.
    last: Option<Instant>,
}

impl Partition {
    /// A new log is without the file: the first append gets it, or it is written later.
    pub(super) fn lacks_topic_id(self: &Arc<Self>, broker: &Arc<Broker>) {
        self.put(broker, PartitionEvent::TopicId(TopicIdEvent::Missing));
        let mut to_write = broker.partitions.topic_ids.0.lock();
        to_write.partitions.push(Arc::downgrade(self));
        if to_write.last.replace(Instant::now()).is_none() {
            tokio::spawn(write_when_quiet(Arc::clone(broker)));
        }
    }

    /// Has the file written where it is missing. It has been tried when this ends.
    pub(crate) async fn ensure_topic_id(self: &Arc<Self>, broker: &Arc<Broker>) {
        let (sender, tried) = oneshot::channel();
        self.put(
            broker,
            PartitionEvent::TopicId(TopicIdEvent::Wanted(sender)),
        );
        // Whoever is to tell drops the sender.
        let _ = tried.await;
    }
}

impl Stepped {
    /// Before an append to a log without the file: it is written, and appends are held back until it is on disk. On a full disk
    /// they are let go, which refuses them as all others there.
    pub(super) fn get_topic_id(&mut self, partition: &Arc<Partition>, broker: &Arc<Broker>) {
        if matches!(self.topic_id_file, TopicIdFile::Missing) && !self.replica.is_lost() {
            self.topic_id_file = TopicIdFile::Underway(Vec::new());
            let hold = self.held.begin(partition, broker);
            let (partition, broker) = (Arc::clone(partition), Arc::clone(broker));
            tokio::spawn(write(partition, broker, hold));
        }
    }

    pub(super) fn on_topic_id(
        &mut self,
        partition: &Arc<Partition>,
        broker: &Arc<Broker>,
        event: TopicIdEvent,
    ) {
        match event {
            TopicIdEvent::Missing => self.topic_id_file = TopicIdFile::Missing,
            TopicIdEvent::Wanted(asker) => {
                self.get_topic_id(partition, broker);
                if let TopicIdFile::Underway(waiting) = &mut self.topic_id_file {
                    waiting.push(asker);
                }
            }
            TopicIdEvent::Tried { is_on_disk } => {
                self.topic_id_file = match is_on_disk {
                    true => TopicIdFile::OnDisk,
                    false => TopicIdFile::Underway(Vec::new()),
                }
            }
        }
    }

    /// Another log has taken the place of this one, with a file of its own.
    pub(super) fn has_topic_id(&mut self) {
        if matches!(self.topic_id_file, TopicIdFile::Missing) {
            self.topic_id_file = TopicIdFile::OnDisk;
        }
    }
}

async fn write(partition: Arc<Partition>, broker: Arc<Broker>, hold: AppendHold) {
    let mut hold = Some(hold);
    loop {
        let Some(log_dirs) = broker.log_dirs().map(Arc::clone) else {
            return;
        };
        let (log, topic_id) = (partition.reader().clone(), partition.topic_id);
        let threads = partition.home.load().threads.jobs.clone();
        let written = threads.run(move || log_dirs.write_topic_id(&log, topic_id));
        // A panic has been reported where it happened.
        let is_on_disk = written.await.unwrap_or(true);
        let tried = TopicIdEvent::Tried { is_on_disk };
        partition.put(&broker, PartitionEvent::TopicId(tried));
        drop(hold.take());
        if is_on_disk {
            return;
        }
        tokio::time::sleep(RETRY).await;
    }
}

async fn write_when_quiet(broker: Arc<Broker>) {
    loop {
        let last = broker.partitions.topic_ids.0.lock().last;
        let due = last.unwrap_or_else(Instant::now) + QUIET;
        tokio::select! {
            () = tokio::time::sleep_until(due.into()) => {}
            () = broker.stopping() => return,
        }
        let taken = {
            let mut to_write = broker.partitions.topic_ids.0.lock();
            if to_write.last != last {
                continue;
            }
            if to_write.partitions.is_empty() {
                to_write.last = None;
                return;
            }
            std::mem::take(&mut to_write.partitions)
        };
        let mut writing = JoinSet::new();
        for partition in taken.iter().filter_map(Weak::upgrade) {
            if writing.len() >= AT_ONCE {
                writing.join_next().await;
            }
            let broker = Arc::clone(&broker);
            writing.spawn(async move { partition.ensure_topic_id(&broker).await });
        }
        writing.join_all().await;
    }
}
