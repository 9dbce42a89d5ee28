//! `tier verify`: compares the metadata with the objects in the store.

use std::sync::Arc;

use futures_util::{StreamExt, stream};
use ottla_tiered::{
    LeaderEpochs, RemoteLogSegmentMetadata, RemoteLogSegmentState, RemotePartition, RemoteSegment,
};
use ottla_tiered_storage::{
    IndexType, RemoteStorageError, RemoteStorageErrorKind, RemoteStorageManager, StoredObject,
};

use super::batches::BatchCheck;
use super::indexes;
use super::remote_log::{RemoteLog, RemotePartitionLog};
use crate::counted::counted;
use crate::tools::sizes;

pub struct VerifyOptions {
    /// Whether logs and indexes are read as a whole.
    pub reads_segments: bool,
    /// Segments that are read at once.
    pub parallel: usize,
}

/// The findings about one segment.
#[derive(Default, Debug)]
pub struct Findings {
    pub bytes: u64,
    pub problems: Vec<String>,
    pub notes: Vec<String>,
}

/// Prints each problem as it is found, and then the totals. Returns whether there are no problems.
pub async fn verify(
    store: Arc<dyn RemoteStorageManager>,
    log: &RemoteLog,
    includes: impl Fn(&RemotePartition) -> bool,
    options: &VerifyOptions,
) -> anyhow::Result<bool> {
    let (mut segments, mut bytes, mut problems) = (0, 0, 0);
    for unreadable in &log.unreadable {
        println!("PROBLEM {unreadable}");
        problems += 1;
    }
    for (partition, remote) in log.partitions.iter().filter(|(it, _)| includes(it)) {
        let finished = remote.in_state(RemoteLogSegmentState::CopySegmentFinished);
        let mut checks = stream::iter(finished.iter().map(|segment| {
            let metadata = RemoteLogSegmentMetadata {
                partition: partition.clone(),
                segment: (*segment).clone(),
            };
            let store = store.clone();
            async move {
                let found = check_segment(&*store, &metadata, options.reads_segments).await;
                (metadata, found)
            }
        }))
        .buffered(options.parallel);
        while let Some((metadata, found)) = checks.next().await {
            let segment = &metadata.segment;
            let name = format!(
                "{}-{} offsets {} to {} segment {}",
                partition.topic,
                partition.partition,
                segment.start_offset,
                segment.end_offset,
                segment.id
            );
            for problem in &found.problems {
                println!("PROBLEM {name}: {problem}");
            }
            for note in &found.notes {
                println!("NOTE {name}: {note}");
            }
            segments += 1;
            bytes += found.bytes;
            problems += found.problems.len();
        }
        let lineage = lineage(remote);
        for problem in &lineage.problems {
            println!(
                "PROBLEM {}-{}: {problem}",
                partition.topic, partition.partition
            );
        }
        for note in &lineage.notes {
            println!("NOTE {}-{}: {note}", partition.topic, partition.partition);
        }
        problems += lineage.problems.len();
    }
    let read = if options.reads_segments {
        format!("{} read", sizes::bytes(bytes))
    } else {
        "sizes only".to_owned()
    };
    println!(
        "{}: {}, {read}, {}",
        store.location(),
        counted(segments, "segment"),
        counted(problems, "problem")
    );
    Ok(problems == 0)
}

