use ottla_protocol::metadata_records::{PartitionRecord, TopicRecord};
use ottla_types::Uuid;

use super::*;
use crate::test_support::{Cluster, directory};

const TOPIC: Uuid = Uuid::from_u128(1001);

/// Topic `orders` with one partition on brokers 1, 2 and 3.
fn cluster(isr: &[i32], leader: i32) -> Cluster {
    let mut cluster = Cluster::with_brokers(&[1, 2, 3]);
    cluster.apply(&[
        MetadataRecord::Topic(TopicRecord {
            name: "orders".into(),
            topic_id: TOPIC,
            ..Default::default()
        }),
        MetadataRecord::Partition(PartitionRecord {
            topic_id: TOPIC,
            partition_id: 0,
            replicas: vec![1, 2, 3],
            isr: isr.to_vec(),
            leader,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![directory(1), directory(2), directory(3)],
            ..Default::default()
        }),
    ]);
    cluster
}

fn change() -> PartitionChangeRecord {
    PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id: 0,
        ..Default::default()
    }
}

fn updates(cluster: &mut Cluster, event: BrokerEvent) -> Vec<PartitionChangeRecord> {
    leader_and_isr_updates(&cluster.context(), event)
        .into_iter()
        .map(|record| match record {
            MetadataRecord::PartitionChange(change) => change,
            other => panic!("{}", other.name()),
        })
        .collect()
}

#[test]
fn a_leader_that_leaves_is_replaced_from_the_isr() {
    assert_eq!(
        updates(
            &mut cluster(&[1, 2, 3], 1),
            BrokerEvent::Leaves(BrokerId(1))
        ),
        [PartitionChangeRecord {
            leader: 2,
            isr: Some(vec![2, 3]),
            ..change()
        }]
    );
    assert_eq!(
        updates(
            &mut cluster(&[1, 2, 3], 1),
            BrokerEvent::Leaves(BrokerId(3))
        ),
        [PartitionChangeRecord {
            isr: Some(vec![1, 2]),
            ..change()
        }]
    );
    assert_eq!(
        updates(&mut cluster(&[1, 2], 1), BrokerEvent::Leaves(BrokerId(3))),
        []
    );
}

#[test]
fn the_last_in_sync_replica_keeps_its_isr_and_leads_again() {
    let mut cluster = cluster(&[1], 1);
    let left = updates(&mut cluster, BrokerEvent::Leaves(BrokerId(1)));
    assert_eq!(
        left,
        [PartitionChangeRecord {
            leader: -1,
            ..change()
        }]
    );
    cluster.apply(&[MetadataRecord::PartitionChange(left[0].clone())]);
    let mut cluster = cluster.fence(1);
    assert_eq!(
        updates(&mut cluster, BrokerEvent::Returns(BrokerId(2))),
        [],
        "2 is not in sync"
    );
    assert_eq!(
        updates(&mut cluster, BrokerEvent::Returns(BrokerId(1))),
        [PartitionChangeRecord {
            leader: 1,
            ..change()
        }]
    );
}

#[test]
fn an_unclean_election_happens_only_where_it_is_allowed() {
    let mut cluster = cluster(&[1], -1).fence(1);
    assert_eq!(updates(&mut cluster, BrokerEvent::Returns(BrokerId(3))), []);
    cluster.apply(&[MetadataRecord::Config(
        ottla_protocol::metadata_records::ConfigRecord {
            resource_type: 2,
            resource_name: "orders".into(),
            name: "unclean.leader.election.enable".into(),
            value: Some("true".into()),
            ..Default::default()
        },
    )]);
    assert_eq!(
        updates(&mut cluster, BrokerEvent::Returns(BrokerId(3))),
        [PartitionChangeRecord {
            leader: 2,
            isr: Some(vec![2]),
            leader_recovery_state: 1,
            ..change()
        }]
    );
}

#[test]
fn with_elr_a_replica_below_the_minimum_stays_eligible() {
    let mut cluster = cluster(&[1, 2], 1)
        .with_feature("eligible.leader.replicas.version", 1)
        .with_setting("min.insync.replicas", "2");
    assert_eq!(
        updates(&mut cluster, BrokerEvent::Leaves(BrokerId(2))),
        [PartitionChangeRecord {
            isr: Some(vec![1]),
            eligible_leader_replicas: Some(vec![2]),
            ..change()
        }]
    );
    // After an unclean shutdown, the unflushed records of 2 may be lost.
    assert_eq!(
        updates(&mut cluster, BrokerEvent::LostUnflushed(BrokerId(2))),
        [PartitionChangeRecord {
            isr: Some(vec![1]),
            ..change()
        }]
    );
    cluster.apply(&[MetadataRecord::PartitionChange(PartitionChangeRecord {
        isr: Some(vec![1]),
        eligible_leader_replicas: Some(vec![2]),
        ..change()
    })]);
    assert_eq!(
        updates(&mut cluster, BrokerEvent::Leaves(BrokerId(1))),
        [PartitionChangeRecord {
            leader: 2,
            isr: Some(vec![2]),
            eligible_leader_replicas: Some(vec![1]),
            ..change()
        }]
    );
}

