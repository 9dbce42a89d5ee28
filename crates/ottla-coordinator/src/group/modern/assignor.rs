//! The input and the output of assignors. Source: `ConsumerGroupPartitionAssignor`, `GroupSpec`,
//! `TopicIds`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_types::TopicId;
use thiserror::Error;

use super::{Assignment, SubscriptionType};

/// The new assignment by member id. A member without an entry gets nothing.
pub type GroupAssignment = BTreeMap<ByteString, Arc<Assignment>>;

pub trait Assignor: Send + Sync {
    /// The name in requests and settings.
    fn name(&self) -> &'static str;

    fn assign(&self, spec: &GroupSpec<'_>) -> Result<GroupAssignment, AssignorError>;
}

/// The assignment failed. The text is a message for people.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("{0}")]
pub struct AssignorError(pub String);

/// The group as an assignor sees it.
pub struct GroupSpec<'a> {
    /// In the order of their ids, which makes assignments deterministic.
    pub members: BTreeMap<ByteString, MemberSpec<'a>>,
    pub subscription_type: SubscriptionType,
    pub image: &'a MetadataImage,
    /// The partitions that can be assigned; `None` for all.
    pub assignable: Option<&'a Assignment>,
}

pub struct MemberSpec<'a> {
    pub instance_id: Option<&'a ByteString>,
    pub rack_id: Option<&'a ByteString>,
    pub subscription: Subscription<'a>,
    /// The previous target assignment, without partitions that do not exist.
    pub assignment: Arc<Assignment>,
}

/// The topics that a member subscribes to: by name and by its regular expression.
#[derive(Clone, Copy)]
pub struct Subscription<'a> {
    pub names: &'a BTreeSet<ByteString>,
    pub matches: Option<&'a BTreeSet<ByteString>>,
}

impl<'a> Subscription<'a> {
    pub fn is_empty(&self) -> bool {
        self.names.is_empty() && self.matches.is_none_or(BTreeSet::is_empty)
    }

    /// The topics that exist, each once.
    pub fn topic_ids(self, image: &'a MetadataImage) -> impl Iterator<Item = TopicId> + 'a {
        let matches = self.matches.into_iter().flatten();
        let only_matched = matches.filter(move |name| !self.names.contains(*name));
        self.names
            .iter()
            .chain(only_matched)
            .filter_map(|name| image.topics.by_name(name).map(|topic| topic.id))
    }

    pub fn contains(&self, topic_id: TopicId, image: &MetadataImage) -> bool {
        // A deleted topic may have been created again with another id.
        image.topics.by_id(topic_id).is_some_and(|topic| {
            self.names.contains(&topic.name)
                || self.matches.is_some_and(|it| it.contains(&topic.name))
        })
    }
}

impl<'a> MemberSpec<'a> {
    pub fn new(
        instance_id: Option<&'a ByteString>,
        rack_id: Option<&'a ByteString>,
        subscription: Subscription<'a>,
        assignment: Option<&Arc<Assignment>>,
        image: &MetadataImage,
    ) -> Self {
        MemberSpec {
            instance_id,
            rack_id,
            subscription,
            assignment: assignment
                .map(|assignment| existing(assignment, image))
                .unwrap_or_default(),
        }
    }
}

/// Removes partitions that do not exist, which a damaged log can contain.
fn existing(assignment: &Arc<Assignment>, image: &MetadataImage) -> Arc<Assignment> {
    let exists = |topic_id: TopicId, partition: i32| {
        let index = usize::try_from(partition).ok();
        match (image.topics.by_id(topic_id), index) {
            (Some(topic), Some(index)) => index < topic.partition_count(),
            // The assignors remove topics that no longer exist.
            (None, Some(_)) => true,
            (_, None) => false,
        }
    };
    if assignment
        .iter()
        .all(|(topic_id, index)| exists(topic_id, index))
    {
        Arc::clone(assignment)
    } else {
        Arc::new(assignment.filtered(exists))
    }
}

impl GroupSpec<'_> {
    /// The number of partitions of a subscribed topic.
    pub fn num_partitions(&self, topic_id: TopicId) -> usize {
        self.image
            .topics
            .by_id(topic_id)
            .map_or(0, |topic| topic.partition_count())
    }

    pub fn is_assignable(&self, topic_id: TopicId, partition: i32) -> bool {
        self.assignable
            .is_none_or(|assignable| assignable.contains(topic_id, partition))
    }
}
