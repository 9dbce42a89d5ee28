//! The topic `__remote_log_metadata`: creates it, writes records to it, and reads the records of
//! the partitions that this broker has.
//!
//! All leaders of its partitions, also this broker, are reached over the inter-broker listener. One
//! task per leader fetches all partitions that it leads. A record counts as written when this
//! broker has read it back, so that the next decision sees it.
//!
//! Kafka: `TopicBasedRemoteLogMetadataManager`, `ProducerManager`, `ConsumerManager`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ottla_config::RemoteLogMetadataConfig;
use ottla_context::NodeContext;
use ottla_net::{BrokerPeers, PeerError, ProduceTo};
use ottla_node::Node;
use ottla_protocol::messages::CreateTopicsRequest;
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use ottla_protocol::{Records, messages::fetch_response::PartitionData};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_sync::{Mutex, Notify};
use ottla_tiered::{
    PublishFailure, REMOTE_LOG_METADATA_TOPIC, RemoteLogMetadata, RemoteLogMetadataCache,
    metadata_partition,
};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, TopicId, TopicIdPartition};

use crate::metadata_partitions::MetadataPartitions;
use crate::wire;

/// The pause after a failure, and between searches for leaders without a fetching task.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a write is tried again (`delivery.timeout.ms` of Kafka's producer).
const DELIVERY: Duration = Duration::from_secs(120);
const REQUEST: Duration = Duration::from_secs(30);

pub struct MetadataTopic {
    context: Arc<NodeContext>,
    node: Arc<Node>,
    config: RemoteLogMetadataConfig,
    /// Separate connections, because a fetch delays what follows it.
    writers: BrokerPeers,
    readers: BrokerPeers,
    read: Mutex<MetadataPartitions>,
    /// The leaders that a task fetches from.
    followed: Mutex<BTreeSet<BrokerId>>,
    /// Notified when records were applied or a cache became usable.
    applied: Notify,
    assigned: Notify,
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error(transparent)]
    Peer(#[from] PeerError),
    #[error("it answered {0}")]
    Refused(ErrorCode),
    #[error("records at offset {offset} of partition {partition} cannot be read")]
    Damaged { partition: i32, offset: Offset },
}

impl MetadataTopic {
    pub fn new(
        context: Arc<NodeContext>,
        node: Arc<Node>,
        config: RemoteLogMetadataConfig,
    ) -> MetadataTopic {
        MetadataTopic {
            context,
            node,
            config,
            writers: BrokerPeers::default(),
            readers: BrokerPeers::default(),
            read: Mutex::default(),
            followed: Mutex::default(),
            applied: Notify::new(),
            assigned: Notify::new(),
        }
    }

    fn partition_for(&self, partition: TopicIdPartition) -> i32 {
        metadata_partition(partition, self.config.num_partitions)
    }

    /// Begins to read the metadata of a partition.
    pub fn assign(&self, partition: TopicIdPartition) {
        let of_topic = self.partition_for(partition);
        self.read.lock().assign(partition, of_topic);
        self.assigned.notify_one();
    }

    pub fn unassign(&self, partition: TopicIdPartition) {
        let of_topic = self.partition_for(partition);
        self.read.lock().unassign(partition, of_topic);
    }

    /// Looks at the metadata of a partition; `None` until it has been read far enough.
    pub fn with_cache<R>(
        &self,
        partition: TopicIdPartition,
        look: impl FnOnce(Option<&RemoteLogMetadataCache>) -> R,
    ) -> R {
        look(self.read.lock().cache(partition))
    }

    /// Changes when records that were read are lost, which invalidates decisions based on them.
    pub fn reloads(&self) -> u64 {
        self.read.lock().reloads()
    }

    /// Returns when the metadata of a partition has been read far enough.
    pub async fn until_initialized(&self, partition: TopicIdPartition) {
        loop {
            let applied = self.applied.notified();
            if self.with_cache(partition, |cache| cache.is_some()) {
                return;
            }
            applied.await;
        }
    }

