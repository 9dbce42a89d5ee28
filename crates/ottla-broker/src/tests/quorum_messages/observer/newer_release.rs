//! An observer whose controller writes something that only a newer release understands, in its log
//! or in a snapshot. It can be neither skipped nor fetched again: the node stops with a message,
//! and applies none of it.

use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Instant;

use bytes::Bytes;
use bytestring::ByteString;
use ottla_protocol::messages::{self, FetchSnapshotRequest};
use ottla_protocol::metadata_records::{FeatureLevelRecord, MetadataRecord, TopicRecord};
use ottla_protocol::raft_records::{SnapshotFooterRecord, SnapshotHeaderRecord};
use ottla_protocol::{ApiKey, Records};
use ottla_raft::wire::{AnswerParts, QuorumApi};
use ottla_raft::{
    CurrentLeader, FetchData, FetchRequest, Request, Response, SnapshotId, VoterEndpoint,
};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{BrokerId, ErrorCode, LeaderEpoch, Timestamp, Uuid};
use tokio::sync::oneshot;

use super::*;
use ottla_storage::metadata::record_batches::{ControlValue, control_batch};
use ottla_testkit::peer::{ReceivedRequest, peer};

const CLUSTER_ID: ByteString = ByteString::from_static("T3R0bGFQcm9jZXNzVGVzdA");
const EPOCH: LeaderEpoch = LeaderEpoch(3);

/// The log of a controller.
#[derive(Default)]
struct Led {
    /// Each batch with the offset of its first record, and the offset after its last one.
    batches: Vec<(Offset, Offset, Bytes)>,
    /// The state before the first batch.
    snapshot: Option<(SnapshotId, Bytes)>,
}

type Log = Arc<Mutex<Led>>;

fn batch_of(base_offset: Offset, values: &[Bytes]) -> Bytes {
    let mut batch = RecordBatchBuilder::new(Compression::None)
        .base_offset(base_offset)
        .partition_leader_epoch(EPOCH);
    for value in values {
        batch.append(Timestamp(1), None, Some(value), &[]);
    }
    batch.build_in_place()
}

fn append(log: &Log, values: &[Bytes]) {
    let mut log = log.lock();
    let last = log.batches.last();
    let base_offset = last.map_or(Offset::ZERO, |(_, end, _)| *end);
    let end = base_offset.plus(values.len() as i64);
    let batch = batch_of(base_offset, values);
    log.batches.push((base_offset, end, batch));
}

/// Replaces the log by a snapshot with additional values.
fn replace_by_snapshot(log: &Log, values: &[Bytes]) -> SnapshotId {
    let control = |offset, value| {
        let batch = control_batch(offset, EPOCH, Timestamp(1), &[value]).expect("can be said");
        batch.to_bytes()
    };
    let header = ControlValue::SnapshotHeader(SnapshotHeaderRecord::default());
    let footer = ControlValue::SnapshotFooter(SnapshotFooterRecord::default());
    let footer_offset = Offset(1 + values.len() as i64);
    let bytes = [
        control(Offset(0), header),
        batch_of(Offset(1), values),
        control(footer_offset, footer),
    ];
    let id = SnapshotId {
        end_offset: Offset(50),
        epoch: EPOCH,
    };
    let mut log = log.lock();
    log.batches.clear();
    log.snapshot = Some((id, Bytes::from(bytes.concat())));
    id
}

/// A leading controller that has committed all of its log. Returns its port.
async fn controller(log: &Log) -> u16 {
    let (log, own_port) = (Arc::clone(log), Arc::new(AtomicU16::new(0)));
    let port_of_leader = Arc::clone(&own_port);
    let react = move |asked: ReceivedRequest| {
        let log = log.lock();
        let current_leader = CurrentLeader {
            leader: Some(BrokerId(9)),
            epoch: EPOCH,
            endpoints: vec![VoterEndpoint {
                name: "CONTROLLER".into(),
                host: "127.0.0.1".into(),
                port: port_of_leader.load(Ordering::Relaxed),
            }],
        };
        let parts = |bytes: Bytes| AnswerParts {
            listener_name: "CONTROLLER",
            has_endpoints: true,
            records: Records::from(bytes),
        };
        let frame = match asked.api {
            ApiKey::Fetch => {
                let read = asked.request::<messages::FetchRequest>().read(&CLUSTER_ID);
                let Ok(Request::Fetch(request)) = read else {
                    panic!("{read:?}");
                };
                let (answer, bytes) = fetched(&log, &request, current_leader);
                let answer = Response::Fetch(answer);
                let response = messages::FetchRequest::answer(answer, parts(bytes));
                asked.answer(&response.expect("a Fetch"))
            }
            ApiKey::FetchSnapshot => {
                let read = asked.request::<FetchSnapshotRequest>().read(&CLUSTER_ID);
                let Ok(Request::FetchSnapshot(request)) = read else {
                    panic!("{read:?}");
                };
                let (id, bytes) = log.snapshot.as_ref().expect("it received a snapshot ID");
                assert_eq!((request.snapshot, request.position), (*id, 0));
                let answer = ottla_raft::FetchSnapshotResponse {
                    error: ErrorCode::None,
                    current_leader,
                    snapshot: Some(*id),
                    size_bytes: bytes.len() as i64,
                    position: 0,
                    length_bytes: bytes.len() as i64,
                };
                let answer = Response::FetchSnapshot(answer);
                let response = FetchSnapshotRequest::answer(answer, parts(bytes.clone()));
                asked.answer(&response.expect("a FetchSnapshot"))
            }
            other => panic!("an observer only fetches, and sends {other:?}"),
        };
        Some(vec![frame])
    };
    let port = peer(&[(ApiKey::Fetch, 18), (ApiKey::FetchSnapshot, 1)], react).await;
    own_port.store(port, Ordering::Relaxed);
    port
}

