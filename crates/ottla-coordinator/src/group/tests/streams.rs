//! Streams groups: sequences of heartbeats.

use std::sync::Arc;

use ottla_metadata::MetadataImage;
use ottla_protocol::messages::StreamsGroupHeartbeatRequest;
use ottla_protocol::messages::streams_group_heartbeat_request::{
    Endpoint, KeyValue, Subtopology, TaskIds, TopicInfo, Topology,
};

use super::{Script, check};
use crate::group::modern::test_image::TestImage;
use crate::group::streams::StreamsHeartbeatContext;

mod assignments;
mod errors;
mod lifecycle;
mod other_groups;
mod random;
mod static_members;

/// A heartbeat of `member_id` in `g` without changes.
pub(super) fn beat(member_id: &str, epoch: i32) -> Beat {
    Beat(StreamsGroupHeartbeatRequest {
        group_id: "g".into(),
        member_id: member_id.to_owned().into(),
        member_epoch: epoch,
        ..Default::default()
    })
}

/// The first heartbeat of a member of process `process_id`. Its application has a state store for
/// the topic `in`.
pub(super) fn joining(member_id: &str, process_id: &'static str) -> Beat {
    let mut beat = beat(member_id, 0).topology(0, vec![subtopology("0", &["in"], &["store"])]);
    beat.0.rebalance_timeout_ms = 60_000;
    beat.0.process_id = Some(process_id.into());
    beat.owns(&[], &[])
}

pub(super) fn subtopology(
    id: &'static str,
    sources: &[&'static str],
    changelogs: &[&'static str],
) -> Subtopology {
    Subtopology {
        subtopology_id: id.into(),
        source_topics: sources.iter().map(|topic| (*topic).into()).collect(),
        state_changelog_topics: changelogs
            .iter()
            .map(|topic| TopicInfo {
                name: (*topic).into(),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    }
}

fn task_ids(tasks: &[(&'static str, &[i32])]) -> Option<Vec<TaskIds>> {
    let task_ids = tasks.iter().map(|(id, partitions)| TaskIds {
        subtopology_id: (*id).into(),
        partitions: partitions.to_vec(),
        ..Default::default()
    });
    Some(task_ids.collect())
}

#[derive(Clone)]
pub(super) struct Beat(pub(super) StreamsGroupHeartbeatRequest);

impl Beat {
    pub(super) fn topology(mut self, epoch: i32, subtopologies: Vec<Subtopology>) -> Self {
        self.0.topology = Some(Topology {
            epoch,
            subtopologies,
            ..Default::default()
        });
        self
    }

    pub(super) fn owns(
        mut self,
        active: &[(&'static str, &[i32])],
        standby: &[(&'static str, &[i32])],
    ) -> Self {
        self.0.active_tasks = task_ids(active);
        self.0.standby_tasks = task_ids(standby);
        self.0.warmup_tasks = Some(Vec::new());
        self
    }

    pub(super) fn instance(mut self, instance_id: &'static str) -> Self {
        self.0.instance_id = Some(instance_id.into());
        self
    }

    pub(super) fn at(mut self, host: &'static str) -> Self {
        self.0.user_endpoint = Some(Endpoint {
            host: host.into(),
            port: 80,
            ..Default::default()
        });
        self
    }

    pub(super) fn tagged(mut self, key: &'static str, value: &'static str) -> Self {
        self.0.client_tags = Some(vec![KeyValue {
            key: key.into(),
            value: value.into(),
            ..Default::default()
        }]);
        self
    }

    pub(super) fn knows_endpoints(mut self, epoch: i32) -> Self {
        self.0.endpoint_information_epoch = epoch;
        self
    }

    pub(super) fn wants_shutdown(mut self) -> Self {
        self.0.shutdown_application = true;
        self
    }
}

/// The topics of the application of [`joining`], all of which exist, with two tasks.
pub(super) fn ready() -> TestImage {
    TestImage::new().topic("in", 2).topic("store", 2)
}

impl Script {
    /// A coordinator in a cluster with these topics, without an initial delay and without a minimum
    /// interval between assignments.
    pub(super) fn with_streams(image: &TestImage) -> Self {
        let mut script = Script::new();
        script.config.group_streams_assignment_interval_ms.value = 0;
        script.config.group_streams_initial_rebalance_delay_ms = 0;
        script.configure();
        script.coordinator.begin(Arc::new(image.build()));
        script
    }

    /// Applies the current `config` to the coordinator.
    pub(super) fn configure(&mut self) {
        self.coordinator.config = Arc::new(self.config.clone());
    }

    pub(super) fn stream(&mut self, beat: Beat) -> String {
        let to = self.next_reply_to();
        let context = StreamsHeartbeatContext {
            client_id: "c".into(),
            client_host: "/192.0.2.1".into(),
            knows_offsets_and_tags: true,
        };
        let now = self.now();
        let outcome = self
            .coordinator
            .handle_streams_group_heartbeat(to, beat.0, context, now);
        self.render(outcome)
    }

    /// The response to a heartbeat alone.
    pub(super) fn streams_beat(&mut self, beat: Beat) -> String {
        let text = self.stream(beat);
        let replies: Vec<&str> = text
            .lines()
            .filter_map(|line| line.split_once(": streams ").map(|(_, reply)| reply))
            .collect();
        replies.join("\n")
    }

    pub(super) fn change_streams_topics(&mut self, add: TestImage) {
        let before = MetadataImage::clone(self.coordinator.metadata.image());
        let (image, delta) = add.after(&before);
        self.coordinator
            .on_metadata_changed(Arc::new(image), &delta);
    }

    /// Checks that loading the log gives the same group.
    pub(super) fn check_streams_restart(&self) {
        let (restarted, _) = self.restart();
        let show = |script: &Script| format!("{:?}", script.coordinator.groups.get("g"));
        assert_eq!(show(&restarted), show(self));
    }
}

#[test]
fn the_first_heartbeats_make_a_group() {
    let mut script = Script::with_streams(&ready());
    check(
        script.stream(joining("m1", "p1")),
        "timer session g/m1 in 45000
         write 1: g/m1 in p1 by topology 0
         write 1: g topology 0 of 0
         write 1: g epoch 2 validated 0 [num.standby.replicas=0]
         write 1: g/m1 target 0:0,1 / -
         write 1: g target epoch 2
         write 1: g/m1 Stable@2 after 0: 0:0@2 0:1@2 / -
         reply 1: streams m1@2 0:0,1 / -",
    );
    assert_eq!(script.state("g"), "Stable");
    check(
        script.stream(beat("m1", 2)),
        "timer session g/m1 in 45000
         reply 2: streams m1@2",
    );
    script.check_streams_restart();
}
