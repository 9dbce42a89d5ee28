use ottla_protocol::messages::update_features_request::FeatureUpdateKey;
use ottla_protocol::metadata_records::RegisterControllerRecord;
use ottla_protocol::metadata_records::register_controller_record::ControllerFeature;

use super::*;
use crate::test_support::Cluster;

fn update(feature: &'static str, max_version_level: i16, upgrade_type: i8) -> FeatureUpdateKey {
    FeatureUpdateKey {
        feature: feature.into(),
        max_version_level,
        upgrade_type,
        ..Default::default()
    }
}

fn decide(
    cluster: &mut Cluster,
    updates: Vec<FeatureUpdateKey>,
) -> Decision<UpdateFeaturesResponse> {
    update_features(
        &cluster.context(),
        &UpdateFeaturesRequest {
            feature_updates: updates,
            ..Default::default()
        },
    )
}

fn error(cluster: &mut Cluster, update: FeatureUpdateKey) -> String {
    let decision = decide(cluster, vec![update]);
    assert_eq!(decision.records, []);
    assert_eq!(
        decision.response.error_code,
        ErrorCode::InvalidUpdateVersion.code()
    );
    let message = decision.response.error_message.unwrap().to_string();
    let prefix = "The update failed for all features since the following feature had an error: ";
    message.strip_prefix(prefix).unwrap().to_owned()
}

fn feature(name: &'static str, feature_level: i16) -> MetadataRecord {
    MetadataRecord::FeatureLevel(FeatureLevelRecord {
        name: name.into(),
        feature_level,
        ..Default::default()
    })
}

#[test]
fn metadata_version_is_raised_and_lowered_without_loss() {
    let mut cluster = Cluster::single_node().with_feature("metadata.version", 25);
    let decision = decide(&mut cluster, vec![update("metadata.version", 30, 1)]);
    assert_eq!(decision.records, [feature("metadata.version", 30)]);
    assert_eq!(
        (
            decision.response.error_code,
            decision.response.error_message
        ),
        (0, None)
    );
    let decision = decide(&mut cluster, vec![update("metadata.version", 24, 2)]);
    assert_eq!(decision.records, [feature("metadata.version", 24)]);

    assert_eq!(
        error(&mut cluster, update("metadata.version", 24, 1)),
        "Invalid update version 24 for feature metadata.version. Can't downgrade the version of this feature \
         without setting the upgrade type to either safe or unsafe downgrade."
    );
    assert_eq!(
        error(&mut cluster, update("metadata.version", 22, 2)),
        "Unsupported metadata.version downgrade from 25 to 22. Refusing to perform the requested downgrade \
         because it might delete metadata information."
    );
    assert_eq!(
        error(&mut cluster, update("metadata.version", 22, 3)),
        "Unsupported metadata.version downgrade from 25 to 22. Unsafe metadata downgrade is not supported in \
         this version."
    );
    assert_eq!(
        error(&mut cluster, update("metadata.version", 34, 1)),
        "Invalid update version 34 for feature metadata.version. Local controller 1 only supports versions 7-33"
    );
}

#[test]
fn a_level_is_raised_and_lowered() {
    let elr = "eligible.leader.replicas.version";
    let mut cluster = Cluster::single_node().with_feature(elr, 1);
    let mut decided =
        |level, upgrade_type| decide(&mut cluster, vec![update(elr, level, upgrade_type)]);
    assert_eq!(decided(0, 2).records, [feature(elr, 0)]);
    assert!(decided(1, 1).records.contains(&feature(elr, 1)));
}

#[test]
fn unknown_features_are_refused() {
    let mut cluster = Cluster::single_node();
    assert_eq!(
        error(&mut cluster, update("no.such.version", 1, 1)),
        "Invalid update version 1 for feature no.such.version. Local controller 1 does not support this feature."
    );
}

#[test]
fn supported_levels_are_accepted_and_others_refused() {
    let offered = local_supported_features();
    assert_eq!(offered.len(), FEATURES.len() + 1);
    for known in FEATURES {
        let max = offered
            .iter()
            .find(|feature| &*feature.name == known.name)
            .map_or(0, |feature| feature.max);
        for level in 1..=known.latest_production() + 1 {
            let decision = decide(
                &mut Cluster::single_node(),
                vec![update(known.name, level, 1)],
            );
            let is_accepted = decision.response.error_code == 0;
            assert_eq!(is_accepted, level <= max, "{} {level}", known.name);
        }
    }
}

#[test]
fn one_failure_fails_the_request() {
    let mut cluster = Cluster::single_node().with_feature("metadata.version", 25);
    let decision = decide(
        &mut cluster,
        vec![
            update("metadata.version", 30, 1),
            update("no.such.version", 1, 1),
        ],
    );
    assert_eq!(decision.records, []);
    assert_ne!(decision.response.error_code, 0);
}

