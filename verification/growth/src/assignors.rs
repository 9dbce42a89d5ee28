//! The assignors of consumer groups.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytestring::ByteString;
use ottla_coordinator::group::modern::assignors::UniformAssignor;
use ottla_coordinator::group::modern::{
    Assignor, GroupSpec, MemberSpec, Subscription, SubscriptionType,
};
use ottla_metadata::{MetadataImage, Provenance};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionRecord, TopicRecord};
use ottla_types::TopicId;

use crate::measure::{Row, best_of};

pub const SAME_TOPICS: Row = Row {
    name: "assignor",
    operation: "one partition of a first assignment, if all members read the same topics",
    counted: "partitions, 10 per member",
    smallest: 100,
    measure: same_topics,
};

pub const OTHER_TOPICS: Row = Row {
    name: "assignor-of-other-topics",
    operation: "one partition of a first assignment, if half of the members read one of two topics",
    counted: "partitions, 10 per member",
    smallest: 100,
    measure: other_topics,
};

const PARTITIONS_OF_MEMBER: u64 = 10;
static TOPICS: [&str; 2] = ["orders", "payments"];

fn same_topics(count: u64) -> Duration {
    one_partition(count, SubscriptionType::Homogeneous, |_| &TOPICS)
}

fn other_topics(count: u64) -> Duration {
    one_partition(count, SubscriptionType::Heterogeneous, |member| {
        &TOPICS[..1 + member as usize % 2]
    })
}

fn one_partition(
    count: u64,
    subscription_type: SubscriptionType,
    topics_of: impl Fn(u64) -> &'static [&'static str],
) -> Duration {
    let image = image(count as i32 / TOPICS.len() as i32);
    let members = (0..count / PARTITIONS_OF_MEMBER).map(|member| {
        let topics = topics_of(member).iter().copied().map(ByteString::from);
        let member_id = ByteString::from(format!("{member:08}"));
        (member_id, topics.collect::<BTreeSet<_>>())
    });
    let members: BTreeMap<ByteString, BTreeSet<ByteString>> = members.collect();
    let specs = members.iter().map(|(member_id, names)| {
        let subscription = Subscription {
            names,
            matches: None,
        };
        let spec = MemberSpec::new(None, None, subscription, None, &image);
        (member_id.clone(), spec)
    });
    let spec = GroupSpec {
        members: specs.collect(),
        subscription_type,
        image: &image,
        assignable: None,
    };
    best_of(count as u32, || {
        let assigned = UniformAssignor.assign(&spec).expect("an assignment");
        let partitions = assigned.values().map(|it| it.iter().count());
        assert_eq!(partitions.sum::<usize>() as u64, count);
    })
}

/// The topics, with `partitions` partitions each.
fn image(partitions: i32) -> MetadataImage {
    let mut records = Vec::new();
    for (number, &name) in TOPICS.iter().enumerate() {
        let topic_id = TopicId::from_u128(7 + number as u128);
        records.push(MetadataRecord::Topic(TopicRecord {
            name: name.into(),
            topic_id,
            ..Default::default()
        }));
        records.extend((0..partitions).map(|partition_id| {
            MetadataRecord::Partition(PartitionRecord {
                topic_id,
                partition_id,
                replicas: vec![1],
                isr: vec![1],
                leader: 1,
                ..Default::default()
            })
        }));
    }
    let applied = MetadataImage::empty().apply(&records, Provenance::EMPTY);
    applied.expect("good records").0
}
