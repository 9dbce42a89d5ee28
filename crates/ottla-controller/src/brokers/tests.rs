use ottla_protocol::messages::broker_registration_request::{Feature, Listener};
use ottla_protocol::metadata_records::{PartitionChangeRecord, PartitionRecord, TopicRecord};

use super::*;
use crate::BrokerSessions;
use crate::features::local_supported_features;
use crate::test_support::{Cluster, SINGLE_NODE_EPOCH, directory};

const CLUSTER_ID: &str = "cluster";
const TOPIC: Uuid = Uuid::from_u128(2001);
const EPOCH: BrokerEpoch = BrokerEpoch(777);

fn registration(id: i32, incarnation: u128) -> BrokerRegistrationRequest {
    BrokerRegistrationRequest {
        broker_id: id,
        cluster_id: CLUSTER_ID.into(),
        incarnation_id: Uuid::from_u128(incarnation),
        listeners: vec![Listener {
            name: "PLAINTEXT".into(),
            host: "localhost".into(),
            port: 9092,
            ..Default::default()
        }],
        features: local_supported_features()
            .into_iter()
            .map(|feature| Feature {
                name: feature.name,
                min_supported_version: feature.min,
                max_supported_version: feature.max,
                ..Default::default()
            })
            .collect(),
        log_dirs: vec![directory(id)],
        ..Default::default()
    }
}

fn register(
    cluster: &mut Cluster,
    request: &BrokerRegistrationRequest,
) -> Decision<BrokerRegistrationResponse> {
    register_broker(&cluster.context(), request, CLUSTER_ID, EPOCH, false)
}

fn registration_error(request: BrokerRegistrationRequest) -> ErrorCode {
    let decision = register(&mut Cluster::single_node(), &request);
    assert_eq!(decision.records, []);
    ErrorCode::from_code(decision.response.error_code)
}

/// With a partition whose only replica is on broker 1.
fn with_partition(mut cluster: Cluster) -> Cluster {
    cluster.apply(&[
        MetadataRecord::Topic(TopicRecord {
            name: "orders".into(),
            topic_id: TOPIC,
            ..Default::default()
        }),
        MetadataRecord::Partition(PartitionRecord {
            topic_id: TOPIC,
            partition_id: 0,
            replicas: vec![1],
            isr: vec![1],
            leader: 1,
            leader_epoch: 0,
            partition_epoch: 0,
            directories: vec![directory(1)],
            ..Default::default()
        }),
    ]);
    cluster
}

fn leader_becomes(leader: i32) -> MetadataRecord {
    MetadataRecord::PartitionChange(PartitionChangeRecord {
        topic_id: TOPIC,
        partition_id: 0,
        leader,
        ..Default::default()
    })
}

fn change(set: impl FnOnce(&mut BrokerRegistrationChangeRecord)) -> MetadataRecord {
    let mut change = BrokerRegistrationChangeRecord {
        broker_id: 1,
        broker_epoch: SINGLE_NODE_EPOCH,
        ..Default::default()
    };
    set(&mut change);
    MetadataRecord::BrokerRegistrationChange(change)
}

#[test]
fn a_new_broker_starts_fenced_with_the_offset_as_its_epoch() {
    let mut cluster = Cluster::empty().with_feature("metadata.version", 30);
    let decision = register(&mut cluster, &registration(1, 50));
    assert_eq!(decision.response.broker_epoch, EPOCH.value());
    let [MetadataRecord::RegisterBroker(record)] = &decision.records[..] else {
        panic!("{:?}", decision.records);
    };
    assert!(record.fenced);
    assert_eq!(
        (record.broker_epoch, record.log_dirs.clone()),
        (EPOCH.value(), vec![directory(1)])
    );
    assert_eq!(record.end_points[0].port, 9092);
    assert_eq!(record.features.len(), local_supported_features().len());
}

