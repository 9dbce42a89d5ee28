//! Damage in a partition's directory, the decision about it, and what Kafka does: one table, shown
//! in `docs/recovery.md`, with a test of every row.

mod cases;

use std::fs;
use std::path::{Path, PathBuf};

use ottla_types::{Offset, ProducerId};

use super::{TestLog, batch, build, idempotent, read_all};
use crate::file_names::file_name;
use crate::log::tests::transactions::{end, transactional};
use crate::{Log, LogError, RecoveryReport};
use ottla_records::control::ControlRecordType;

/// A row of the table.
pub(super) struct Case {
    pub(super) found: &'static str,
    pub(super) after: Stop,
    pub(super) decision: &'static str,
    pub(super) kafka: &'static str,
    /// Causes the damage.
    pub(super) damage: fn(&Site),
    /// Checks that the decision was taken.
    pub(super) check: fn(&Opened),
}

/// How the log was stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    Orderly,
    /// Killed; the recovery point is in the last segment.
    Crash,
}

/// A stopped log: four segments, an idempotent producer, and a transaction aborted in the second
/// segment.
pub(super) struct Site {
    pub(super) dir: PathBuf,
    /// Base offsets of the segments.
    pub(super) bases: Vec<i64>,
    pub(super) end: i64,
    pub(super) recovery_point: i64,
}

impl Site {
    pub(super) fn path(&self, segment: usize, suffix: &str) -> PathBuf {
        self.at(self.bases[segment], suffix)
    }

    pub(super) fn at(&self, offset: i64, suffix: &str) -> PathBuf {
        self.dir
            .join(file_name(Offset(offset), &format!(".{suffix}")))
    }

    /// Changes the bytes of a file.
    pub(super) fn edit(&self, path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = fs::read(path).unwrap();
        change(&mut bytes);
        fs::write(path, bytes).unwrap();
    }

    pub(super) fn remove(&self, path: PathBuf) {
        fs::remove_file(path).unwrap();
    }

    pub(super) fn last(&self) -> usize {
        self.bases.len() - 1
    }
}

/// The result of opening it.
pub(super) struct Opened {
    pub(super) site: Site,
    pub(super) result: Result<(Log, RecoveryReport), LogError>,
    /// Every batch before the damage.
    pub(super) before: Vec<(i64, i64)>,
}

impl Opened {
    pub(super) fn log(&self) -> &Log {
        &self.result.as_ref().expect("the log is opened").0
    }

    pub(super) fn report(&self) -> &RecoveryReport {
        &self.result.as_ref().expect("the log is opened").1
    }

    pub(super) fn batches(&self) -> Vec<(i64, i64)> {
        let reader = self.log().reader();
        read_all(&reader, reader.log_start_offset().0)
    }

    /// Everything can be read, and the producer and the aborted transaction are known.
    pub(super) fn is_whole(&self) {
        self.has_all_records();
        let entry = self.log().producers().producer(ProducerId(5));
        assert_eq!(entry.unwrap().last_sequence().0, 1);
        let aborted = self.aborted();
        assert_eq!(aborted, 1, "aborted transactions");
    }

    pub(super) fn has_all_records(&self) {
        assert_eq!(self.batches(), self.before);
        assert_eq!(self.report().bytes_truncated, 0);
        assert_eq!(self.report().segments_deleted, 0);
    }

    pub(super) fn aborted(&self) -> usize {
        let reader = self.log().reader();
        let range = (Offset(0), reader.log_end_offset());
        reader.aborted_transactions(range.0, range.1).unwrap().len()
    }

    pub(super) fn is_whole_and_has_rebuilt(&self, indexes: usize) {
        self.is_whole();
        assert_eq!(self.report().indexes_rebuilt, indexes);
    }

    /// Records below `end` are kept, later ones are gone.
    pub(super) fn ends_at(&self, end: i64) {
        let kept = self.before.iter().filter(|(_, last)| *last < end);
        assert_eq!(self.batches(), kept.copied().collect::<Vec<_>>());
        assert_eq!(self.log().log_end_offset(), Offset(end));
    }

