//! Describing streams groups (KIP-1071). They are listed and deleted, and their offsets read and set, as those of other types.

use ottla_protocol::messages::streams_group_describe_request::StreamsGroupDescribeRequest;
use ottla_protocol::messages::streams_group_describe_response as response;

use super::groups::described;
use super::{Admin, text};
use crate::client::CoordinatorKind;
use crate::error::ClientError;
use crate::metadata::BrokerNode;

/// A streams group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DescribedStreamsGroup {
    pub group_id: String,
    /// As Kafka's tools print it: `NotReady`.
    pub state: String,
    pub group_epoch: i32,
    pub target_assignment_epoch: i32,
    pub topology_epoch: i32,
    pub subtopologies: Vec<Subtopology>,
    pub members: Vec<StreamsGroupMember>,
    pub coordinator: BrokerNode,
}

/// A part of an application, by its topics; its tasks are as many as those have partitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subtopology {
    pub id: String,
    pub source_topics: Vec<String>,
    pub repartition_source_topics: Vec<String>,
    pub state_changelog_topics: Vec<String>,
}

/// A member of a streams group: a thread of an application.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamsGroupMember {
    pub member_id: String,
    pub member_epoch: i32,
    pub process_id: String,
    pub client_id: String,
    pub is_classic: bool,
    pub assignment: TaskAssignment,
    pub target_assignment: TaskAssignment,
}

/// Subtopologies, and the partitions that are the tasks' numbers in each.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TaskAssignment {
    pub active: Vec<(String, Vec<i32>)>,
    pub standby: Vec<(String, Vec<i32>)>,
    pub warmup: Vec<(String, Vec<i32>)>,
}

impl Admin {
    pub async fn describe_streams_group(
        &self,
        group: &str,
    ) -> Result<DescribedStreamsGroup, ClientError> {
        let what = format!("group {group}");
        let found = described!(
            self.client,
            StreamsGroupDescribeRequest { group_ids },
            group,
            &what
        );
        let Some(topology) = found.topology else {
            let missing = "Topology information is missing";
            return Err(ClientError::broker(what, -1, Some(missing)));
        };
        let subtopologies = topology.subtopologies.unwrap_or_default();
        Ok(DescribedStreamsGroup {
            group_id: group.to_owned(),
            state: found.group_state.to_string(),
            group_epoch: found.group_epoch,
            target_assignment_epoch: found.assignment_epoch,
            topology_epoch: topology.epoch,
            subtopologies: subtopologies.iter().map(subtopology).collect(),
            members: found.members.iter().map(member).collect(),
            coordinator: self
                .client
                .coordinator(CoordinatorKind::Group, group)
                .await?,
        })
    }
}

fn subtopology(found: &response::Subtopology) -> Subtopology {
    let names = |topics: &[response::TopicInfo]| {
        let topics = topics.iter();
        topics.map(|topic| topic.name.to_string()).collect()
    };
    Subtopology {
        id: found.subtopology_id.to_string(),
        source_topics: found
            .source_topics
            .iter()
            .map(ToString::to_string)
            .collect(),
        repartition_source_topics: names(&found.repartition_source_topics),
        state_changelog_topics: names(&found.state_changelog_topics),
    }
}

fn member(found: &response::Member) -> StreamsGroupMember {
    StreamsGroupMember {
        member_id: found.member_id.to_string(),
        member_epoch: found.member_epoch,
        process_id: found.process_id.to_string(),
        client_id: found.client_id.to_string(),
        is_classic: found.is_classic,
        assignment: assignment(&found.assignment),
        target_assignment: assignment(&found.target_assignment),
    }
}

fn assignment(found: &response::Assignment) -> TaskAssignment {
    let tasks = |tasks: &[response::TaskIds]| {
        let tasks = tasks.iter();
        tasks
            .map(|tasks| (tasks.subtopology_id.to_string(), tasks.partitions.clone()))
            .collect()
    };
    TaskAssignment {
        active: tasks(&found.active_tasks),
        standby: tasks(&found.standby_tasks),
        warmup: tasks(&found.warmup_tasks),
    }
}