#[test]
fn a_new_incarnation_is_fenced_and_leads_nothing() {
    let mut cluster = with_partition(Cluster::single_node());
    let decision = register(&mut cluster, &registration(1, 51));
    assert_eq!(decision.records[0], leader_becomes(-1));
    assert!(
        matches!(&decision.records[1], MetadataRecord::RegisterBroker(record) if record.fenced)
    );
}

#[test]
fn the_same_incarnation_keeps_its_epoch() {
    let mut cluster = with_partition(Cluster::single_node());
    let incarnation = cluster
        .image
        .cluster
        .broker(BrokerId(1))
        .unwrap()
        .incarnation_id;
    let request = BrokerRegistrationRequest {
        incarnation_id: incarnation,
        ..registration(1, 0)
    };
    let decision = register_broker(&cluster.context(), &request, CLUSTER_ID, EPOCH, true);
    assert_eq!(decision.response.broker_epoch, SINGLE_NODE_EPOCH);
    assert!(
        matches!(&decision.records[..], [MetadataRecord::RegisterBroker(record)] if !record.fenced)
    );

    let other = register_broker(
        &cluster.context(),
        &registration(1, 99),
        CLUSTER_ID,
        EPOCH,
        true,
    );
    assert_eq!(other.records, []);
    assert_eq!(
        other.response.error_code,
        ErrorCode::DuplicateBrokerRegistration.code()
    );
}

#[test]
fn invalid_registrations_are_refused() {
    let base = || registration(2, 50);
    let with_dirs = |log_dirs| BrokerRegistrationRequest { log_dirs, ..base() };
    assert_eq!(
        registration_error(BrokerRegistrationRequest {
            cluster_id: "other".into(),
            ..base()
        }),
        ErrorCode::InconsistentClusterId
    );
    assert_eq!(
        registration_error(with_dirs(vec![])),
        ErrorCode::InvalidRegistration
    );
    assert_eq!(
        registration_error(with_dirs(vec![Uuid::DIRECTORY_LOST])),
        ErrorCode::InvalidRegistration
    );
    assert_eq!(
        registration_error(with_dirs(vec![directory(2); 2])),
        ErrorCode::InvalidRegistration
    );
    assert_eq!(
        registration_error(with_dirs(vec![directory(1)])),
        ErrorCode::InvalidRegistration
    );
    assert_eq!(
        registration_error(BrokerRegistrationRequest {
            features: vec![],
            ..base()
        }),
        ErrorCode::InvalidRegistration
    );
    let mut older = base();
    for feature in older
        .features
        .iter_mut()
        .filter(|feature| &*feature.name == "metadata.version")
    {
        feature.max_supported_version = 29;
    }
    assert_eq!(registration_error(older), ErrorCode::UnsupportedVersion);
}

/// Source: `ClusterControlManager.processRegistrationFeature`, and `QuorumController.registerBroker` for `kraft.version`.
#[test]
fn a_broker_must_support_every_finalized_level() {
    let with = |name: &'static str, range: Option<(i16, i16)>| {
        let mut request = registration(2, 50);
        request.features.retain(|feature| &*feature.name != name);
        request.features.extend(range.map(|(min, max)| Feature {
            name: name.into(),
            min_supported_version: min,
            max_supported_version: max,
            ..Default::default()
        }));
        request
    };
    let refused = ErrorCode::UnsupportedVersion;
    // In a quorum with voters in the log. Also for a broker that does not know the feature.
    for range in [Some((0, 0)), Some((2, 2)), None] {
        assert_eq!(registration_error(with("kraft.version", range)), refused);
    }
    // At level 0 all other brokers are accepted.
    for range in [Some((1, 1)), Some((2, 5))] {
        assert_eq!(registration_error(with("other.version", range)), refused);
    }
    let mut static_quorum = Cluster::single_node().with_static_quorum(Ok(true));
    for (request, code) in [
        (with("kraft.version", None), ErrorCode::None),
        (with("kraft.version", Some((0, 0))), ErrorCode::None),
        (with("kraft.version", Some((1, 1))), refused),
        (with("other.version", Some((0, 3))), ErrorCode::None),
    ] {
        let response = register(&mut static_quorum, &request).response;
        assert_eq!(ErrorCode::from_code(response.error_code), code);
    }
}

