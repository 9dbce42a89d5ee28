//! Consumer groups: sequences of heartbeats.

mod classic_members;
mod conversion;
mod errors;
mod heartbeats;
mod offsets;
mod random;
mod regexes;
mod static_members;
mod targets;

use std::sync::Arc;

use ottla_metadata::MetadataImage;
use ottla_protocol::messages::ConsumerGroupHeartbeatRequest;
use ottla_protocol::messages::consumer_group_heartbeat_request::TopicPartitions;

use super::{Script, check};
use crate::group::Requester;
use crate::group::consumer::HeartbeatContext;
use crate::group::modern::test_image::{TestImage, topic_id};
use crate::group::outcome::Command;

/// A heartbeat of `member_id` in `g` without changes.
pub(super) fn alive(member_id: &str, epoch: i32) -> Heartbeat {
    Heartbeat(ConsumerGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: member_id.to_owned().into(),
        member_epoch: epoch,
        ..Default::default()
    })
}

/// The first heartbeat of a member.
pub(super) fn joining(member_id: &str, topics: &[&'static str]) -> Heartbeat {
    alive(member_id, 0).wants(topics).owns(&[]).timeout(60_000)
}

pub(super) struct Heartbeat(pub(super) ConsumerGroupHeartbeatRequest);

impl Heartbeat {
    pub(super) fn wants(mut self, topics: &[&'static str]) -> Self {
        let topics = topics.iter().map(|topic| (*topic).into()).collect();
        self.0.subscribed_topic_names = Some(topics);
        self
    }

    pub(super) fn matching(mut self, regex: &str) -> Self {
        self.0.subscribed_topic_regex = Some(regex.to_owned().into());
        self
    }

    pub(super) fn owns(mut self, partitions: &[(&str, &[i32])]) -> Self {
        let topics = partitions
            .iter()
            .map(|(topic, partitions)| TopicPartitions {
                topic_id: topic_id(topic),
                partitions: partitions.to_vec(),
                ..Default::default()
            });
        self.0.topic_partitions = Some(topics.collect());
        self
    }

    pub(super) fn timeout(mut self, ms: i32) -> Self {
        self.0.rebalance_timeout_ms = ms;
        self
    }

    pub(super) fn instance(mut self, instance_id: &'static str) -> Self {
        self.0.instance_id = Some(instance_id.into());
        self
    }

    pub(super) fn assignor(mut self, name: &'static str) -> Self {
        self.0.server_assignor = Some(name.into());
        self
    }

    pub(super) fn group(mut self, group_id: &'static str) -> Self {
        self.0.group_id = group_id.into();
        self
    }
}

impl Script {
    /// A coordinator in a cluster with these topics, without a minimum interval between
    /// assignments.
    pub(super) fn with_topics(image: TestImage) -> Self {
        let mut script = Script::new();
        script.config.group_consumer_assignment_interval_ms.value = 0;
        script.coordinator.config = Arc::new(script.config.clone());
        script.coordinator.begin(Arc::new(image.build()));
        script
    }

    pub(super) fn send(&mut self, heartbeat: Heartbeat) -> String {
        let to = self.next_reply_to();
        let context = HeartbeatContext {
            client_id: "c".into(),
            client_host: "/192.0.2.1".into(),
            new_member_id: "given".into(),
            requester: Requester::none(),
        };
        let now = self.now();
        let mut outcome =
            self.coordinator
                .handle_consumer_group_heartbeat(to, heartbeat.0, context, now);
        let commands = std::mem::take(&mut outcome.commands);
        let mut text = self.render(outcome);
        for command in commands {
            match command {
                Command::ResolveRegexes(command) => {
                    let regexes: Vec<&str> = command.regexes.iter().map(|regex| &**regex).collect();
                    text += &format!("resolve {}: [{}]\n", command.group_id, regexes.join(", "));
                }
                Command::ComputeTarget(target) => {
                    let (group_id, epoch) = target.subject();
                    text += &format!("compute {group_id} target epoch {epoch}\n");
                    self.computing.push_back(target);
                }
                Command::InitializeShareState(_) => {}
            }
        }
        text
    }

    /// Computes the oldest of these targets in place of the shell.
    pub(super) fn compute(&mut self) -> String {
        let target = self.computing.pop_front().expect("a target to compute");
        let now = self.now();
        let outcome = self.coordinator.on_target_computed(&target.compute(), now);
        self.render(outcome)
    }

    /// The response to a heartbeat alone.
    pub(super) fn beat(&mut self, heartbeat: Heartbeat) -> String {
        let text = self.send(heartbeat);
        let replies: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(": heartbeat ").map(|(_, reply)| reply))
            .collect();
        replies.join("\n")
    }

    pub(super) fn change_topics(&mut self, add: TestImage) {
        let before = MetadataImage::clone(self.coordinator.metadata.image());
        let (image, delta) = add.after(&before);
        self.coordinator
            .on_metadata_changed(Arc::new(image), &delta);
    }

    /// Checks that loading the log gives the same group.
    pub(super) fn check_restart(&self) {
        let (restarted, _) = self.restart();
        let show = |script: &Script| format!("{:?}", script.coordinator.groups.get("g"));
        // The metadata image is not part of the log.
        assert_eq!(show(&restarted), show(self));
    }
}

#[test]
fn the_first_heartbeats_make_a_group() {
    let mut script = Script::with_topics(TestImage::new().topic("a", 3));
    check(
        script.send(joining("m1", &["a"])),
        "timer session g/m1 in 45000
         write 1: g/m1 wants [a]
         write 1: g epoch 2
         write 1: g/m1 target a:0,1,2
         write 1: g target epoch 2
         write 1: g/m1 Stable@2 after 0: a:0@2 a:1@2 a:2@2
         reply 1: heartbeat m1@2 a:0,1,2",
    );
    assert_eq!(script.state("g"), "Stable");
    check(
        script.send(alive("m1", 2)),
        "timer session g/m1 in 45000
         reply 2: heartbeat m1@2",
    );
    script.check_restart();
}