    /// Writes a record about an assigned partition, and returns when it was read back. Fails also if
    /// the record has no effect ([`MetadataPartitions::has_effect`]).
    pub async fn publish(&self, metadata: &RemoteLogMetadata) -> Result<(), PublishFailure> {
        let partition = metadata.partition().ok_or(PublishFailure)?;
        let partition = partition.topic_id_partition();
        let value = metadata.encode().map_err(|error| {
            tracing::error!("a record of __remote_log_metadata cannot be encoded: {error}");
            PublishFailure
        })?;
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(self.context.timestamp(), None, Some(&value), &[]);
        let records = builder.build().to_bytes();
        let of_topic = self.partition_for(partition);
        let written = async {
            loop {
                match self.write(of_topic, records.clone()).await {
                    Ok(offset) => return offset,
                    Err(trouble) => {
                        tracing::debug!(
                            "__remote_log_metadata-{of_topic} cannot be written yet: {trouble}"
                        );
                    }
                }
                ottla_sync::time::sleep(PAUSE).await;
            }
        };
        let offset = ottla_sync::time::timeout(DELIVERY, written).await;
        let offset = offset.map_err(|_| {
            tracing::warn!(
                "__remote_log_metadata-{of_topic} could not be written for {DELIVERY:?}"
            );
            PublishFailure
        })?;
        let wait_ms = self.config.consume_wait_ms.max(0) as u64;
        let read_back = self.until_applied(partition, of_topic, offset);
        match ottla_sync::time::timeout(Duration::from_millis(wait_ms), read_back).await {
            Ok(true) if self.read.lock().has_effect(metadata) => Ok(()),
            Ok(true) => {
                tracing::warn!(
                    "another leader deletes a segment whose upload has just ended: offset {offset} of \
                     __remote_log_metadata-{of_topic} has no effect"
                );
                Err(PublishFailure)
            }
            Ok(false) => Err(PublishFailure),
            Err(_) => {
                tracing::warn!(
                    "offset {offset} of __remote_log_metadata-{of_topic} was not read back within \
                     {wait_ms} ms (remote.log.metadata.consume.wait.ms)"
                );
                Err(PublishFailure)
            }
        }
    }

    async fn write(&self, partition: i32, records: bytes::Bytes) -> Result<Offset, Trouble> {
        let (topic_id, leader) = self.leader(partition)?;
        let to = ProduceTo {
            leader,
            topic: REMOTE_LOG_METADATA_TOPIC.into(),
            topic_id,
            partition,
        };
        let answer = self.writers.produce(&self.context, to, records).await?;
        match ErrorCode::from_code(answer.error_code) {
            ErrorCode::None => Ok(Offset(answer.base_offset)),
            code => Err(Trouble::Refused(code)),
        }
    }

    /// False if the partition is no longer assigned.
    async fn until_applied(
        &self,
        partition: TopicIdPartition,
        of_topic: i32,
        offset: Offset,
    ) -> bool {
        loop {
            let applied = self.applied.notified();
            {
                let read = self.read.lock();
                if !read.is_assigned(partition, of_topic) {
                    return false;
                }
                if read.is_applied(partition, of_topic, offset) && read.cache(partition).is_some() {
                    return true;
                }
            }
            applied.await;
        }
    }

    fn topic_id(&self) -> Option<TopicId> {
        let metadata = self.context.metadata();
        let topic = metadata.topics.by_name(REMOTE_LOG_METADATA_TOPIC)?;
        Some(topic.id)
    }

    fn leader(&self, partition: i32) -> Result<(TopicId, BrokerId), Trouble> {
        let metadata = self.context.metadata();
        let topic = metadata.topics.by_name(REMOTE_LOG_METADATA_TOPIC);
        let topic = topic.ok_or(Trouble::Refused(ErrorCode::UnknownTopicOrPartition))?;
        let registration = topic.partition(partition.into());
        match registration.map(|it| it.leader).filter(|it| it.0 >= 0) {
            Some(leader) => Ok((topic.id, leader)),
            None => Err(Trouble::Refused(ErrorCode::LeaderNotAvailable)),
        }
    }

    /// Creates the topic if need be, and reads it until the broker stops.
    pub async fn run(self: Arc<Self>) {
        ottla_sync::select! {
            () = self.create() => {}
            () = self.context.stopping() => return,
        }
        loop {
            for leader in self.leaders_to_follow() {
                ottla_sync::task::spawn(Arc::clone(&self).follow(leader));
            }
            ottla_sync::select! {
                () = self.assigned.notified() => {}
                () = ottla_sync::time::sleep(PAUSE) => {}
                () = self.context.stopping() => return,
            }
        }
    }

