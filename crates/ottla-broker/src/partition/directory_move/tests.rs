use std::path::Path;

use ottla_config::TopicConfig;
use ottla_controller::Decision;
use ottla_log::OpenParams;
use ottla_records::{Compression, CompressionType, RecordBatch, RecordBatchBuilder};
use ottla_replica::{AckOutcome, RequiredAcks};
use ottla_types::{LeaderEpoch, Offset, Timestamp};

use super::super::{Ack, PendingAppend};
use super::*;
use crate::tests::{TestBroker, old_message};

const NOW: Timestamp = Timestamp(1_000_000);

fn open(dir: &Path) -> Log {
    let config = TopicConfig {
        segment_bytes: 1024 * 1024,
        ..Default::default()
    };
    let params = OpenParams {
        dir: dir.to_owned(),
        topic_partition: TopicPartition::new("orders", 0),
        config: Arc::new(config),
        recovery_point: Offset::ZERO,
        log_start_offset: Offset::ZERO,
        clean_shutdown: false,
        now: NOW,
        producer_id_expiration_ms: 86_400_000,
        random_seed: 7,
    };
    Log::open(params).unwrap().0
}

/// Appends batches of 100 kB in an epoch, all of it committed.
fn append_to(log: &mut Log, epoch: i32, batches: usize) {
    for _ in 0..batches {
        let end = log.log_end_offset();
        let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(end);
        builder.append(NOW, None, Some(&[7; 100_000]), &[]);
        let mut batch = builder.build();
        batch.assign_offset(end, LeaderEpoch(epoch));
        log.append(&[batch], NOW).unwrap();
    }
    log.set_high_watermark(log.log_end_offset());
}

fn round(future: &mut Log, current: &Log) -> Copied {
    copy_round(future, &current.reader(), ROUND_BYTES, NOW).unwrap()
}

#[test]
fn rounds_bring_a_copy_to_the_end_of_its_log() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 50);
    append_to(&mut current, 3, 10);
    current.increment_log_start_offset(Offset(5)).unwrap();
    let first = round(&mut future, &current);
    assert!(!first.is_at_end);
    assert!(first.bytes > ROUND_BYTES / 2 && first.bytes <= ROUND_BYTES + 100_200);
    while !round(&mut future, &current).is_at_end {}
    let read = |log: &Log| {
        let reader = log.reader();
        let mut bytes = Vec::new();
        let mut from = log.log_start_offset();
        while let Some(region) = reader
            .read(from, 1 << 20, log.log_end_offset(), true)
            .unwrap()
            .region
        {
            let records = region.read().unwrap();
            for batch in RecordBatch::read_all(records.clone()).map_while(Result::ok) {
                from = batch.header.next_offset();
                bytes.extend_from_slice(&batch.to_bytes());
            }
        }
        bytes
    };
    assert!(read(&future) == read(&current));
    assert_eq!(future.log_start_offset(), Offset(5));
    assert_eq!(future.high_watermark(), Offset(60));
    let of_epoch = |log: &Log| log.reader().end_offset_for_epoch(LeaderEpoch(0));
    assert_eq!(of_epoch(&future), of_epoch(&current));
    assert_eq!(future.latest_epoch(), Some(LeaderEpoch(3)));
}

#[test]
fn a_copy_takes_back_what_its_log_does_not_have() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 3);
    round(&mut future, &current);
    // The log was truncated and went on in another epoch while the copy was offline.
    append_to(&mut future, 0, 4);
    append_to(&mut current, 1, 2);
    assert!(round(&mut future, &current).is_at_end);
    assert_eq!(future.log_end_offset(), Offset(5));
    assert_eq!(
        future.reader().end_offset_for_epoch(LeaderEpoch(0)),
        Some((LeaderEpoch(0), Offset(3)))
    );
}

#[test]
fn a_copy_begins_anew_where_its_log_starts_behind_it() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    append_to(&mut current, 0, 2);
    round(&mut future, &current);
    append_to(&mut current, 0, 40);
    current.increment_log_start_offset(Offset(30)).unwrap();
    current.delete_old_segments(NOW).unwrap();
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(future.log_start_offset(), Offset(30));
    assert_eq!(future.log_end_offset(), Offset(42));
    assert_eq!(future.reader().segment_base_offsets()[0], Offset(30));
}

#[test]
fn a_log_that_starts_within_a_batch_is_copied_with_all_of_that_batch() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    for _ in 0..2 {
        let end = current.log_end_offset();
        let mut builder = RecordBatchBuilder::new(Compression::None).base_offset(end);
        for _ in 0..10 {
            builder.append(NOW, None, Some(b"value"), &[]);
        }
        let mut batch = builder.build();
        batch.assign_offset(end, LeaderEpoch(0));
        current.append(&[batch], NOW).unwrap();
    }
    current.set_high_watermark(Offset(20));
    current.increment_log_start_offset(Offset(4)).unwrap();
    assert!(round(&mut future, &current).is_at_end);
    assert_eq!(future.log_start_offset(), Offset(4));
    assert_eq!(future.log_end_offset(), Offset(20));
    let read = future
        .reader()
        .read(Offset(4), 1 << 20, Offset(20), true)
        .unwrap();
    let records = read.region.unwrap().read().unwrap();
    let first = RecordBatch::read_all(records).next().unwrap().unwrap();
    assert_eq!(first.header.base_offset, Offset(0), "it holds offset 4");
    // And once more when more has come.
    append_to(&mut current, 0, 1);
    assert!(round(&mut future, &current).is_at_end);
    assert_eq!(future.log_end_offset(), Offset(21));
}

