//! Random groups that change step by step. After each step the assignment must be valid and
//! balanced, and no more partitions may have moved than necessary.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytestring::ByteString;
use ottla_metadata::MetadataImage;
use ottla_types::TopicId;

use super::{RangeAssignor, UniformAssignor};
use crate::group::modern::assignor::GroupAssignment;
use crate::group::modern::test_image::{TestImage, topic_id};
use crate::group::modern::{
    Assignment, Assignor, GroupSpec, MemberSpec, Subscription, SubscriptionType,
};

const TOPICS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A group with the subscriptions and assignments of its members.
struct Model {
    image: MetadataImage,
    members: BTreeMap<ByteString, BTreeSet<ByteString>>,
    target: GroupAssignment,
}

impl Model {
    fn new(image: MetadataImage) -> Self {
        Model {
            image,
            members: BTreeMap::new(),
            target: GroupAssignment::new(),
        }
    }

    fn subscribe(&mut self, member: &str, topics: &[&'static str]) {
        let topics = topics
            .iter()
            .map(|topic| ByteString::from(*topic))
            .collect();
        self.members.insert(member.to_owned().into(), topics);
    }

    fn leave(&mut self, member: &str) {
        self.members.remove(member);
        self.target.remove(member);
    }

    fn is_homogeneous(&self) -> bool {
        let mut subscriptions = self.members.values();
        let first = subscriptions.next();
        subscriptions.all(|topics| Some(topics) == first)
    }

    fn assign(&mut self, assignor: &dyn Assignor) -> usize {
        let members = self.members.iter().map(|(member_id, topics)| {
            let subscription = Subscription {
                names: topics,
                matches: None,
            };
            let former = self.target.get(member_id);
            let spec = MemberSpec::new(None, None, subscription, former, &self.image);
            (member_id.clone(), spec)
        });
        let spec = GroupSpec {
            members: members.collect(),
            subscription_type: if self.is_homogeneous() {
                SubscriptionType::Homogeneous
            } else {
                SubscriptionType::Heterogeneous
            },
            image: &self.image,
            assignable: None,
        };
        let target = assignor.assign(&spec).expect("assigned");
        let moved = target
            .iter()
            .map(|(member_id, assignment)| {
                let former = self.target.get(member_id).cloned().unwrap_or_default();
                former
                    .iter()
                    .filter(|(topic, partition)| !assignment.contains(*topic, *partition))
                    .count()
            })
            .sum();
        self.target = target;
        moved
    }

    /// Every subscribed partition must have exactly one owner, which must be a subscriber.
    fn check(&self) {
        let mut owners: BTreeMap<(TopicId, i32), &ByteString> = BTreeMap::new();
        for (member_id, assignment) in &self.target {
            for (topic, partition) in assignment.iter() {
                let former = owners.insert((topic, partition), member_id);
                assert_eq!(former, None, "{topic}-{partition} has two owners");
                let name = &self.image.topics.by_id(topic).expect("exists").name;
                assert!(
                    self.members[member_id].contains(name),
                    "{member_id} does not want {name}"
                );
            }
        }
        let wanted: BTreeSet<&ByteString> = self.members.values().flatten().collect();
        let wanted: usize = wanted
            .iter()
            .filter_map(|name| self.image.topics.by_name(name))
            .map(|topic| topic.partition_count())
            .sum();
        assert_eq!(owners.len(), wanted);
    }

    fn loads(&self) -> Vec<usize> {
        self.target.values().map(|it| it.len()).collect()
    }

    /// For every topic, no subscriber may have two partitions more than another, unless it has none
    /// of that topic.
    fn check_even(&self) {
        for topic in self.image.topics.iter() {
            let subscribers = || {
                self.members
                    .iter()
                    .filter(|(_, topics)| topics.contains(&topic.name))
                    .map(|(member_id, _)| &self.target[member_id])
            };
            let fewest = subscribers().map(|it| it.len()).min().unwrap_or(0);
            let gives = |assignment: &&Arc<Assignment>| assignment.of_topic(topic.id).is_some();
            let most = subscribers().filter(gives).map(|it| it.len()).max();
            let most = most.unwrap_or(0);
            assert!(
                most <= fewest + 1,
                "{}: {fewest} and {most} in {:?}",
                topic.name,
                self.loads()
            );
        }
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

fn image(random: &mut Random) -> MetadataImage {
    let mut image = TestImage::new();
    for topic in TOPICS {
        image = image.topic(topic, random.below(12) as i32);
    }
    image.build()
}

#[test]
fn members_that_want_the_same_get_the_same_and_keep_it() {
    for seed in 1..200 {
        let mut random = Random(seed);
        let mut group = Model::new(image(&mut random));
        for step in 0..12 {
            let name = format!("m{}", random.below(8));
            if step < 3 || random.below(2) == 0 {
                group.subscribe(&name, &TOPICS);
            } else {
                group.leave(&name);
            }
            if group.members.is_empty() {
                continue;
            }
            let before = group.loads();
            let moved = group.assign(&UniformAssignor);
            group.check();
            let loads = group.loads();
            let (most, fewest) = (loads.iter().max(), loads.iter().min());
            assert!(
                most.unwrap() - fewest.unwrap() <= 1,
                "seed {seed}: {loads:?}"
            );
            // A new member takes no more than its share.
            let share = fewest.unwrap() + 1;
            assert!(
                moved <= share,
                "seed {seed}: {moved} moved, {before:?} to {loads:?}"
            );
            assert_eq!(group.assign(&UniformAssignor), 0, "nothing has changed");
        }
    }
}

#[test]
fn members_that_want_different_topics_are_even_within_each_topic() {
    for seed in 1..300 {
        let mut random = Random(seed);
        let mut group = Model::new(image(&mut random));
        for step in 0..12 {
            let name = format!("m{}", random.below(6));
            if step < 3 || random.below(3) > 0 {
                let topics: Vec<&str> = TOPICS
                    .into_iter()
                    .filter(|_| random.below(2) == 0)
                    .collect();
                group.subscribe(&name, &topics);
            } else {
                group.leave(&name);
            }
            if group.members.is_empty() {
                continue;
            }
            group.assign(&UniformAssignor);
            group.check();
            if !group.is_homogeneous() {
                group.check_even();
            }
        }
    }
}

#[test]
fn ranges_of_topics_with_as_many_partitions_go_together() {
    let image = TestImage::new().topic("a", 5).topic("b", 5).topic("c", 1);
    let mut group = Model::new(image.build());
    for member in ["m1", "m2", "m3"] {
        group.subscribe(member, &["a", "b"]);
    }
    group.subscribe("m2", &["a", "b", "c"]);
    group.assign(&RangeAssignor);
    group.check();
    let partitions = |member: &str, topic: &str| -> Vec<i32> {
        let of_topic = group.target[member].of_topic(topic_id(topic));
        of_topic.into_iter().flatten().copied().collect()
    };
    for topic in ["a", "b"] {
        assert_eq!(partitions("m1", topic), [0, 1]);
        assert_eq!(partitions("m2", topic), [2, 3]);
        assert_eq!(partitions("m3", topic), [4]);
    }
    assert_eq!(partitions("m2", "c"), [0]);
}

#[test]
fn static_members_come_first_in_ranges() {
    let image = TestImage::new().topic("a", 3).build();
    let topics: BTreeSet<ByteString> = [ByteString::from("a")].into();
    let subscription = Subscription {
        names: &topics,
        matches: None,
    };
    let (second, first): (ByteString, ByteString) = ("i2".into(), "i1".into());
    let member = |instance| MemberSpec::new(instance, None, subscription, None, &image);
    let spec = GroupSpec {
        members: BTreeMap::from([
            ("m1".into(), member(None)),
            ("m2".into(), member(Some(&second))),
            ("m3".into(), member(Some(&first))),
        ]),
        subscription_type: SubscriptionType::Homogeneous,
        image: &image,
        assignable: None,
    };
    let target = RangeAssignor.assign(&spec).expect("assigned");
    for (member, partition) in [("m3", 0), ("m2", 1), ("m1", 2)] {
        let expected: Assignment = [(topic_id("a"), partition)].into_iter().collect();
        assert_eq!(*target[member], expected, "{member}");
    }
}

#[test]
fn nonexistent_partitions_are_removed() {
    let mut group = Model::new(TestImage::new().topic("a", 2).build());
    group.subscribe("m1", &["a"]);
    group.subscribe("m2", &["a", "b"]);
    let nonsense = [
        (topic_id("a"), 7),
        (topic_id("a"), -1),
        (topic_id("gone"), 0),
    ];
    for member in ["m1", "m2"] {
        let assignment: Assignment = nonsense.into_iter().collect();
        group.target.insert(member.into(), Arc::new(assignment));
    }
    group.assign(&UniformAssignor);
    group.check();
    group.subscribe("m2", &["a"]);
    group.assign(&UniformAssignor);
    group.check();
}
