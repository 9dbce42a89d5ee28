//! `ottla-clean-logs`: which starts use it, and that it is used once.

use std::time::Duration;

use ottla_log::checkpoint::{CleanShutdown, PARTITION_METADATA};
use ottla_log::{CLEAN_LOGS_FILE, CleanLogs};
use ottla_sync::fs::PowerLoss;

use super::*;

const RECORDS: [i64; 3] = [0, 1, 3];

/// A broker with logs of [`RECORDS`] records, stopped cleanly, as a stop does it.
fn stopped(count: usize) -> Dirs {
    let test = Dirs::new(count);
    let dirs = test.load().unwrap();
    let mut logs: Vec<Log> = (0..).zip(RECORDS).map(|(n, _)| open(&dirs, n)).collect();
    for (log, records) in logs.iter_mut().zip(RECORDS) {
        (0..records).for_each(|_| append(log));
    }
    stop(&dirs, logs, 42);
    test
}

/// The kernel's clock of files has ticks of up to 10 ms.
fn wait_for_the_next_tick() {
    ottla_sync::thread::sleep(Duration::from_millis(30));
}

fn stop(dirs: &LogDirs, logs: Vec<Log>, broker_epoch: i64) {
    for mut log in logs {
        dirs.close_log(&log.close_job(), TOPIC_ID).unwrap();
    }
    // A log that has just changed is not trusted.
    wait_for_the_next_tick();
    dirs.close(BrokerEpoch(broker_epoch), &[]);
}

/// Overwrites a file of each log, which a start that reads it reports. That it is overwritten in
/// place goes unnoticed otherwise.
fn spoil(test: &Dirs) {
    for path in test.paths() {
        for name in names(&path)
            .iter()
            .filter(|name| name.starts_with("topic-"))
        {
            fs::write(path.join(name).join(PARTITION_METADATA), "garbage").unwrap();
        }
    }
}

fn open_all(dirs: &LogDirs) -> Vec<Log> {
    let logs: Vec<Log> = (0..).zip(RECORDS).map(|(n, _)| open(dirs, n)).collect();
    for (log, records) in logs.iter().zip(RECORDS) {
        assert_eq!(log.log_end_offset(), Offset(records));
        assert_eq!(log.high_watermark(), Offset(records));
    }
    logs
}

#[test]
fn a_start_after_a_clean_stop_does_not_read_the_logs() {
    for count in [1, 2] {
        let test = stopped(count);
        spoil(&test);
        let dirs = test.load().unwrap();
        assert!(dirs.describe().iter().all(|dir| dir.is_online));
        for path in test.paths() {
            assert!(!names(&path).contains(&CLEAN_LOGS_FILE.to_owned()));
        }
        let logs = open_all(&dirs);
        // The logs go on, and the next stop describes them again.
        stop(&dirs, logs, 43);
        spoil(&test);
        let dirs = test.load().unwrap();
        drop(open_all(&dirs));
    }
}