/// Looks at one segment; problems name the object.
pub async fn check_segment(
    store: &dyn RemoteStorageManager,
    metadata: &RemoteLogSegmentMetadata,
    reads_segment: bool,
) -> Findings {
    let mut found = Findings::default();
    let segment = &metadata.segment;
    let mut log_name = String::new();
    let objects = store.stored_objects(metadata).await;
    let is_away = |object: &StoredObject| {
        let error = object.size_bytes.as_ref().err();
        error.is_some_and(|error| error.kind == RemoteStorageErrorKind::NotFound)
    };
    if let [log, _, ..] = &objects[..]
        && objects.iter().all(is_away)
    {
        let problem = format!("nothing of it is in the store, such as {}", log.name);
        found.problems.push(problem);
        return found;
    }
    for object in objects {
        // The log comes first.
        if log_name.is_empty() {
            log_name = object.name.clone();
        }
        match (object.size_bytes, object.expected_size_bytes) {
            (Err(error), _) => found.problems.push(error.to_string()),
            (Ok(size), Some(expected)) if size != expected => found.problems.push(format!(
                "{}: it has {size} bytes instead of {expected}",
                object.name
            )),
            _ => {}
        }
    }
    // Objects that are missing or have the wrong size are not read.
    if !reads_segment || !found.problems.is_empty() {
        return found;
    }
    let mut check = BatchCheck::new(segment);
    let starts = match store.fetch_log_segment(metadata, 0, None).await {
        Err(error) => {
            found.problems.push(error.to_string());
            None
        }
        Ok(mut log) => {
            let mut failed = None;
            while let Some(piece) = log.next().await {
                match piece {
                    Ok(piece) => check.push(&piece),
                    Err(error) => failed = Some(error),
                }
                if failed.is_some() {
                    break;
                }
            }
            if let Some(error) = failed {
                found.problems.push(error.to_string());
                None
            } else {
                let batches = check.finish();
                found.bytes = batches.bytes;
                let expected = u64::try_from(segment.segment_size_bytes).unwrap_or(0);
                if batches.bytes != expected {
                    found.problems.push(format!(
                        "{log_name}: it holds {} bytes of the segment, and the metadata says {expected}",
                        batches.bytes
                    ));
                }
                let named = batches.problems.iter();
                found
                    .problems
                    .extend(named.map(|problem| format!("{log_name}: {problem}")));
                found.notes = batches.notes;
                Some(batches.starts)
            }
        }
    };
    for index in IndexType::ALL {
        match store.fetch_index(metadata, index).await {
            Ok(bytes) => {
                if let Some(problem) = indexes::problem(index, &bytes, segment, starts.as_deref()) {
                    found.problems.push(problem);
                }
            }
            Err(error) if is_absent(&error) => {
                let may_be_missing = match index {
                    IndexType::Transaction => true,
                    IndexType::ProducerSnapshot => true,
                    IndexType::Offset | IndexType::Timestamp | IndexType::LeaderEpoch => false,
                };
                if !may_be_missing {
                    found.problems.push(error.to_string());
                }
            }
            Err(error) => found.problems.push(error.to_string()),
        }
    }
    found
}

/// A lost index object is named by the indexes that each segment has.
fn is_absent(error: &RemoteStorageError) -> bool {
    use RemoteStorageErrorKind::{NoIndex, NotFound};
    matches!(error.kind, NotFound | NoIndex)
}

/// Whether the segments make up one log: no gap, and the history of the newest segment includes the
/// epochs of each segment.
pub fn lineage(remote: &RemotePartitionLog) -> Findings {
    let mut found = Findings::default();
    let finished = remote.in_state(RemoteLogSegmentState::CopySegmentFinished);
    let epochs = epochs_of_all(&finished);
    let mut next = None;
    for segment in &finished {
        if let Some(next) = next
            && segment.start_offset.0 > next
        {
            found.problems.push(format!(
                "offsets {next} to {} are in no segment",
                segment.start_offset.0 - 1
            ));
        }
        if let Some(next) = next
            && segment.start_offset.0 < next
        {
            found.notes.push(format!(
                "segment {} holds offsets that another one has too, from {} to {}",
                segment.id,
                segment.start_offset,
                segment.end_offset.0.min(next - 1)
            ));
        }
        let end = segment.end_offset.0.saturating_add(1);
        next = Some(next.map_or(end, |next: i64| next.max(end)));
        if let Some(epochs) = &epochs
            && let Some(entry) = outside(segment, epochs)
        {
            found.notes.push(format!(
                "segment {} has records of leader epoch {} from offset {} on, which are not in the \
                 history of the newest segment; no reader gets them, and the leader deletes them",
                segment.id, entry.epoch, entry.start_offset
            ));
        }
    }
    found
}

