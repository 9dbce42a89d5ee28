//! The file beside a log that says of which topic it is, `partition.metadata` (KIP-516), and when a new log gets it.
//!
//! It has to be on disk before the first record: Kafka sets a log aside that has records and no id, as one that belongs to no
//! topic. Forcing it to disk costs more than everything else that a new log needs, and of thousands of partitions that are
//! created at once few are written to at once. So the first append has the file written and waits for it; logs without
//! records get theirs when no more are created or after ten seconds, and at the latest when the broker is stopped.
//!
//! Kafka: `UnifiedLog.assignTopicId`, `maybeFlushMetadataFile`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ottla_sync::oneshot;
use ottla_sync::task::JoinSet;

use crate::partition::append_hold::AppendHold;
use crate::partition::event::{PartitionEvent, TopicIdEvent};
use crate::partition::host::PartitionHost;
use crate::partition::{Partition, Stepped, TopicIdFile};

/// After so long the file is written again that found the disk full.
const RETRY: Duration = Duration::from_secs(1);
/// Files of logs without records are written when no log has been created for so long.
const QUIET: Duration = Duration::from_secs(2);
/// They wait no longer than that while more and more logs are created.
const AT_LATEST: Duration = Duration::from_secs(10);
/// So many of them at once.
const AT_ONCE: usize = 4;

impl Partition {
    /// A new log is without the file: the first append gets it, or it is written later.
    pub(crate) fn lacks_topic_id(self: &Arc<Self>, host: &Arc<PartitionHost>) {
        self.put(host, PartitionEvent::TopicId(TopicIdEvent::Missing));
        let mut to_write = host.topic_ids.0.lock();
        to_write.partitions.push(Arc::downgrade(self));
        let now = ottla_sync::time::now();
        let first = to_write.came.map_or(now, |(first, _)| first);
        if to_write.came.replace((first, now)).is_none() {
            ottla_sync::task::spawn(write_when_quiet(Arc::clone(host)));
        }
    }

    /// Has the file written where it is missing. It has been tried when this ends.
    pub async fn ensure_topic_id(self: &Arc<Self>, host: &Arc<PartitionHost>) {
        let (sender, tried) = oneshot::channel();
        self.put(host, PartitionEvent::TopicId(TopicIdEvent::Wanted(sender)));
        // Whoever is to tell drops the sender.
        let _ = tried.await;
    }
}

impl Stepped {
    /// Before an append to a log without the file: it is written, and appends are held back until that has been tried. Where it
    /// failed they are refused, as on a full disk, until it is there.
    pub(super) fn get_topic_id(&mut self, partition: &Arc<Partition>, host: &Arc<PartitionHost>) {
        if self.topic_id_file.is_missing() && !self.replica.is_lost() {
            self.topic_id_file = TopicIdFile::Underway(Vec::new());
            self.held.hold();
            let hold = AppendHold::new(partition, host);
            let (partition, host) = (Arc::clone(partition), Arc::clone(host));
            ottla_sync::task::spawn(write(partition, host, hold));
        }
    }

    pub(super) fn on_topic_id(
        &mut self,
        partition: &Arc<Partition>,
        host: &Arc<PartitionHost>,
        event: TopicIdEvent,
    ) {
        match event {
            TopicIdEvent::Missing => self.topic_id_file = TopicIdFile::Missing,
            TopicIdEvent::Wanted(asker) => {
                self.get_topic_id(partition, host);
                if let TopicIdFile::Underway(waiting) = &mut self.topic_id_file {
                    waiting.push(asker);
                }
            }
            TopicIdEvent::Tried { is_on_disk } => {
                self.topic_id_file = match is_on_disk {
                    true => TopicIdFile::OnDisk,
                    false => TopicIdFile::Failed,
                }
            }
        }
    }

    /// Whether records would lie in a log that may be taken for that of no topic.
    pub(super) fn has_no_topic_id(&self) -> bool {
        matches!(self.topic_id_file, TopicIdFile::Failed)
    }

    /// Another log has taken the place of this one, with a file of its own.
    pub(super) fn on_log_replaced(&mut self) {
        self.topic_id_file = TopicIdFile::OnDisk;
    }
}

async fn write(partition: Arc<Partition>, host: Arc<PartitionHost>, hold: AppendHold) {
    let mut hold = Some(hold);
    loop {
        let Some(log_dirs) = host.log_dirs().map(Arc::clone) else {
            return;
        };
        let (log, topic_id) = (partition.reader().clone(), partition.topic_id);
        let threads = partition.home.load().threads.topic_ids.clone();
        let written = threads.run(move || log_dirs.write_topic_id(&log, topic_id));
        // A panic has been reported where it happened.
        let is_on_disk = written.await.unwrap_or(false);
        let tried = TopicIdEvent::Tried { is_on_disk };
        partition.put(&host, PartitionEvent::TopicId(tried));
        drop(hold.take());
        if is_on_disk || partition.is_lost() {
            return;
        }
        ottla_sync::select! {
            () = ottla_sync::time::sleep(RETRY) => {}
            () = host.context.stopping() => return,
        }
    }
}

async fn write_when_quiet(host: Arc<PartitionHost>) {
    let taken = loop {
        let due = {
            let mut to_write = host.topic_ids.0.lock();
            let Some((first, last)) = to_write.came else {
                return;
            };
            let due = (last + QUIET).min(first + AT_LATEST);
            if due <= ottla_sync::time::now() {
                break std::mem::take(&mut *to_write).partitions;
            }
            due
        };
        ottla_sync::select! {
            () = ottla_sync::time::sleep_until(due) => {}
            () = host.context.stopping() => return,
        }
    };
    let mut writing = JoinSet::new();
    for partition in taken.iter().filter_map(Weak::upgrade) {
        if writing.len() >= AT_ONCE {
            writing.join_next().await;
        }
        let host = Arc::clone(&host);
        writing.spawn(async move { partition.ensure_topic_id(&host).await });
    }
    writing.join_all().await;
}