#[test]
fn messages_of_old_formats_are_copied_as_they_are() {
    let dirs = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
    let inside: Vec<u8> = (0..3)
        .flat_map(|n| old_message(1, 0, n, b"inside"))
        .collect();
    let gzip = Compression::from(CompressionType::Gzip);
    let messages = [
        old_message(0, 0, 0, b"first"),
        old_message(1, 0, 1, &[7; 600_000]),
        // A wrapper of three, which lie at 2 to 4.
        old_message(1, 1, 4, &gzip.compress(&inside)),
        old_message(1, 0, 5, &[8; 600_000]),
        old_message(1, 0, 5 + (1 << 31), b"far behind"),
    ];
    // A segment takes 1 MiB, and offsets that lie less than 2^31 apart.
    let segments: [(i64, Vec<u8>); 3] = [
        (0, messages[..3].concat()),
        (5, messages[3].clone()),
        (5 + (1 << 31), messages[4].clone()),
    ];
    for (base, bytes) in &segments {
        std::fs::write(dirs[0].path().join(format!("{base:020}.log")), bytes).unwrap();
    }
    let [mut current, mut future] = [open(dirs[0].path()), open(dirs[1].path())];
    let end = Offset(6 + (1 << 31));
    assert_eq!(current.log_end_offset(), end);
    // What is written today follows.
    append_to(&mut current, 4, 2);
    while !round(&mut future, &current).is_at_end {}
    assert_eq!(future.log_end_offset(), end.plus(2));
    assert_eq!(future.latest_epoch(), Some(LeaderEpoch(4)));
    let bytes_of = |log: &Log| -> Vec<u8> {
        let bases = log.reader().segment_base_offsets();
        let file = |base: &Offset| log.dir().join(format!("{:020}.log", base.0));
        bases
            .iter()
            .flat_map(|base| std::fs::read(file(base)).unwrap())
            .collect()
    };
    assert!(bytes_of(&future) == bytes_of(&current));
    // It is not known where a message begins: a segment begins at the end of the one before, and reaches 2^31 offsets.
    let bases = [0, 5, 6, end.0].map(Offset);
    assert_eq!(future.reader().segment_base_offsets(), bases);
    // And a start finds all of it.
    future.close().unwrap();
    let reader = open(dirs[1].path());
    assert_eq!(reader.log_end_offset(), end.plus(2));
}

/// A partition that is about to be moved to another directory, and a controller that answers nobody.
struct Moving {
    broker: TestBroker,
    data: tempfile::TempDir,
    partition: Arc<Partition>,
    from: DirectoryId,
    to: DirectoryId,
    /// Dropped, the controller answers again.
    silence: Option<std::sync::mpsc::Sender<()>>,
}

impl Moving {
    /// With three records, and not told to move yet.
    async fn set_up(settings: &[(&str, &str)]) -> Moving {
        let data = tempfile::tempdir().unwrap();
        let dirs = ["first", "second"].map(|name| data.path().join(name).display().to_string());
        let dirs = dirs.join(",");
        let mut all = vec![("log.dirs", &*dirs)];
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

    /// Has the replica moved.
    async fn alter(&self) {
        let broker = Arc::clone(self.broker.broker());
        let dirs = broker.log_dirs().unwrap().describe();
        let mut dirs = dirs.into_iter();
        let to = dirs.find(|dir| dir.directory_id == self.to).unwrap();
        let topic_partition = self.partition.topic_partition.clone();
        let path = to.path.display().to_string();
        let altered = tokio::task::spawn_blocking(move || {
            broker.alter_replica_log_dir(&topic_partition, &path)
        });
        altered.await.unwrap().unwrap();
    }

    /// Where the controller is to be told that the replica lies.
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
            of_transaction: crate::partition::OfTransaction::No,
            deadline_ms: u64::MAX,
            ack: Ack::Internal(released),
        };
        self.partition.append(self.broker.broker(), append);
        outcome
    }

    fn directory(&self) -> DirectoryId {
        let log_dirs = self.broker.broker().log_dirs().unwrap();
        log_dirs
            .directory_of(&self.partition.topic_partition)
            .unwrap()
    }

    /// Directories that a start takes for a copy.
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
async fn nothing_is_appended_from_telling_the_controller_until_the_copy_is_the_log() {
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
async fn appends_go_on_in_the_old_directory_where_the_controller_does_not_answer() {
    let mut moving = Moving::begin().await;
    let held = moving.append();
    assert_eq!(held.await, Ok(appended(3)));
    assert_eq!(moving.directory(), moving.from);
    // A start, of Kafka too, would put the copy in the place of the log that holds more.
    assert_eq!(moving.copies(), 0);
    let from = moving.from;
    moving.until(|moving| moving.told() == Some(from)).await;
    assert_eq!(moving.append().await, Ok(appended(4)));
    moving.silence = None;
    moving.until(|moving| moving.told().is_none()).await;
    moving.until(|moving| moving.copies() == 1).await;
    let image = moving.broker.broker().metadata();
    let topic = image.topics.by_id(moving.partition.topic_id).unwrap();
    let assigned = topic.partition(0.into()).unwrap();
    assert_eq!(assigned.directory(1.into()), Some(from));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_replicas_are_copied_at_once_than_num_replica_alter_log_dirs_threads() {
    for (threads, is_moved) in [("1", false), ("2", true)] {
        let moving = Moving::set_up(&[("num.replica.alter.log.dirs.threads", threads)]).await;
        let moves = &moving.broker.broker().directory_moves;
        let of_another = moves.turns.acquire().await.unwrap();
        moving.alter().await;
        if !is_moved {
            tokio::time::sleep(Duration::from_millis(300)).await;
            assert_eq!(moving.directory(), moving.from, "{threads}");
            drop(of_another);
        }
        moving.until(|moving| moving.directory() == moving.to).await;
    }
}