fn change_file(path: &Path, change: fn(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    fs::write(path, bytes).unwrap();
}

/// Changes of a log directory after a clean stop, and what they are.
const CHANGES: [(&str, fn(&Path)); 10] = [
    ("no marker", |path| {
        fs::remove_file(path.join(CLEAN_SHUTDOWN_FILE)).unwrap();
    }),
    ("the marker of another stop", |path| {
        CleanShutdown::write(path, BrokerEpoch(43)).unwrap();
    }),
    ("the empty marker of an old Kafka", |path| {
        fs::write(path.join(CLEAN_SHUTDOWN_FILE), "").unwrap();
    }),
    ("a wrong byte", |path| {
        change_file(&path.join(CLEAN_LOGS_FILE), |bytes| bytes[60] ^= 1);
    }),
    ("another version", |path| {
        change_file(&path.join(CLEAN_LOGS_FILE), |bytes| bytes[3] = 9);
    }),
    ("a short file", |path| {
        change_file(&path.join(CLEAN_LOGS_FILE), |bytes| bytes.truncate(100));
    }),
    ("no file", |path| {
        fs::remove_file(path.join(CLEAN_LOGS_FILE)).unwrap();
    }),
    ("a file in the directory of a log", |path| {
        fs::write(path.join("topic-1/new"), "").unwrap();
    }),
    ("a longer log", |path| {
        let log = path.join("topic-1/00000000000000000000.log");
        change_file(&log, |bytes| bytes.extend_from_within(..));
    }),
    ("a restored log", |path| {
        let (log, other) = (path.join("topic-1"), path.with_file_name("other"));
        fs::rename(&log, &other).unwrap();
        fs::create_dir(&log).unwrap();
        for name in names(&other) {
            fs::copy(other.join(&name), log.join(&name)).unwrap();
        }
    }),
];

#[test]
fn after_a_change_the_files_are_read() {
    for (what, change) in CHANGES {
        let test = stopped(1);
        wait_for_the_next_tick();
        change(&test.path());
        spoil(&test);
        assert!(test.load().is_err(), "{what}");
    }
}

/// A change after the stop could have the same time. On the simulated disk, the file is as old as the
/// temporary one that it was written to.
#[test]
fn a_log_that_is_not_older_than_the_file_is_not_trusted() {
    for is_file_older in [false, true] {
        on_simulated_disk(move |_| {
            let test = Dirs::new(1);
            if is_file_older {
                let temporary = format!("{CLEAN_LOGS_FILE}.tmp");
                ottla_sync::fs::File::create(test.path().join(temporary)).unwrap();
            }
            let dirs = test.load().unwrap();
            let mut log = open(&dirs, 0);
            append(&mut log);
            stop(&dirs, vec![log], 42);
            let found = CleanLogs::read(&test.path()).unwrap();
            assert_eq!(found.get(&partition(0)).is_none(), is_file_older);
        });
    }
}

/// A start takes the file: a kill leads to recovery, whatever was not changed.
#[test]
fn the_file_is_used_once() {
    let test = stopped(1);
    let kept = fs::read(test.path().join(CLEAN_LOGS_FILE)).unwrap();
    drop(test.load().unwrap());
    spoil(&test);
    assert!(test.load().is_err());
    // Also if an earlier file comes back, for example from a backup.
    fs::write(test.path().join(CLEAN_LOGS_FILE), kept).unwrap();
    assert!(test.load().is_err());
}

/// An aborted start gives the marker back, and not the file.
#[test]
fn after_an_aborted_start_the_files_are_read() {
    let test = stopped(1);
    test.load().unwrap().abandon();
    assert!(test.path().join(CLEAN_SHUTDOWN_FILE).exists());
    assert!(!test.path().join(CLEAN_LOGS_FILE).exists());
    drop(open_all(&test.load().unwrap()));
}

/// Its directory gets no marker either.
#[test]
fn a_log_that_was_not_closed_leaves_no_file() {
    let test = Dirs::new(1);
    let dirs = test.load().unwrap();
    let (mut closed, unclosed) = (open(&dirs, 0), open(&dirs, 1));
    dirs.close_log(&closed.close_job(), TOPIC_ID).unwrap();
    dirs.close(BrokerEpoch(42), &[partition(1)]);
    assert!(!test.path().join(CLEAN_LOGS_FILE).exists());
    drop((closed, unclosed));
}

/// A topic that was deleted and created again while the broker was down.
#[test]
fn a_log_of_another_topic_of_the_same_name_is_set_aside() {
    let test = stopped(1);
    assert!(
        CleanLogs::read(&test.path())
            .unwrap()
            .get(&partition(2))
            .is_some()
    );
    let dirs = test.load().unwrap();
    let other = TopicId::from_u128(78);
    let log = dirs
        .open_log(&partition(2), other, None, settings())
        .unwrap();
    assert_eq!(log.log_end_offset(), Offset(0));
    let strays = names(&test.path());
    assert!(
        strays.iter().any(|name| name.ends_with("-stray")),
        "{strays:?}"
    );
}

/// Starts that are killed at any point after a clean stop, with a power loss.
#[test]
fn a_power_loss_around_a_start_loses_nothing() {
    for seed in 0..40 {
        let test = Arc::new(Dirs {
            temp: tempfile::tempdir().unwrap(),
            count: 1,
        });
        let report = simulation::run(Config::new(seed), move || {
            let disk = Disk::new(seed, "broker");
            let life = |work: fn(&Dirs), kill_in: Option<u64>| {
                let host = Host::new("broker").with_disk(&disk);
                let test = Arc::clone(&test);
                let main = host.spawn("main", move || work(&test));
                if let Some(steps) = kill_in {
                    host.kill_in(steps);
                }
                let ended = main.join();
                host.kill();
                assert!(ended.is_ok() || kill_in.is_some());
            };
            let first = |test: &Dirs| {
                format_standalone(&test.config()).unwrap();
                let dirs = test.load().unwrap();
                let mut logs = vec![open(&dirs, 0), open(&dirs, 1)];
                append(&mut logs[1]);
                stop(&dirs, logs, 1);
            };
            life(first, None);
            for number in 1..3 {
                let next = |test: &Dirs| {
                    let dirs = test.load().unwrap();
                    let mut logs = vec![open(&dirs, 0), open(&dirs, 1)];
                    append(&mut logs[0]);
                    stop(&dirs, logs, 2);
                };
                life(next, Some(seed * 25 * number));
                disk.lose_power(PowerLoss::Journalled);
            }
            let last = |test: &Dirs| {
                let dirs = test.load().unwrap();
                assert!(dirs.describe().iter().all(|dir| dir.is_online));
                assert_eq!(open(&dirs, 1).log_end_offset(), Offset(1));
            };
            life(last, None);
        });
        assert!(report.result.is_ok(), "seed {seed}: {:?}", report.result);
    }
}
