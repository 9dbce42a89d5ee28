use std::path::PathBuf;
use std::sync::OnceLock;

use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_replica::{AckOutcome, AlterPartition, FetchPosition, RequiredAcks};
use ottla_types::{DirectoryId, Offset, Timestamp};

use super::*;
use crate::partition::host::Replicate;
use crate::partition::{LeaderFetcher, OfTransaction, PendingAppend};
use crate::test_host::{TOPIC_ID, TestHost, led_topic};

/// A change of the only partition of [`TestHost::lead`]; all replicas are in sync.
fn reassigned(replicas: &[i32], leader: i32) -> MetadataRecord {
    MetadataRecord::PartitionChange(PartitionChangeRecord {
        partition_id: 0,
        topic_id: TOPIC_ID,
        replicas: Some(replicas.to_vec()),
        isr: Some(replicas.to_vec()),
        directories: Some(vec![DirectoryId::from_u128(9); replicas.len()]),
        leader,
        ..Default::default()
    })
}

/// Kafka: `ReplicaManager.stopPartitions`, which completes the delayed requests.
#[tokio::test]
async fn appends_of_a_leader_that_was_moved_away_are_refused_as_not_led_here() {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    host.apply(vec![reassigned(&[1, 2], 1)]);
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp(0), None, Some(b"x"), &[]);
    let (released, mut outcome) = ottla_sync::oneshot::channel();
    let append = PendingAppend {
        batch: builder.build(),
        required_acks: RequiredAcks::All,
        expected_leader_epoch: None,
        of_transaction: OfTransaction::No,
        deadline_ms: u64::MAX,
        ack: Ack::Internal(released),
    };
    partition.append(&host.host, append);
    while partition.reader().log_end_offset() < Offset(1) {
        ottla_sync::time::sleep(Duration::from_millis(1)).await;
    }
    assert!(outcome.try_recv().is_err(), "the other replica lacks it");
    let log = partition.reader().dir();
    host.change(vec![reassigned(&[2], 2)], |_| {
        assert!(log.exists(), "deleting it would delay the response");
    });
    assert!(!log.exists());
    assert_eq!(outcome.await.ok(), Some(AckOutcome::NotLeader));
    assert!(!partition.is_leader());
}

/// A fetcher that notes whether a directory exists when it is stopped.
#[derive(Debug, Default)]
struct Witness {
    log: OnceLock<PathBuf>,
    found: Mutex<Vec<bool>>,
}

impl LeaderFetcher for Witness {
    fn is_for(&self, _: BrokerId, _: &TopicPartition) -> bool {
        true
    }

    fn order(&self, _: &Arc<Partition>, _: FetchPosition) {}

    fn stop(&self, _: &Partition) {
        let log = self.log.get().expect("it is set before the election");
        self.found.lock().push(log.exists());
    }

    fn list_leader_offsets(&self, _: &Arc<Partition>, _: LeaderEpoch) {}
}

impl Replicate for Witness {
    fn fetcher(self: Arc<Self>, _: BrokerId, _: &TopicPartition) -> Arc<dyn LeaderFetcher> {
        self
    }

    fn propose(self: Arc<Self>, _: &Arc<Partition>, _: AlterPartition, _: bool) {}
}

#[tokio::test]
async fn a_replica_leads_before_the_logs_of_the_same_change_are_opened() {
    let data = tempfile::tempdir().expect("a directory");
    let witness = Arc::new(Witness::default());
    let replicate = Arc::clone(&witness) as Arc<dyn Replicate>;
    let host = TestHost::start_with(data.path(), Some(replicate));
    let partition = host.lead(&[]);
    let dir = partition.reader().dir();
    let log_dir = dir.parent().expect("the log directory");
    let new = log_dir.join("new-0");
    witness.log.set(new.clone()).expect("it is set once");
    host.apply(vec![reassigned(&[1, 2], 2)]);
    assert!(!partition.is_leader());

    let mut records = led_topic("new", TopicId::from_u128(5), 1);
    records.push(reassigned(&[1, 2], 1));
    host.apply(records);
    assert!(partition.is_leader() && new.exists());
    assert_eq!(*witness.found.lock(), [false]);
}

/// Otherwise a directory move could forget its copy before the deletion finds it.
#[tokio::test]
async fn the_log_of_a_moved_replica_is_deleted_before_the_partition_loses_it() {
    let data = tempfile::tempdir().expect("a directory");
    let witness = Arc::new(Witness::default());
    let replicate = Arc::clone(&witness) as Arc<dyn Replicate>;
    let host = TestHost::start_with(data.path(), Some(replicate));
    let partition = host.lead(&[]);
    let log = partition.reader().dir();
    witness.log.set(log.clone()).expect("it is set once");
    host.apply(vec![reassigned(&[1, 2], 2)]);
    assert!(witness.found.lock().is_empty() && log.exists());

    host.apply(vec![reassigned(&[2], 2)]);
    assert_eq!(*witness.found.lock(), [false]);
}

/// The new name of its directory is forced after the change, and only then are its files removed.
#[tokio::test]
async fn the_files_of_a_moved_replica_are_removed() {
    let host = TestHost::start();
    let partition = host.lead(&[("file.delete.delay.ms", "0")]);
    let log = partition.reader().dir();
    let log_dir = log.parent().expect("the log directory").to_owned();
    host.apply(vec![reassigned(&[2], 2)]);
    assert!(!log.exists());
    let is_removed = || {
        let entries = std::fs::read_dir(&log_dir).expect("it is there");
        let mut names = entries.map(|entry| entry.expect("an entry").file_name());
        !names.any(|name| name.to_string_lossy().ends_with("-delete"))
    };
    let removed = async {
        while !is_removed() {
            ottla_sync::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let removed = ottla_sync::time::timeout(Duration::from_secs(60), removed).await;
    assert!(removed.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_with_very_many_replicas_takes_up_all() {
    let host = TestHost::start();
    // Of two threads, and the registration of the broker makes it a start.
    let partitions = host.lead_topics(400);
    assert_eq!(host.partitions.load().iter().count(), partitions.len());
    for partition in &partitions {
        let name = &partition.topic_partition;
        assert!(partition.is_leader(), "{name}");
        assert_eq!(partition.reader().topic_partition(), name);
    }
    // The broker is fenced, and then unfenced.
    for leader in [-1, 1] {
        let changes = partitions.iter().map(|partition| {
            MetadataRecord::PartitionChange(PartitionChangeRecord {
                partition_id: partition.topic_partition.partition.into(),
                topic_id: partition.topic_id,
                leader,
                ..Default::default()
            })
        });
        host.apply(changes.collect());
        for partition in &partitions {
            let name = &partition.topic_partition;
            assert_eq!(partition.is_leader(), leader == 1, "{name}");
        }
    }
}
