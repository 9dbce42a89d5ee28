//! Produce latency during segment rolls: an open loop at a fixed rate into one partition with small
//! segments and short retention. One thread watches for new segments, another measures how late the
//! machine wakes a sleeping thread.
//!
//! Requests are grouped into 100 ms windows by their due time. The windows are written to a file,
//! one per line, and latencies in windows with a roll are compared with the others. A roll that
//! stalls its partition shows in the window in which it began. A window that follows it counts as a
//! window without a roll; this hides nothing, because the whole distribution is reported too.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::broker;
use super::disk::Scratch;
use super::load::{self, Load, number_at};
use super::machine::ProcessReading;
use super::setting::Setting;
use super::table::Results;
use ottla_peers::NodeOptions;
use ottla_workspace::{process, workspace};

const SEGMENT_BYTES: u64 = 64 << 20;
const RETENTION_BYTES: u64 = 1 << 30;
const WINDOW_US: u64 = 100_000;
/// Polling interval of the partition's folder.
const LOOK: Duration = Duration::from_millis(10);
const NAP: Duration = Duration::from_millis(1);
const TOPIC: &str = "rolls";

/// Settings of both brokers that keep retention active during the load, so that the disk does not
/// fill up.
const OVERRIDES: [(&str, &str); 5] = [
    ("log.segment.bytes", "67108864"),
    ("log.retention.bytes", "1073741824"),
    ("log.retention.check.interval.ms", "5000"),
    ("log.initial.task.delay.ms", "500"),
    ("log.segment.delete.delay.ms", "1000"),
];

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let options = setting.options;
    ensure!(options.rolls > 0, "--rolls must be 1 or more");
    let rate = options.roll_megabytes_per_second;
    ensure!(
        rate > 0.0,
        "--roll-megabytes-per-second must be more than 0"
    );
    // Retained bytes, plus those written between two retention checks, with a margin.
    let bytes = RETENTION_BYTES + (rate * 1e6 * 20.0) as u64;
    setting.alternate(results, |side, round, results| {
        let broker = setting.sides[side];
        let scratch = Scratch::new(TOPIC, bytes)?;
        let mut overrides = OVERRIDES
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .to_vec();
        overrides.extend(options.overrides.iter().cloned());
        let mut node = broker.start(NodeOptions {
            dir: scratch.path().to_path_buf(),
            overrides,
            ..NodeOptions::default()
        })?;
        let latencies = scratch.path().join("latencies.csv");
        let mut load = Load::on(setting.load_generator()?, &node).command(&format!(
            "produce --topic {TOPIC} --partitions 1 --warmup-bytes 500000000 --bytes {} \
             --megabytes-per-second {rate}",
            options.rolls * SEGMENT_BYTES
        ));
        load.arg("--latencies").arg(&latencies);
        let segments = node.data_dir().join(format!("{TOPIC}-0"));
        let (printed, rolls, naps) = watched(&segments, || process::output_of(&mut load))?;
        let used = ProcessReading::of(node.pid())?;
        broker::stop(&mut node)?;

        let report = load::report(&printed)?;
        let achieved = number_at(&report, "/megabytes_per_second")?;
        let cpu = number_at(&report, "/broker/cpu_seconds_per_gb")?;
        let requests = requests(&std::fs::read_to_string(&latencies)?)?;
        let windows = Windows::new(&requests, &rolls, &naps)?;
        let csv = csv_file(broker.id(), round)?;
        std::fs::write(&csv, windows.csv())?;
        println!("    one line for each 100 ms: {}", csv.display());
        let all = sorted(windows.latencies(|_| true));
        let with = sorted(windows.latencies(|window| window.rolls > 0));
        let without = sorted(windows.latencies(|window| window.rolls == 0));
        let naps = sorted(
            windows
                .windows
                .iter()
                .map(|window| window.overslept_us)
                .collect(),
        );
        let rolled: u64 = windows.windows.iter().map(|window| window.rolls).sum();
        ensure!(
            rolled * 10 >= options.rolls * 9,
            "{} rolled its segments {rolled} times and not {}",
            broker.name(),
            options.rolls
        );
        let with_p99_9 = quantile(&with, 0.999);
        let without_p99_9 = quantile(&without, 0.999);
        for (measure, value) in [
            ("MB/s", achieved),
            ("broker CPU s per GB", cpu),
            ("broker memory at its peak, MB", used.peak_mb()),
            ("segment rolls seen", rolled as f64),
            ("produce p50, µs", quantile(&all, 0.5)),
            ("produce p99, µs", quantile(&all, 0.99)),
            ("produce p99.9, µs", quantile(&all, 0.999)),
            ("produce max, µs", quantile(&all, 1.0)),
            ("p99.9 in windows with a roll, µs", with_p99_9),
            ("p99.9 in windows without, µs", without_p99_9),
            ("p99.9 with a roll / without", with_p99_9 / without_p99_9),
            (
                "median of the windows' maxima with a roll, µs",
                windows.typical_maximum(true),
            ),
            (
                "median of the windows' maxima without, µs",
                windows.typical_maximum(false),
            ),
            (
                "median of the maxima with a roll / without",
                windows.typical_maximum(true) / windows.typical_maximum(false),
            ),
            (
                "a sleeper woken late, p99 of the windows' maxima, µs",
                quantile(&naps, 0.99),
            ),
            ("a sleeper woken late, max, µs", quantile(&naps, 1.0)),
        ] {
            results.add(side, round, format!("rolls: {measure}"), value);
        }
        Ok(())
    })
}