/// The epoch history of the log, as far as segments record it: the first offset of each epoch. If
/// segments disagree, the segment with the newest epochs counts.
pub fn epochs_of_all(finished: &[&RemoteSegment]) -> Option<LeaderEpochs> {
    let mut by_epoch: Vec<&&RemoteSegment> = finished.iter().collect();
    by_epoch.sort_by_key(|segment| {
        let latest = segment.segment_leader_epochs.latest();
        (latest.map(|entry| entry.epoch), segment.end_offset)
    });
    let mut history: Vec<ottla_tiered::EpochEntry> = Vec::new();
    for segment in by_epoch {
        for entry in segment.segment_leader_epochs.entries() {
            // A segment has the start of its first epoch only from its own start on.
            if let Some(known) = history.iter_mut().find(|it| it.epoch == entry.epoch) {
                known.start_offset = known.start_offset.min(entry.start_offset);
                continue;
            }
            // A newer epoch that begins earlier has cut the older ones off.
            history.retain(|known| known.start_offset < entry.start_offset);
            history.push(*entry);
        }
    }
    (!history.is_empty()).then(|| history.into_iter().collect())
}

/// The first epoch of the segment that the history does not have for its offsets.
pub fn outside(
    segment: &RemoteSegment,
    history: &LeaderEpochs,
) -> Option<ottla_tiered::EpochEntry> {
    let epochs = &segment.segment_leader_epochs;
    epochs.entries().iter().copied().find(|entry| {
        let end = segment.end_offset_of(entry.epoch);
        history.get(entry.epoch).is_none()
            || history
                .next(entry.epoch)
                .is_some_and(|next| end >= next.start_offset)
    })
}

#[cfg(test)]
mod tests {
    use ottla_tiered_storage::{LocalSettings, LocalTieredStorage};

    use super::super::remote_log::tests::{partition, segment};
    use super::*;
    use RemoteLogSegmentState::CopySegmentFinished;

    fn lineage_of(segments: &[(u128, i64, i64, &[(i32, i64)])]) -> Findings {
        let mut remote = RemotePartitionLog::default();
        for (id, start, end, epochs) in segments {
            let mut one = segment(*id, *start, *end, CopySegmentFinished);
            let entry =
                |(epoch, offset): &(i32, i64)| ottla_tiered::EpochEntry::new(*epoch, *offset);
            one.segment_leader_epochs = epochs.iter().map(entry).collect();
            remote.segments.insert(one.id, one);
        }
        lineage(&remote)
    }

    #[test]
    fn consecutive_segments_are_one_log() {
        let found = lineage_of(&[
            (1, 0, 9, &[(0, 0)]),
            (2, 10, 19, &[(0, 10), (2, 15)]),
            (3, 20, 29, &[(2, 20)]),
        ]);
        assert!(
            found.problems.is_empty() && found.notes.is_empty(),
            "{found:?}"
        );
    }

    #[tokio::test]
    async fn a_missing_segment_is_one_problem() {
        let dir = tempfile::tempdir().unwrap();
        let store = LocalTieredStorage::open(&LocalSettings {
            dir: dir.path().to_owned(),
            delete_enable: true,
            delete_on_close: false,
        });
        let metadata = RemoteLogSegmentMetadata {
            partition: partition("t"),
            segment: segment(1, 0, 9, CopySegmentFinished),
        };
        let found = check_segment(&store.unwrap(), &metadata, true).await;
        let [problem] = &found.problems[..] else {
            panic!("{found:?}");
        };
        assert!(
            problem.starts_with("nothing of it is in the store, such as "),
            "{problem}"
        );
    }

    #[test]
    fn a_gap_is_a_problem() {
        let found = lineage_of(&[(1, 0, 9, &[(0, 0)]), (2, 15, 19, &[(0, 15)])]);
        assert_eq!(found.problems, ["offsets 10 to 14 are in no segment"]);
    }

    #[test]
    fn a_segment_of_a_truncated_leader_is_reported() {
        // Epoch 1 wrote 10 to 19, and epoch 2 began at 12 without them.
        let found = lineage_of(&[
            (1, 0, 9, &[(0, 0)]),
            (2, 10, 19, &[(0, 10), (1, 11)]),
            (3, 10, 25, &[(0, 10), (2, 11)]),
        ]);
        assert!(found.problems.is_empty());
        assert_eq!(found.notes.len(), 2, "{:?}", found.notes);
        assert!(
            found
                .notes
                .iter()
                .any(|note| note.contains("leader epoch 1 from offset 11 on"))
        );
    }
}
