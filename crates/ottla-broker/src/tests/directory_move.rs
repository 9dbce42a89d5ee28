//! Moving a replica to another log directory while it is written.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_controller::Decision;
use ottla_log::StorageError;
use ottla_partition::Partition;
use ottla_partition::partition::{Ack, OfTransaction, PendingAppend};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_sync::oneshot;
use ottla_types::{DirectoryId, Offset, Timestamp};

use super::TestBroker;

const NOW: Timestamp = Timestamp(1_000_000);

/// A partition that is about to be moved to another directory, and a controller that does not
/// respond.
struct Moving {
    broker: TestBroker,
    data: tempfile::TempDir,
    partition: Arc<Partition>,
    from: DirectoryId,
    to: DirectoryId,
    /// When dropped, the controller responds again.
    silence: Option<std::sync::mpsc::Sender<()>>,
}

impl Moving {
    /// With three records. The move has not been requested yet.
    async fn set_up(settings: &[(&str, &str)]) -> Moving {
        let data = tempfile::tempdir().unwrap();
        let dirs = ["first", "second"].map(|name| data.path().join(name).display().to_string());
        let dirs = dirs.join(",");
        // The broker can lose each of the two.
        let metadata = data.path().join("metadata").display().to_string();
        let mut all = vec![("log.dirs", &*dirs), ("metadata.log.dir", &*metadata)];
        all.extend(settings);
        let broker = TestBroker::start_with(&all).await;
        broker.create_topic("orders", 1, &[]).await;
        let partition = broker.partition("orders", 0);
        let log_dirs = Arc::clone(broker.broker().log_dirs().unwrap());
        let from = log_dirs.directory_of(&partition.topic_partition).unwrap();
        let to = log_dirs.describe();
        let to = to.into_iter().find(|dir| dir.directory_id != from).unwrap();
        let moving = Moving {
            broker,
            data,
            partition,
            from,
            to: to.directory_id,
            silence: None,
        };
        for offset in 0..3 {
            assert_eq!(moving.append().await, Ok(appended(offset)));
        }
        moving
    }

    async fn begin() -> Moving {
        let mut moving = Moving::set_up(&[]).await;
        let (silence, is_over) = std::sync::mpsc::channel::<()>();
        moving.silence = Some(silence);
        let controller = moving.broker.broker().controller().unwrap().clone();
        tokio::spawn(async move {
            let silent = controller.decide(move |_, _| {
                let _ = is_over.recv();
                Decision::unchanged(())
            });
            silent.await
        });
        moving.alter().await;
        let to = moving.to;
        moving.until(|moving| moving.told() == Some(to)).await;
        moving
    }

    /// Requests the move.
    async fn alter(&self) {
        let broker = Arc::clone(self.broker.broker());
        let dirs = broker.log_dirs().unwrap().describe();
        let mut dirs = dirs.into_iter();
        let to = dirs.find(|dir| dir.directory_id == self.to).unwrap();
        let topic_partition = self.partition.topic_partition.clone();
        let path = to.path.display().to_string();
        let altered = tokio::task::spawn_blocking(move || {
            broker
                .directory_moves
                .alter_replica_log_dir(&topic_partition, &path)
        });
        altered.await.unwrap().unwrap();
    }

    /// The directory that is to be reported to the controller.
    fn told(&self) -> Option<DirectoryId> {
        let assignments = &self.broker.broker().dir_assignments;
        assignments.queued(self.partition.topic_id, 0)
    }

    fn append(&self) -> oneshot::Receiver<AckOutcome> {
        let mut builder = RecordBatchBuilder::new(Compression::None);
        builder.append(NOW, None, Some(b"value"), &[]);
        let (released, outcome) = oneshot::channel();
        let append = PendingAppend {
            batch: builder.build(),
            required_acks: RequiredAcks::All,
            expected_leader_epoch: None,
            of_transaction: OfTransaction::No,
            deadline_ms: u64::MAX,
            ack: Ack::Internal(released),
        };
        self.partition.append(&self.broker.broker().host, append);
        outcome
    }

