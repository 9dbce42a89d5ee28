//! DescribeShareGroupOffsets: the start offsets and lags of share groups. Kafka:
//! `KafkaApis.handleDescribeShareGroupOffsetsRequest`,
//! `GroupCoordinatorService.describeShareGroupOffsets`.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_coordinator::persister::{SharePartitionKey, StateSummary};
use ottla_metadata::TopicsImage;
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

use ottla_coordination::share_groups;
use ottla_net::{Operation, RequestContext, ResourceType};

use crate::Broker;
use ottla_coordination::at_once::each_at_once;
use ottla_coordination::share_groups::{ReadSummary, latest_offsets, persister};

type Group = DescribeShareGroupOffsetsResponseGroup;
type Topic = DescribeShareGroupOffsetsResponseTopic;
type Partition = DescribeShareGroupOffsetsResponsePartition;

/// Per request. Each group is queried for several partitions at a time.
const GROUPS_AT_ONCE: usize = 16;

/// An existing topic, and the requested partitions, which may not exist.
struct RequestedTopic {
    id: TopicId,
    name: ByteString,
    partition_count: usize,
    /// None is negative.
    partitions: BTreeSet<i32>,
}

impl RequestedTopic {
    fn exists(&self, partition: i32) -> bool {
        usize::try_from(partition).is_ok_and(|index| index < self.partition_count)
    }
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
    if !share_groups::are_enabled(&broker.share_groups) {
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
            let exist = those_that_exist(&broker.metadata().topics, visible);
            match exist {
                Ok((asked, unknown)) => {
                    let described = describe(broker, &group_id, asked).await;
                    described.map(|mut topics| {
                        topics.extend(unknown);
                        topics.extend(hidden.into_iter().map(hidden_topic));
                        topics
                    })
                }
                Err(code) => Err(code),
            }
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

/// The partitions that the group's coordinator has initialised.
fn all_partitions(broker: &Broker, group_id: &str) -> Result<Vec<RequestedTopic>, ErrorCode> {
    let shard = broker.groups.coordinator_of(group_id)?;
    let initialized = shard.read(|groups| groups.initialized_share_partitions(group_id))?;
    let image = broker.metadata();
    let topics = initialized.into_iter();
    let asked = topics.filter_map(|(id, partitions)| {
        let registered = image.topics.by_id(id)?;
        Some(RequestedTopic {
            id,
            name: registered.name.clone(),
            partition_count: registered.partition_count(),
            partitions,
        })
    });
    Ok(asked.collect())
}

/// Splits topics into existing and unknown ones; an unknown topic is not an error. Duplicates are
/// removed, as by Kafka's persister. Returns an error for requests that Kafka's persister rejects.
fn those_that_exist(
    image: &TopicsImage,
    topics: Vec<DescribeShareGroupOffsetsRequestTopic>,
) -> Result<(Vec<RequestedTopic>, Vec<Topic>), ErrorCode> {
    let (mut asked, mut unknown) = (Vec::<RequestedTopic>::new(), Vec::new());
    let mut index_of: HashMap<TopicId, usize> = HashMap::new();
    for topic in topics {
        match image.by_name(&topic.topic_name) {
            Some(registered) => {
                if topic.partitions.is_empty() || topic.partitions.iter().any(|it| *it < 0) {
                    return Err(ErrorCode::UnknownServerError);
                }
                let index = *index_of.entry(registered.id).or_insert_with(|| {
                    asked.push(RequestedTopic {
                        id: registered.id,
                        name: topic.topic_name,
                        partition_count: registered.partition_count(),
                        partitions: BTreeSet::new(),
                    });
                    asked.len() - 1
                });
                asked[index].partitions.extend(topic.partitions);
            }
            None => unknown.push(Topic {
                topic_name: topic.topic_name,
                partitions: topic.partitions.into_iter().map(nothing_of).collect(),
                ..Default::default()
            }),
        }
    }
    Ok((asked, unknown))
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
    topics: Vec<RequestedTopic>,
) -> Result<Vec<Topic>, ErrorCode> {
    if topics.is_empty() {
        return Ok(Vec::new());
    }
    // Kafka's persister rejects such requests.
    if group_id.is_empty() || topics.iter().any(|topic| topic.partitions.is_empty()) {
        return Err(ErrorCode::UnknownServerError);
    }
    let keys = keys_of(group_id, &topics).into_iter();
    let questions = keys.map(|key| ReadSummary { key }).collect();
    let coordinators = &broker.share_groups.coordinators;
    let summaries = persister::each(coordinators, questions).await;
    let mut summaries = summaries.into_iter();
    let topics: Vec<(RequestedTopic, Vec<StateSummary>)> = topics
        .into_iter()
        .map(|topic| {
            let partitions = topic.partitions.iter();
            let summary_of = |partition: &i32| match topic.exists(*partition) {
                true => summaries.next().and_then(Result::ok),
                false => None,
            };
            let read = partitions.map(summary_of);
            let read = read.map(|it| it.unwrap_or(NOTHING)).collect();
            (topic, read)
        })
        .collect();
    let begun = topics.iter().flat_map(|(topic, summaries)| {
        let partitions = topic.partitions.iter().zip(summaries);
        let begun = partitions.filter(|(_, summary)| has_lag(summary));
        begun.map(move |(partition, _)| (topic.name.clone(), *partition))
    });
    let latest = latest_offsets(coordinators, begun.collect()).await;
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

/// The partitions to ask the share coordinators about.
fn keys_of(group_id: &ByteString, topics: &[RequestedTopic]) -> Vec<SharePartitionKey> {
    let keys = topics.iter().flat_map(|topic| {
        let partitions = topic.partitions.iter().filter(|it| topic.exists(**it));
        partitions.map(|partition| SharePartitionKey {
            group_id: group_id.clone(),
            topic_id: topic.id,
            partition: *partition,
        })
    });
    keys.collect()
}

/// The state of a share partition that does not exist, or that the share coordinator does not know:
/// nothing has been read.
const NOTHING: StateSummary = StateSummary {
    state_epoch: 0,
    leader_epoch: LeaderEpoch(0),
    start_offset: Offset::UNKNOWN,
    delivery_complete_count: -1,
};

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
            let since_start = latest.0.saturating_sub(summary.start_offset.0);
            Partition {
                // An administrator may have set any start offset.
                lag: since_start.saturating_sub(delivered),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::TestBroker;

    fn asking(topic: &'static str, partitions: &[i32]) -> DescribeShareGroupOffsetsRequestTopic {
        DescribeShareGroupOffsetsRequestTopic {
            topic_name: topic.into(),
            partitions: partitions.to_vec(),
            ..Default::default()
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_share_coordinator_gets_one_request() {
        let broker = TestBroker::start().await;
        broker.create_topic("t", 2, &[]).await;
        let image = Arc::clone(&broker.broker().metadata());
        let topics = vec![
            asking("t", &[1, 1, i32::MAX]),
            asking("nowhere", &[0, -1]),
            asking("t", &[2, 1, 0]),
        ];
        let (asked, unknown) = those_that_exist(&image.topics, topics).expect("it may be asked");
        let keys = keys_of(&"g".into(), &asked);
        let numbers: Vec<i32> = keys.iter().map(|key| key.partition).collect();
        assert_eq!(numbers, [0, 1]);
        assert_eq!(
            Vec::from_iter(&asked[0].partitions),
            [&0, &1, &2, &i32::MAX]
        );
        assert_eq!((asked.len(), unknown.len()), (1, 1));
        for refused in [&[0, -1][..], &[]] {
            let topics = vec![asking("t", &[0]), asking("t", refused)];
            let refused = those_that_exist(&image.topics, topics).err();
            assert_eq!(refused, Some(ErrorCode::UnknownServerError));
        }
    }

    #[test]
    fn the_lag_of_any_start_offset_is_a_number() {
        let lag_at = |start_offset| {
            let summary = StateSummary {
                start_offset: Offset(start_offset),
                delivery_complete_count: 2,
                ..NOTHING
            };
            described_partition(0, &summary, Some(&Ok(Offset(10)))).lag
        };
        assert_eq!([lag_at(5), lag_at(-5)], [3, 13]);
        assert_eq!(lag_at(i64::MIN), i64::MAX - 2);
        assert_eq!(lag_at(i64::MAX), 10 - i64::MAX - 2);
    }
}
