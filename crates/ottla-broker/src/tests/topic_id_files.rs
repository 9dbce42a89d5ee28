//! When a new log gets the file with its topic ID.

use std::path::Path;
use std::time::{Duration, Instant};

use ottla_log::checkpoint::PartitionMetadata;

use super::produce_and_fetch::{batch, produce_to};
use super::{TestBroker, topic_id};

const TOPIC: &str = "orders";
const PATIENCE: Duration = Duration::from_secs(30);

fn has_id_of(topic: &'static str, partition_dir: &Path) -> bool {
    let read = PartitionMetadata::read(partition_dir).expect("a file that can be read");
    read.is_some_and(|read| read.topic_id == topic_id(topic))
}

fn has_id(partition_dir: &Path) -> bool {
    has_id_of(TOPIC, partition_dir)
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_first_record_waits_for_the_topic_id_file() {
    let broker = TestBroker::start().await;
    let created = Instant::now();
    broker.create_topic(TOPIC, 40, &[]).await;
    let dir = |index| broker.partition(TOPIC, index).reader().dir();
    let mut client = broker.connect().await;
    let answered = client.ask(9, &produce_to(TOPIC, 7, 1, batch(&["a"]))).await;
    let produced = &answered.responses[0].partition_responses[0];
    assert_eq!((produced.error_code, produced.base_offset), (0, 0));
    assert!(has_id(&dir(7)));
    let others = (0..40).filter(|index| has_id(&dir(*index))).count() - 1;
    // Other files are written only if the machine took this long.
    assert!(others == 0 || created.elapsed() > Duration::from_secs(2));

    let began = Instant::now();
    while !(0..40).all(|index| has_id(&dir(index))) {
        assert!(
            began.elapsed() < PATIENCE,
            "logs without records get it too"
        );
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_few_new_logs_get_the_file_before_they_have_records() {
    // After this time, logs of any number get it. A busy machine may take as long for one topic.
    const QUIET: Duration = Duration::from_secs(2);
    let broker = TestBroker::start().await;
    let mut shortest = Duration::MAX;
    for topic in ["a", "b", "c", "d", "e"] {
        let created = Instant::now();
        broker.create_topic(topic, 6, &[]).await;
        let dirs = [0, 1, 2, 3, 4, 5].map(|index| broker.partition(topic, index).reader().dir());
        while !dirs.iter().all(|dir| has_id_of(topic, dir)) {
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(created.elapsed() < PATIENCE, "{topic} gets no files");
        }
        shortest = shortest.min(created.elapsed());
        if shortest < QUIET {
            return;
        }
    }
    panic!("they get it after {shortest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_partitions_have_the_file_after_a_stop() {
    let broker = TestBroker::start().await;
    broker.create_topic(TOPIC, 40, &[]).await;
    let dirs: Vec<_> = (0..40)
        .map(|index| broker.partition(TOPIC, index).reader().dir())
        .collect();
    let TestBroker {
        running,
        data: _data,
        ..
    } = broker;
    running.stop().await;
    for dir in &dirs {
        assert!(has_id(dir), "{}", dir.display());
    }
}
