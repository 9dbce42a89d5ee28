//! Descriptions of streams groups (KIP-1071). They are listed and deleted like groups of other
//! types, and so are their offsets.

use ottla_protocol::messages::StreamsGroupDescribeRequest;
use ottla_protocol::messages::streams_group_describe_response as response;

use super::{Admin, text};
use crate::error::ClientError;
use crate::metadata::BrokerNode;

/// A streams group.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// let application = admin.describe_streams_group("word-count").await?;
/// println!("{}, topology {}", application.group.group_state, application.topology_epoch);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct DescribedStreamsGroup {
    pub group: response::DescribedGroup,
    pub topology_epoch: i32,
    pub subtopologies: Vec<Subtopology>,
    pub coordinator: BrokerNode,
}

/// A subtopology of an application with its topics. Its number of tasks is the partition count of
/// these.
///
/// ```no_run
/// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
/// let application = admin.describe_streams_group("word-count").await?;
/// for subtopology in &application.subtopologies {
///     println!("{} reads {:?}", subtopology.id, subtopology.source_topics);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Subtopology {
    pub id: String,
    pub source_topics: Vec<String>,
    pub repartition_source_topics: Vec<String>,
    pub state_changelog_topics: Vec<String>,
}

impl Admin {
    /// Describes the group of a Kafka Streams application with `group.protocol=streams` (KIP-1071).
    ///
    /// ```no_run
    /// # async fn example(admin: &ottla_client::Admin) -> Result<(), ottla_client::ClientError> {
    /// let application = admin.describe_streams_group("word-count").await?;
    /// println!("{} members", application.group.members.len());
    /// # Ok(())
    /// # }
    /// ```
    pub async fn describe_streams_group(
        &self,
        group: &str,
    ) -> Result<DescribedStreamsGroup, ClientError> {
        let request = StreamsGroupDescribeRequest {
            group_ids: vec![text(group)],
            ..Default::default()
        };
        let what = format!("group {group}");
        let (mut found, coordinator) = self
            .describe_group(group, &what, &request, |response| {
                let group = response.groups.first()?;
                Some((group, group.error_code, group.error_message.as_ref()))
            })
            .await?;
        let Some(topology) = found.topology.take() else {
            let missing = "Topology information is missing";
            return Err(ClientError::broker(what, -1, Some(missing)));
        };
        let subtopologies = topology.subtopologies.unwrap_or_default();
        Ok(DescribedStreamsGroup {
            group: found,
            topology_epoch: topology.epoch,
            subtopologies: subtopologies.iter().map(subtopology).collect(),
            coordinator,
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