/// The time series are kept after the measurement.
fn csv_file(broker: &str, round: usize) -> Result<PathBuf> {
    let dir = workspace::target_dir().join("bench-peer");
    std::fs::create_dir_all(&dir)?;
    Ok(dir.join(format!("rolls-{broker}-{}.csv", round + 1)))
}

/// How late a sleeper was woken.
struct Nap {
    at_us: u64,
    overslept_us: u64,
}

/// Runs `work` while the two threads observe. Their instants are in µs since 1970.
fn watched<T>(
    segments: &Path,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Vec<u64>, Vec<Nap>)> {
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| watch_segments(segments, &is_over));
        let sleeper = scope.spawn(|| take_naps(&is_over));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        let rolls = watcher.join().expect("the watcher does not panic");
        let naps = sleeper.join().expect("the sleeper does not panic");
        Ok((done?, rolls, naps))
    })
}

/// The times at which new segments were first seen.
fn watch_segments(folder: &Path, is_over: &AtomicBool) -> Vec<u64> {
    let mut seen = BTreeSet::new();
    let mut rolls = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let now = now_us();
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            if name.to_string_lossy().ends_with(".log") && seen.insert(name) {
                rolls.push(now);
            }
        }
        std::thread::sleep(LOOK);
    }
    rolls
}

fn take_naps(is_over: &AtomicBool) -> Vec<Nap> {
    // By default Linux delays wake-ups by up to 50 µs to coalesce them (timer slack).
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    let mut naps = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let (at_us, began) = (now_us(), std::time::Instant::now());
        std::thread::sleep(NAP);
        let overslept_us = began.elapsed().saturating_sub(NAP).as_micros() as u64;
        naps.push(Nap {
            at_us,
            overslept_us,
        });
    }
    naps
}

fn now_us() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_micros() as u64
}

/// Parses the rows of `ottla-load produce --latencies`: due time and latency, in µs.
fn requests(text: &str) -> Result<Vec<(u64, u64)>> {
    let rows = text.lines().skip(1).map(|line| {
        let (due, latency) = line.split_once(',').context("no comma")?;
        Ok((due.parse()?, latency.parse()?))
    });
    rows.collect()
}

#[derive(Debug, Default, Clone, PartialEq)]
struct Window {
    latencies: Vec<u64>,
    rolls: u64,
    overslept_us: u64,
}

struct Windows {
    windows: Vec<Window>,
}