    pub(super) fn is_gone(&self, path: &Path) {
        assert!(!path.exists(), "{}", path.display());
    }

    pub(super) fn refused(&self) -> String {
        match &self.result {
            Ok(_) => panic!("the log was opened"),
            Err(error) => error.to_string(),
        }
    }
}

fn stopped(stop: Stop) -> (TestLog, Site, Vec<(i64, i64)>) {
    let mut test = TestLog::with_config(|config| {
        config.segment_bytes = 420;
        config.index_interval_bytes = 100;
    });
    test.append(2);
    test.append_batch(idempotent(2, 2, 5, 0, 0));
    test.append(2);
    test.append(2);
    test.append_batch(transactional(8, 2, 6, 0));
    test.append_batch(end(10, 6, ControlRecordType::Abort));
    let is_full = |test: &TestLog| test.bases().len() == 4;
    while !is_full(&test) {
        test.append(2);
    }
    test.append(2);
    test.flush();
    let recovery_point = test.reader().recovery_point().0;
    let offset = test.reader().log_end_offset().0;
    // Not fsynced, as far as recovery knows.
    test.append_batch(build(offset, 1, 1_000_000 + offset, |builder| builder));
    let before = test.read_all(0);
    let site = Site {
        dir: test.path().to_owned(),
        bases: test.bases(),
        end: test.reader().log_end_offset().0,
        recovery_point,
    };
    match stop {
        Stop::Orderly => test.close(),
        Stop::Crash => test.log = None,
    }
    (test, site, before)
}

#[test]
fn every_row_of_the_table_is_so() {
    for case in cases::CASES {
        eprintln!("{:?}: {}", case.after, case.found);
        let (test, site, before) = stopped(case.after);
        (case.damage)(&site);
        let recovery_point = match case.after {
            Stop::Orderly => site.end,
            Stop::Crash => site.recovery_point,
        };
        let is_clean = case.after == Stop::Orderly;
        let opened = Opened {
            result: Log::open(test.params(recovery_point, is_clean)),
            site,
            before,
        };
        (case.check)(&opened);
        // Opening again must not change the result.
        if let Ok((log, _)) = opened.result {
            let end = log.log_end_offset();
            let bases = log.reader().segment_base_offsets();
            drop(log);
            let (again, _) = Log::open(test.params(recovery_point, is_clean)).unwrap();
            assert_eq!(again.log_end_offset(), end);
            assert_eq!(again.reader().segment_base_offsets(), bases);
        }
    }
}

#[test]
fn an_untouched_log_is_intact() {
    for stop in [Stop::Orderly, Stop::Crash] {
        let (test, site, before) = stopped(stop);
        let params = test.params(site.recovery_point, stop == Stop::Orderly);
        let opened = Opened {
            result: Log::open(params),
            site,
            before,
        };
        opened.is_whole();
        assert_eq!(opened.report().indexes_rebuilt, 0);
        assert_eq!(opened.site.bases.len(), 4);
    }
}

