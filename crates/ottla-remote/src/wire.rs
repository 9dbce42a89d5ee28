//! The requests to the leaders of `__remote_log_metadata`.

use ottla_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use ottla_protocol::messages::fetch_response::PartitionData;
use ottla_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use ottla_protocol::messages::{
    FetchRequest, FetchResponse, ListOffsetsRequest, ListOffsetsResponse,
};
use ottla_tiered::REMOTE_LOG_METADATA_TOPIC;
use ottla_types::{ErrorCode, LeaderEpoch, Offset, TopicId};

/// How long a fetch waits for a record. A partition that is assigned during the wait waits for its
/// end.
const FETCH_WAIT_MS: i32 = 200;
/// Bytes of records of one response.
const FETCH_BYTES: i32 = 4 << 20;

/// Partitions with the offsets from which on to read, and the epochs of the records before these. Where
/// the leader has another history, it answers with a diverging epoch.
pub fn fetch(topic_id: TopicId, positions: &[(i32, Offset, LeaderEpoch)]) -> FetchRequest {
    FetchRequest {
        max_wait_ms: FETCH_WAIT_MS,
        min_bytes: 1,
        max_bytes: FETCH_BYTES,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: REMOTE_LOG_METADATA_TOPIC.into(),
            topic_id,
            partitions: positions
                .iter()
                .map(|&(partition, offset, last_epoch)| FetchPartition {
                    partition,
                    current_leader_epoch: -1,
                    fetch_offset: offset.0,
                    last_fetched_epoch: last_epoch.0,
                    log_start_offset: -1,
                    partition_max_bytes: FETCH_BYTES,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub fn fetched(response: FetchResponse) -> impl Iterator<Item = PartitionData> {
    let topics = response.responses.into_iter();
    topics.flat_map(|topic| topic.partitions)
}

pub fn list_offsets(partitions: &[i32], timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: REMOTE_LOG_METADATA_TOPIC.into(),
            partitions: partitions
                .iter()
                .map(|&partition_index| ListOffsetsPartition {
                    partition_index,
                    current_leader_epoch: -1,
                    timestamp,
                    ..Default::default()
                })
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

/// The partitions that were answered with an offset, and the error of the last of the others.
pub fn offsets(response: ListOffsetsResponse) -> (Vec<(i32, Offset)>, Option<ErrorCode>) {
    let mut offsets = Vec::new();
    let mut refused = None;
    for listed in response.topics.into_iter().flat_map(|it| it.partitions) {
        match ErrorCode::from_code(listed.error_code) {
            ErrorCode::None => offsets.push((listed.partition_index, Offset(listed.offset))),
            code => refused = Some(code),
        }
    }
    (offsets, refused)
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::list_offsets_response::{
        ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
    };

    use super::*;

    #[test]
    fn an_error_of_one_partition_leaves_the_offsets_of_the_others() {
        let listed = |partition_index, error: ErrorCode, offset| ListOffsetsPartitionResponse {
            partition_index,
            error_code: error.code(),
            offset,
            ..Default::default()
        };
        let response = ListOffsetsResponse {
            topics: vec![ListOffsetsTopicResponse {
                partitions: vec![
                    listed(3, ErrorCode::None, 7),
                    listed(4, ErrorCode::NotLeaderOrFollower, -1),
                    listed(5, ErrorCode::None, 9),
                ],
                ..Default::default()
            }],
            ..Default::default()
        };
        let (offsets, refused) = offsets(response);
        assert_eq!(offsets, [(3, Offset(7)), (5, Offset(9))]);
        assert_eq!(refused, Some(ErrorCode::NotLeaderOrFollower));
    }
}
