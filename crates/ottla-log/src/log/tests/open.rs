use std::fs;

use ottla_types::Offset;

use super::{TestLog, batch, idempotent};
use crate::{Log, RecoveryReport};

fn three_segments() -> TestLog {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 3 * size + 8;
        config.index_interval_bytes = 50;
    });
    for _ in 0..8 {
        test.append(10);
    }
    assert_eq!(test.bases(), [0, 30, 60]);
    test
}

#[test]
fn an_empty_directory_becomes_an_empty_log() {
    let test = TestLog::new();
    assert_eq!(test.bases(), [0]);
    let expected = [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
    ];
    assert_eq!(test.files(), expected);
}

#[test]
fn a_clean_stop_is_trusted() {
    let mut test = three_segments();
    let before = test.read_all(0);
    test.close();
    let files: Vec<_> = test
        .files()
        .into_iter()
        .filter(|n| n.ends_with(".snapshot"))
        .collect();
    let expected = [
        "00000000000000000030.snapshot",
        "00000000000000000060.snapshot",
        "00000000000000000080.snapshot",
    ];
    assert_eq!(files, expected);
    assert_eq!(test.open(0, true), RecoveryReport::default());
    assert_eq!(test.read_all(0), before);
    assert_eq!(test.bases(), [0, 30, 60]);
    assert_eq!(test.reader().recovery_point(), Offset(80));
    test.append(10);
    assert_eq!(test.read_all(75), [(70, 79), (80, 89)]);
    test.reopen();
    assert_eq!(test.read_all(0).len(), 9);
}

#[test]
fn a_crash_leads_to_recovery_from_the_recovery_point() {
    let mut test = three_segments();
    let before = test.read_all(0);
    let report = test.crash();
    assert_eq!(report.segments_recovered, 3);
    assert_eq!(report.bytes_truncated, 0);
    assert_eq!(test.read_all(0), before);

    test.run_jobs();
    test.flush();
    assert_eq!(test.reader().recovery_point(), Offset(80));
    test.append(1);
    let report = test.crash();
    assert_eq!(report.segments_recovered, 1);
    assert_eq!(test.read_all(80), [(80, 80)]);
    assert_eq!(test.reader().recovery_point(), Offset(80));
}

#[test]
fn recovered_segments_are_scanned_once_whatever_their_indexes() {
    let mut test = three_segments();
    let before = test.read_all(0);
    test.log = None;
    for base in [0, 30, 60] {
        // As a killed Kafka leaves them: preallocated.
        fs::write(test.path().join(format!("{base:020}.index")), [0; 4096]).unwrap();
        fs::remove_file(test.path().join(format!("{base:020}.timeindex"))).unwrap();
    }
    let expected = RecoveryReport {
        segments_recovered: 2,
        indexes_rebuilt: 1,
        first_rebuilt: Some(Offset(0)),
        ..RecoveryReport::default()
    };
    assert_eq!(test.open(35, false), expected);
    assert_eq!(test.read_all(0), before);
    assert_eq!(test.crash().indexes_rebuilt, 0);
}

#[test]
fn a_torn_tail_is_cut_off() {
    let mut test = three_segments();
    let before = test.read_all(0);
    let path = test.path().join("00000000000000000060.log");
    let whole = fs::read(&path).unwrap();
    let batch_size = whole.len() / 2;
    for cut in [1, 60, 61, batch_size - 1] {
        fs::write(&path, &whole[..whole.len() - cut]).unwrap();
        test.log = None;
        let report = test.open(0, false);
        assert_eq!(report.bytes_truncated, (batch_size - cut) as u64);
        assert_eq!(report.truncated_below_recovery_point, None);
        assert_eq!(test.read_all(0), before[..7]);
        assert_eq!(test.log().log_end_offset(), Offset(70));
        assert_eq!(fs::metadata(&path).unwrap().len(), batch_size as u64);
    }
    test.append(10);
    assert_eq!(test.read_all(0), before);
}

