//! The answers of a ShareFetch for partitions without records.

use ottla_coordination::share_groups::PartitionFailure;
use ottla_protocol::Records;
use ottla_protocol::messages::share_fetch_response::PartitionData;
use ottla_types::TopicIdPartition;

pub(super) fn error_answer(
    partition: TopicIdPartition,
    failure: PartitionFailure,
) -> PartitionData {
    PartitionData {
        error_code: failure.code.code(),
        error_message: failure.message,
        ..empty_answer(partition)
    }
}

pub(super) fn empty_answer(partition: TopicIdPartition) -> PartitionData {
    PartitionData {
        partition_index: partition.partition.0,
        records: Some(Records::Bytes(bytes::Bytes::new())),
        ..Default::default()
    }
}