fn fetched(
    log: &Led,
    request: &FetchRequest,
    current_leader: CurrentLeader,
) -> (ottla_raft::FetchResponse, Bytes) {
    let snapshot = log.snapshot.as_ref().map(|(id, _)| *id);
    let start = snapshot.map_or(Offset::ZERO, |id| id.end_offset);
    let mut answer = ottla_raft::FetchResponse {
        error: ErrorCode::None,
        current_leader,
        log_start_offset: start,
        high_watermark: Some(log.batches.last().map_or(start, |(_, end, _)| *end)),
        data: FetchData::Empty,
    };
    let mut bytes = Bytes::new();
    let mut batches = log.batches.iter();
    if request.current_leader_epoch != EPOCH {
        answer.error = ErrorCode::FencedLeaderEpoch;
    } else if let Some(id) = snapshot.filter(|id| request.log_end.offset < id.end_offset) {
        answer.data = FetchData::Snapshot(id);
    } else if let Some((.., batch)) = batches.find(|(base, ..)| *base == request.log_end.offset) {
        bytes = batch.clone();
    }
    (answer, bytes)
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

/// Records of a newer release, and the expected words in the messages.
fn newer() -> [(Bytes, [&'static str; 2]); 2] {
    let unknown_record = Bytes::from_static(b"\x01\x63\x02");
    let of_record = ["record type 99 version 2", "written by a newer release"];
    let of_level = [
        "metadata.version 99 is not known",
        "raise or lower the level",
    ];
    [(unknown_record, of_record), (level(99), of_level)]
}

/// A node that has followed a controller and applied its log.
struct Following {
    handle: QuorumHandle,
    published: Arc<Mutex<Vec<MetadataDelta>>>,
    failed: oneshot::Receiver<String>,
    config: BrokerConfig,
}

impl Following {
    async fn of(log: &Log, dir: &Path) -> Following {
        append(log, &[level(30), topic("before")]);
        let port = controller(log).await;
        let config = formatted(dir, ([127, 0, 0, 1], port).into(), &CLUSTER_ID);
        let identity = read_identity(&config).expect("reads").expect("formatted");
        let opened = open(&config, &identity).expect("opens");
        let published = Arc::<Mutex<Vec<MetadataDelta>>>::default();
        let publish: Publish = {
            let published = Arc::clone(&published);
            Box::new(move |delta| published.lock().push(delta.clone()))
        };
        let (fail, failed) = oneshot::channel();
        let on_failure = move |reason| drop(fail.send(reason));
        let handle =
            quorum_handle::start(opened, Default::default(), publish, on_failure).expect("starts");
        let caught_up = tokio::time::timeout(PATIENCE, handle.caught_up());
        let image = caught_up.await.expect("in time").expect("lives");
        assert!(image.topics.by_name("before").is_some());
        assert!(handle.begin_publishing(Offset(-1)).await);
        assert_eq!(published.lock().len(), 1);
        Following {
            handle,
            published,
            failed,
            config,
        }
    }

    /// The node stops with these words and has applied nothing since. Returns its configuration.
    async fn ends_with(self, sentences: [&str; 2]) -> BrokerConfig {
        let failed = tokio::time::timeout(PATIENCE, self.failed);
        let reason = failed.await.expect("in time").expect("is said");
        for sentence in sentences {
            assert!(reason.contains(sentence), "{reason}");
        }
        self.handle.stop(Duration::ZERO).await;
        // The thread ends by itself at about that time.
        let give_up = Instant::now() + PATIENCE;
        while !self.handle.has_ended() {
            assert!(Instant::now() < give_up, "it did not stop");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let published = self.published.lock().len();
        assert_eq!(published, 1, "nothing of it is acted by");
        self.config
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_of_a_newer_release_stops_the_node() {
    for (newer, sentences) in newer() {
        let (log, dir) = (Log::default(), tempfile::tempdir().expect("a directory"));
        let following = Following::of(&log, dir.path()).await;
        append(&log, &[topic("along with it"), newer]);
        following.ends_with(sentences).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_snapshot_of_a_newer_release_stops_the_node() {
    for (newer, sentences) in newer() {
        let (log, dir) = (Log::default(), tempfile::tempdir().expect("a directory"));
        let following = Following::of(&log, dir.path()).await;
        let of_before = [level(30), topic("before"), topic("along with it")];
        let is_read = newer == level(99);
        let id = replace_by_snapshot(&log, &[&of_before[..], &[newer][..]].concat());
        let config = following.ends_with(sentences).await;

        // An unreadable snapshot was not kept, and the node starts where it was. A readable one is
        // now the state of the cluster, and is rejected again.
        let kept = dir.path().join("__cluster_metadata-0").join(id.file_name());
        assert_eq!(kept.exists(), is_read);
        let identity = read_identity(&config).expect("reads").expect("formatted");
        match open(&config, &identity) {
            Ok(_) => assert!(!is_read),
            Err(reason) => assert!(is_read && reason.contains(sentences[0]), "{reason}"),
        }
    }
}
