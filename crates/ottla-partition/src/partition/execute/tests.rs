//! Flushes and maintenance on a full or failing disk, and truncations.

use std::io::ErrorKind;
use std::time::Instant;

use ottla_coordinator::TransactionalProducer;
use ottla_log::checkpoint::{
    CLEANER_OFFSET_CHECKPOINT, OffsetCheckpoint, RECOVERY_POINT_CHECKPOINT,
};
use ottla_records::control::{ControlRecordType, EndTxnMarker, end_txn_batch};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_replica::FetchPosition;
use ottla_types::{BrokerId, LeaderEpoch, ProducerEpoch, ProducerId, Sequence, Timestamp};

use super::*;
use crate::partition::Waiter;
use crate::partition::event::TopicIdEvent;
use crate::partition::leader_answer::{Answered, LeaderAnswer};
use crate::partition::producer_transaction::{AddedBy, AskedFor, ProducerTransaction};
use crate::test_host::TestHost;
use ottla_testkit::said::Said;

fn error(kind: ErrorKind) -> StorageError {
    StorageError::new("create", "spare.log.deleted".as_ref(), kind.into())
}

/// A partition with a running flush and another one wanted up to this offset.
async fn flushing(wanted: Option<Offset>) -> (TestHost, Arc<Partition>) {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    partition.state.lock().flush = FlushState::Running(wanted);
    (host, partition)
}

fn flush_of(partition: &Partition) -> FlushState {
    partition.state.lock().flush
}

#[tokio::test]
async fn maintenance_that_fails_leaves_the_flush_alone() {
    let (host, partition) = flushing(Some(Offset(5))).await;
    let failed =
        PartitionEvent::JobFailed(partition.reader().clone(), error(ErrorKind::StorageFull));
    partition.put(&host.host, failed);
    assert_eq!(flush_of(&partition), FlushState::Running(Some(Offset(5))));
    assert!(partition.is_leader());
    let failed = PartitionEvent::JobFailed(partition.reader().clone(), error(ErrorKind::Other));
    partition.put(&host.host, failed);
    assert!(!partition.is_leader());
}

#[tokio::test]
async fn a_flush_refused_by_a_full_disk_is_retried_up_to_the_latest_request() {
    for (wanted, kept) in [(None, 3), (Some(Offset(7)), 7)] {
        let (host, partition) = flushing(wanted).await;
        let refused = PartitionEvent::FlushEnded {
            log: partition.reader().clone(),
            up_to: Offset(3),
            result: Err(error(ErrorKind::StorageFull)),
        };
        partition.put(&host.host, refused);
        assert_eq!(
            flush_of(&partition),
            FlushState::Running(Some(Offset(kept)))
        );
        let deadline = Instant::now() + 60 * FLUSH_RETRY;
        while flush_of(&partition) != FlushState::Idle {
            assert!(Instant::now() < deadline, "no retry");
            tokio::time::sleep(2 * FLUSH_RETRY).await;
        }
        assert!(partition.is_leader());
    }
}

/// A batch of one record, and its acknowledgement.
fn append_of(value: &[u8]) -> (PendingAppend, ottla_sync::oneshot::Receiver<AckOutcome>) {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp(0), None, Some(value), &[]);
    let (released, outcome) = ottla_sync::oneshot::channel();
    let append = PendingAppend {
        batch: builder.build(),
        required_acks: ottla_replica::RequiredAcks::Leader,
        expected_leader_epoch: None,
        of_transaction: crate::partition::OfTransaction::No,
        deadline_ms: u64::MAX,
        ack: Ack::Internal(released),
    };
    (append, outcome)
}

fn append_to(
    host: &TestHost,
    partition: &Arc<Partition>,
    value: &[u8],
) -> ottla_sync::oneshot::Receiver<AckOutcome> {
    let (append, outcome) = append_of(value);
    partition.append(&host.host, append);
    outcome
}