#[test]
fn preallocated_zeros_are_cut_off() {
    let mut test = three_segments();
    let before = test.read_all(0);
    let path = test.path().join("00000000000000000060.log");
    let len = fs::metadata(&path).unwrap().len();
    fs::File::options()
        .write(true)
        .open(&path)
        .unwrap()
        .set_len(len + 100_000)
        .unwrap();
    let report = test.crash();
    assert_eq!(report.bytes_truncated, 100_000);
    assert_eq!(test.read_all(0), before);
}

#[test]
fn a_flipped_bit_after_the_recovery_point_truncates_the_log() {
    let mut test = three_segments();
    test.log = None;
    let path = test.path().join("00000000000000000030.log");
    let whole = fs::read(&path).unwrap();
    let size = whole.len() / 3;
    // In the length, the magic, the checksum, the records; in the offset, which no checksum covers, where
    // it leaves the reach of the segment.
    for at in [0, 3, 8, 10, 16, 17, 60, size - 1] {
        let mut damaged = whole.clone();
        damaged[size + at] ^= 0x10;
        fs::write(&path, damaged).unwrap();
        let report = test.open(0, false);
        assert_eq!(
            report.segments_deleted,
            usize::from(test.bases().len() == 2),
            "{at}"
        );
        assert_eq!(test.log().log_end_offset(), Offset(40), "{at}");
        assert_eq!(test.read_all(0).len(), 4);
        test.log = None;
        fs::write(&path, &whole).unwrap();
        for file in ["00000000000000000060.log", "00000000000000000060.index"] {
            assert!(!test.path().join(file).exists());
        }
        // Restores the third segment for the next round.
        let mut third = TestLog::new();
        third.append_batch(batch(60, 10));
        fs::copy(
            third.path().join("00000000000000000000.log"),
            test.path().join("00000000000000000060.log"),
        )
        .unwrap();
    }
}

#[test]
fn a_gap_between_segments_deletes_no_segment() {
    // As the cleaner leaves it: the last batch of the first segment and the first of the next are
    // gone. The policy with which the log is opened tells nothing about how it was written.
    let mut test = three_segments();
    test.log = None;
    let path = test.path().join("00000000000000000000.log");
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() / 3 * 2]).unwrap();
    assert!(!test.config.cleanup_policy.compact);
    let report = test.open(0, false);
    assert_eq!(report.segments_deleted, 0);
    assert_eq!(report.bytes_truncated, 0);
    assert_eq!(test.bases(), [0, 30, 60]);
    let found = test.read_all(0);
    assert_eq!(found.len(), 7);
    assert_eq!(found[1..3], [(10, 19), (30, 39)]);
    assert_eq!(test.log().log_end_offset(), Offset(80));
}

#[test]
fn a_cut_below_the_recovery_point_is_reported() {
    let mut test = three_segments();
    test.log = None;
    let path = test.path().join("00000000000000000060.log");
    let mut bytes = fs::read(&path).unwrap();
    bytes[100] ^= 1;
    fs::write(&path, bytes).unwrap();
    let report = test.open(75, false);
    assert_eq!(report.truncated_below_recovery_point, Some(Offset(60)));
    assert_eq!(test.reader().recovery_point(), Offset(60));
}

#[test]
fn broken_indexes_are_built_again() {
    let mut test = three_segments();
    test.close();
    let names: Vec<String> = [".index", ".timeindex"]
        .map(|s| format!("00000000000000000030{s}"))
        .to_vec();
    let good: Vec<_> = names
        .iter()
        .map(|n| fs::read(test.path().join(n)).unwrap())
        .collect();
    for (name, good) in names.iter().zip(&good) {
        let path = test.path().join(name);
        let zeros = vec![0; 48];
        let short = good[..good.len() - 1].to_vec();
        let mut wild = good.clone();
        let at = wild.len() - 4;
        wild[at..].fill(0xff);
        for damage in [Some(zeros), Some(short), Some(wild), None] {
            match &damage {
                Some(bytes) => fs::write(&path, bytes).unwrap(),
                None => fs::remove_file(&path).unwrap(),
            }
            let report = test.open(0, true);
            assert_eq!(report.indexes_rebuilt, 1, "{name} {damage:?}");
            assert_eq!(test.read_all(35).len(), 5);
            test.close();
            assert_eq!(&fs::read(&path).unwrap(), good, "{name} {damage:?}");
        }
    }
}