#[test]
fn the_documented_table_is_this_one() {
    let mut table =
        String::from("| found | after | decision | Kafka |\n| --- | --- | --- | --- |\n");
    for case in cases::CASES {
        let after = match case.after {
            Stop::Orderly => "clean stop",
            Stop::Crash => "crash",
        };
        let Case {
            found,
            decision,
            kafka,
            ..
        } = case;
        table += &format!("| {found} | {after} | {decision} | {kafka} |\n");
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/recovery.md");
    let text = fs::read_to_string(&path).unwrap();
    let (begin, end) = ("<!-- partition: begin -->\n", "<!-- partition: end -->");
    let start = text.find(begin).expect("the table has a place") + begin.len();
    let stop = text.find(end).expect("the table's place has an end");
    if std::env::var_os("OTTLA_WRITE_DOCS").is_some() {
        fs::write(&path, format!("{}{table}{}", &text[..start], &text[stop..])).unwrap();
        return;
    }
    assert_eq!(
        &text[start..stop],
        table,
        "docs/recovery.md is not up to date; run this test with OTTLA_WRITE_DOCS=1"
    );
}

/// Whatever a file holds, the log opens or reports an error. It then holds a prefix of the
/// original, and fsynced records are lost only with a report.
#[test]
fn no_byte_of_any_file_loses_records_silently() {
    for stop in [Stop::Orderly, Stop::Crash] {
        let (template, site, before) = stopped(stop);
        let is_clean = stop == Stop::Orderly;
        for name in template.files() {
            let whole = fs::read(template.path().join(&name)).unwrap();
            let mut damaged: Vec<Vec<u8>> = Vec::new();
            for at in 0..whole.len() {
                // In large files, the first header and a sample of the rest.
                if at < 64 || at % 5 == 0 {
                    damaged.push(whole[..at].to_vec());
                    let mut flipped = whole.clone();
                    flipped[at] ^= 1 << (at % 8);
                    damaged.push(flipped);
                }
            }
            damaged.push([whole.as_slice(), &[0; 37]].concat());
            damaged.push([whole.as_slice(), &[0xff; 37]].concat());
            damaged.push(vec![0; whole.len()]);
            for bytes in damaged {
                let mut test = TestLog::new();
                test.log = None;
                test.config = template.config.clone();
                for file in template.files() {
                    fs::copy(template.path().join(&file), test.path().join(&file)).unwrap();
                }
                for file in test.files() {
                    if !template.files().contains(&file) {
                        fs::remove_file(test.path().join(file)).unwrap();
                    }
                }
                fs::write(test.path().join(&name), &bytes).unwrap();
                let recovery_point = match is_clean {
                    true => site.end,
                    false => site.recovery_point,
                };
                let Ok((log, report)) = Log::open(test.params(recovery_point, is_clean)) else {
                    continue;
                };
                let context = || {
                    let same = bytes.iter().zip(&whole).take_while(|(a, b)| a == b);
                    let at = same.count();
                    format!(
                        "{stop:?}, {name}, {} bytes, other from {at} on, {report:?}",
                        bytes.len()
                    )
                };
                let reader = log.reader();
                let mut is_loss_told = report.truncated_below_recovery_point.is_some();
                let mut found = Vec::new();
                for &(first, last) in &before {
                    // A read of an existing record succeeds or fails with an error.
                    match reader.read(Offset(first), 1 << 20, reader.log_end_offset(), true) {
                        Ok(read) => {
                            let bytes = read.region.map(|region| region.read().unwrap());
                            let records = bytes.map(ottla_records::RecordBatch::read_all);
                            let first_batch = records.and_then(|mut batches| batches.next());
                            match first_batch {
                                Some(Ok(batch))
                                    if batch.verify_crc().is_ok()
                                        && batch.header.base_offset.0 == first =>
                                {
                                    found.push((first, last));
                                }
                                // The client sees that these bytes are not a batch.
                                Some(_) => is_loss_told = true,
                                None => {}
                            }
                        }
                        Err(_) => is_loss_told = true,
                    }
                }
                let is_kept =
                    |batch: &(i64, i64)| found.contains(batch) || batch.1 >= recovery_point;
                let is_fine = is_loss_told || before.iter().all(is_kept);
                assert!(is_fine, "{}: {found:?} of {before:?}", context());
            }
        }
    }
}

/// For rows that need a different log.
pub(super) fn append_to_file(path: &Path, bytes: &[u8]) {
    let whole = fs::read(path).unwrap();
    fs::write(path, [whole.as_slice(), bytes].concat()).unwrap();
}

pub(super) fn batch_bytes(base_offset: i64, count: i32) -> Vec<u8> {
    let batch = batch(base_offset, count);
    [&batch.header.to_bytes(), &batch.body()[..]].concat()
}
