//! The topic metadata that the groups of a coordinator use, and which groups to refresh when a
//! topic changes.
//!
//! None of it is versioned or written to the log. A group that reads a topic's metadata is
//! registered for that topic. When the topic changes, the registration is removed and the group
//! must refresh, which registers it again. A group that is no longer subscribed refreshes once too
//! often, which is harmless, so nothing has to be unregistered. Source:
//! `GroupMetadataManager.onMetadataUpdate`, `groupsByTopics`, `topicHashCache`.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::{MetadataDelta, MetadataImage};

use super::{MetadataRefresh, SubscribedTopics, TopicHashes};

#[derive(Debug, Default)]
pub struct GroupsMetadata {
    image: Arc<MetadataImage>,
    hashes: TopicHashes,
    /// Groups without an entry must refresh at once.
    refreshes: HashMap<ByteString, MetadataRefresh>,
    /// The groups to refresh when a topic changes, by topic name.
    groups_by_topic: HashMap<ByteString, HashSet<ByteString>>,
    /// The version of the last image with topics that the previous image did not have.
    version_with_new_topics: Option<i64>,
}

impl GroupsMetadata {
    pub fn image(&self) -> &Arc<MetadataImage> {
        &self.image
    }

    pub fn version(&self) -> i64 {
        version_of(&self.image)
    }

    /// Regular expressions that were resolved with an older image may match more topics now.
    pub fn version_with_new_topics(&self) -> i64 {
        self.version_with_new_topics.unwrap_or(-1)
    }

    /// Sets the first image.
    pub fn begin(&mut self, image: Arc<MetadataImage>) {
        self.version_with_new_topics = Some(version_of(&image));
        self.image = image;
        self.hashes.clear();
        self.refreshes.clear();
        self.groups_by_topic.clear();
    }

    pub fn on_changed(&mut self, image: Arc<MetadataImage>, delta: &MetadataDelta) {
        let topics = &delta.topics;
        if !topics.created.is_empty() || self.version_with_new_topics.is_none() {
            self.version_with_new_topics = Some(version_of(&image));
        }
        let changed = topics
            .changed
            .keys()
            .chain(&topics.created)
            .filter_map(|id| image.topics.by_id(*id));
        for topic in changed.chain(topics.deleted.values()) {
            self.hashes.forget(&topic.name);
            for group_id in self
                .groups_by_topic
                .remove(&topic.name)
                .into_iter()
                .flatten()
            {
                self.refreshes.remove(&group_id);
            }
        }
        self.image = image;
    }

    /// The hash of the topics of a group, which is registered for their changes.
    pub fn look(&mut self, group_id: &ByteString, topics: &SubscribedTopics) -> i64 {
        self.look_at(group_id, topics.names())
    }

    /// The same for `topics` in the order of their names.
    pub fn look_at<'a>(
        &mut self,
        group_id: &ByteString,
        topics: impl Iterator<Item = &'a ByteString>,
    ) -> i64 {
        let topics: Vec<&ByteString> = topics.collect();
        for topic in &topics {
            let groups = self.groups_by_topic.entry((*topic).clone()).or_default();
            if !groups.contains(group_id) {
                groups.insert(group_id.clone());
            }
        }
        self.hashes.group_hash(topics.into_iter(), &self.image)
    }

    pub fn is_look_due(&self, group_id: &str, now_ms: i64, group_epoch: i32) -> bool {
        let refresh = self.refreshes.get(group_id).copied().unwrap_or_default();
        refresh.is_due(now_ms, group_epoch)
    }

    /// The group has been refreshed, and is or will be in `group_epoch`.
    pub fn has_looked(&mut self, group_id: &ByteString, now_ms: i64, group_epoch: i32) {
        self.refreshes
            .insert(group_id.clone(), MetadataRefresh::done(now_ms, group_epoch));
    }

    /// The group was deleted, or replaced by one of another kind.
    pub fn forget_group(&mut self, group_id: &str) {
        self.refreshes.remove(group_id);
    }
}

fn version_of(image: &MetadataImage) -> i64 {
    image.provenance.last_contained_offset.value()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytestring::ByteString;
    use ottla_metadata::MetadataImage;

    use super::GroupsMetadata;
    use crate::group::modern::SubscribedTopics;
    use crate::group::modern::test_image::TestImage;

    #[test]
    fn groups_refresh_when_a_subscribed_topic_changes() {
        let group: ByteString = "g".into();
        let mut topics = SubscribedTopics::default();
        topics.add_names(&["a".into(), "later".into()]);
        let mut metadata = GroupsMetadata::default();
        let first = TestImage::new().topic("a", 1).topic("b", 1).build();
        metadata.begin(Arc::new(first.clone()));

        assert!(metadata.is_look_due("g", 1_000, 1));
        let hash = metadata.look(&group, &topics);
        metadata.has_looked(&group, 1_000, 1);
        assert!(!metadata.is_look_due("g", 1_000, 1));

        let change = |metadata: &mut GroupsMetadata, before: &MetadataImage, add: TestImage| {
            let (image, delta) = add.after(before);
            metadata.on_changed(Arc::new(image.clone()), &delta);
            image
        };
        let second = change(&mut metadata, &first, TestImage::new().partition("b", 1));
        assert!(!metadata.is_look_due("g", 1_000, 1), "b is not its topic");
        assert_eq!(metadata.version_with_new_topics(), 0);

        let third = change(&mut metadata, &second, TestImage::new().topic("later", 1));
        assert!(metadata.is_look_due("g", 1_000, 1));
        assert_eq!(metadata.version_with_new_topics(), metadata.version());
        let with_later = metadata.look(&group, &topics);
        assert_ne!(with_later, hash);
        metadata.has_looked(&group, 1_000, 2);

        change(&mut metadata, &third, TestImage::new().without("later"));
        assert!(metadata.is_look_due("g", 1_000, 2));
        assert_eq!(metadata.look(&group, &topics), hash);
    }
}
