//! DescribeShareGroupOffsets: how far share groups are, and how much is before them.
//! Kafka: `KafkaApis.handleDescribeShareGroupOffsetsRequest`, `GroupCoordinatorService.describeShareGroupOffsets`.

use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::share_state::{SharePartitionKey, StateSummary};
use ottla_protocol::messages::describe_share_group_offsets_request::{
    DescribeShareGroupOffsetsRequestGroup, DescribeShareGroupOffsetsRequestTopic,
};
use ottla_protocol::messages::describe_share_group_offsets_response::{
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
use ottla_protocol::messages::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse,
};
use ottla_types::{ErrorCode, LeaderEpoch, Offset, TopicId};

use crate::at_once::each_at_once;
use crate::share_groups::{Persister, StateFailure, latest_offsets};
use crate::{Broker, Operation, RequestContext, ResourceType, share_groups};

type Group = DescribeShareGroupOffsetsResponseGroup;
type Topic = DescribeShareGroupOffsetsResponseTopic;
type Partition = DescribeShareGroupOffsetsResponsePartition;

/// Of one request; each of them asks about several partitions at one time.
const GROUPS_AT_ONCE: usize = 16;

/// A topic that exists, and the partitions that are asked for.
struct Asked {
    id: TopicId,
    name: ByteString,
    partitions: Vec<i32>,
}

pub(crate) async fn handle(
    broker: &Arc<Broker>,
    context: &RequestContext,
    request: DescribeShareGroupOffsetsRequest,
) -> DescribeShareGroupOffsetsResponse {
    let group_ids = request.groups.iter().map(|group| group.group_id.clone());
    let group_ids: Vec<ByteString> = group_ids.collect();
    let groups = each_at_once(GROUPS_AT_ONCE, request.groups, |group| {
        let (broker, context) = (Arc::clone(broker), context.clone());
        async move { describe_group(&broker, &context, group).await }
    });
    let groups = group_ids.into_iter().zip(groups.await);
    let groups = groups.map(|(group_id, group)| {
        group.unwrap_or_else(|| Group {
            error_code: ErrorCode::UnknownServerError.code(),
            ..answer(group_id, Vec::new())
        })
    });
    DescribeShareGroupOffsetsResponse {
        groups: groups.collect(),
        ..Default::default()
    }
}

async fn describe_group(
    broker: &Arc<Broker>,
    context: &RequestContext,
    group: DescribeShareGroupOffsetsRequestGroup,
) -> Group {
    let group_id = group.group_id;
    let authorizer = &broker.authorizer;
    let refused = |code: ErrorCode| Group {
        error_code: code.code(),
        ..answer(group_id.clone(), Vec::new())
    };
    if !share_groups::are_enabled(broker) {
        return refused(ErrorCode::UnsupportedVersion);
    }
    let operation = Operation::Describe;
    if !authorizer.is_allowed(context, operation, ResourceType::Group, &group_id) {
        return refused(ErrorCode::GroupAuthorizationFailed);
    }
    let is_visible =
        |name: &ByteString| authorizer.is_allowed(context, operation, ResourceType::Topic, name);
    let described = match group.topics {
        None => match all_partitions(broker, &group_id) {
            Ok(asked) => {
                let described = describe(broker, &group_id, asked).await;
                described.map(|mut topics| {
                    topics.retain(|topic| is_visible(&topic.topic_name));
                    topics
                })
            }
            Err(code) => Err(code),
        },
        Some(topics) => {
            let (visible, hidden): (Vec<_>, Vec<_>) = topics
                .into_iter()
                .partition(|topic| is_visible(&topic.topic_name));
            let (asked, unknown) = those_that_exist(broker, visible);
            let described = describe(broker, &group_id, asked).await;
            described.map(|mut topics| {
                topics.extend(unknown);
                topics.extend(hidden.into_iter().map(hidden_topic));
                topics
            })
        }
    };
    match described {
        Ok(topics) => answer(group_id, topics),
        Err(code) => Group {
            error_message: Some(code.message().into()),
            ..refused(code)
        },
    }
}

fn answer(group_id: ByteString, topics: Vec<Topic>) -> Group {
    Group {
        group_id,
        topics,
        ..Default::default()
    }
}

/// What the group's coordinator knows to be initialized.
fn all_partitions(broker: &Broker, group_id: &str) -> Result<Vec<Asked>, ErrorCode> {
    let shard = broker.groups.coordinator_of(broker, group_id)?;
    let initialized = shard.read(|groups| groups.initialized_share_partitions(group_id))?;
    let image = broker.metadata();
    let topics = initialized.into_iter();
    let asked = topics.filter_map(|(id, partitions)| {
        Some(Asked {
            id,
            name: image.topics.by_id(id)?.name.clone(),
            partitions: partitions.into_iter().collect(),
        })
    });
    Ok(asked.collect())
}

