//! A follower's fetch session with a leader (KIP-227): the per-partition state kept by
//! `ottla_protocol::fetch_session`, and its encoding in requests.
//!
//! Keeps the position that the leader assumes for each partition; a response refers to it.

use ottla_protocol::fetch_session::client;
use ottla_protocol::messages::FetchResponse;
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use ottla_replica::FetchPosition;
use ottla_types::{PartitionIndex, TopicIdPartition};

pub(super) type FetchSession = client::FetchSession<TopicIdPartition, PositionedFetch>;
pub(super) type Change = client::Change<TopicIdPartition, PositionedFetch>;

/// The requested fields of a partition, and the position that they encode.
#[derive(Clone, Debug)]
pub(super) struct PositionedFetch {
    pub(super) position: FetchPosition,
    pub(super) request: FetchPartition,
}

/// Equal if the leader needs no update.
impl PartialEq for PositionedFetch {
    fn eq(&self, other: &Self) -> bool {
        self.request == other.request
    }
}

/// The topics of a request: partitions to fetch, and partitions to forget.
pub(super) fn topics_of(change: Change) -> (Vec<FetchTopic>, Vec<ForgottenTopic>) {
    let mut topics: Vec<FetchTopic> = Vec::new();
    for (key, fetch) in change.requested {
        match topics.last_mut() {
            Some(topic) if topic.topic_id == key.topic_id => topic.partitions.push(fetch.request),
            _ => topics.push(FetchTopic {
                topic_id: key.topic_id,
                partitions: vec![fetch.request],
                ..Default::default()
            }),
        }
    }
    let mut forgotten: Vec<ForgottenTopic> = Vec::new();
    for key in change.forgotten {
        let index = key.partition.0;
        match forgotten.last_mut() {
            Some(topic) if topic.topic_id == key.topic_id => topic.partitions.push(index),
            _ => forgotten.push(ForgottenTopic {
                topic_id: key.topic_id,
                partitions: vec![index],
                ..Default::default()
            }),
        }
    }
    (topics, forgotten)
}

/// The partitions of a response.
pub(super) fn partitions_of(response: &FetchResponse) -> impl Iterator<Item = TopicIdPartition> {
    let topics = response.responses.iter();
    topics.flat_map(|topic| {
        let partitions = topic.partitions.iter();
        partitions.map(|partition| TopicIdPartition {
            topic_id: topic.topic_id,
            partition: PartitionIndex(partition.partition_index),
        })
    })
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::fetch_response::{FetchableTopicResponse, PartitionData};
    use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Offset, Uuid};

    use super::*;

    fn key(topic: u8, partition: i32) -> TopicIdPartition {
        TopicIdPartition {
            topic_id: Uuid([topic; 16]),
            partition: PartitionIndex(partition),
        }
    }

    fn fetch(partition: i32, offset: i64, is_in_sync: bool) -> PositionedFetch {
        PositionedFetch {
            position: FetchPosition {
                leader: BrokerId(1),
                leader_epoch: LeaderEpoch(3),
                fetch_offset: Offset(offset),
                last_fetched_epoch: None,
                is_in_sync,
            },
            request: FetchPartition {
                partition,
                fetch_offset: offset,
                ..Default::default()
            },
        }
    }

    #[test]
    fn the_partitions_of_a_topic_stand_together() {
        let change = Change {
            requested: vec![
                (key(1, 0), fetch(0, 5, false)),
                (key(1, 2), fetch(2, 6, false)),
                (key(2, 0), fetch(0, 7, false)),
            ],
            forgotten: vec![key(1, 1), key(3, 4), key(3, 5)],
        };
        let (topics, forgotten) = topics_of(change);
        let named = topics.iter().map(|topic| {
            let partitions = topic.partitions.iter();
            let offsets: Vec<_> = partitions
                .map(|it| (it.partition, it.fetch_offset))
                .collect();
            (topic.topic_id, offsets)
        });
        assert_eq!(
            named.collect::<Vec<_>>(),
            [
                (Uuid([1; 16]), vec![(0, 5), (2, 6)]),
                (Uuid([2; 16]), vec![(0, 7)]),
            ]
        );
        let forgotten = forgotten.into_iter();
        let forgotten = forgotten.map(|topic| (topic.topic_id, topic.partitions));
        assert_eq!(
            forgotten.collect::<Vec<_>>(),
            [(Uuid([1; 16]), vec![1]), (Uuid([3; 16]), vec![4, 5])]
        );
    }

    #[test]
    fn an_unchanged_position_is_not_sent_to_the_leader() {
        let mut session = FetchSession::default();
        session.change([(key(1, 0), Some(fetch(0, 5, false)))]);
        let response = FetchResponse {
            session_id: 77,
            responses: vec![FetchableTopicResponse {
                topic_id: Uuid([1; 16]),
                partitions: vec![PartitionData::default()],
                ..Default::default()
            }],
            ..Default::default()
        };
        let answered = session.on_answer(ErrorCode::None, 77, partitions_of(&response));
        assert_eq!(answered, Ok(()));
        let change = session.change([(key(1, 0), Some(fetch(0, 5, true)))]);
        assert!(change.requested.is_empty());
        assert!(session.requested(&key(1, 0)).unwrap().position.is_in_sync);
    }
}
