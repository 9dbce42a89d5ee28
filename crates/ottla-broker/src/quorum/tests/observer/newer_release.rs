//! An observer whose controller comes to write what only a newer release understands. It can be neither skipped nor asked
//! for again: the node ends with a sentence, and acts by nothing of it.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::FetchRequest;
use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord, TopicRecord};
use ottla_protocol::{ApiKey, Records};
use ottla_raft::{CurrentLeader, FetchData, Request, VoterEndpoint};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Timestamp, Uuid};
use tokio::sync::oneshot;

use super::*;
use crate::api::fetch_metadata_log;
use crate::quorum::served::ServedData;
use crate::tests::peer::{Asked, peer};

const CLUSTER_ID: ByteString = ByteString::from_static("T3R0bGFQcm9jZXNzVGVzdA");
const EPOCH: LeaderEpoch = LeaderEpoch(3);

/// The log of a controller; each batch with the offset of its first record, and that behind its last.
type Log = Arc<Mutex<Vec<(Offset, Offset, Bytes)>>>;

fn append(log: &Log, values: &[Bytes]) {
    let mut log = log.lock();
    let base_offset = log.last().map_or(Offset::ZERO, |(_, end, _)| *end);
    let mut batch = RecordBatchBuilder::new(Compression::None)
        .base_offset(base_offset)
        .partition_leader_epoch(EPOCH);
    for value in values {
        batch.append(Timestamp(1), None, Some(value), &[]);
    }
    let end = base_offset.plus(values.len() as i64);
    log.push((base_offset, end, batch.build_in_place()));
}

/// A controller that leads, and has committed all of its log. Returns its port.
async fn controller(log: &Log) -> u16 {
    let (log, own_port) = (Arc::clone(log), Arc::new(AtomicU16::new(0)));
    let port_of_leader = Arc::clone(&own_port);
    let react = move |asked: Asked| {
        let request: FetchRequest = asked.request();
        let Ok(Request::Fetch(request)) = fetch_metadata_log::read(request, &CLUSTER_ID) else {
            panic!("an observer only fetches");
        };
        let log = log.lock();
        let mut answer = ottla_raft::FetchResponse {
            error: ErrorCode::None,
            current_leader: CurrentLeader {
                leader: Some(BrokerId(9)),
                epoch: EPOCH,
                endpoints: vec![VoterEndpoint {
                    name: "CONTROLLER".into(),
                    host: "127.0.0.1".into(),
                    port: port_of_leader.load(Ordering::Relaxed),
                }],
            },
            log_start_offset: Offset::ZERO,
            high_watermark: log.last().map(|(_, end, _)| *end),
            data: FetchData::Empty,
        };
        let mut data = ServedData::None;
        let mut batches = log.iter();
        if request.current_leader_epoch != EPOCH {
            answer.error = ErrorCode::FencedLeaderEpoch;
        } else if let Some((.., batch)) = batches.find(|(base, ..)| *base == request.log_end.offset)
        {
            data = ServedData::Records(Records::from(batch.clone()));
        }
        let version = asked.header.request_api_version;
        let response = fetch_metadata_log::write(&answer, data, "CONTROLLER", version);
        Some(vec![asked.answer(&response)])
    };
    let port = peer(&[(ApiKey::Fetch, 18)], react).await;
    own_port.store(port, Ordering::Relaxed);
    port
}

fn level(feature_level: i16) -> Bytes {
    let record = MetadataRecord::from(FeatureLevelRecord {
        name: "metadata.version".into(),
        feature_level,
        ..Default::default()
    });
    record.encode().expect("can be said")
}

fn topic(name: &'static str) -> Bytes {
    let record = MetadataRecord::from(TopicRecord {
        name: name.into(),
        topic_id: Uuid::from_u128(name.len() as u128),
        ..Default::default()
    });
    record.encode().expect("can be said")
}

#[tokio::test(flavor = "multi_thread")]
async fn what_only_a_newer_release_understands_ends_the_node_and_is_not_acted_by() {
    let unknown_record = Bytes::from_static(b"\x01\x63\x02");
    for (newer, sentences) in [
        (
            unknown_record,
            ["record type 99 version 2", "written by a newer release"],
        ),
        (
            level(99),
            [
                "metadata.version 99 is not known",
                "raise or lower the level",
            ],
        ),
    ] {
        let log = Log::default();
        append(&log, &[level(30), topic("before")]);
        let port = controller(&log).await;
        let dir = tempfile::tempdir().expect("a directory");
        let config = formatted(dir.path(), ([127, 0, 0, 1], port).into(), &CLUSTER_ID);
        let identity = read_identity(&config).expect("reads").expect("formatted");
        let opened = quorum::open(&config, &identity).expect("opens");
        let published = Arc::<Mutex<Vec<MetadataDelta>>>::default();
        let publish: Publish = {
            let published = Arc::clone(&published);
            Box::new(move |delta| published.lock().push(delta.clone()))
        };
        let (fail, failed) = oneshot::channel();
        let on_failure = move |reason| drop(fail.send(reason));
        let handle = quorum::start(opened, publish, on_failure).expect("starts");
        let caught_up = tokio::time::timeout(PATIENCE, handle.caught_up());
        let image = caught_up.await.expect("in time").expect("lives");
        assert!(image.topics.by_name("before").is_some());
        handle.begin_publishing(Offset(-1)).await;
        assert_eq!(published.lock().len(), 1);

        append(&log, &[topic("along with it"), newer]);
        let failed = tokio::time::timeout(PATIENCE, failed);
        let reason = failed.await.expect("in time").expect("is said");
        for sentence in sentences {
            assert!(reason.contains(sentence), "{reason}");
        }
        handle.stop(Duration::ZERO).await;
        // The thread ends by itself, at about that time.
        let give_up = Instant::now() + PATIENCE;
        while !handle.has_ended() {
            assert!(Instant::now() < give_up, "it goes on");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(published.lock().len(), 1, "nothing of it is acted by");
    }
}
