//! The topics that a group subscribes to, with the number of subscribers. Source:
//! `SubscriptionCount`, `ModernGroup.subscriptionType`, `ConsumerGroup.subscriptionType`.

use bytestring::ByteString;
use rpds::RedBlackTreeMapSync;

/// The number of subscriptions to a topic.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SubscriptionCount {
    /// The number of members that subscribe by name.
    pub by_name: u32,
    /// The number of the group's regular expressions that match the topic.
    pub by_regex: u32,
}

/// Whether all members have the same subscription, which makes assignments much cheaper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SubscriptionType {
    Homogeneous,
    Heterogeneous,
}

/// The topics that a group subscribes to. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SubscribedTopics {
    counts: RedBlackTreeMapSync<ByteString, SubscriptionCount>,
}

impl Default for SubscribedTopics {
    fn default() -> Self {
        SubscribedTopics {
            counts: RedBlackTreeMapSync::new_sync(),
        }
    }
}

impl SubscribedTopics {
    /// In the order of their names.
    pub fn names(&self) -> impl Iterator<Item = &ByteString> {
        self.counts.keys()
    }

    pub fn contains(&self, topic: &str) -> bool {
        self.counts.contains_key(topic)
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    pub fn add_names<'a>(&mut self, topics: impl IntoIterator<Item = &'a ByteString>) {
        self.change(topics, |count| count.by_name += 1);
    }

    pub fn remove_names<'a>(&mut self, topics: impl IntoIterator<Item = &'a ByteString>) {
        self.change(topics, |count| {
            count.by_name = count.by_name.saturating_sub(1);
        });
    }

    pub fn add_matches<'a>(&mut self, topics: impl IntoIterator<Item = &'a ByteString>) {
        self.change(topics, |count| count.by_regex += 1);
    }

    pub fn remove_matches<'a>(&mut self, topics: impl IntoIterator<Item = &'a ByteString>) {
        self.change(topics, |count| {
            count.by_regex = count.by_regex.saturating_sub(1);
        });
    }

    fn change<'a>(
        &mut self,
        topics: impl IntoIterator<Item = &'a ByteString>,
        act: impl Fn(&mut SubscriptionCount),
    ) {
        for topic in topics {
            let mut count = self.counts.get(topic).copied().unwrap_or_default();
            act(&mut count);
            if count == SubscriptionCount::default() {
                self.counts.remove_mut(topic);
            } else {
                self.counts.insert_mut(topic.clone(), count);
            }
        }
    }

    /// For a group whose members all subscribe by name.
    pub fn subscription_type(&self, num_members: usize) -> SubscriptionType {
        let is_of_all = |count: &SubscriptionCount| count.by_name as usize == num_members;
        if self.counts.values().all(is_of_all) {
            SubscriptionType::Homogeneous
        } else {
            SubscriptionType::Heterogeneous
        }
    }

    /// For a group in which `num_of_one_regex` members share one of its regular expressions.
    pub fn subscription_type_with_regexes(
        &self,
        num_of_one_regex: usize,
        num_members: usize,
    ) -> SubscriptionType {
        let is_of_the_regex = |count: &SubscriptionCount| count.by_regex == 1 && count.by_name == 0;
        if num_of_one_regex == num_members && self.counts.values().all(is_of_the_regex) {
            SubscriptionType::Homogeneous
        } else {
            SubscriptionType::Heterogeneous
        }
    }
}

#[cfg(test)]
mod tests {
    use bytestring::ByteString;

    use super::{SubscribedTopics, SubscriptionType};

    fn names(topics: &[&'static str]) -> Vec<ByteString> {
        topics.iter().map(|topic| (*topic).into()).collect()
    }

    #[test]
    fn a_topic_is_subscribed_to_until_its_last_subscriber_is_gone() {
        let mut topics = SubscribedTopics::default();
        topics.add_names(&names(&["a", "b"]));
        topics.add_names(&names(&["a"]));
        topics.add_matches(&names(&["b", "c"]));
        topics.remove_names(&names(&["a", "b"]));
        let left: Vec<&str> = topics.names().map(|name| &**name).collect();
        assert_eq!(left, ["a", "b", "c"]);
        topics.remove_matches(&names(&["b", "c"]));
        topics.remove_names(&names(&["a"]));
        assert!(topics.is_empty());
        topics.remove_names(&names(&["never there"]));
        assert!(topics.is_empty());
    }

    #[test]
    fn members_agree_if_all_name_the_same_topics_or_all_share_one_regex() {
        use SubscriptionType::{Heterogeneous, Homogeneous};
        let mut topics = SubscribedTopics::default();
        assert_eq!(topics.subscription_type(3), Homogeneous);
        topics.add_names(&names(&["a", "b"]));
        topics.add_names(&names(&["a", "b"]));
        assert_eq!(topics.subscription_type(2), Homogeneous);
        assert_eq!(topics.subscription_type(3), Heterogeneous);

        let mut topics = SubscribedTopics::default();
        topics.add_matches(&names(&["a", "b"]));
        assert_eq!(topics.subscription_type_with_regexes(2, 2), Homogeneous);
        assert_eq!(topics.subscription_type_with_regexes(1, 2), Heterogeneous);
        topics.add_names(&names(&["b"]));
        assert_eq!(topics.subscription_type_with_regexes(2, 2), Heterogeneous);
    }
}
