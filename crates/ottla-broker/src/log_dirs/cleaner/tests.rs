use std::sync::Arc;
use std::time::Duration;

use ottla_types::TopicPartition;

use super::LogCleaner;
use super::threads::params;
use crate::tests::TestBroker;

fn partition() -> TopicPartition {
    TopicPartition::new("orders", 0)
}

#[test]
fn a_paused_partition_is_taken_when_all_have_resumed_it() {
    let cleaner = LogCleaner::default();
    cleaner.abort_and_pause(&partition());
    cleaner.abort_and_pause(&partition());
    assert!(cleaner.take(&partition()).is_none());
    cleaner.resume(&partition());
    assert!(!cleaner.is_free(&partition()));
    cleaner.resume(&partition());
    assert!(cleaner.take(&partition()).is_some());
    assert!(cleaner.is_free(&partition()), "it was given back");
}

#[test]
fn who_pauses_waits_for_the_cleaning_to_end() {
    let cleaner = Arc::new(LogCleaner::default());
    let taken = cleaner.take(&partition()).unwrap();
    assert!(cleaner.take(&partition()).is_none());
    assert!(!taken.is_to_stop());
    let theirs = Arc::clone(&cleaner);
    let pausing = std::thread::spawn(move || theirs.abort_and_pause(&partition()));
    while !taken.is_to_stop() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(!pausing.is_finished());
    drop(taken);
    pausing.join().unwrap();
    assert!(cleaner.take(&partition()).is_none());
    cleaner.resume(&partition());
    assert!(cleaner.take(&partition()).is_some());
}

#[test]
fn what_is_given_up_is_not_taken_until_it_is_deleted() {
    let cleaner = LogCleaner::default();
    cleaner.mark_uncleanable(&partition());
    assert!(cleaner.is_uncleanable(&partition()));
    assert!(cleaner.take(&partition()).is_none());
    cleaner.forget(&partition());
    assert!(!cleaner.is_uncleanable(&partition()));
    assert!(cleaner.take(&partition()).is_some());
}

#[test]
fn a_stop_is_told_to_all() {
    let cleaner = LogCleaner::default();
    let taken = cleaner.take(&partition()).unwrap();
    cleaner.stop();
    assert!(taken.is_to_stop());
}

/// What Kafka's `LogCleaner` gives each of its threads: a part of the buffers, one half of it to read into.
#[tokio::test]
async fn the_threads_share_the_memory_of_the_settings() {
    let shared = [
        ("log.cleaner.threads", "2"),
        ("log.cleaner.dedupe.buffer.size", "8388608"),
        ("log.cleaner.io.buffer.size", "1048576"),
        ("log.cleaner.io.buffer.load.factor", "0.5"),
    ];
    for (settings, expected) in [
        (&shared[..], (4_194_304, 262_144, 0.5)),
        (&[], (134_217_728, 262_144, 0.9)),
    ] {
        let broker = TestBroker::start_with(settings).await;
        let broker = broker.broker();
        let params = params(&broker.config(), broker, [0; 2]);
        let found = (
            params.dedupe_buffer_bytes,
            params.io_buffer_bytes,
            params.load_factor,
        );
        assert_eq!(found, expected);
    }
}