/// Of a topic that is not there nothing is known, which is no error.
fn those_that_exist(
    broker: &Broker,
    topics: Vec<DescribeShareGroupOffsetsRequestTopic>,
) -> (Vec<Asked>, Vec<Topic>) {
    let image = broker.metadata();
    let (mut asked, mut unknown) = (Vec::new(), Vec::new());
    for topic in topics {
        match image.topics.by_name(&topic.topic_name) {
            Some(registered) => asked.push(Asked {
                id: registered.id,
                name: topic.topic_name,
                partitions: topic.partitions,
            }),
            None => unknown.push(Topic {
                topic_name: topic.topic_name,
                partitions: topic.partitions.into_iter().map(nothing_of).collect(),
                ..Default::default()
            }),
        }
    }
    (asked, unknown)
}

fn hidden_topic(topic: DescribeShareGroupOffsetsRequestTopic) -> Topic {
    let partitions = topic.partitions.into_iter().map(|index| {
        let code = ErrorCode::TopicAuthorizationFailed;
        Partition {
            error_code: code.code(),
            error_message: Some(code.message().into()),
            ..nothing_of(index)
        }
    });
    Topic {
        topic_name: topic.topic_name,
        partitions: partitions.collect(),
        ..Default::default()
    }
}

fn nothing_of(partition_index: i32) -> Partition {
    Partition {
        partition_index,
        start_offset: -1,
        lag: -1,
        ..Default::default()
    }
}

async fn describe(
    broker: &Arc<Broker>,
    group_id: &ByteString,
    topics: Vec<Asked>,
) -> Result<Vec<Topic>, ErrorCode> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    // What Kafka's persister takes no request for.
    if group_id.is_empty() || topics.iter().any(|topic| topic.partitions.is_empty()) {
        return Err(ErrorCode::UnknownServerError);
    }
    let keys = topics.iter().flat_map(|topic| {
        topic.partitions.iter().map(|partition| SharePartitionKey {
            group_id: group_id.clone(),
            topic_id: topic.id,
            partition: *partition,
        })
    });
    let summaries = Persister::each(broker, keys.collect(), |broker, key| async move {
        Persister::read_state_summary(&broker, key).await
    });
    let mut summaries = summaries.await.into_iter();
    let topics: Vec<(Asked, Vec<StateSummary>)> = topics
        .into_iter()
        .map(|topic| {
            let summaries = summaries.by_ref().take(topic.partitions.len());
            let summaries = summaries.map(or_nothing).collect();
            (topic, summaries)
        })
        .collect();
    let begun = topics.iter().flat_map(|(topic, summaries)| {
        let partitions = topic.partitions.iter().zip(summaries);
        let begun = partitions.filter(|(_, summary)| has_lag(summary));
        begun.map(move |(partition, _)| (topic.name.clone(), *partition))
    });
    let latest = latest_offsets(broker, begun.collect()).await;
    let described = topics.into_iter().map(|(topic, summaries)| {
        let partitions = topic.partitions.iter().zip(summaries);
        let partitions = partitions.map(|(index, summary)| {
            let latest = latest.get(&(topic.name.clone(), *index));
            described_partition(*index, &summary, latest)
        });
        Topic {
            partitions: partitions.collect(),
            topic_name: topic.name.clone(),
            topic_id: topic.id,
            ..Default::default()
        }
    });
    Ok(described.collect())
}

/// A share partition that the share coordinator says nothing of is as good as one that nobody has read.
fn or_nothing(read: Result<StateSummary, StateFailure>) -> StateSummary {
    read.unwrap_or(StateSummary {
        state_epoch: 0,
        leader_epoch: LeaderEpoch(0),
        start_offset: Offset::UNKNOWN,
        delivery_complete_count: -1,
    })
}

fn has_lag(summary: &StateSummary) -> bool {
    summary.start_offset != Offset::UNKNOWN && summary.delivery_complete_count != -1
}

fn described_partition(
    partition_index: i32,
    summary: &StateSummary,
    latest: Option<&Result<Offset, ErrorCode>>,
) -> Partition {
    let known = Partition {
        start_offset: summary.start_offset.0,
        leader_epoch: summary.leader_epoch.0,
        ..nothing_of(partition_index)
    };
    match latest {
        None => known,
        Some(Ok(latest)) => {
            let delivered = i64::from(summary.delivery_complete_count);
            Partition {
                lag: latest.0 - summary.start_offset.0 - delivered,
                ..known
            }
        }
        Some(Err(code)) => Partition {
            partition_index,
            error_code: code.code(),
            error_message: Some(code.message().into()),
            ..Default::default()
        },
    }
}
