//! Why a topology cannot be worked with.
//! Source: `TopicConfigurationException`, `StreamsInvalidTopologyException`, `StreamsGroupHeartbeatResponse.Status`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_protocol::messages::streams_group_heartbeat_response::Status;
use ottla_types::ErrorCode;

use crate::group::modern::GroupError;

/// What a member is told beside its tasks: `StreamsGroupHeartbeatResponse.Status`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamsStatus {
    StaleTopology,
    MissingSourceTopics,
    IncorrectlyPartitionedTopics,
    MissingInternalTopics,
    ShutdownApplication,
    AssignmentDelayed,
}

impl StreamsStatus {
    /// As the wire has it.
    pub fn code(self) -> i8 {
        match self {
            StreamsStatus::StaleTopology => 0,
            StreamsStatus::MissingSourceTopics => 1,
            StreamsStatus::IncorrectlyPartitionedTopics => 2,
            StreamsStatus::MissingInternalTopics => 3,
            StreamsStatus::ShutdownApplication => 4,
            StreamsStatus::AssignmentDelayed => 5,
        }
    }

    pub(super) fn with(self, detail: impl Into<ByteString>) -> Status {
        Status {
            status_code: self.code(),
            status_detail: detail.into(),
            ..Default::default()
        }
    }
}

/// The cluster's topics do not fit the topology, so that no tasks can be given out until they do.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct TopicConfigurationError {
    pub(super) status: StreamsStatus,
    /// Clients show it to people, so that it is Kafka's to the letter.
    pub(super) detail: String,
}

impl TopicConfigurationError {
    pub(super) fn incorrectly_partitioned(detail: String) -> Self {
        TopicConfigurationError {
            status: StreamsStatus::IncorrectlyPartitionedTopics,
            detail,
        }
    }

    /// Topics that should have as many partitions as each other do not.
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

/// What comes between a topology and its configuration.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum TopologyError {
    /// Other topics would help: the group goes on, and its members are told.
    Topics(TopicConfigurationError),
    /// No topics would: the request is refused.
    Topology(GroupError),
}

impl TopologyError {
    /// The topology contradicts itself.
    pub(super) fn invalid(message: impl Into<String>) -> Self {
        TopologyError::Topology(GroupError::new(ErrorCode::StreamsInvalidTopology, message))
    }

    /// Kafka stumbles over the topology, and says no more than that.
    pub(super) fn unknown() -> Self {
        TopologyError::Topology(ErrorCode::UnknownServerError.into())
    }
}

impl From<TopicConfigurationError> for TopologyError {
    fn from(error: TopicConfigurationError) -> Self {
        TopologyError::Topics(error)
    }
}
