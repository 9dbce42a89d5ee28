//! `partition.metadata`, the file with a log's topic ID (KIP-516), and when a new log gets it.
//!
//! It must be on disk before the first record: Kafka treats a log with records but no ID as stray.
//! The fsync costs more than all other steps for a new log, and only few of thousands of partitions
//! created together are written to at once. So the first append triggers the write and waits for
//! it; logs without records get the file when no more logs are created, after at most ten seconds,
//! or when the broker stops. A few logs get it as soon as they are created: otherwise the first
//! records of a new topic would wait for the leader's file and then for that of each follower.
//!
//! Kafka: `UnifiedLog.assignTopicId`, `maybeFlushMetadataFile`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use ottla_sync::oneshot;
use ottla_sync::task::JoinSet;

use crate::partition::append_hold::AppendHold;
use crate::partition::event::{PartitionEvent, TopicIdEvent};
use crate::partition::host::PartitionHost;
use crate::partition::{Partition, PartitionState, TopicIdFile};

/// Pause before retrying a write that found the disk full.
const RETRY: Duration = Duration::from_secs(1);
/// As many new logs get their files at once.
const FEW: usize = 32;
/// The files of empty logs are written after this time without new logs.
const QUIET: Duration = Duration::from_secs(2);
/// They are written after this time at the latest.
const AT_LATEST: Duration = Duration::from_secs(10);
/// Number of files written concurrently.
const AT_ONCE: usize = 4;

impl Partition {
    /// Registers a new log without the file: the first append triggers the write, or it happens
    /// later.
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

    /// Starts to write the files of logs that were just created, unless they are many, or many were
    /// created shortly before.
    pub(crate) fn write_few_topic_ids<'a>(
        host: &Arc<PartitionHost>,
        created: impl Iterator<Item = &'a Arc<Partition>>,
    ) {
        if host.topic_ids.0.lock().partitions.len() > FEW {
            return;
        }
        for partition in created {
            let (partition, host) = (Arc::clone(partition), Arc::clone(host));
            ottla_sync::task::spawn(async move { partition.ensure_topic_id(&host).await });
        }
    }

    /// Writes the file if it is missing. Returns after the attempt.
    pub async fn ensure_topic_id(self: &Arc<Self>, host: &Arc<PartitionHost>) {
        let (sender, tried) = oneshot::channel();
        self.put(host, PartitionEvent::TopicId(TopicIdEvent::Wanted(sender)));
        // The sender is dropped after the attempt.
        let _ = tried.await;
    }
}

impl PartitionState {
    /// Called before an append to a log without the file: starts the write and holds appends until
    /// the attempt is over. If it fails, appends are refused, as on a full disk, until a retry
    /// succeeds.
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

    /// Whether a record would be written to a log that may be taken for stray.
    pub(super) fn has_no_topic_id(&self) -> bool {
        matches!(self.topic_id_file, TopicIdFile::Failed)
    }

    /// The new log has a file of its own.
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
        let threads = partition.log_location.load().threads.topic_ids.clone();
        let written = threads.run(move || log_dirs.write_topic_id(&log, topic_id));
        // A panic was reported where it happened.
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
