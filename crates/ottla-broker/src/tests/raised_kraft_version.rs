//! `kraft.version` is raised from 0 to 1 in a running quorum of three configured voters (KIP-853).

use std::path::Path;

use ottla_protocol::messages::update_features_request::FeatureUpdateKey;
use ottla_protocol::messages::{
    ApiVersionsResponse, RemoveRaftVoterRequest, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
use ottla_raft::KRaftVersion;
use ottla_types::ErrorCode;

use super::client::Client;
use super::produce_and_fetch::api_versions;
use super::quorum_of_three::{Quorum, until};
use crate::start::RunningBroker;
use ottla_storage::metadata::metadata_log::METADATA_DIR;
use ottla_storage::metadata::snapshot_file::read_snapshot;

const KRAFT_VERSION: &str = "kraft.version";
const PREFIX: &str =
    "The update failed for all features since the following feature had an error: ";

async fn client_of(node: &RunningBroker) -> Client {
    Client::connect(node.listeners()[0].local_addr).await
}

fn request(level: i16, upgrade_type: i8, validate_only: bool) -> UpdateFeaturesRequest {
    UpdateFeaturesRequest {
        feature_updates: vec![FeatureUpdateKey {
            feature: KRAFT_VERSION.into(),
            max_version_level: level,
            upgrade_type,
            ..Default::default()
        }],
        validate_only,
        ..Default::default()
    }
}

async fn ask(quorum: &Quorum, request: &UpdateFeaturesRequest) -> UpdateFeaturesResponse {
    let active = quorum.active().await;
    let node = quorum.nodes[active].as_ref().expect("runs");
    client_of(node).await.ask(2, request).await
}

/// Repeats the request while it is rejected as in Kafka, because the leader does not know all
/// voters' versions yet.
async fn accepted(quorum: &Quorum, request: &UpdateFeaturesRequest) {
    loop {
        let response = ask(quorum, request).await;
        let message = response.error_message.unwrap_or_default();
        match ErrorCode::from_code(response.error_code) {
            ErrorCode::None => return,
            ErrorCode::NotController => {}
            ErrorCode::InvalidUpdateVersion => {
                let reason = message.strip_prefix(PREFIX).unwrap_or_default();
                let is_expected = reason
                    == "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because not all of the voters support it"
                    || reason.ends_with("has not registered, and may not support this feature");
                assert!(is_expected, "{message}");
            }
            code => panic!("{code}: {message}"),
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}

/// The lowest and highest supported level, and the finalized level.
fn levels(advertised: &ApiVersionsResponse) -> (i16, i16, Option<i16>) {
    let mut supported = advertised.supported_features.iter();
    let supported = supported
        .find(|it| &*it.name == KRAFT_VERSION)
        .expect("is advertised");
    let mut finalized = advertised.finalized_features.iter();
    let finalized = finalized.find(|it| &*it.name == KRAFT_VERSION);
    let level = finalized.map(|it| it.max_version_level);
    (supported.min_version, supported.max_version, level)
}

async fn advertised(node: &RunningBroker) -> (i16, i16, Option<i16>) {
    levels(&client_of(node).await.ask(4, &api_versions()).await)
}

async fn until_raised(quorum: &Quorum, voters: usize) {
    for (index, node) in quorum.running() {
        let broker = node.broker();
        until(&format!("node {} knows the level", index + 1), || {
            let status = broker.node.quorum().expect("runs").status();
            status.kraft_version == KRaftVersion::V1 && status.voters.len() == voters
        })
        .await;
    }
}

fn has_snapshot_of_two(dir: &Path) -> bool {
    let entries = std::fs::read_dir(dir).expect("is there").flatten();
    let mut snapshots = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|it| it == "checkpoint"))
        .filter_map(|path| read_snapshot(&path).ok());
    snapshots.any(|snapshot| {
        let voters = snapshot.voters.map_or(0, |voters| voters.len());
        snapshot.kraft_version == KRaftVersion::V1 && voters == 2
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn configured_voters_are_written_to_the_log_permanently() {
    // A snapshot after each change, so that there are some before and after.
    let snapshots = ("metadata.log.max.record.bytes.between.snapshots", "1");
    let mut quorum = Quorum::start_as("controller", "", &[snapshots]).await;
    quorum.write("alice").await;
    quorum.all_know(1).await;
    for (_, node) in quorum.running() {
        assert_eq!(advertised(node).await, (0, 1, None));
    }
    accepted(&quorum, &request(1, 1, true)).await;
    for (_, node) in quorum.running() {
        assert_eq!(advertised(node).await, (0, 1, None), "was only tried");
    }
    accepted(&quorum, &request(1, 1, false)).await;
    until_raised(&quorum, 3).await;
    for (_, node) in quorum.running() {
        assert_eq!(advertised(node).await, (0, 1, Some(1)));
    }
    let back = ask(&quorum, &request(0, 2, false)).await;
    assert_eq!(
        back.error_message.as_deref(),
        Some(
            format!(
                "{PREFIX}Invalid update version 0 for feature kraft.version. Can't downgrade the version of this \
                 feature."
            )
            .as_str()
        )
    );

    // From now on, voters can be changed.
    let active = quorum.active().await;
    let other = (active + 1) % 3;
    let node = quorum.nodes[active].as_ref().expect("runs");
    let voters = node
        .broker()
        .node
        .quorum()
        .expect("runs")
        .status()
        .voters
        .clone();
    let other_id = ottla_types::BrokerId(other as i32 + 1);
    let directory_id = voters
        .voter(other_id)
        .and_then(|voter| voter.key.directory_id);
    let remove = RemoveRaftVoterRequest {
        cluster_id: None,
        voter_id: other_id.value(),
        voter_directory_id: directory_id.expect("is known by now"),
        ..Default::default()
    };
    let removed = client_of(node).await.ask(0, &remove).await;
    assert_eq!(removed.error_code, 0, "{removed:?}");
    until_raised(&quorum, 2).await;

    // Each start loads the newest snapshot.
    for (number, user) in ["bob", "carol"].into_iter().enumerate() {
        for node in &mut quorum.nodes {
            node.take().expect("runs").stop().await;
        }
        quorum.start_all().await;
        until_raised(&quorum, 2).await;
        quorum.write(user).await;
        quorum.all_know(number + 2).await;
        let node = quorum.nodes[other].as_ref().expect("runs");
        assert_eq!(advertised(node).await, (0, 1, Some(1)));
        for config in &quorum.configs {
            let dir = Path::new(&config.metadata_log_dir).join(METADATA_DIR);
            until("a snapshot has it", || has_snapshot_of_two(&dir)).await;
        }
    }
    for node in quorum.nodes.into_iter().flatten() {
        node.stop().await;
    }
}