fn beat(
    cluster: &mut Cluster,
    request: BrokerHeartbeatRequest,
) -> Decision<BrokerHeartbeatResponse> {
    let request = BrokerHeartbeatRequest {
        broker_id: 1,
        broker_epoch: SINGLE_NODE_EPOCH,
        ..request
    };
    heartbeat(
        &cluster.context(),
        &request,
        Offset(SINGLE_NODE_EPOCH),
        true,
    )
}

#[test]
fn a_broker_is_unfenced_once_it_replayed_its_registration() {
    let mut cluster = with_partition(Cluster::single_node());
    cluster.apply(&[leader_becomes(-1)]);
    let mut cluster = cluster.fence(1);
    let behind = beat(
        &mut cluster,
        BrokerHeartbeatRequest {
            current_metadata_offset: SINGLE_NODE_EPOCH - 1,
            ..Default::default()
        },
    );
    assert_eq!(behind.records, []);
    assert!(behind.response.is_fenced && !behind.response.is_caught_up);
    let caught_up = beat(
        &mut cluster,
        BrokerHeartbeatRequest {
            current_metadata_offset: SINGLE_NODE_EPOCH,
            ..Default::default()
        },
    );
    assert_eq!(
        caught_up.records,
        [change(|change| change.fenced = -1), leader_becomes(1)]
    );
    assert!(!caught_up.response.is_fenced && caught_up.response.is_caught_up);
}

#[test]
fn a_controlled_shutdown_moves_leaders_first() {
    let mut cluster = with_partition(Cluster::single_node());
    let want = || BrokerHeartbeatRequest {
        want_shut_down: true,
        current_metadata_offset: 500,
        ..Default::default()
    };
    let first = beat(&mut cluster, want());
    assert_eq!(
        first.records,
        [
            change(|change| change.in_controlled_shutdown = 1),
            leader_becomes(-1)
        ]
    );
    assert!(!first.response.should_shut_down);
    cluster.apply(&first.records);
    let second = beat(&mut cluster, want());
    assert_eq!(second.records, [change(|change| change.fenced = 1)]);
    assert!(second.response.should_shut_down);
}

#[test]
fn heartbeats_report_failed_directories() {
    let mut cluster = with_partition(Cluster::single_node());
    let offline = beat(
        &mut cluster,
        BrokerHeartbeatRequest {
            offline_log_dirs: vec![directory(1)],
            ..Default::default()
        },
    );
    assert_eq!(
        offline.records,
        [
            leader_becomes(-1),
            change(|change| change.log_dirs = vec![])
        ]
    );
    let cordoned = |cluster: &mut Cluster| {
        beat(
            cluster,
            BrokerHeartbeatRequest {
                cordoned_log_dirs: Some(vec![]),
                ..Default::default()
            },
        )
        .records
    };
    let first = cordoned(&mut cluster);
    assert_eq!(
        first,
        [change(|change| change.cordoned_log_dirs = Some(vec![]))]
    );
    cluster.apply(&first);
    assert_eq!(cordoned(&mut cluster), [], "nothing changed since");
}

#[test]
fn stale_epochs_and_unknown_brokers_are_refused() {
    let mut cluster = Cluster::single_node();
    let stale = heartbeat(
        &cluster.context(),
        &BrokerHeartbeatRequest {
            broker_id: 1,
            broker_epoch: 5,
            ..Default::default()
        },
        Offset(0),
        true,
    );
    assert_eq!(
        stale.response.error_code,
        ErrorCode::StaleBrokerEpoch.code()
    );
    let unknown = UnregisterBrokerRequest {
        broker_id: 9,
        ..Default::default()
    };
    let decision = unregister_broker(&cluster.context(), &unknown);
    assert_eq!(
        decision.response.error_code,
        ErrorCode::BrokerIdNotRegistered.code()
    );
    assert_eq!(fence_broker(&cluster.context(), BrokerId(9)), []);
}