#[test]
fn a_plausible_but_wrong_index_does_not_lead_reads_astray() {
    let mut test = three_segments();
    test.close();
    let path = test.path().join("00000000000000000030.index");
    let mut bytes = fs::read(&path).unwrap();
    bytes[7] = bytes[7].wrapping_add(3);
    fs::write(&path, bytes).unwrap();
    assert_eq!(test.open(0, true).indexes_rebuilt, 0);
    for offset in 30..60 {
        let first = test.read_all(offset)[0];
        assert!(
            first.0 <= offset && offset <= first.1,
            "{offset}: {first:?}"
        );
    }
}

#[test]
fn leftovers_are_decided_by_the_table() {
    let mut test = three_segments();
    test.close();
    let put = |name: &str| fs::write(test.path().join(name), b"x").unwrap();
    for name in [
        "00000000000000000000.log.deleted",
        "00000000000000000007.snapshot.deleted",
        "spare.index.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000030.index.cleaned",
        "00000000000000000030.log.swap",
        "00000000000000000500.index",
        "00000000000000000500.timeindex",
        "00000000000000000500.txnindex",
    ] {
        put(name);
    }
    put("notes.txt");
    assert_eq!(test.open(0, true), RecoveryReport::default());
    let unexpected: Vec<_> = test
        .files()
        .into_iter()
        .filter(|n| {
            [".deleted", ".cleaned", ".swap"]
                .iter()
                .any(|s| n.ends_with(s))
                || n.contains("500")
        })
        .collect();
    assert_eq!(unexpected, [""; 0]);
    assert!(test.files().contains(&"notes.txt".to_owned()));
    assert_eq!(test.read_all(0).len(), 8);
}

#[test]
fn a_complete_swap_replaces_the_covered_segments() {
    let mut test = three_segments();
    test.close();
    // The cleaner has merged the first two segments and kept one batch of each.
    let swap = test.path().join("00000000000000000000.log.swap");
    let kept = [batch(0, 10).to_bytes(), batch(50, 10).to_bytes()].concat();
    fs::write(&swap, kept).unwrap();
    let report = test.open(0, true);
    assert_eq!(report.indexes_rebuilt, 1);
    assert_eq!(test.bases(), [0, 60]);
    assert_eq!(test.read_all(0), [(0, 9), (50, 59), (60, 69), (70, 79)]);
}

#[test]
fn a_log_that_ends_before_its_start_begins_anew() {
    let mut test = three_segments();
    test.close();
    let mut params = test.params(0, true);
    params.log_start_offset = Offset(1000);
    let (log, report) = Log::open(params).unwrap();
    assert_eq!(report.segments_deleted, 3);
    assert_eq!(
        (log.log_start_offset(), log.log_end_offset()),
        (Offset(1000), Offset(1000))
    );
    assert_eq!(log.reader().segment_base_offsets(), [Offset(1000)]);
}