    /// Returns when the topic exists. As in Kafka, the broker exits if the topic has another number
    /// of partitions, or cannot be created for a long time.
    async fn create(&self) {
        let config = &self.config;
        let pause = config.initialization_retry_interval_ms.max(100) as u64;
        let patience = config.initialization_retry_max_timeout_ms.max(0) as u64;
        let deadline_ms = self.context.now_ms().saturating_add(patience);
        let mut last_error = "the controller was not reached".to_owned();
        loop {
            if self.topic_id().is_some() {
                break;
            }
            if let Err(error) = self.ask_for_topic().await
                && error != last_error
            {
                tracing::warn!(
                    "the topic {REMOTE_LOG_METADATA_TOPIC} cannot be created yet, and nothing is \
                     copied to remote storage before: {error}; it is tried again for {patience} ms"
                );
                last_error = error;
            }
            if self.context.now_ms() >= deadline_ms {
                return self.context.fail(format!(
                    "the topic {REMOTE_LOG_METADATA_TOPIC} could not be created for {patience} ms \
                     (remote.log.metadata.initialization.retry.max.timeout.ms): {last_error}"
                ));
            }
            ottla_sync::time::sleep(Duration::from_millis(pause)).await;
        }
        let metadata = self.context.metadata();
        let topic = metadata.topics.by_name(REMOTE_LOG_METADATA_TOPIC);
        let found = topic.map_or(0, |topic| topic.partitions().count());
        if found as i64 != i64::from(config.num_partitions) {
            self.context.fail(format!(
                "the topic {REMOTE_LOG_METADATA_TOPIC} has {found} partitions, and \
                 remote.log.metadata.topic.num.partitions is {}; give {found}",
                config.num_partitions
            ));
        }
    }