#[test]
fn a_controller_can_be_unregistered() {
    let mut cluster = Cluster::single_node().with_feature("metadata.version", 32);
    let unregister = |cluster: &mut Cluster, controller_id| {
        let request = UnregisterControllerRequest {
            controller_id,
            ..Default::default()
        };
        let decision = unregister_controller(&cluster.context(), &request);
        cluster.apply(&decision.records);
        let code = ErrorCode::from_code(decision.response.error_code);
        (decision.records.len(), code)
    };
    let registered = RegisterControllerRecord {
        controller_id: 7,
        ..Default::default()
    };
    cluster.apply(&[MetadataRecord::RegisterController(registered)]);
    assert_eq!(
        unregister(&mut cluster, 7),
        (0, ErrorCode::UnsupportedVersion)
    );
    let mut cluster = cluster.with_feature("metadata.version", 33);
    // Node 1 decides, so it is active.
    assert_eq!(unregister(&mut cluster, 1), (0, ErrorCode::InvalidRequest));
    assert_eq!(
        unregister(&mut cluster, 8),
        (0, ErrorCode::ControllerIdNotRegistered)
    );
    assert_eq!(unregister(&mut cluster, 7), (1, ErrorCode::None));
    assert!(cluster.image.cluster.controller(BrokerId(7)).is_none());
    assert_eq!(
        unregister(&mut cluster, 7),
        (0, ErrorCode::ControllerIdNotRegistered)
    );
}

#[test]
fn fencing_and_unregistering_move_leaders() {
    let mut cluster = with_partition(Cluster::single_node());
    assert_eq!(
        fence_broker(&cluster.context(), BrokerId(1)),
        [leader_becomes(-1), change(|change| change.fenced = 1)]
    );
    let request = UnregisterBrokerRequest {
        broker_id: 1,
        ..Default::default()
    };
    assert_eq!(
        unregister_broker(&cluster.context(), &request).records,
        [
            leader_becomes(-1),
            MetadataRecord::UnregisterBroker(UnregisterBrokerRecord {
                broker_id: 1,
                broker_epoch: SINGLE_NODE_EPOCH,
                ..Default::default()
            })
        ]
    );
    let mut fenced = Cluster::single_node().fence(1);
    assert_eq!(fence_broker(&fenced.context(), BrokerId(1)), []);
}

/// A broker that is restarted after a controlled shutdown can register at once.
#[test]
fn the_session_ends_with_the_permission_to_shut_down() {
    let mut cluster = with_partition(Cluster::single_node());
    let sessions = BrokerSessions::new(9000, None);
    let beat = |cluster: &mut Cluster, want_shut_down| {
        let request = BrokerHeartbeatRequest {
            broker_id: 1,
            broker_epoch: SINGLE_NODE_EPOCH,
            current_metadata_offset: 500,
            want_shut_down,
            ..Default::default()
        };
        let decision = sessions.heartbeat(&cluster.context(), &request, 0);
        cluster.apply(&decision.records);
        decision.response
    };
    let register = |cluster: &mut Cluster| {
        let request = registration(1, 2);
        let next = Offset(EPOCH.0);
        let decision = sessions.register(&cluster.context(), &request, CLUSTER_ID, next, 1);
        ErrorCode::from_code(decision.response.error_code)
    };
    beat(&mut cluster, false);
    let in_use = ErrorCode::DuplicateBrokerRegistration;
    assert_eq!(register(&mut cluster), in_use);
    assert!(!beat(&mut cluster, true).should_shut_down);
    assert_eq!(register(&mut cluster), in_use, "it gives its leaders away");
    assert!(beat(&mut cluster, true).should_shut_down);
    assert_eq!(register(&mut cluster), ErrorCode::None);
}
