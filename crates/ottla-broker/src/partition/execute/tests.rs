//! What becomes of flushes and maintenance when the disk is full or fails, and of what a leader does not have.

use std::io::ErrorKind;
use std::time::Instant;

use ottla_log::checkpoint::{
    CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT,
};
use ottla_protocol::metadata_records::{MetadataRecord, PartitionChangeRecord};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::Timestamp;

use super::*;
use crate::tests::said::Said;
use crate::tests::{TestBroker, topic_id};

fn error(kind: ErrorKind) -> StorageError {
    StorageError::new("create", "spare.log.deleted".as_ref(), kind.into())
}

/// A partition with a flush under way and another wanted up to here.
async fn flushing(wanted: Option<Offset>) -> (TestBroker, Arc<Partition>) {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    let partition = broker.partition("orders", 0);
    partition.stepped.lock().flush = FlushState::Running(wanted);
    (broker, partition)
}

fn flush_of(partition: &Partition) -> FlushState {
    partition.stepped.lock().flush
}

#[tokio::test]
async fn maintenance_that_fails_leaves_the_flush_alone() {
    let (broker, partition) = flushing(Some(Offset(5))).await;
    let failed =
        PartitionEvent::JobFailed(partition.reader().clone(), error(ErrorKind::StorageFull));
    partition.put(broker.broker(), failed);
    assert_eq!(flush_of(&partition), FlushState::Running(Some(Offset(5))));
    assert!(partition.is_leader());
    let failed = PartitionEvent::JobFailed(partition.reader().clone(), error(ErrorKind::Other));
    partition.put(broker.broker(), failed);
    assert!(!partition.is_leader());
}

#[tokio::test]
async fn a_flush_that_a_full_disk_refused_is_tried_again_with_what_was_wanted_meanwhile() {
    for (wanted, kept) in [(None, 3), (Some(Offset(7)), 7)] {
        let (broker, partition) = flushing(wanted).await;
        let refused = PartitionEvent::FlushEnded {
            log: partition.reader().clone(),
            up_to: Offset(3),
            result: Err(error(ErrorKind::StorageFull)),
        };
        partition.put(broker.broker(), refused);
        assert_eq!(
            flush_of(&partition),
            FlushState::Running(Some(Offset(kept)))
        );
        let deadline = Instant::now() + 10 * FLUSH_RETRY;
        while flush_of(&partition) != FlushState::Idle {
            assert!(Instant::now() < deadline, "nobody tries again");
            tokio::time::sleep(2 * FLUSH_RETRY).await;
        }
        assert!(partition.is_leader());
    }
}

/// A batch of one record, and its acknowledgement.
fn append_to(
    broker: &TestBroker,
    partition: &Arc<Partition>,
    value: &[u8],
) -> tokio::sync::oneshot::Receiver<AckOutcome> {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp(0), None, Some(value), &[]);
    let (released, outcome) = tokio::sync::oneshot::channel();
    let append = PendingAppend {
        batch: builder.build(),
        required_acks: ottla_replica::RequiredAcks::Leader,
        expected_leader_epoch: None,
        of_transaction: crate::partition::OfTransaction::No,
        deadline_ms: u64::MAX,
        ack: Ack::Internal(released),
    };
    partition.append(broker.broker(), append);
    outcome
}

#[tokio::test]
async fn a_flush_that_a_truncation_has_overtaken_is_made_again() {
    let broker = TestBroker::start().await;
    broker
        .create_topic("orders", 1, &[("flush.messages", "1")])
        .await;
    let partition = broker.partition("orders", 0);
    // One is under way, of records that were cut off, with the same offsets as the one that comes now.
    partition.stepped.lock().flush = FlushState::Running(None);
    let mut acknowledged = append_to(&broker, &partition, b"x");
    let ended = PartitionEvent::FlushEnded {
        log: partition.reader().clone(),
        up_to: Offset(1),
        result: Ok(()),
    };
    assert!(acknowledged.try_recv().is_err());
    partition.put(broker.broker(), ended);
    acknowledged.await.expect("it is released");
    assert_eq!(partition.reader().recovery_point(), Offset(1));
}

#[tokio::test]
async fn a_batch_larger_than_a_segment_is_refused_alone() {
    let broker = TestBroker::start().await;
    broker
        .create_topic("orders", 1, &[("segment.bytes", "1048576")])
        .await;
    let partition = broker.partition("orders", 0);
    // Both wait in the inbox, and so are written in one call if they are written.
    let turn = partition.reserve(broker.broker(), 1);
    let mut outcomes = Vec::new();
    for value_bytes in [10, 2 << 20, 10] {
        outcomes.push(append_to(&broker, &partition, &vec![b'x'; value_bytes]));
    }
    drop(turn);
    let mut released = Vec::new();
    for outcome in outcomes {
        released.push(outcome.await.expect("is released"));
    }
    assert_eq!(
        released,
        [
            AckOutcome::Appended {
                base_offset: Offset(0)
            },
            AckOutcome::RefusedForProducer(ErrorCode::RecordListTooLarge),
            AckOutcome::Appended {
                base_offset: Offset(1)
            },
        ]
    );
}

/// Set for the process that is to panic.
const PANIC: &str = "OTTLA_TEST_PANIC";

