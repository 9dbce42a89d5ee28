//! The rows of the table.

use std::fs;

use ottla_types::{Offset, ProducerId};

use super::Stop::{Crash, Orderly};
use super::{Case, append_to_file, batch_bytes};
use crate::file_names::file_name;

const SAME: &str = "the same";

pub(super) const CASES: &[Case] = &[
    // Indexes.
    Case {
        found: "offset index missing",
        after: Orderly,
        decision: "the segment's indexes are rebuilt; its batches are unchanged",
        kafka: SAME,
        damage: |site| site.remove(site.path(1, "index")),
        check: |log| log.is_whole_and_has_rebuilt(1),
    },
    Case {
        found: "time index missing",
        after: Orderly,
        decision: "the segment's indexes are rebuilt",
        kafka: "continues with an empty time index; searches by time read the segment from its start",
        damage: |site| site.remove(site.path(1, "timeindex")),
        check: |log| log.is_whole_and_has_rebuilt(1),
    },
    Case {
        found: "offset index torn: its size is not a multiple of 8",
        after: Orderly,
        decision: "the segment's indexes are rebuilt",
        kafka: "trusts indexes after a clean stop",
        damage: |site| append_to_file(&site.path(0, "index"), &[0, 0, 1]),
        check: |log| log.is_whole_and_has_rebuilt(1),
    },
    Case {
        found: "time index torn: its size is not a multiple of 12",
        after: Orderly,
        decision: "the segment's indexes are rebuilt",
        kafka: "trusts indexes after a clean stop",
        damage: |site| append_to_file(&site.path(0, "timeindex"), &[0, 0, 1]),
        check: |log| log.is_whole_and_has_rebuilt(1),
    },
    Case {
        found: "offset index ends with zeros, like a preallocated one",
        after: Orderly,
        decision: "the segment's indexes are rebuilt",
        kafka: "trusts indexes after a clean stop, and searches the zeros too",
        damage: |site| append_to_file(&site.path(0, "index"), &[0; 80]),
        check: |log| log.is_whole_and_has_rebuilt(1),
    },
    Case {
        found: "offset index whose last entry points after the end of the segment",
        after: Orderly,
        decision: "the segment's indexes are rebuilt",
        kafka: "trusts indexes after a clean stop",
        damage: |site| append_to_file(&site.path(0, "index"), &[0, 0, 0, 6, 0, 1, 0, 0]),
        check: |log| log.is_whole_and_has_rebuilt(1),
    },
    Case {
        found: "transaction index torn",
        after: Orderly,
        decision: "the segment's indexes are rebuilt",
        kafka: SAME,
        damage: |site| site.edit(&site.path(1, "txnindex"), |bytes| bytes.truncate(20)),
        check: |log| log.is_whole_and_has_rebuilt(1),
    },
    Case {
        found: "transaction index missing",
        after: Orderly,
        decision: "the segment is treated as having no aborted transactions: most segments have none, and no file",
        kafka: SAME,
        damage: |site| site.remove(site.path(1, "txnindex")),
        check: |log| {
            log.has_all_records();
            assert_eq!(log.aborted(), 0);
        },
    },
    Case {
        found: "all indexes missing",
        after: Crash,
        decision: "all are rebuilt",
        kafka: SAME,
        damage: |site| {
            for segment in 0..site.bases.len() {
                site.remove(site.path(segment, "index"));
                site.remove(site.path(segment, "timeindex"));
            }
            site.remove(site.path(1, "txnindex"));
        },
        // A recovered segment is scanned anyway.
        check: |log| log.is_whole_and_has_rebuilt(log.site.last()),
    },
    // The end of the log.
    Case {
        found: "the last batch is torn",
        after: Crash,
        decision: "truncated",
        kafka: SAME,
        damage: |site| {
            site.edit(&site.path(site.last(), "log"), |bytes| {
                bytes.truncate(bytes.len() - 7)
            })
        },
        check: |log| {
            log.ends_at(log.site.end - 1);
            assert_eq!(log.report().truncated_below_recovery_point, None);
        },
    },
    Case {
        found: "the last batch is torn",
        after: Orderly,
        decision: "the log is recovered as after a crash, and the batch truncated",
        kafka: "trusts the clean-shutdown marker; the next append follows the torn batch",
        damage: |site| {
            site.edit(&site.path(site.last(), "log"), |bytes| {
                bytes.truncate(bytes.len() - 7)
            })
        },
        check: |log| log.ends_at(log.site.end - 1),
    },
    Case {
        found: "the log ends with zeros",
        after: Crash,
        decision: "truncated",
        kafka: SAME,
        damage: |site| append_to_file(&site.path(site.last(), "log"), &[0; 5000]),
        check: |log| {
            log.ends_at(log.site.end);
            assert_eq!(log.report().bytes_truncated, 5000);
        },
    },
    Case {
        found: "the log ends with bytes that are not a batch",
        after: Crash,
        decision: "truncated",
        kafka: SAME,
        damage: |site| append_to_file(&site.path(site.last(), "log"), &[0xa5; 300]),
        check: |log| log.ends_at(log.site.end),
    },
    Case {
        found: "after the recovery point, a batch whose checksum is wrong",
        after: Crash,
        decision: "the log is truncated before it, with a warning",
        kafka: SAME,
        damage: |site| {
            site.edit(&site.path(site.last(), "log"), |bytes| {
                let last = bytes.len() - 3;
                bytes[last] ^= 1;
            });
        },
        check: |log| log.ends_at(log.site.end - 1),
    },
    Case {
        found: "after the recovery point, a complete batch whose offsets do not follow",
        after: Crash,
        decision: "the log is truncated before it, with a warning",
        kafka: SAME,
        damage: |site| append_to_file(&site.path(site.last(), "log"), &batch_bytes(1, 1)),
        check: |log| log.ends_at(log.site.end),
    },
    Case {
        found: "before the recovery point, in the same segment, a batch whose checksum is wrong",
        after: Crash,
        decision: "the log is truncated before it, with an error: records that were on disk are lost",
        kafka: "truncates with a warning",
        damage: |site| site.edit(&site.path(site.last(), "log"), |bytes| bytes[70] ^= 1),
        check: |log| {
            log.ends_at(log.site.bases[log.site.last()]);
            assert!(log.report().truncated_below_recovery_point.is_some());
        },
    },
    Case {
        found: "in a segment before the recovery point, a batch whose checksum is wrong",
        after: Crash,
        decision: "kept; a reader finds that the checksum is wrong",
        kafka: SAME,
        damage: |site| site.edit(&site.path(0, "log"), |bytes| bytes[70] ^= 1),
        check: |log| assert_eq!(log.log().log_end_offset(), Offset(log.site.end)),
    },
    Case {
        found: "in a segment before the recovery point whose index is missing, bytes that are not a batch",
        after: Crash,
        decision: "the index is rebuilt for the batches before them, with an error; the bytes are kept, and reads of them fail",
        kafka: "truncates the segment there",
        damage: |site| {
            site.remove(site.path(0, "index"));
            site.edit(&site.path(0, "log"), |bytes| bytes[16] = 9);
        },
        check: |log| {
            assert_eq!(log.report().bytes_truncated, 0);
            assert_eq!(log.log().log_end_offset(), Offset(log.site.end));
        },
    },
    Case {
        found: "a segment is missing between two others",
        after: Orderly,
        decision: "kept as it is: compaction leaves such gaps, and reads continue after it",
        kafka: SAME,
        damage: |site| {
            for suffix in ["log", "index", "timeindex", "txnindex"] {
                site.remove(site.path(1, suffix));
            }
        },
        check: |log| {
            let (from, to) = (log.site.bases[1], log.site.bases[2]);
            let kept = log
                .before
                .iter()
                .filter(|(first, _)| *first < from || *first >= to);
            assert_eq!(log.batches(), kept.copied().collect::<Vec<_>>());
        },
    },
    Case {
        found: "the log ends before its recovery point, at a batch boundary",
        after: Crash,
        decision: "kept, with an error: records that were on disk are gone, or the log was truncated just before the stop",
        kafka: "logs nothing",
        damage: |site| {
            for suffix in ["log", "index", "timeindex"] {
                site.remove(site.path(site.last(), suffix));
            }
        },
        check: |log| {
            log.ends_at(log.site.bases[log.site.last()]);
            assert!(log.report().truncated_below_recovery_point.is_some());
        },
    },
    Case {
        found: "the last segment is empty",
        after: Orderly,
        decision: "the log ends at the base offset of that segment, with an error",
        kafka: "logs nothing",
        damage: |site| {
            fs::write(site.path(site.last(), "log"), b"").unwrap();
            fs::write(site.path(site.last(), "index"), b"").unwrap();
            fs::write(site.path(site.last(), "timeindex"), b"").unwrap();
        },
        check: |log| log.ends_at(log.site.bases[log.site.last()]),
    },
    Case {
        found: "no segment at all",
        after: Orderly,
        decision: "an empty segment is created at the log start offset",
        kafka: SAME,
        damage: |site| {
            fs::remove_dir_all(&site.dir).unwrap();
            fs::create_dir(&site.dir).unwrap();
        },
        check: |log| {
            assert_eq!(log.batches(), []);
            assert_eq!(log.log().log_end_offset(), Offset(0));
        },
    },
    // Producer snapshots.
    Case {
        found: "the newest producer snapshot is missing",
        after: Orderly,
        decision: "an older snapshot is loaded, and the records after it are read",
        kafka: SAME,
        damage: |site| site.remove(site.at(site.end, "snapshot")),
        check: |log| log.is_whole(),
    },
    Case {
        found: "the newest producer snapshot is corrupt",
        after: Orderly,
        decision: "deleted with a warning, and an older snapshot is loaded",
        kafka: SAME,
        damage: |site| site.edit(&site.at(site.end, "snapshot"), |bytes| bytes[12] ^= 1),
        check: |log| log.is_whole(),
    },
    Case {
        found: "the newest producer snapshot is torn",
        after: Orderly,
        decision: "deleted with a warning, and an older snapshot is loaded",
        kafka: SAME,
        damage: |site| site.edit(&site.at(site.end, "snapshot"), |bytes| bytes.truncate(8)),
        check: |log| log.is_whole(),
    },
    Case {
        found: "all producer snapshots are missing",
        after: Crash,
        decision: "producer state is rebuilt from all records",
        kafka: SAME,
        damage: |site| remove_snapshots(site),
        check: |log| log.is_whole(),
    },
    Case {
        found: "all producer snapshots are missing",
        after: Orderly,
        decision: "treated as a log without producers: a clean stop leaves a snapshot",
        kafka: SAME,
        damage: |site| remove_snapshots(site),
        check: |log| {
            log.has_all_records();
            assert!(log.log().producers().producer(ProducerId(5)).is_none());
        },
    },
    Case {
        found: "a producer snapshot after the end of the log",
        after: Crash,
        decision: "deleted: it describes records that are not in the log",
        kafka: SAME,
        damage: |site| {
            fs::copy(
                site.path(2, "snapshot"),
                site.at(site.end + 100, "snapshot"),
            )
            .unwrap();
        },
        check: |log| {
            log.is_whole();
            log.is_gone(&log.site.at(log.site.end + 100, "snapshot"));
        },
    },
    Case {
        found: "a producer snapshot at an offset where no segment starts",
        after: Orderly,
        decision: "deleted, except the newest",
        kafka: SAME,
        damage: |site| {
            fs::copy(
                site.path(1, "snapshot"),
                site.at(site.bases[1] + 1, "snapshot"),
            )
            .unwrap();
        },
        check: |log| {
            log.is_whole();
            log.is_gone(&log.site.at(log.site.bases[1] + 1, "snapshot"));
        },
    },
    // Leftovers of interrupted work.
    Case {
        found: "`.deleted` files: an unfinished deletion, or a spare segment",
        after: Crash,
        decision: "deleted",
        kafka: SAME,
        damage: |site| {
            for name in [
                "00000000000000000003.log.deleted",
                "spare-0000000000000001.index.deleted",
            ] {
                fs::write(site.dir.join(name), b"x").unwrap();
            }
        },
        check: |log| {
            log.is_whole();
            log.is_gone(&log.site.dir.join("spare-0000000000000001.index.deleted"));
        },
    },
    Case {
        found: "`.cleaned` files: an unfinished cleaning",
        after: Crash,
        decision: "deleted; the original segments are still there",
        kafka: SAME,
        damage: |site| {
            fs::write(site.at(site.bases[1], "log.cleaned"), b"x").unwrap();
            fs::write(site.at(site.bases[1], "index.cleaned"), b"x").unwrap();
        },
        check: |log| {
            log.is_whole();
            log.is_gone(&log.site.at(log.site.bases[1], "log.cleaned"));
        },
    },
    Case {
        found: "`.swap` files, and `.cleaned` files at or below their offset: an unfinished split",
        after: Crash,
        decision: "both deleted",
        kafka: SAME,
        damage: |site| {
            fs::write(site.at(site.bases[0], "log.cleaned"), b"x").unwrap();
            fs::write(site.at(site.bases[1], "log.swap"), batch_bytes(8, 1)).unwrap();
        },
        check: |log| {
            log.is_whole();
            log.is_gone(&log.site.at(log.site.bases[1], "log.swap"));
        },
    },
    Case {
        found: "a `.log.swap` file, and the segments that it replaces still exist",
        after: Crash,
        decision: "the old segments are deleted, and the file is renamed into place",
        kafka: SAME,
        damage: |site| {
            let swap = [batch_bytes(0, 2), batch_bytes(site.bases[1], 2)].concat();
            fs::write(site.at(0, "log.swap"), swap).unwrap();
        },
        check: |log| {
            let second = log.site.bases[1];
            let mut expected = vec![(0, 1), (second, second + 1)];
            expected.extend(
                log.before
                    .iter()
                    .filter(|(first, _)| *first >= log.site.bases[2]),
            );
            assert_eq!(log.batches(), expected);
        },
    },
    Case {
        found: "a `.log.swap` file, and the segments that it replaces renamed to `.deleted`",
        after: Crash,
        decision: "the file is renamed into place",
        kafka: SAME,
        damage: |site| {
            for suffix in ["log", "index", "timeindex"] {
                let to = format!("{suffix}.deleted");
                fs::rename(site.path(0, suffix), site.at(0, &to)).unwrap();
            }
            fs::write(site.at(0, "log.swap"), batch_bytes(0, 2)).unwrap();
        },
        check: |log| {
            let mut expected = vec![(0, 1)];
            expected.extend(
                log.before
                    .iter()
                    .filter(|(first, _)| *first >= log.site.bases[1]),
            );
            assert_eq!(log.batches(), expected);
        },
    },
    Case {
        found: "an `.index.swap` file whose `.log.swap` is already renamed",
        after: Crash,
        decision: "the file is renamed into place",
        kafka: SAME,
        damage: |site| fs::rename(site.path(0, "index"), site.at(0, "index.swap")).unwrap(),
        check: |log| {
            log.is_whole();
            log.is_gone(&log.site.at(0, "index.swap"));
        },
    },
    Case {
        found: "indexes without their `.log` file",
        after: Orderly,
        decision: "deleted",
        kafka: SAME,
        damage: |site| {
            for suffix in ["index", "timeindex", "txnindex"] {
                fs::write(site.at(3000, suffix), b"").unwrap();
            }
        },
        check: |log| {
            log.is_whole();
            log.is_gone(&log.site.at(3000, "txnindex"));
        },
    },
    // Other files.
    Case {
        found: "a file with an unknown name",
        after: Orderly,
        decision: "ignored",
        kafka: SAME,
        damage: |site| fs::write(site.dir.join("notes.txt"), b"x").unwrap(),
        check: |log| {
            log.is_whole();
            assert!(log.site.dir.join("notes.txt").exists());
        },
    },
    Case {
        found: "a `.log` file whose name is not an offset",
        after: Orderly,
        decision: "refused, naming the file; the log directory goes offline",
        kafka: "fails with a number format error; the broker stops",
        damage: |site| fs::write(site.dir.join("copy of 0.log"), b"x").unwrap(),
        check: |log| assert!(log.refused().contains("copy of 0.log"), "{}", log.refused()),
    },
    Case {
        found: "`leader-epoch-checkpoint` missing",
        after: Crash,
        decision: "the epochs of the records that recovery reads are restored; older ones are unknown",
        kafka: SAME,
        damage: |site| {
            let _ = fs::remove_file(site.dir.join("leader-epoch-checkpoint"));
        },
        check: |log| {
            log.is_whole();
            assert!(!log.log().leader_epochs().entries().is_empty());
        },
    },
    Case {
        found: "`leader-epoch-checkpoint` malformed",
        after: Orderly,
        decision: "refused, naming file and line; the log directory goes offline",
        kafka: SAME,
        damage: |site| {
            fs::write(site.dir.join("leader-epoch-checkpoint"), b"0\n2\n0 0\n").unwrap();
        },
        check: |log| {
            let sentence = log.refused();
            assert!(sentence.contains("leader-epoch-checkpoint"), "{sentence}");
        },
    },
    Case {
        found: "`leader-epoch-checkpoint` names epochs after the end of the log",
        after: Crash,
        decision: "these epochs are dropped",
        kafka: SAME,
        damage: |site| {
            fs::write(
                site.dir.join("leader-epoch-checkpoint"),
                b"0\n2\n0 0\n7 9000\n",
            )
            .unwrap();
        },
        check: |log| {
            log.is_whole();
            assert_eq!(log.log().latest_epoch(), Some(0.into()));
        },
    },
];

fn remove_snapshots(site: &super::Site) {
    for entry in fs::read_dir(&site.dir).unwrap() {
        let path = entry.unwrap().path();
        if path
            .extension()
            .is_some_and(|extension| extension == "snapshot")
        {
            fs::remove_file(path).unwrap();
        }
    }
    assert!(
        !site
            .dir
            .join(file_name(Offset(site.end), ".snapshot"))
            .exists()
    );
}
