//! Fetching: one request a leader, for the partitions of which nothing is waiting to be handed out.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::fetch_response::{AbortedTransaction, PartitionData};
use ottla_records::control::ControlRecordType;
use ottla_records::legacy::AnyBatch;
use ottla_records::{BatchError, TimestampType};
use ottla_types::{ErrorCode, Uuid};

use super::{Consumer, ConsumerRecord, Partition, Position};
use crate::client::{Client, Owner};
use crate::error::ClientError;

/// Decompressed batches larger than this are taken for an attack.
const MAX_BATCH_BYTES: usize = 1 << 30;

/// What a request brought back.
pub(super) struct Fetched {
    epoch: u64,
    /// The partitions asked for, with the offsets asked for.
    asked: BTreeMap<Partition, i64>,
    result: Result<Vec<(Partition, PartitionData)>, ClientError>,
}

impl Consumer {
    /// Asks every leader for the partitions that have run dry and are not asked for already.
    pub(super) async fn start_fetches(&mut self) -> Result<(), ClientError> {
        let dry = |position: &&mut Position| {
            position.next.is_some() && position.buffered.is_empty() && !position.is_fetching
        };
        let wanted: BTreeSet<String> = self
            .positions
            .iter_mut()
            .filter(|(_, position)| dry(position))
            .map(|((topic, _), _)| topic.clone())
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = wanted.into_iter().collect();
        let metadata = self.client.topics(&names).await?;
        let mut by_leader: BTreeMap<i32, BTreeMap<Partition, (i64, i32)>> = BTreeMap::new();
        for (partition, position) in &mut self.positions {
            if !dry(&&mut *position) {
                continue;
            }
            let Some(info) = metadata.partition(&partition.0, partition.1) else {
                return Err(ClientError::broker(
                    format!("{}-{}", partition.0, partition.1),
                    ErrorCode::UnknownTopicOrPartition.code(),
                    Some("the topic does not have this partition"),
                ));
            };
            if info.leader < 0 {
                continue;
            }
            position.is_fetching = true;
            let offset = position.next.expect("looked at above");
            by_leader
                .entry(info.leader)
                .or_default()
                .insert(partition.clone(), (offset, info.leader_epoch));
        }
        for (leader, partitions) in by_leader {
            let mut topics: Vec<FetchTopic> = Vec::new();
            for ((topic, partition), (offset, leader_epoch)) in &partitions {
                let wanted = FetchPartition {
                    partition: *partition,
                    current_leader_epoch: *leader_epoch,
                    fetch_offset: *offset,
                    log_start_offset: -1,
                    partition_max_bytes: self.config.max_partition_fetch_bytes,
                    ..Default::default()
                };
                match topics.iter_mut().find(|it| *it.topic == **topic) {
                    Some(topic) => topic.partitions.push(wanted),
                    None => topics.push(FetchTopic {
                        topic: topic.clone().into(),
                        topic_id: metadata
                            .topics
                            .get(topic)
                            .map_or(Uuid::ZERO, |it| it.topic_id),
                        partitions: vec![wanted],
                        ..Default::default()
                    }),
                }
            }
            let request = FetchRequest {
                max_wait_ms: self.config.fetch_max_wait.as_millis() as i32,
                min_bytes: self.config.fetch_min_bytes,
                max_bytes: self.config.fetch_max_bytes,
                isolation_level: i8::from(self.config.read_committed),
                // No session: each request says all of it.
                session_id: 0,
                session_epoch: -1,
                topics,
                ..Default::default()
            };
            let (client, epoch, owner) = (self.client.clone(), self.epoch, self.fetch_owner);
            let held_back = self.config.fetch_max_wait;
            let asked = partitions
                .into_iter()
                .map(|(key, (offset, _))| (key, offset))
                .collect();
            self.fetches.spawn(async move {
                let result = fetch(&client, owner, leader, request, held_back).await;
                Fetched {
                    epoch,
                    asked,
                    result,
                }
            });
        }
        Ok(())
    }

    /// Takes in what a request brought back.
    pub(super) async fn on_fetched(&mut self, fetched: Fetched) -> Result<(), ClientError> {
        for (partition, offset) in &fetched.asked {
            if let Some(position) = self.positions.get_mut(partition)
                && position.next == Some(*offset)
            {
                position.is_fetching = false;
            }
        }
        if fetched.epoch != self.epoch {
            // The assignment has changed since; positions that are the same ask again.
            for position in self.positions.values_mut() {
                position.is_fetching = false;
            }
            return Ok(());
        }
        let answers = match fetched.result {
            Ok(answers) => answers,
            Err(error) if error.is_retriable() => {
                tracing::debug!(%error, "a fetch failed; trying again");
                tokio::time::sleep(self.client.config().retry_backoff).await;
                return self.refresh(&fetched.asked).await;
            }
            Err(error) => return Err(error),
        };
        let mut stale = false;
        let mut out_of_range = Vec::new();
        for (partition, data) in answers {
            let Some(&offset) = fetched.asked.get(&partition) else {
                continue;
            };
            match ErrorCode::from_code(data.error_code) {
                ErrorCode::None => self.on_records(&partition, offset, data)?,
                ErrorCode::OffsetOutOfRange => out_of_range.push(partition),
                code if code.is_retriable() => stale = true,
                code => {
                    let what = format!("fetching {}-{}", partition.0, partition.1);
                    return Err(ClientError::broker(what, code.code(), None::<&str>));
                }
            }
        }
        self.reset(&out_of_range, "the log does not have the offset any more")
            .await?;
        if stale {
            tokio::time::sleep(self.client.config().retry_backoff).await;
            self.refresh(&fetched.asked).await?;
        }
        Ok(())
    }