#[tokio::test]
async fn a_panic_while_a_partition_is_stepped_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;

    if std::env::var_os(PANIC).is_some() {
        let broker = TestBroker::start().await;
        broker.create_topic("orders", 1, &[]).await;
        let panic = Box::new(|_: &mut Log| panic!("a broken invariant"));
        let partition = broker.partition("orders", 0);
        partition.put(broker.broker(), PartitionEvent::Work(panic));
        return;
    }
    let this = std::thread::current();
    let name = this.name().expect("tests run on threads of their name");
    let status = std::process::Command::new(std::env::current_exe().expect("a binary"))
        .args(["--exact", name])
        .env(PANIC, "1")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .status()
        .expect("it can be started");
    const ABORTED: i32 = 6;
    assert_eq!(status.signal(), Some(ABORTED), "{status}");
}

/// Who had them acknowledged has lost them, after an unclean election.
#[tokio::test]
async fn a_cut_of_committed_records_is_warned_of_and_no_other() {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    let partition = broker.partition("orders", 0);
    for _ in 0..3 {
        let acknowledged = append_to(&broker, &partition, b"x");
        acknowledged.await.expect("it is released");
    }
    let without_leader = PartitionChangeRecord {
        partition_id: 0,
        topic_id: topic_id("orders"),
        leader: -1,
        ..Default::default()
    };
    broker
        .write(vec![MetadataRecord::PartitionChange(without_leader)])
        .await;
    let said = Said::listen();
    let cut_to = |offset| {
        let cut = Truncation::To(Offset(offset));
        let mut stepped = partition.stepped.lock();
        stepped.truncate(&partition, broker.broker(), cut);
    };
    cut_to(1);
    let sentence =
        "the log was cut from 3 to 1, where the leader's left it, though all below 3 was committed";
    let text = said.text();
    assert!(text.contains("WARN") && text.contains(sentence), "{text}");
    // What is left is committed, and all of it stays.
    cut_to(1);
    assert_eq!(said.text().matches("WARN").count(), 1, "{}", said.text());
}

fn cut(broker: &TestBroker, partition: &Arc<Partition>, to: i64) {
    let cut = Truncation::To(Offset(to));
    let mut stepped = partition.stepped.lock();
    stepped.truncate(partition, broker.broker(), cut);
}

async fn with_three_records() -> (TestBroker, Arc<Partition>) {
    let broker = TestBroker::start().await;
    broker.create_topic("orders", 1, &[]).await;
    let partition = broker.partition("orders", 0);
    for _ in 0..3 {
        let acknowledged = append_to(&broker, &partition, b"x");
        acknowledged.await.expect("it is released");
    }
    (broker, partition)
}

#[tokio::test]
async fn a_cut_lowers_what_the_checkpoints_say_first() {
    let (broker, partition) = with_three_records().await;
    let reader = partition.reader();
    let flush = partition.stepped.lock().log.flush_job();
    flush.expect("there is something to flush").run().unwrap();
    assert_eq!(reader.recovery_point(), Offset(3));
    let dir = reader.dir();
    let dir = dir.parent().expect("a log directory");
    let log_dirs = broker.broker().log_dirs().expect("there are directories");
    log_dirs.checkpoint_all_recovery_points();
    let offsets = [(partition.topic_partition.clone(), Offset(3))].into();
    let cleaned = OffsetCheckpoint { offsets };
    cleaned.write(&dir.join(CLEANER_OFFSET_CHECKPOINT)).unwrap();
    let written = |file| {
        let checkpoint = OffsetCheckpoint::read(&dir.join(file)).unwrap();
        checkpoint.offsets[&partition.topic_partition].0
    };
    let written = || [RECOVERY_POINT_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT].map(written);
    // Where nothing is cut off, nothing is written.
    cut(&broker, &partition, 3);
    assert_eq!(written(), [3, 3]);
    cut(&broker, &partition, 2);
    assert_eq!(written(), [1, 2]);
    // Also where the cut is not made in the end.
    let fault = std::io::Error::from_raw_os_error(28);
    partition.stepped.lock().replicating.truncation_fault = Some(fault);
    cut(&broker, &partition, 1);
    assert_eq!(written(), [0, 1]);
    assert_eq!(reader.log_end_offset(), Offset(2));
}

#[tokio::test]
async fn a_cut_for_which_something_is_lacking_loses_no_replica() {
    const ENOSPC: i32 = 28;
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    const ENOMEM: i32 = 12;
    const EINTR: i32 = 4;
    let (broker, partition) = with_three_records().await;
    let log_dirs = broker.broker().log_dirs().expect("there are directories");
    for lacking in [ENOSPC, EMFILE, ENFILE, ENOMEM, EINTR] {
        let fault = std::io::Error::from_raw_os_error(lacking);
        partition.stepped.lock().replicating.truncation_fault = Some(fault);
        cut(&broker, &partition, 1);
        assert!(!partition.stepped.lock().replica.is_lost(), "{lacking}");
        assert_eq!(partition.reader().log_end_offset(), Offset(3));
        assert!(log_dirs.is_online(&partition.reader()), "{lacking}");
    }
    cut(&broker, &partition, 1);
    assert_eq!(partition.reader().log_end_offset(), Offset(1));
}

#[tokio::test]
async fn a_cut_that_fails_takes_the_directory_offline() {
    const EIO: i32 = 5;
    let (broker, partition) = with_three_records().await;
    let log_dirs = broker.broker().log_dirs().expect("there are directories");
    let fault = std::io::Error::from_raw_os_error(EIO);
    partition.stepped.lock().replicating.truncation_fault = Some(fault);
    let cut = PartitionEvent::Truncate(Truncation::To(Offset(1)));
    partition.put(broker.broker(), cut);
    let deadline = Instant::now() + Duration::from_secs(10);
    while log_dirs.is_online(&partition.reader()) || partition.is_leader() {
        assert!(Instant::now() < deadline, "the directory stays online");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(partition.reader().log_end_offset(), Offset(3));
}
