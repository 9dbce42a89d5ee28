//! Raising `kraft.version` from 0 to 1 in a running quorum with static voters.

use ottla_protocol::messages::update_features_request::FeatureUpdateKey;
use ottla_protocol::messages::{UpdateFeaturesRequest, UpdateFeaturesResponse};
use ottla_raft::KRaftVersion;

use super::*;
use crate::controller::requests::ControllerRequest;
use ottla_storage::format::{FormatOptions, InitialQuorum, format};

/// The configuration of a node that is the only static voter.
fn static_quorum(data: &Path) -> BrokerConfig {
    let voters = ("controller.quorum.voters", "1@127.0.0.1:9093");
    let mut properties = properties_of(data, &[voters]);
    properties.set("controller.quorum.bootstrap.servers", "");
    let config = config_of(&properties);
    let options = FormatOptions {
        cluster_id: "AAAAAAAAAAAAAAAAAAAAZA".to_owned(),
        quorum: InitialQuorum::Static,
        metadata_version: ottla_metadata::MetadataVersion::LATEST_PRODUCTION,
        feature_levels: Default::default(),
        scram_records: Vec::new(),
        ignore_formatted: false,
    };
    format(&config, &options).expect("formats");
    config
}

fn open(config: &BrokerConfig) -> Controller {
    let identity = read_identity(config).expect("reads").expect("is formatted");
    let mut controller = crate::open::open(config, &identity).expect("leads");
    controller.settle().expect("commits");
    controller
}

type Answers = Arc<Mutex<Vec<UpdateFeaturesResponse>>>;

fn upgrade(answers: &Answers, level: i16, validate_only: bool) -> Work {
    let answers = Arc::clone(answers);
    let request = UpdateFeaturesRequest {
        feature_updates: vec![FeatureUpdateKey {
            feature: "kraft.version".into(),
            max_version_level: level,
            upgrade_type: 1,
            ..Default::default()
        }],
        validate_only,
        ..Default::default()
    };
    Work::Decide(Box::new(move |context, facts| {
        let decision = request.decide(context, facts);
        Decided {
            kraft_version: decision.kraft_version,
            records: decision.records,
            reply: Box::new(move |outcome| {
                outcome.expect("is committed");
                answers.lock().push(decision.response);
            }),
        }
    }))
}

/// Serves work that shares one flush.
fn serve(controller: &mut Controller, works: Vec<Work>) {
    let (sender, receiver) = thread_channel::channel();
    let mut works = works.into_iter();
    let first = works.next().expect("there is something");
    for work in works {
        sender.send(work).expect("is received");
    }
    let served = controller.serve(first, &receiver, &mut None);
    served.expect("the controller continues");
}

fn create(name: &'static str) -> Work {
    Work::Decide(Box::new(move |_, _| Decided {
        kraft_version: None,
        records: vec![MetadataRecord::Topic(TopicRecord {
            name: name.into(),
            topic_id: Uuid([name.as_bytes()[0]; 16]),
            ..Default::default()
        })],
        reply: Box::new(|outcome| assert!(outcome.is_ok(), "is committed")),
    }))
}

#[test]
fn the_only_voter_raises_the_version_permanently() {
    let data = tempfile::tempdir().expect("a directory");
    let config = static_quorum(data.path());
    let answers = Answers::default();
    let mut controller = open(&config);
    let configured = controller.quorum.voters().clone();
    assert_eq!(controller.quorum.kraft_version(), KRaftVersion::V0);

    serve(&mut controller, vec![upgrade(&answers, 1, true)]);
    assert_eq!(controller.quorum.kraft_version(), KRaftVersion::V0);
    let works = vec![create("a"), upgrade(&answers, 1, false), create("b")];
    serve(&mut controller, works);
    assert_eq!(topics(controller.image()), ["a", "b"]);
    assert_eq!(controller.quorum.kraft_version(), KRaftVersion::V1);
    let end = controller.log.log_end_offset();
    serve(&mut controller, vec![upgrade(&answers, 1, false)]);
    assert_eq!(controller.log.log_end_offset(), end, "it has that level");
    let errors: Vec<i16> = answers.lock().iter().map(|it| it.error_code).collect();
    assert_eq!(errors, [0, 0, 0]);
    serve(&mut controller, vec![upgrade(&answers, 0, false)]);
    let refused = answers.lock().pop().expect("is answered");
    assert_eq!(refused.error_code, ErrorCode::InvalidUpdateVersion.code());
    drop(controller);

    let controller = open(&config);
    assert_eq!(controller.quorum.kraft_version(), KRaftVersion::V1);
    let local = controller.quorum.local_key();
    assert!(local.directory_id.is_some() && controller.quorum.voters().is_voter(local));
    assert_eq!(topics(controller.image()), ["a", "b"]);
    // If this record were truncated as uncommitted, the configuration would define the voters
    // again.
    let mut control_records = controller.quorum.control_records().clone();
    control_records.truncate_new_entries(Offset::ZERO);
    assert_eq!(control_records.last_voters(), &configured);
}

#[test]
fn a_full_disk_prevents_the_upgrade() {
    let data = tempfile::tempdir().expect("a directory");
    let config = static_quorum(data.path());
    let mut controller = open(&config);
    let outcomes: Arc<Mutex<Vec<Result<(), ErrorCode>>>> = Arc::default();
    let noted = |work: Work| {
        let outcomes = Arc::clone(&outcomes);
        let Work::Decide(decide) = work else {
            unreachable!("only decisions are made here");
        };
        Work::Decide(Box::new(move |context, facts| Decided {
            reply: Box::new(move |outcome| outcomes.lock().push(outcome.map(drop))),
            ..decide(context, facts)
        }))
    };
    controller.log.faults.1 = Some(ErrorKind::StorageFull);
    let works = vec![create("a"), upgrade(&Answers::default(), 1, false)];
    serve(&mut controller, works.into_iter().map(noted).collect());
    assert_eq!(*outcomes.lock(), [REFUSED, REFUSED]);
    assert_eq!(controller.quorum.kraft_version(), KRaftVersion::V0);
    assert!(topics(controller.image()).is_empty());
}