    async fn refresh(&self, asked: &BTreeMap<Partition, i64>) -> Result<(), ClientError> {
        let mut names: Vec<String> = asked.keys().map(|(topic, _)| topic.clone()).collect();
        names.dedup();
        self.client
            .refresh_metadata(Some(&names), false)
            .await
            .map(drop)
    }

    fn on_records(
        &mut self,
        partition: &Partition,
        from: i64,
        data: PartitionData,
    ) -> Result<(), ClientError> {
        let bytes = data
            .records
            .as_ref()
            .and_then(|records| records.as_bytes().cloned());
        let aborted = match self.config.read_committed {
            true => data.aborted_transactions.unwrap_or_default(),
            false => Vec::new(),
        };
        let read = read_records(partition, bytes.unwrap_or_default(), from, aborted);
        let (records, next) = read.map_err(|error| ClientError::Records {
            partition: format!("{}-{}", partition.0, partition.1),
            error,
        })?;
        if let Some(position) = self.positions.get_mut(partition)
            && position.next == Some(from)
        {
            position.buffered = records.into();
            position.fetched_to = Some(next);
            if position.buffered.is_empty() {
                position.next = Some(next);
            }
        }
        Ok(())
    }
}

async fn fetch(
    client: &Client,
    owner: Owner,
    leader: i32,
    request: FetchRequest,
    held_back: std::time::Duration,
) -> Result<Vec<(Partition, PartitionData)>, ClientError> {
    let connection = client.node_of(leader, Some(owner)).await?;
    let response = connection.send_waiting(&request, held_back).await?;
    ClientError::check(
        format!("fetching from {}", connection.address()),
        response.error_code,
        None::<&str>,
    )?;
    let mut answers = Vec::new();
    for topic in response.responses {
        // Newer responses name topics by their id only.
        let asked = request
            .topics
            .iter()
            .find(|asked| match topic.topic.is_empty() {
                true => asked.topic_id == topic.topic_id,
                false => asked.topic == topic.topic,
            });
        let Some(asked) = asked else { continue };
        for partition in topic.partitions {
            answers.push((
                (asked.topic.to_string(), partition.partition_index),
                partition,
            ));
        }
    }
    Ok(answers)
}

/// The records from an offset on, those of aborted transactions and control records left out, and the
/// offset behind the last batch that is there as a whole.
fn read_records(
    (topic, partition): &Partition,
    mut bytes: Bytes,
    from: i64,
    mut aborted: Vec<AbortedTransaction>,
) -> Result<(Vec<ConsumerRecord>, i64), BatchError> {
    aborted.sort_by_key(|transaction| transaction.first_offset);
    let mut aborted = aborted.into_iter().peekable();
    let mut aborted_producers = BTreeSet::new();
    let mut records = Vec::new();
    let mut next = from;
    while let Some(batch) = read_whole_batch(&mut bytes)? {
        batch.verify_crc()?;
        let last_offset = batch.last_offset().0;
        let mut timestamp_type = TimestampType::CreateTime;
        let mut leader_epoch = -1;
        if let AnyBatch::Current(batch) = &batch {
            let header = &batch.header;
            timestamp_type = header.attributes.timestamp_type();
            leader_epoch = header.partition_leader_epoch.0;
            while let Some(transaction) = aborted.next_if(|it| it.first_offset <= last_offset) {
                aborted_producers.insert(transaction.producer_id);
            }
            if header.is_control() {
                let markers = batch.records(MAX_BATCH_BYTES)?;
                for marker in markers.iter() {
                    let kind = ControlRecordType::parse_key(marker?.key.unwrap_or_default())?;
                    if kind == Some(ControlRecordType::Abort) {
                        aborted_producers.remove(&header.producer_id.0);
                    }
                }
                next = next.max(last_offset + 1);
                continue;
            }
            if header.is_transactional() && aborted_producers.contains(&header.producer_id.0) {
                next = next.max(last_offset + 1);
                continue;
            }
        }
        for record in batch.records(MAX_BATCH_BYTES)? {
            if record.offset.0 < from {
                continue;
            }
            records.push(ConsumerRecord {
                topic: topic.clone(),
                partition: *partition,
                offset: record.offset.0,
                leader_epoch,
                timestamp: record.timestamp.0,
                timestamp_type,
                key: record.key,
                value: record.value,
                headers: record.headers,
            });
        }
        next = next.max(last_offset + 1);
    }
    Ok((records, next))
}

/// The next batch, unless only a part of it has come, as at the end of a response.
fn read_whole_batch(bytes: &mut Bytes) -> Result<Option<AnyBatch>, BatchError> {
    const OVERHEAD: usize = ottla_records::BatchPrefix::LOG_OVERHEAD;
    if bytes.len() < OVERHEAD {
        return Ok(None);
    }
    let length = i32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]);
    match usize::try_from(length) {
        Ok(length) if bytes.len() - OVERHEAD < length => Ok(None),
        _ => AnyBatch::read(bytes).map(Some),
    }
}
