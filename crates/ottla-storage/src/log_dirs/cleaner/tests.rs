use std::sync::Arc;
use std::time::Duration;

use ottla_types::TopicPartition;

use super::LogCleaner;

fn partition() -> TopicPartition {
    TopicPartition::new("orders", 0)
}

#[test]
fn a_paused_partition_is_cleaned_after_the_last_resume() {
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
fn a_pause_waits_for_the_end_of_a_running_cleaning() {
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
fn an_uncleanable_partition_is_skipped_until_deleted() {
    let cleaner = LogCleaner::default();
    cleaner.mark_uncleanable(&partition());
    assert!(cleaner.is_uncleanable(&partition()));
    assert!(cleaner.take(&partition()).is_none());
    cleaner.forget(&partition());
    assert!(!cleaner.is_uncleanable(&partition()));
    assert!(cleaner.take(&partition()).is_some());
}

#[test]
fn a_stop_reaches_all_threads() {
    let cleaner = LogCleaner::default();
    let taken = cleaner.take(&partition()).unwrap();
    cleaner.stop();
    assert!(taken.is_to_stop());
}
