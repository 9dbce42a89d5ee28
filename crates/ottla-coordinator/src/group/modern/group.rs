//! The common state of groups whose partitions the coordinator assigns. Cheap to clone.
//!
//! Invariant: `subscribed_topics` counts the topics that the members subscribe to by name. A kind
//! of group with other subscriptions adds those. Source: `ModernGroup`.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use bytestring::ByteString;
use rpds::RedBlackTreeMapSync;

use super::{SubscribedTopics, TargetAssignment};

/// The fields of a member that the group needs.
pub trait ModernMember {
    /// The assignment of a member: partitions or tasks.
    type Assignment: Clone + Debug;

    fn member_id(&self) -> &ByteString;

    /// Of a static member.
    fn instance_id(&self) -> Option<&ByteString> {
        None
    }

    fn subscribed_topic_names(&self) -> &BTreeSet<ByteString>;
}

#[derive(Debug)]
pub struct ModernGroup<M: ModernMember> {
    pub group_id: ByteString,
    /// Raised whenever a new target assignment is needed.
    pub group_epoch: i32,
    /// The hash of the topics when the group was last refreshed (`topic_hash.rs`).
    pub metadata_hash: i64,
    pub target: TargetAssignment<M::Assignment>,
    subscribed_topics: SubscribedTopics,
    members: RedBlackTreeMapSync<ByteString, Arc<M>>,
    /// Member ids by instance id.
    static_members: RedBlackTreeMapSync<ByteString, ByteString>,
}

impl<M: ModernMember> Clone for ModernGroup<M> {
    fn clone(&self) -> Self {
        ModernGroup {
            group_id: self.group_id.clone(),
            group_epoch: self.group_epoch,
            metadata_hash: self.metadata_hash,
            target: self.target.clone(),
            subscribed_topics: self.subscribed_topics.clone(),
            members: self.members.clone(),
            static_members: self.static_members.clone(),
        }
    }
}

impl<M: ModernMember> ModernGroup<M> {
    pub fn new(group_id: ByteString) -> Self {
        ModernGroup {
            group_id,
            group_epoch: 1,
            metadata_hash: 0,
            target: TargetAssignment::default(),
            subscribed_topics: SubscribedTopics::default(),
            members: RedBlackTreeMapSync::new_sync(),
            static_members: RedBlackTreeMapSync::new_sync(),
        }
    }

    /// In the order of their ids.
    pub fn members(&self) -> impl Iterator<Item = &Arc<M>> {
        self.members.values()
    }

    pub fn member(&self, member_id: &str) -> Option<&Arc<M>> {
        self.members.get(member_id)
    }

    pub fn static_member_id(&self, instance_id: &str) -> Option<&ByteString> {
        self.static_members.get(instance_id)
    }

    pub fn static_member(&self, instance_id: &str) -> Option<&Arc<M>> {
        self.member(self.static_member_id(instance_id)?)
    }

    pub fn has_member(&self, member_id: &str) -> bool {
        self.members.contains_key(member_id)
    }

    pub fn num_members(&self) -> usize {
        self.members.size()
    }

    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Adds a member, or replaces the member with the same id, which is returned.
    pub fn update_member(&mut self, member: Arc<M>) -> Option<Arc<M>> {
        let former = self.members.get(member.member_id()).cloned();
        if let Some(former) = &former {
            self.subscribed_topics
                .remove_names(former.subscribed_topic_names());
        }
        self.subscribed_topics
            .add_names(member.subscribed_topic_names());
        if let Some(instance_id) = member.instance_id() {
            self.static_members
                .insert_mut(instance_id.clone(), member.member_id().clone());
        }
        self.members.insert_mut(member.member_id().clone(), member);
        former
    }

    pub fn remove_member(&mut self, member_id: &str) -> Option<Arc<M>> {
        let removed = self.members.get(member_id).cloned()?;
        self.subscribed_topics
            .remove_names(removed.subscribed_topic_names());
        if let Some(instance_id) = removed.instance_id() {
            self.static_members.remove_mut(instance_id);
        }
        self.members.remove_mut(member_id);
        Some(removed)
    }

    pub fn subscribed_topics(&self) -> &SubscribedTopics {
        &self.subscribed_topics
    }

    /// For subscriptions that are not by name.
    pub fn subscribed_topics_mut(&mut self) -> &mut SubscribedTopics {
        &mut self.subscribed_topics
    }
}