/// A follower that waits for its topic ID would miss the next fetch, which may wait at the leader.
#[tokio::test]
async fn a_response_without_records_passes_only_the_hold_for_a_topic_id() {
    // A directory move holds as well, with or without a hold for the topic ID.
    for (topic_id_file, holds, is_held) in [
        (TopicIdFile::Underway(Vec::new()), 1, false),
        (TopicIdFile::OnDisk, 1, true),
        (TopicIdFile::Underway(Vec::new()), 2, true),
    ] {
        let host = TestHost::start();
        let partition = host.lead(&[]);
        {
            let mut state = partition.state.lock();
            state.topic_id_file = topic_id_file;
            (0..holds).for_each(|_| state.held.hold());
        }
        let answer = LeaderAnswer {
            order: FetchPosition {
                leader: BrokerId(2),
                leader_epoch: LeaderEpoch(0),
                fetch_offset: Offset(0),
                last_fetched_epoch: None,
                is_in_sync: false,
            },
            result: Ok(Answered::Records {
                batches: Vec::new(),
                high_watermark: Offset(0),
                log_start_offset: Offset(0),
            }),
        };
        partition.on_leader_answered(&host.host, answer);
        let mut state = partition.state.lock();
        state.held.let_all_go();
        assert_eq!(state.held.pop().is_some(), is_held);
    }
}

#[tokio::test]
async fn a_flush_that_a_truncation_has_overtaken_is_made_again() {
    let host = TestHost::start();
    let partition = host.lead(&[("flush.messages", "1")]);
    // A flush is running, of truncated records with the same offsets as the next one.
    partition.state.lock().flush = FlushState::Running(None);
    let mut acknowledged = append_to(&host, &partition, b"x");
    let ended = PartitionEvent::FlushEnded {
        log: partition.reader().clone(),
        up_to: Offset(1),
        result: Ok(()),
    };
    assert!(acknowledged.try_recv().is_err());
    partition.put(&host.host, ended);
    acknowledged.await.expect("it is released");
    assert_eq!(partition.reader().recovery_point(), Offset(1));
}

#[tokio::test]
async fn a_flush_with_nothing_to_do_is_reported_after_older_effects() {
    let host = TestHost::start();
    let partition = host.lead(&[("flush.messages", "1")]);
    let first = append_to(&host, &partition, b"x");
    first.await.expect("it is acknowledged");
    // Other threads that report a flush have to wait.
    let mut state = partition.state.lock();
    state.flush = FlushState::Running(None);
    let (append, _outcome) = append_of(b"x");
    state.take(&partition, &host.host, PartitionEvent::Append(append));
    state.write(&partition, &host.host);
    state.flush = FlushState::Idle;
    let job = state.log.flush_job().expect("the batch is not flushed");
    job.run().unwrap();
    assert_eq!(partition.reader().high_watermark(), Offset(1));
    let mut of_one_step = vec![
        Effect::Flush { up_to: Offset(2) },
        Effect::AdvanceHighWatermark {
            high_watermark: Offset(1),
        },
    ];
    state.execute_all(&partition, &host.host, &mut of_one_step);
    assert_eq!(partition.reader().high_watermark(), Offset(2));
}