    async fn ask_for_topic(&self) -> Result<(), String> {
        let config = &self.config;
        let setting = |name: &'static str, value: String| CreatableTopicConfig {
            name: name.into(),
            value: Some(value.into()),
            ..Default::default()
        };
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: REMOTE_LOG_METADATA_TOPIC.into(),
                num_partitions: config.num_partitions,
                replication_factor: config.replication_factor,
                configs: vec![
                    setting("retention.ms", config.retention_ms.to_string()),
                    setting("cleanup.policy", "delete".to_owned()),
                    setting("remote.storage.enable", "false".to_owned()),
                    setting("min.insync.replicas", config.min_isr.to_string()),
                ],
                ..Default::default()
            }],
            timeout_ms: REQUEST.as_millis() as i32,
            ..Default::default()
        };
        let response = self.node.ask_controller(request).await;
        let response = response.map_err(|error| error.to_string())?;
        for topic in response.topics {
            let error = ErrorCode::from_code(topic.error_code);
            if !matches!(error, ErrorCode::None | ErrorCode::TopicAlreadyExists) {
                let reason = topic.error_message.unwrap_or_default();
                return Err(refusal(error, &reason));
            }
        }
        Ok(())
    }

    /// The leaders of partitions to read that no task fetches from; they count as followed now.
    fn leaders_to_follow(&self) -> Vec<BrokerId> {
        let mut followed = self.followed.lock();
        let read = self.read.lock();
        let leaders = read
            .positions()
            .filter_map(|(partition, _)| Some(self.leader(partition).ok()?.1));
        leaders.filter(|leader| followed.insert(*leader)).collect()
    }

    /// Fetches from a leader until it leads nothing that is read here.
    async fn follow(self: Arc<Self>, leader: BrokerId) {
        let mut has_complained = false;
        while !self.context.is_stopping() {
            let positions = self.positions_at(leader);
            if positions.is_empty() {
                return;
            }
            let exchanged = ottla_sync::select! {
                exchanged = self.exchange(leader, &positions) => exchanged,
                () = self.context.stopping() => return,
            };
            match exchanged {
                Ok(()) => has_complained = false,
                Err(trouble) => {
                    if !std::mem::replace(&mut has_complained, true) {
                        tracing::warn!(
                            "__remote_log_metadata cannot be read from broker {leader}; trying \
                             again: {trouble}"
                        );
                    }
                    ottla_sync::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// What to read from a leader. If that is nothing, it is no longer followed.
    fn positions_at(&self, leader: BrokerId) -> Vec<(i32, Offset, LeaderEpoch)> {
        let mut followed = self.followed.lock();
        let read = self.read.lock();
        let leads = |partition| matches!(self.leader(partition), Ok((_, found)) if found == leader);
        let positions = read.fetches();
        let positions: Vec<_> = positions.filter(|(it, ..)| leads(*it)).collect();
        if positions.is_empty() {
            followed.remove(&leader);
        }
        positions
    }

    /// An error of one partition does not hold up the others; it is returned when all are read.
    async fn exchange(
        &self,
        leader: BrokerId,
        positions: &[(i32, Offset, LeaderEpoch)],
    ) -> Result<(), Trouble> {
        let topic_id = self.topic_id();
        let topic_id = topic_id.ok_or(Trouble::Refused(ErrorCode::UnknownTopicOrPartition))?;
        let peers = &self.readers;
        let connection = peers.connection(&self.context, leader, REQUEST).await?;
        let mut without_end = BTreeMap::new();
        {
            let read = self.read.lock();
            for &(partition, ..) in positions {
                let of = read.need_end(partition);
                if !of.is_empty() {
                    without_end.insert(partition, of);
                }
            }
        }
        let mut trouble = Ok(());
        if !without_end.is_empty() {
            let partitions: Vec<i32> = without_end.keys().copied().collect();
            let response = connection
                .send(&wire::list_offsets(&partitions, -1))
                .await?;
            let (listed, refused) = wire::offsets(response);
            for (partition, end) in listed {
                if let Some(of) = without_end.get(&partition) {
                    let end = end.max(Offset::ZERO);
                    self.read.lock().on_end(partition, of, end);
                }
            }
            trouble = refused.map_or(Ok(()), |code| Err(Trouble::Refused(code)));
            self.applied.notify_waiters();
        }
        let response = connection.send(&wire::fetch(topic_id, positions)).await?;
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => {}
            code => return Err(Trouble::Refused(code)),
        }
        let mut out_of_range = Vec::new();
        for data in wire::fetched(response) {
            let position = positions
                .iter()
                .find(|(it, ..)| *it == data.partition_index);
            let Some(&(partition, read_from, _)) = position else {
                continue;
            };
            match ErrorCode::from_code(data.error_code) {
                ErrorCode::None if data.diverging_epoch.end_offset >= 0 => {
                    self.read.lock().on_diverged(partition, read_from);
                }
                ErrorCode::None => {
                    if let Err(error) = self.on_data(partition, read_from, data) {
                        trouble = Err(error);
                    }
                }
                ErrorCode::OffsetOutOfRange => out_of_range.push((partition, read_from)),
                code => trouble = Err(Trouble::Refused(code)),
            }
        }
        if !out_of_range.is_empty() {
            let partitions: Vec<i32> = out_of_range.iter().map(|(it, _)| *it).collect();
            let response = connection
                .send(&wire::list_offsets(&partitions, -2))
                .await?;
            let (listed, refused) = wire::offsets(response);
            if let Some(code) = refused {
                trouble = Err(Trouble::Refused(code));
            }
            for (partition, start) in listed {
                let place = out_of_range.iter().find(|(it, _)| *it == partition);
                if let Some(&(_, read_from)) = place {
                    self.read.lock().on_start(partition, read_from, start);
                    if start <= read_from {
                        // The position is after the end. Asked again at once, the answer would be
                        // the same.
                        trouble = Err(Trouble::Refused(ErrorCode::OffsetOutOfRange));
                    }
                }
            }
        }
        trouble
    }

    fn on_data(
        &self,
        partition: i32,
        read_from: Offset,
        data: PartitionData,
    ) -> Result<(), Trouble> {
        let Some(Records::Bytes(records)) = data.records else {
            return Ok(());
        };
        if records.is_empty() {
            return Ok(());
        }
        let mut read = self.read.lock();
        let is_read = read.on_records(partition, read_from, records);
        let is_stuck = !is_read && read.positions().any(|it| it == (partition, read_from));
        drop(read);
        self.applied.notify_waiters();
        match is_stuck {
            // Fetched again at once, it would be the same.
            true => Err(Trouble::Damaged {
                partition,
                offset: read_from,
            }),
            false => Ok(()),
        }
    }
}

/// Why the controller did not create the topic, and what to set.
fn refusal(error: ErrorCode, reason: &str) -> String {
    match error {
        ErrorCode::InvalidReplicationFactor => format!(
            "{error}: {reason}; start more brokers, or, if this is the only one, set \
             rlmm.config.remote.log.metadata.topic.replication.factor=1 and \
             rlmm.config.remote.log.metadata.topic.min.isr=1"
        ),
        _ => format!("{error}: {reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_a_single_broker_the_error_names_the_setting() {
        let refused = refusal(ErrorCode::InvalidReplicationFactor, "only 1 broker");
        assert!(
            refused.starts_with("INVALID_REPLICATION_FACTOR: only 1 broker; "),
            "{refused}"
        );
        assert!(
            refused.contains("rlmm.config.remote.log.metadata.topic.replication.factor=1"),
            "{refused}"
        );
        let other = refusal(ErrorCode::PolicyViolation, "no");
        assert_eq!(other, "POLICY_VIOLATION: no");
    }
}