#[test]
fn garbage_files_never_panic() {
    let mut seed = 1u64;
    let mut random = || {
        seed = seed
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (seed >> 33) as usize
    };
    let template = {
        let mut test = three_segments();
        test.append_batch(idempotent(80, 1, 5, 0, 0));
        test.close();
        test
    };
    let names = template.files();
    for round in 0..300 {
        let mut test = TestLog::new();
        test.log = None;
        for name in &names {
            fs::copy(template.path().join(name), test.path().join(name)).unwrap();
        }
        let name = &names[random() % names.len()];
        let mut bytes = fs::read(test.path().join(name)).unwrap();
        match random() % 3 {
            0 => bytes.truncate(random() % (bytes.len() + 1)),
            1 => bytes.extend((0..random() % 100).map(|n| n as u8)),
            _ => {
                for _ in 0..=random() % 4 {
                    if !bytes.is_empty() {
                        let at = random() % bytes.len();
                        bytes[at] = random() as u8;
                    }
                }
            }
        }
        fs::write(test.path().join(name), bytes).unwrap();
        let params = test.params(random() as i64 % 90, round % 2 == 0);
        // An unreadable checkpoint is an error; with any other file the log opens, appends and
        // reads.
        if let Ok((mut log, _)) = Log::open(params) {
            let end = log.log_end_offset();
            log.append(&[batch(end.0, 1)], test.now).unwrap();
            let reader = log.reader();
            for from in 0..=end.0 {
                let _ = reader.read(Offset(from), 1000, end.plus(1), true);
            }
            log.truncate_to(Offset(end.0 / 2), test.now).ok();
        }
    }
}

#[test]
fn an_index_that_is_built_again_costs_no_producers() {
    let size = idempotent(0, 10, 5, 0, 0).size_in_bytes() as i32;
    for (segment_bytes, batches) in [(100 * size, 4), (3 * size + 8, 8)] {
        let mut test = TestLog::with_config(|config| {
            config.segment_bytes = segment_bytes;
            config.index_interval_bytes = 50;
        });
        for n in 0..batches {
            test.append_batch(idempotent(n * 10, 10, 5, 0, n as i32 * 10));
        }
        let bases = test.bases();
        test.close();
        let files = test.files();
        for base in bases {
            fs::remove_file(test.path().join(format!("{base:020}.index"))).unwrap();
            assert_eq!(test.open(0, true).indexes_rebuilt, 1);
            let producer = test.log().producers().producer(5.into()).unwrap();
            assert_eq!(producer.last_sequence().0, batches as i32 * 10 - 1);
            test.close();
            assert_eq!(test.files(), files);
        }
    }
}

#[test]
fn indexes_that_were_written_with_another_interval_are_whole() {
    let mut test = three_segments();
    test.close();
    test.config.index_interval_bytes = 1;
    let report = test.open(75, false);
    assert_eq!((report.indexes_rebuilt, report.segments_recovered), (0, 1));
}

#[test]
fn the_indexes_of_a_segment_that_was_loaded_and_went_on_are_whole_after_a_stop() {
    let size = batch(0, 10).size_in_bytes() as i32;
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 8 * size;
        config.index_interval_bytes = 50;
    });
    test.append(10);
    test.reopen();
    for _ in 0..7 {
        test.append(10);
    }
    // The recovery point is at the end of the segment, which is sealed afterwards.
    test.flush();
    test.append(10);
    assert_eq!(test.bases(), [0, 80]);
    test.reopen();
    // Neither the first batch nor the first after the start has an entry.
    assert_eq!(test.file_len("00000000000000000000.index"), 6 * 8);
}

/// A start opens thousands of logs, most of which are not used soon.
#[test]
fn a_log_that_was_opened_keeps_no_file_open() {
    let mut test = TestLog::new();
    test.append(3);
    test.reopen();
    assert_eq!(test.handles.stats().open, 0);
    test.append(3);
    assert_eq!(test.handles.stats().open, 1);
    test.crash();
    assert_eq!(test.handles.stats().open, 0);
}

/// A broker closes thousands of logs before it ends and must not need more open files for that.
#[test]
fn a_log_at_rest_keeps_no_index_open() {
    let mut test = TestLog::new();
    test.append(3);
    let _reader = test.reader();
    test.log().close_job().run().unwrap();
    let open = std::fs::read_dir("/proc/self/fd").unwrap();
    let open = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
    let indexes: Vec<_> = open
        .filter(|path| path.starts_with(test.path()))
        .filter(|path| path.extension().is_none_or(|suffix| suffix != "log"))
        .collect();
    assert_eq!(indexes, Vec::<std::path::PathBuf>::new());
}
