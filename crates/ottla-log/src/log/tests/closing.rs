//! The fsyncs of a stop, which take most of its time if there are very many logs.

use std::sync::Arc;

use super::{TestLog, batch};
use crate::checkpoint::CheckpointMarks;
use crate::disk::trace;
use crate::{Log, OpenParams};

#[test]
fn a_stop_forces_each_changed_file_once() {
    let mut test = TestLog::new();
    test.append(3);
    let syncs_of_stop = |test: &mut TestLog| {
        trace::start(test.path());
        test.close();
        trace::stop().syncs()
    };
    // Of the log, the time index, the snapshot, the leader epochs, the directory, and its name.
    assert_eq!(syncs_of_stop(&mut test), 6);
    test.open(0, true);
    assert_eq!(syncs_of_stop(&mut test), 0, "nothing has changed");
    test.open(0, true);
    test.append(1);
    // Of the log, the time index and the snapshot. Without its name, an older snapshot is used.
    assert_eq!(syncs_of_stop(&mut test), 3);
}

#[test]
fn logs_that_were_created_together_share_the_fsync_of_their_names() {
    let test = TestLog::new();
    let root = tempfile::tempdir().unwrap();
    let marks = Arc::new(CheckpointMarks::default());
    let written = |name: &str| {
        let params = OpenParams {
            dir: root.path().join(name),
            checkpoint_marks: Arc::clone(&marks),
            ..test.params(0, false)
        };
        let (mut log, _) = Log::open(params).unwrap();
        log.append(&[batch(0, 1)], test.now).unwrap();
        log
    };
    let syncs_of_stop = |log: Log| {
        trace::start(root.path());
        log.close().unwrap();
        trace::stop().syncs()
    };
    let (first, second) = (written("a-0"), written("a-1"));
    assert_eq!(syncs_of_stop(first), 6);
    assert_eq!(syncs_of_stop(second), 5);
    assert_eq!(syncs_of_stop(written("a-2")), 6, "created later");
}
