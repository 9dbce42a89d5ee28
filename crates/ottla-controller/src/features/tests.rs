use ottla_protocol::messages::update_features_request::FeatureUpdateKey;

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
fn metadata_version_goes_up_and_without_loss_down() {
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
        error(&mut cluster, update("metadata.version", 31, 1)),
        "Invalid update version 31 for feature metadata.version. Local controller 1 only supports versions 7-30"
    );
}

#[test]
fn a_level_is_kept_raised_and_lowered() {
    let elr = "eligible.leader.replicas.version";
    let mut cluster = Cluster::single_node().with_feature(elr, 1);
    let mut decided =
        |level, upgrade_type| decide(&mut cluster, vec![update(elr, level, upgrade_type)]);
    assert_eq!(decided(0, 2).records, [feature(elr, 0)]);
    assert!(decided(1, 1).records.contains(&feature(elr, 1)));
}

#[test]
fn what_is_not_known_is_not_raised() {
    let mut cluster = Cluster::single_node();
    assert_eq!(
        error(&mut cluster, update("no.such.version", 1, 1)),
        "Invalid update version 1 for feature no.such.version. Local controller 1 does not support this feature."
    );
}

#[test]
fn what_is_offered_is_accepted_and_what_is_not_is_refused() {
    // The clusters of these tests have a dynamic quorum.
    let offered = offered_features(1);
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
    let of_a_static_quorum = offered_features(0);
    assert_eq!(of_a_static_quorum.len(), FEATURES.len());
}

#[test]
fn one_failure_fails_all() {
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
fn validating_only_names_each_feature_and_writes_nothing() {
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
fn kraft_version_is_not_changed_while_the_quorum_runs() {
    let mut cluster = Cluster::single_node();
    assert_eq!(
        decide(&mut cluster, vec![update("kraft.version", 1, 1)]).records,
        []
    );
    assert!(error(&mut cluster, update("kraft.version", 0, 2)).contains("Can't downgrade"));
    assert!(error(&mut cluster, update("kraft.version", 1, 9)).contains("upgrade type"));
}
