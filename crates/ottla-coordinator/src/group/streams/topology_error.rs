//! Why a topology cannot be used.
//! Source: `TopicConfigurationException`, `StreamsInvalidTopologyException`, `StreamsGroupHeartbeatResponse.Status`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_protocol::messages::streams_group_heartbeat_response::Status;
use ottla_types::ErrorCode;

use crate::group::modern::GroupError;

/// The status that a member receives with its tasks: `StreamsGroupHeartbeatResponse.Status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamsStatus {
    StaleTopology = 0,
    MissingSourceTopics = 1,
    IncorrectlyPartitionedTopics = 2,
    MissingInternalTopics = 3,
    ShutdownApplication = 4,
    AssignmentDelayed = 5,
    MissingClientTags = 6,
}

impl StreamsStatus {
    /// The wire value.
    pub fn code(self) -> i8 {
        self as i8
    }

    pub(super) fn with(self, detail: impl Into<ByteString>) -> Status {
        Status {
            status_code: self.code(),
            status_detail: detail.into(),
            ..Default::default()
        }
    }
}

/// The cluster's topics do not match the topology, so no tasks can be assigned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TopicConfigurationError {
    pub(super) status: StreamsStatus,
    /// Clients show it to people, so it is exactly Kafka's message.
    pub(super) detail: String,
}

impl TopicConfigurationError {
    pub(super) fn incorrectly_partitioned(detail: String) -> Self {
        TopicConfigurationError {
            status: StreamsStatus::IncorrectlyPartitionedTopics,
            detail,
        }
    }

    /// Topics that must have the same number of partitions do not.
    pub(super) fn unequal(partition_counts: &BTreeMap<&ByteString, i32>) -> Self {
        let counts: Vec<String> = partition_counts
            .iter()
            .map(|(topic, count)| format!("{topic}={count}"))
            .collect();
        TopicConfigurationError::incorrectly_partitioned(format!(
            "Following topics do not have the same number of partitions: [{{{}}}]",
            counts.join(", ")
        ))
    }
}

/// Why a topology cannot be configured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TopologyError {
    /// A problem that other topics would solve: the group continues, and its members get a status.
    Topics(TopicConfigurationError),
    /// A problem of the topology itself: the request is refused.
    Topology(GroupError),
}

impl TopologyError {
    /// The topology is inconsistent.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        TopologyError::Topology(GroupError::new(ErrorCode::StreamsInvalidTopology, message))
    }

    /// Kafka fails with an unexpected exception, so the error has no details.
    pub(super) fn unknown() -> Self {
        TopologyError::Topology(ErrorCode::UnknownServerError.into())
    }
}

impl From<TopicConfigurationError> for TopologyError {
    fn from(error: TopicConfigurationError) -> Self {
        TopologyError::Topics(error)
    }
}