#[test]
fn validate_only_lists_each_feature_and_writes_nothing() {
    let mut cluster = Cluster::single_node().with_feature("metadata.version", 25);
    let request = UpdateFeaturesRequest {
        feature_updates: vec![update("metadata.version", 30, 1)],
        validate_only: true,
        ..Default::default()
    };
    let decision = update_features(&cluster.context(), &request);
    assert_eq!(decision.records, []);
    assert_eq!(decision.response.error_code, 0);
    assert_eq!(decision.response.results.len(), 1);
    assert_eq!(&*decision.response.results[0].feature, "metadata.version");
}

#[test]
fn kraft_version_is_raised_by_the_quorum_without_a_record() {
    let mut cluster = Cluster::single_node()
        .with_static_quorum(Ok(true))
        .with_feature("metadata.version", 25);
    let updates = vec![
        update("metadata.version", 30, 1),
        update("kraft.version", 1, 1),
    ];
    let decision = decide(&mut cluster, updates.clone());
    assert_eq!(decision.response.error_code, 0);
    assert_eq!(decision.kraft_version, Some(1));
    assert_eq!(decision.records, [feature("metadata.version", 30)]);

    let request = UpdateFeaturesRequest {
        feature_updates: updates,
        validate_only: true,
        ..Default::default()
    };
    let decision = update_features(&cluster.context(), &request);
    assert_eq!(
        (decision.response.error_code, decision.kraft_version),
        (0, None)
    );

    // If another feature cannot be raised, `kraft.version` stays unchanged, whichever comes first.
    for other in ["group.version", "streams.version"] {
        let updates = vec![update(other, 9, 1), update("kraft.version", 1, 1)];
        let decision = decide(&mut cluster, updates);
        assert_ne!(decision.response.error_code, 0);
        assert_eq!(decision.kraft_version, None);
    }
}

#[test]
fn kraft_version_is_not_raised_if_the_quorum_refuses() {
    let reason = "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because not all of the voters support it";
    let mut cluster = Cluster::single_node().with_static_quorum(Err(reason));
    assert_eq!(error(&mut cluster, update("kraft.version", 1, 1)), reason);
    assert_eq!(
        error(&mut cluster, update("kraft.version", 2, 1)),
        "Invalid update version 2 for feature kraft.version. Local controller 1 only supports versions 0-1"
    );
    assert_eq!(
        error(&mut cluster, update("kraft.version", 1, 2)),
        "Invalid update version 1 for feature kraft.version. Can't downgrade to a newer version."
    );
}

#[test]
fn kraft_version_cannot_be_lowered() {
    let mut cluster = Cluster::single_node();
    for (level, upgrade_type) in [(1, 1), (1, 2), (1, 3)] {
        let decision = decide(
            &mut cluster,
            vec![update("kraft.version", level, upgrade_type)],
        );
        assert_eq!(decision.response.error_code, 0, "it has that level");
        assert_eq!((decision.records, decision.kraft_version), (vec![], None));
    }
    for upgrade_type in [2, 3] {
        assert_eq!(
            error(&mut cluster, update("kraft.version", 0, upgrade_type)),
            "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature."
        );
    }
    assert_eq!(
        error(&mut cluster, update("kraft.version", 0, 1)),
        "Invalid update version 0 for feature kraft.version. Can't downgrade the version of this feature without \
         setting the upgrade type to either safe or unsafe downgrade."
    );
    assert!(error(&mut cluster, update("kraft.version", 1, 9)).contains("upgrade type"));
}

#[test]
fn unregistered_voters_are_assumed_not_to_support_a_level() {
    let voters = "1@localhost:9093,2@localhost:9094";
    let mut cluster = Cluster::single_node().with_setting("controller.quorum.voters", voters);
    let group_version = || update("group.version", 1, 1);
    assert_eq!(
        error(&mut cluster, group_version()),
        "Invalid update version 1 for feature group.version. controller 2 has not registered, and may not support \
         this feature"
    );
    let registered = |max| {
        MetadataRecord::RegisterController(RegisterControllerRecord {
            controller_id: 2,
            features: vec![ControllerFeature {
                name: "group.version".into(),
                min_supported_version: 0,
                max_supported_version: max,
                ..Default::default()
            }],
            ..Default::default()
        })
    };
    cluster.apply(&[registered(0)]);
    assert_eq!(
        error(&mut cluster, group_version()),
        "Invalid update version 1 for feature group.version. Controller 2 does not support this feature."
    );
    cluster.apply(&[registered(1)]);
    assert_eq!(
        decide(&mut cluster, vec![group_version()])
            .response
            .error_code,
        0
    );
    // Before controllers register, the levels that they support are unknown.
    let mut cluster = Cluster::empty()
        .with_feature("metadata.version", 14)
        .with_setting("controller.quorum.voters", voters);
    assert_eq!(
        decide(&mut cluster, vec![update("metadata.version", 30, 1)])
            .response
            .error_code,
        0
    );
}
