//! Asks a leader for its log start and end offsets, for followers whose position is outside the
//! leader's log.
//!
//! Kafka: `RemoteLeaderEndPoint.fetchLatestOffset`, `RemoteLeaderEndPoint.fetchEarliestOffset`.

use std::sync::{Arc, Weak};

use ottla_protocol::messages::ListOffsetsRequest;
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_replica::{Event, LeaderOffsets};
use ottla_sync::Mutex;
use ottla_sync::collections::HashMap;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, TopicPartition};

use crate::partition::Partition;
use crate::partition::host::PartitionHost;
use ottla_net::{PeerConnection, PeerError};

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;

/// The followers of one leader that need its log start and end offsets.
#[derive(Debug, Default)]
pub(super) struct PendingQueries {
    /// Weak, because a partition holds its fetcher, which holds these.
    waiting: Mutex<Vec<(Weak<Partition>, LeaderEpoch)>>,
}

#[derive(Debug)]
struct PendingQuery {
    partition: Arc<Partition>,
    leader_epoch: LeaderEpoch,
}

/// The leader's response to one ListOffsets timestamp, by partition.
type Offsets = HashMap<TopicPartition, Result<Offset, ErrorCode>>;

impl PendingQueries {
    pub(super) fn put(&self, partition: &Arc<Partition>, leader_epoch: LeaderEpoch) {
        let query = (Arc::downgrade(partition), leader_epoch);
        self.waiting.lock().push(query);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.lock().is_empty()
    }

    fn take(&self) -> Vec<PendingQuery> {
        let waiting = std::mem::take(&mut *self.waiting.lock());
        let queries = waiting.into_iter().filter_map(|(partition, leader_epoch)| {
            Some(PendingQuery {
                partition: partition.upgrade()?,
                leader_epoch,
            })
        });
        queries.collect()
    }

    /// Sends the pending queries and passes on the responses. The end offsets are asked first: a
    /// log truncated to an end asked later could be below the start asked earlier.
    pub(super) async fn ask(
        &self,
        host: &Arc<PartitionHost>,
        connection: &PeerConnection,
    ) -> Result<(), PeerError> {
        let queries = self.take();
        if queries.is_empty() {
            return Ok(());
        }
        let asked = async {
            let ends = list(host, connection, &queries, LATEST).await?;
            let starts = list(host, connection, &queries, EARLIEST).await?;
            Ok((ends, starts))
        };
        let (offsets, failure) = match asked.await {
            Ok(offsets) => (Some(offsets), Ok(())),
            Err(error) => (None, Err(error)),
        };
        for question in queries {
            let topic_partition = &question.partition.topic_partition;
            let of = |offsets: &Offsets| {
                let found = offsets.get(topic_partition).copied();
                found.unwrap_or(Err(ErrorCode::UnknownServerError))
            };
            let result = match &offsets {
                None => Err(ErrorCode::NetworkException),
                Some((ends, starts)) => of(ends).and_then(|log_end_offset| {
                    Ok(LeaderOffsets {
                        log_end_offset,
                        log_start_offset: of(starts)?,
                    })
                }),
            };
            question.answer(host, result);
        }
        failure
    }

    /// The leader cannot be reached: fails the pending queries.
    pub(super) fn give_up(&self, host: &Arc<PartitionHost>) {
        for question in self.take() {
            question.answer(host, Err(ErrorCode::NetworkException));
        }
    }
}

impl PendingQuery {
    fn answer(self, host: &Arc<PartitionHost>, result: Result<LeaderOffsets, ErrorCode>) {
        let event = Event::LeaderOffsetsListed {
            leader_epoch: self.leader_epoch,
            result,
            now_ms: host.context.now_ms(),
        };
        self.partition.notify(host, event);
    }
}

async fn list(
    host: &PartitionHost,
    connection: &PeerConnection,
    queries: &[PendingQuery],
    timestamp: i64,
) -> Result<Offsets, PeerError> {
    let topics = queries.iter().map(|question| ListOffsetsTopic {
        name: question.partition.topic_partition.topic.clone(),
        partitions: vec![ListOffsetsPartition {
            partition_index: question.partition.topic_partition.partition.0,
            current_leader_epoch: question.leader_epoch.0,
            timestamp,
            ..Default::default()
        }],
        ..Default::default()
    });
    let request = ListOffsetsRequest {
        replica_id: host.context.broker_id().0,
        topics: topics.collect(),
        ..Default::default()
    };
    let response = connection.send(&request).await?;
    let mut offsets = Offsets::default();
    for topic in response.topics {
        for partition in topic.partitions {
            let key = TopicPartition::new(topic.name.clone(), partition.partition_index);
            let found = match ErrorCode::from_code(partition.error_code) {
                ErrorCode::None => Ok(Offset(partition.offset)),
                code => Err(code),
            };
            offsets.insert(key, found);
        }
    }
    Ok(offsets)
}
