use std::path::Path;
use std::sync::Arc;

use ottla_types::{Offset, TopicPartition};
use rustix::io::Errno;

use super::Handles;
use crate::disk_read::DiskWait;
use crate::partition_dir::PartitionDir;
use crate::segment::Segment;

/// New segments in a directory, without marks, as if idle.
fn segments(dir: &Path, handles: &Arc<Handles>, count: i64) -> Vec<Segment> {
    let topic_partition = TopicPartition::new("topic", 0);
    let dir = PartitionDir::new(dir, topic_partition, Arc::clone(handles), Arc::default());
    let segment = |number| Segment::create(&dir, Offset(number)).unwrap();
    (0..count).map(segment).collect()
}

fn open(segments: &[Segment]) -> Vec<usize> {
    let is_open = |segment: &Segment| segment.open_log().is_some();
    let numbers = 0..segments.len();
    numbers.filter(|&n| is_open(&segments[n])).collect()
}

#[test]
fn more_segments_than_handles_take_turns() {
    let dir = tempfile::tempdir().unwrap();
    let handles = Handles::new(8);
    let segments = segments(dir.path(), &handles, 50);
    assert!(handles.stats().open <= 8);
    for _ in 0..3 {
        for segment in &segments {
            segment.log_file().unwrap();
            assert!(handles.stats().open <= 8, "{:?}", handles.stats());
        }
    }
    let stats = handles.stats();
    assert!(stats.closed_for_others >= 3 * 50 - 8, "{stats:?}");
    assert_eq!((stats.refused, stats.open), (0, open(&segments).len()));
    drop(segments);
    assert_eq!(handles.stats().open, 0);
}

#[test]
fn a_handle_in_use_stays_open_and_counts() {
    let dir = tempfile::tempdir().unwrap();
    let handles = Handles::new(4);
    let segments = segments(dir.path(), &handles, 6);
    let held: Vec<_> = segments[..4]
        .iter()
        .map(|it| it.log_file().unwrap())
        .collect();
    let refused = segments[4].log_file().unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
    assert_eq!(handles.stats().refused, 1);
    assert_eq!(handles.stats().open, 4);
    held[0].metadata().unwrap();
    drop(held);
    segments[4].log_file().unwrap();
}

#[test]
fn used_files_stay_open_longer_than_unused_ones() {
    let dir = tempfile::tempdir().unwrap();
    let handles = Handles::new(16);
    let segments = segments(dir.path(), &handles, 64);
    for segment in &segments[1..] {
        drop(segment.open_log());
        segment.log_file().unwrap();
        // Between any two other uses.
        segments[0].log_file().unwrap();
    }
    let opened = handles.stats().opened;
    segments[0].log_file().unwrap();
    assert_eq!(handles.stats().opened, opened, "it was never closed");
}

#[test]
fn synced_files_are_closed_before_unsynced_ones() {
    let dir = tempfile::tempdir().unwrap();
    let handles = Handles::new(20);
    let segments = segments(dir.path(), &handles, 10);
    for segment in &segments[..5] {
        segment.set_unforced();
    }
    let file = segments[0].log_file().unwrap();
    segments[0].force_log(&file).unwrap();
    drop(file);
    // Clears the marks, so that only this decides.
    handles.listed.lock().iter().for_each(|it| {
        it.upgrade().unwrap().take_mark();
    });
    assert!(handles.let_go(6) >= 6);
    let marks = |n: &usize| (1..5).contains(n);
    let open = (0..10).filter(|&n| segments[n].files_are_open());
    assert!(open.eq((0..10).filter(|n| marks(n))));
    assert_eq!(handles.stats().closed_unforced, 0);
    assert!(handles.let_go(4) >= 4);
    assert_eq!(handles.stats().closed_unforced, 4);
}

#[test]
fn idle_segments_hold_no_handle() {
    let dir = tempfile::tempdir().unwrap();
    let handles = Handles::unlimited();
    let segments = segments(dir.path(), &handles, 10);
    segments[3].set_unforced();
    assert_eq!(handles.stats().open, 10);
    assert!(handles.close_idle().is_empty());
    assert_eq!(handles.stats().open, 10, "all were just created");
    let read = segments[7].log_file().unwrap();
    assert!(handles.close_idle().is_empty());
    assert_eq!(handles.stats().open, 1);
    drop(read);
    assert!(handles.close_idle().is_empty());
    let stats = handles.stats();
    assert_eq!((stats.open, stats.segments, stats.closed_idle), (0, 0, 10));
}

#[test]
fn a_thread_that_may_not_block_opens_cached_files_only() {
    let dir = tempfile::tempdir().unwrap();
    let handles = Handles::unlimited();
    let segment = segments(dir.path(), &handles, 1).remove(0);
    segment.close_files();
    // The directory was just written, so its entries are cached; a kernel without the check reports
    // that it would wait.
    match segment.log_file_for(DiskWait::Refused) {
        Ok(_) => assert_eq!(handles.stats().open, 1),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
    }
    segment.close_files();
    std::fs::rename(dir.path(), dir.path().with_extension("away")).unwrap();
    let gone = segment.log_file_for(DiskWait::Refused).unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::WouldBlock);
    let gone = segment.log_file().unwrap_err();
    assert_eq!(gone.kind(), std::io::ErrorKind::NotFound);
    std::fs::rename(dir.path().with_extension("away"), dir.path()).unwrap();
}