#[tokio::test]
async fn a_batch_larger_than_a_segment_is_refused_alone() {
    let host = TestHost::start();
    let partition = host.lead(&[("segment.bytes", "1048576")]);
    // Both wait in the inbox, so they are written with one call, if at all.
    let turn = partition.reserve(&host.host, 1);
    let mut outcomes = Vec::new();
    for value_bytes in [10, 2 << 20, 10] {
        outcomes.push(append_to(&host, &partition, &vec![b'x'; value_bytes]));
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

const PRODUCER: TransactionalProducer = TransactionalProducer {
    id: ProducerId(7),
    epoch: ProducerEpoch(0),
};

/// The first batch of a transaction, with verification, or the marker that aborts it.
fn append_of_transaction(
    host: &TestHost,
    partition: &Arc<Partition>,
    of_transaction: OfTransaction,
) -> ottla_sync::oneshot::Receiver<AckOutcome> {
    let (id, epoch) = (PRODUCER.id, PRODUCER.epoch);
    let batch = match of_transaction {
        OfTransaction::Marker(_) => {
            let marker = EndTxnMarker {
                coordinator_epoch: 1,
            };
            end_txn_batch(id, epoch, ControlRecordType::Abort, marker, Timestamp(0))
        }
        _ => {
            let builder = RecordBatchBuilder::new(Compression::None);
            let mut builder = builder.producer(id, epoch, Sequence(0)).transactional(true);
            builder.append(Timestamp(0), None, Some(b"x"), &[]);
            builder.build()
        }
    };
    let (released, outcome) = ottla_sync::oneshot::channel();
    let append = PendingAppend {
        batch,
        required_acks: ottla_replica::RequiredAcks::Leader,
        expected_leader_epoch: None,
        of_transaction,
        deadline_ms: u64::MAX,
        ack: Ack::Internal(released),
    };
    partition.append(&host.host, append);
    outcome
}

fn to_verify() -> OfTransaction {
    OfTransaction::ToVerify(Arc::new(ProducerTransaction {
        transactional_id: "payments".into(),
        producer: PRODUCER,
        added_by: AddedBy::ClientThatMayAbort,
        asked_for: AskedFor::Produce,
    }))
}

/// A client abandons a batch and aborts its transaction, and the marker is written while the batch
/// waits. The first batch of the next transaction is not verified yet.
#[tokio::test]
async fn an_answer_is_for_the_batches_that_waited_for_it() {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    // Appends are held until the topic ID file is written.
    let held = append_to(&host, &partition, b"x");
    held.await.expect("it is released");
    // The verifier is a task of this thread: it does not answer before an `await`.
    let mut first = append_of_transaction(&host, &partition, to_verify());
    let mut marker = append_of_transaction(&host, &partition, OfTransaction::Marker(1));
    assert!(marker.try_recv().is_ok());
    let mut second = append_of_transaction(&host, &partition, to_verify());
    let answer = |guard, result| {
        partition.on_transaction_verified(&host.host, PRODUCER, guard, result);
    };
    answer(1, Err(ErrorCode::TransactionAbortable));
    let refused = AckOutcome::RefusedForProducer(ErrorCode::TransactionAbortable);
    assert_eq!(first.try_recv(), Ok(refused));
    assert!(second.try_recv().is_err(), "it waits for its own answer");
    answer(2, Ok(()));
    let appended = AckOutcome::Appended {
        base_offset: Offset(2),
    };
    assert_eq!(second.try_recv(), Ok(appended));
}

/// Another connection's batch has begun the transaction here; later batches wait only for their
/// order.
#[tokio::test]
async fn a_refusal_is_not_for_batches_whose_transaction_has_begun() {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    let held = append_to(&host, &partition, b"x");
    held.await.expect("it is released");
    let mut first = append_of_transaction(&host, &partition, to_verify());
    let mut other = append_of_transaction(&host, &partition, OfTransaction::Unverified);
    assert!(other.try_recv().is_ok());
    let mut second = append_of_transaction(&host, &partition, to_verify());
    assert!(second.try_recv().is_err(), "it waits for the first");
    let error = ErrorCode::NotCoordinator;
    partition.on_transaction_verified(&host.host, PRODUCER, 1, Err(error));
    let refused = AckOutcome::RefusedForProducer(error);
    assert_eq!(first.try_recv(), Ok(refused));
    let appended = AckOutcome::Appended {
        base_offset: Offset(2),
    };
    assert_eq!(second.try_recv(), Ok(appended));
}

/// Set in the process that is to panic.
const PANIC: &str = "OTTLA_TEST_PANIC";

#[tokio::test]
async fn a_panic_while_a_partition_is_stepped_ends_the_process() {
    use std::os::unix::process::ExitStatusExt;

    if std::env::var_os(PANIC).is_some() {
        let host = TestHost::start();
        let panic = Box::new(|_: &mut Log| panic!("a broken invariant"));
        let partition = host.lead(&[]);
        partition.put(&host.host, PartitionEvent::Work(panic));
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

#[test]
fn a_thread_keeps_no_long_list() {
    keep(&BATCHES, Vec::with_capacity(MOST_KEPT));
    // Neither that of a burst nor one that has no room takes its place.
    keep(&BATCHES, Vec::with_capacity(2 * MOST_KEPT));
    keep(&BATCHES, Vec::new());
    assert_eq!(BATCHES.take().capacity(), MOST_KEPT);
    assert_eq!(BATCHES.take().capacity(), 0);
}

/// Otherwise each read of the new records would count as one of pages that were dropped.
#[tokio::test]
async fn pages_written_after_a_truncation_do_not_count_as_dropped() {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    for _ in 0..3 {
        let acknowledged = append_to(&host, &partition, b"x");
        acknowledged.await.expect("it is released");
    }
    partition.readers.note_dropped(Offset(3));
    host.take_leader_away();
    cut(&host, &partition, 1);
    let needs = |offset| partition.readers.needs_dropped(Offset(offset));
    assert!(needs(0) && !needs(1));
}

#[tokio::test]
async fn pages_copied_by_a_directory_move_do_not_count_as_dropped() {
    let (host, partition) = with_three_records().await;
    partition.readers.note_dropped(Offset(3));
    let before = partition.log_location();
    let replaced = LogLocation {
        reader: before.reader.clone(),
        dir: Arc::clone(&before.dir),
    };
    let mut state = partition.state.lock();
    state.on_replaced(&partition, &host.host, replaced);
    assert!(!partition.readers.needs_dropped(Offset(0)));
}

/// After an unclean election, clients lose acknowledged records.
#[tokio::test]
async fn a_cut_of_committed_records_is_warned_of_and_no_other() {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    for _ in 0..3 {
        let acknowledged = append_to(&host, &partition, b"x");
        acknowledged.await.expect("it is released");
    }
    host.take_leader_away();
    let said = Said::listen();
    let cut_to = |offset| {
        let cut = Truncation::To(Offset(offset));
        let mut state = partition.state.lock();
        state.truncate(&partition, &host.host, cut);
    };
    cut_to(1);
    let sentence = "the log was truncated from 3 to 1, where it diverged from the leader's, though all below 3 was committed";
    let text = said.text();
    assert!(text.contains("WARN") && text.contains(sentence), "{text}");
    // The rest is committed and stays.
    cut_to(1);
    assert_eq!(said.text().matches("WARN").count(), 1, "{}", said.text());
}

/// The thread that reports the loss wakes the waiters itself, before a token holder processes the
/// event.
#[tokio::test]
async fn the_loss_of_a_followers_log_wakes_its_waiters() {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    host.take_leader_away();
    let _registered = partition.waiters.register(Offset(0), &Waiter::default());
    partition.notify(&host.host, Event::LogLost);
    assert!(partition.check_replica(-1).is_err());
    assert!(partition.waiters.is_empty(), "they were woken");
}

#[tokio::test]
async fn nothing_is_written_to_a_log_whose_file_cannot_be_written() {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    partition.ensure_topic_id(&host.host).await;
    for (is_on_disk, outcome, end) in [
        (false, AckOutcome::StorageError, 0),
        (
            true,
            AckOutcome::Appended {
                base_offset: Offset(0),
            },
            1,
        ),
    ] {
        let tried = TopicIdEvent::Tried { is_on_disk };
        partition.put(&host.host, PartitionEvent::TopicId(tried));
        let released = append_to(&host, &partition, b"a").await;
        assert_eq!(released, Ok(outcome));
        assert_eq!(partition.reader().log_end_offset(), Offset(end));
    }
}

fn cut(host: &TestHost, partition: &Arc<Partition>, to: i64) {
    let cut = Truncation::To(Offset(to));
    let mut state = partition.state.lock();
    state.truncate(partition, &host.host, cut);
}

async fn with_three_records() -> (TestHost, Arc<Partition>) {
    let host = TestHost::start();
    let partition = host.lead(&[]);
    for _ in 0..3 {
        let acknowledged = append_to(&host, &partition, b"x");
        acknowledged.await.expect("it is released");
    }
    (host, partition)
}

#[tokio::test]
async fn a_truncation_lowers_the_checkpoints_first() {
    let (host, partition) = with_three_records().await;
    let reader = partition.reader();
    let flush = partition.state.lock().log.flush_job();
    flush.expect("there is something to flush").run().unwrap();
    assert_eq!(reader.recovery_point(), Offset(3));
    let dir = reader.dir();
    let dir = dir.parent().expect("a log directory");
    let log_dirs = host.host.log_dirs().expect("there are directories");
    for dir in log_dirs.dirs() {
        log_dirs.checkpoint_recovery_points(dir);
    }
    log_dirs.set_clean_offset(&reader, Offset(3), reader.truncations());
    let written = |file| {
        let checkpoint = OffsetCheckpoint::read(&dir.join(file)).unwrap();
        checkpoint.offsets[&partition.topic_partition].0
    };
    let written = || [RECOVERY_POINT_CHECKPOINT, CLEANER_OFFSET_CHECKPOINT].map(written);
    // Without a cut, nothing is written.
    cut(&host, &partition, 3);
    assert_eq!(written(), [3, 3]);
    cut(&host, &partition, 2);
    assert_eq!(written(), [1, 2]);
    // Also if the cut fails afterwards.
    let fault = std::io::Error::from_raw_os_error(28);
    partition.state.lock().replicating.truncation_fault = Some(fault);
    cut(&host, &partition, 1);
    assert_eq!(written(), [0, 1]);
    assert_eq!(reader.log_end_offset(), Offset(2));
}

#[tokio::test]
async fn a_cut_for_which_something_is_lacking_loses_no_replica() {
    const ENOSPC: i32 = 28;
    const EMFILE: i32 = 24;
    const ENFILE: i32 = 23;
    const ENOMEM: i32 = 12;
    const EAGAIN: i32 = 11;
    const EINTR: i32 = 4;
    let (host, partition) = with_three_records().await;
    let log_dirs = host.host.log_dirs().expect("there are directories");
    for lacking in [ENOSPC, EMFILE, ENFILE, ENOMEM, EAGAIN, EINTR] {
        let fault = std::io::Error::from_raw_os_error(lacking);
        partition.state.lock().replicating.truncation_fault = Some(fault);
        cut(&host, &partition, 1);
        assert!(!partition.state.lock().replica.is_lost(), "{lacking}");
        assert_eq!(partition.reader().log_end_offset(), Offset(3));
        assert!(log_dirs.is_online(&partition.reader()), "{lacking}");
    }
    cut(&host, &partition, 1);
    assert_eq!(partition.reader().log_end_offset(), Offset(1));
}

#[tokio::test]
async fn a_cut_that_fails_takes_the_directory_offline() {
    const EIO: i32 = 5;
    let (host, partition) = with_three_records().await;
    let log_dirs = host.host.log_dirs().expect("there are directories");
    let fault = std::io::Error::from_raw_os_error(EIO);
    partition.state.lock().replicating.truncation_fault = Some(fault);
    let cut = PartitionEvent::Truncate(Truncation::To(Offset(1)));
    partition.put(&host.host, cut);
    let deadline = Instant::now() + Duration::from_secs(60);
    while log_dirs.is_online(&partition.reader()) || partition.is_leader() {
        assert!(Instant::now() < deadline, "the directory stays online");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(partition.reader().log_end_offset(), Offset(3));
}