/// An eligible replica that becomes leader of a topic with `min.insync.replicas=1` commits alone:
/// the other replicas do not have its committed records.
#[test]
fn a_leader_that_may_commit_alone_empties_the_elr() {
    let mut cluster = cluster(&[1, 2], 1)
        .with_feature("eligible.leader.replicas.version", 1)
        .with_setting("min.insync.replicas", "1");
    cluster.apply(&[MetadataRecord::PartitionChange(PartitionChangeRecord {
        isr: Some(vec![]),
        leader: -1,
        eligible_leader_replicas: Some(vec![1, 2]),
        ..change()
    })]);
    assert_eq!(
        updates(&mut cluster, BrokerEvent::Returns(BrokerId(1))),
        [PartitionChangeRecord {
            leader: 1,
            isr: Some(vec![1]),
            eligible_leader_replicas: Some(vec![]),
            ..change()
        }]
    );
}

#[test]
fn a_reassignment_ends_when_the_new_replicas_are_in_sync() {
    let mut cluster = cluster(&[1, 2], 1);
    cluster.apply(&[MetadataRecord::PartitionChange(PartitionChangeRecord {
        removing_replicas: Some(vec![1]),
        adding_replicas: Some(vec![3]),
        ..change()
    })]);
    let context = cluster.context();
    let topic = context.image.topics.by_id(TOPIC).unwrap();
    let partition = topic.partition(PartitionIndex(0)).unwrap();
    let anyone = |_| true;
    let new = || PartitionChange::new(&context, topic, PartitionIndex(0), partition, &anyone);
    assert_eq!(new().build(), None, "3 is not in sync");
    let mut change_isr = new();
    change_isr.target_isr = vec![BrokerId(1), BrokerId(2), BrokerId(3)];
    assert_eq!(
        change_isr.build(),
        Some(PartitionChangeRecord {
            isr: Some(vec![2, 3]),
            leader: 2,
            replicas: Some(vec![2, 3]),
            directories: Some(vec![directory(2), directory(3)]),
            removing_replicas: Some(vec![]),
            adding_replicas: Some(vec![]),
            ..change()
        })
    );
}

/// A replica that is removed deletes its log, so it must not lead when it is added again.
#[test]
fn a_removed_replica_is_not_eligible_to_lead() {
    let mut cluster = cluster(&[1], 1)
        .with_feature("eligible.leader.replicas.version", 1)
        .with_setting("min.insync.replicas", "2");
    cluster.apply(&[MetadataRecord::PartitionChange(PartitionChangeRecord {
        removing_replicas: Some(vec![1]),
        adding_replicas: Some(vec![2]),
        ..change()
    })]);
    let anyone = |_| true;
    let build = |cluster: &mut Cluster, prepare: &dyn Fn(&mut PartitionChange<'_, '_>)| {
        let context = cluster.context();
        let topic = context.image.topics.by_id(TOPIC).unwrap();
        let partition = topic.partition(PartitionIndex(0)).unwrap();
        let mut change =
            PartitionChange::new(&context, topic, PartitionIndex(0), partition, &anyone);
        prepare(&mut change);
        change.build().expect("something changes")
    };
    let completed = build(&mut cluster, &|change| {
        change.target_isr = vec![BrokerId(1), BrokerId(2)];
    });
    assert_eq!(completed.replicas, Some(vec![2, 3]));
    assert_eq!(completed.isr, Some(vec![2]));
    assert_eq!(completed.eligible_leader_replicas, None);
    // Kafka's controller may have left a removed replica in the ELR.
    cluster.apply(&[MetadataRecord::PartitionChange(PartitionChangeRecord {
        eligible_leader_replicas: Some(vec![1]),
        ..completed
    })]);
    let added_again = build(&mut cluster, &|change| {
        change.target_replicas = vec![BrokerId(3), BrokerId(1), BrokerId(2)];
        change.target_adding = vec![BrokerId(1)];
        change.target_removing = vec![BrokerId(2)];
    });
    assert_eq!(added_again.eligible_leader_replicas, Some(vec![]));
}

#[test]
fn before_3_6_a_shrinking_isr_raises_the_leader_epoch() {
    let mut cluster = cluster(&[1, 2, 3], 1).with_feature("metadata.version", 11);
    assert_eq!(
        updates(&mut cluster, BrokerEvent::Leaves(BrokerId(3))),
        [PartitionChangeRecord {
            isr: Some(vec![1, 2]),
            leader: 1,
            ..change()
        }]
    );
}