impl Windows {
    fn new(requests: &[(u64, u64)], rolls: &[u64], naps: &[Nap]) -> Result<Windows> {
        let first = requests.first().context("no request was measured")?.0;
        let last = requests.last().map_or(first, |request| request.0);
        let mut windows = vec![Window::default(); ((last - first) / WINDOW_US + 1) as usize];
        let at = |instant: u64| -> Option<usize> {
            Some((instant.checked_sub(first)? / WINDOW_US) as usize)
        };
        for (due, latency) in requests {
            if let Some(window) = at(*due).and_then(|index| windows.get_mut(index)) {
                window.latencies.push(*latency);
            }
        }
        for roll in rolls {
            // The roll happened between the previous poll and this one.
            let instant = roll - LOOK.as_micros() as u64 / 2;
            if let Some(window) = at(instant).and_then(|index| windows.get_mut(index)) {
                window.rolls += 1;
            }
        }
        for nap in naps {
            if let Some(window) = at(nap.at_us).and_then(|index| windows.get_mut(index)) {
                window.overslept_us = window.overslept_us.max(nap.overslept_us);
            }
        }
        Ok(Windows { windows })
    }

    fn latencies(&self, is_wanted: impl Fn(&Window) -> bool) -> Vec<u64> {
        let wanted = self.windows.iter().filter(|window| is_wanted(window));
        wanted
            .flat_map(|window| window.latencies.iter().copied())
            .collect()
    }

    /// The median of the maximum latencies of the windows with, or without, a roll.
    fn typical_maximum(&self, has_roll: bool) -> f64 {
        let wanted = self
            .windows
            .iter()
            .filter(|window| (window.rolls > 0) == has_roll);
        let maxima = wanted.filter_map(|window| window.latencies.iter().max().copied());
        quantile(&sorted(maxima.collect()), 0.5)
    }

    fn csv(&self) -> String {
        let mut text =
            String::from("from_ms,requests,max_latency_us,rolls,sleeper_woken_late_us\n");
        for (index, window) in self.windows.iter().enumerate() {
            text.push_str(&format!(
                "{},{},{},{},{}\n",
                index as u64 * WINDOW_US / 1000,
                window.latencies.len(),
                window.latencies.iter().max().unwrap_or(&0),
                window.rolls,
                window.overslept_us
            ));
        }
        text
    }
}

fn sorted(mut values: Vec<u64>) -> Vec<u64> {
    values.sort_unstable();
    values
}

/// The quantile of sorted values; NaN if there are none.
fn quantile(sorted: &[u64], share: f64) -> f64 {
    let place = (sorted.len() as f64 * share).ceil() as usize;
    let value = sorted.get(place.saturating_sub(1));
    value.map_or(f64::NAN, |value| *value as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_roll_is_found_in_its_window() {
        let text = "due_us,latency_us\n1000000,5\n1050000,7\n1100000,900\n1299999,6\n";
        let requests = requests(text).unwrap();
        let nap = Nap {
            at_us: 1_200_000,
            overslept_us: 40,
        };
        // Seen 3 ms into the third window, so the roll happened at the end of the second. The other
        // roll precedes the first window.
        let windows = Windows::new(&requests, &[900_000, 1_203_000], &[nap]).unwrap();
        assert_eq!(
            windows.csv(),
            "from_ms,requests,max_latency_us,rolls,sleeper_woken_late_us\n0,2,7,0,0\n100,1,900,1,0\n200,1,6,0,40\n"
        );
        assert_eq!(windows.typical_maximum(true), 900.0);
        assert_eq!(windows.typical_maximum(false), 6.0);
        assert_eq!(windows.latencies(|window| window.rolls > 0), [900]);
    }

    #[test]
    fn quantiles_are_of_the_values() {
        let values: Vec<u64> = (1..=1000).collect();
        assert_eq!(quantile(&values, 0.5), 500.0);
        assert_eq!(quantile(&values, 0.999), 999.0);
        assert_eq!(quantile(&values, 1.0), 1000.0);
        assert!(quantile(&[], 0.5).is_nan());
    }

    #[test]
    fn segments_are_seen_when_they_begin() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("t-0");
        let ((), rolls, naps) = watched(&folder, || {
            std::fs::create_dir(&folder)?;
            std::fs::write(folder.join("1.log"), "")?;
            std::fs::write(folder.join("2.log.deleted"), "")?;
            std::thread::sleep(Duration::from_secs(2));
            Ok(())
        })
        .unwrap();
        assert_eq!(rolls.len(), 1);
        assert!(!naps.is_empty());
    }
}