    fn directory(&self) -> DirectoryId {
        let log_dirs = self.broker.broker().log_dirs().unwrap();
        log_dirs
            .directory_of(&self.partition.topic_partition)
            .unwrap()
    }

    /// The number of directories that a start would treat as a copy.
    fn copies(&self) -> usize {
        let dirs = std::fs::read_dir(self.data.path().join("first")).unwrap();
        let dirs = dirs.chain(std::fs::read_dir(self.data.path().join("second")).unwrap());
        let names = dirs.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.ends_with("-future")).count()
    }

    async fn until(&self, mut is_so: impl FnMut(&Moving) -> bool) {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !is_so(self) {
            assert!(Instant::now() < deadline, "it takes too long");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn appended(offset: i64) -> AckOutcome {
    AckOutcome::Appended {
        base_offset: Offset(offset),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn appends_are_held_from_the_assignment_until_the_copy_is_the_log() {
    let mut moving = Moving::begin().await;
    let mut held: Vec<_> = (0..3).map(|_| moving.append()).collect();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(moving.directory(), moving.from);
    assert_eq!(moving.partition.reader().log_end_offset(), Offset(3));
    assert!(held.iter_mut().all(|outcome| outcome.try_recv().is_err()));
    moving.silence = None;
    for (outcome, offset) in held.into_iter().zip(3..) {
        assert_eq!(outcome.await, Ok(appended(offset)));
        assert_eq!(moving.directory(), moving.to);
    }
    assert_eq!(moving.append().await, Ok(appended(6)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_answer_appends_continue_in_the_old_directory() {
    let mut moving = Moving::begin().await;
    let held = moving.append();
    assert_eq!(held.await, Ok(appended(3)));
    assert_eq!(moving.directory(), moving.from);
    // A start, of Kafka too, would replace the log by the copy, although the log contains more.
    assert_eq!(moving.copies(), 0);
    let from = moving.from;
    moving.until(|moving| moving.told() == Some(from)).await;
    assert_eq!(moving.append().await, Ok(appended(4)));
    moving.silence = None;
    moving.until(|moving| moving.told().is_none()).await;
    // The broker's metadata follows the controller's a little later.
    let assigned = |moving: &Moving| {
        let image = moving.broker.broker().metadata();
        let topic = image.topics.by_id(moving.partition.topic_id).unwrap();
        topic.partition(0.into()).unwrap().directory(1.into())
    };
    moving.until(|moving| assigned(moving) == Some(from)).await;
    moving.until(|moving| moving.copies() == 1).await;
}

/// With the old directory, the next start would take what is left of the log instead of the copy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_that_fails_during_a_move_is_not_reported_again() {
    let mut moving = Moving::begin().await;
    let broker = moving.broker.broker();
    let error = std::io::Error::from_raw_os_error(libc::EIO);
    let error = StorageError::new("write to", Path::new("x"), error);
    let log_dirs = broker.log_dirs().unwrap();
    log_dirs.on_partition_error(&moving.partition.reader(), &error);
    broker.context.begin_stop();
    broker.directory_moves.stop().await;
    assert_eq!(moving.told(), Some(moving.to));
    assert_eq!(moving.copies(), 1);
    moving.silence = None;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn num_replica_alter_log_dirs_threads_limits_concurrent_copies() {
    for (threads, is_moved) in [("1", false), ("2", true)] {
        let moving = Moving::set_up(&[("num.replica.alter.log.dirs.threads", threads)]).await;
        let moves = &moving.broker.broker().directory_moves;
        let of_another = moves.take_turn().await;
        moving.alter().await;
        if !is_moved {
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(moving.directory(), moving.from, "{threads}");
            drop(of_another);
        }
        moving.until(|moving| moving.directory() == moving.to).await;
    }
}
