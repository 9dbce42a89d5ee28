//! Tiered storage: Ottla, and Kafka with Aiven's plugin, against the same kind of store, an S3 server
//! on this machine.
//!
//! Both get the same settings, chunks and caches. A turn, on empty directories and an empty store:
//!
//! 1. A topic is filled, and copying is then enabled: the broker's CPU time until all closed segments
//!    are in the store counts.
//! 2. Their local files are deleted, and the broker is started again. One consumer reads the topic.
//! 3. Tail producers and consumers are measured without and with ten readers of the topic, which read as
//!    fast as they can or at a fixed rate, and with processes that only use the processors
//!    (`tiered/beside.rs`).
//! 4. The broker is started again with a proxy before the store that delays each response. One
//!    fetch in each partition, in a segment that no fetch has read before, gives the time to the
//!    first byte.
//! 5. A second topic is filled and copied, compressed and encrypted.
//!
//! Without the plugin, both brokers keep the segments in a directory, through Kafka's
//! `LocalTieredStorage`; then there is neither a round trip nor encryption to measure. A measure
//! that a peer cannot do is reported and omitted; for Ottla it is an error.

mod beside;
mod proxy;
mod store;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ottla_peers::{InstalledPeer, Node, NodeOptions, connect, tiered};
use ottla_workspace::process;
use ottla_workspace::workspace;
use serde_json::Value;

use super::broker;
use super::disk::Scratch;
use super::load::{Load, number_at};
use super::machine::{ProcessReading, ProcessorTime};
use super::node::DELETE_SOON;
use super::setting::{Options, Setting};
use super::table::{Results, median};
use beside::{Beside, CASES};
use proxy::DelayingProxy;
use store::{CHUNK_BYTES, CHUNK_CACHE_BYTES, Kind, PREFETCH_BYTES, Store};

const GIGABYTES: f64 = 2.0;
/// Of the compressed and encrypted topic, of the first one.
const SEALED_PART: f64 = 0.5;
const PARTITIONS: usize = 10;
const COLD_READERS: usize = 10;
const SEGMENT_BYTES: u64 = 32 << 20;
const INDEX_CACHE_BYTES: u64 = 16 << 20;
/// The plugin's default.
const PLUGIN_INDEX_CACHE_BYTES: u64 = 10 << 20;
/// After this time without readers, no response and no request to the store is left, and freed memory
/// is back in the system, as far as the broker returns it.
const QUIET: Duration = Duration::from_secs(15);
const DELAY: Duration = Duration::from_millis(30);
const TAIL_SECONDS: u64 = 10;
/// Per second, one at a time from producer to consumer.
const TAIL_RECORDS_PER_SECOND: u64 = 300;
const TAIL_REPETITIONS: usize = 2;
/// For copies, deletions and single reads.
const PATIENCE: Duration = Duration::from_secs(600);
/// The first fetch of a partition that is answered with records.
const FIRST_BYTE_PATIENCE: Duration = Duration::from_secs(60);

const PLAIN: &str = "plain";
const SEALED: &str = "sealed";

pub fn settings_in_words(options: &Options) -> String {
    let mib = |bytes: u64| bytes >> 20;
    format!(
        "{} GB in {PARTITIONS} partitions, batches of 64 KiB, segments of {} MiB, chunks of {} MiB, a chunk cache of \
         {} MiB with {} MiB fetched ahead, an index cache of {} MiB; the objects are files in the page cache; the tail \
         has 2,000 records/s, and then {TAIL_RECORDS_PER_SECOND} records/s end to end, for {TAIL_SECONDS} s, \
         {TAIL_REPETITIONS} times each alone, with ten spinning processes, with {COLD_READERS} cold readers that read as fast as they can, both with \
         three priorities, and with {COLD_READERS} that read at fixed rates; the sealed topic has {} GB",
        options.gigabytes_or(GIGABYTES),
        mib(SEGMENT_BYTES),
        mib(CHUNK_BYTES),
        mib(CHUNK_CACHE_BYTES),
        mib(PREFETCH_BYTES),
        mib(INDEX_CACHE_BYTES),
        options.gigabytes_or(GIGABYTES) * SEALED_PART
    )
}

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    ensure!(
        setting.options.gigabytes_or(GIGABYTES) >= 1.0,
        "--gigabytes is less than 1: each partition of the group tiered needs several segments"
    );
    let kind = Kind::find(setting)?;
    results.add_note(kind.in_words());
    let bytes = (setting.options.gigabytes_or(GIGABYTES) * 1e9) as u64;
    setting.alternate(results, |side, round, results| {
        let peer = setting.sides[side];
        // Each topic is on the disk twice while it is copied.
        let scratch = Scratch::new(&format!("tiered-{}", peer.id()), bytes * 7 / 2)?;
        let mut turn = Turn::begin(setting, peer, &kind, scratch.path())?;
        for step in Step::of(&kind) {
            let done = turn.run(step, bytes).with_context(|| format!("{step:?}"));
            setting.or_noted(side, round, results, done)?;
            if turn.is_broken {
                break;
            }
        }
        for (measure, value) in std::mem::take(&mut turn.measured) {
            results.add(side, round, format!("tiered: {measure}"), value);
        }
        turn.end()
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Upload,
    ColdRead,
    Tail,
    FirstByte,
    SealedUpload,
}

impl Step {
    fn of(kind: &Kind) -> Vec<Step> {
        let mut steps = vec![Step::Upload, Step::ColdRead, Step::Tail];
        if kind.is_s3() {
            steps.extend([Step::FirstByte, Step::SealedUpload]);
        }
        steps
    }
}

/// A broker under measurement.
struct Turn<'a> {
    setting: &'a Setting<'a>,
    peer: InstalledPeer,
    store: Store,
    node: Node,
    dir: PathBuf,
    ottla: PathBuf,
    measured: Vec<(String, f64)>,
    /// Before the first remote read, with empty caches.
    at_rest: Option<ProcessReading>,
    /// Whether a step has failed, after which the broker may have ended too.
    is_broken: bool,
}

impl<'a> Turn<'a> {
    fn begin(
        setting: &'a Setting<'a>,
        peer: &InstalledPeer,
        kind: &Kind,
        dir: &Path,
    ) -> Result<Turn<'a>> {
        let store = Store::start(kind, &dir.join("store"))?;
        let peer = kind
            .classes()
            .iter()
            .fold(peer.clone(), |peer, classes| peer.with_classes(classes));
        let options = node_options(setting.options, dir, store.settings());
        let node = peer.start(options)?;
        Ok(Turn {
            setting,
            peer,
            store,
            node,
            dir: dir.to_owned(),
            ottla: workspace::release_binary("ottla", "ottla")?,
            measured: Vec::new(),
            at_rest: None,
            is_broken: false,
        })
    }

    fn run(&mut self, step: Step, bytes: u64) -> Result<()> {
        let done = match step {
            Step::Upload => self.upload(PLAIN, "upload, plain", bytes),
            Step::ColdRead => self.cold_read(),
            Step::Tail => self.tail(),
            Step::FirstByte => self.first_byte(),
            Step::SealedUpload => self.sealed_upload(bytes),
        };
        self.is_broken |= done.is_err();
        done
    }

    fn end(mut self) -> Result<()> {
        if self.is_broken {
            return Ok(());
        }
        broker::stop(&mut self.node)
    }

    fn add(&mut self, measure: &str, value: f64) {
        self.measured.push((measure.to_owned(), value));
    }

    /// Starts the broker again on its data, with another configuration of the store.
    fn start_again(&mut self, of_store: Vec<(String, String)>) -> Result<()> {
        broker::stop(&mut self.node)?;
        let mut options = node_options(self.setting.options, &self.dir, of_store);
        options.port = Some(self.node.port());
        self.node = self.peer.start(options)?;
        self.node.wait_until_served(PARTITIONS)?;
        Ok(())
    }

    fn upload(&mut self, topic: &str, name: &str, bytes: u64) -> Result<()> {
        self.load(&format!(
            "produce --topic {topic} --partitions {PARTITIONS} --bytes {bytes} \
             --topic-config segment.bytes={SEGMENT_BYTES}"
        ))?;
        // Pending writes of the load are not part of the copy.
        rustix::fs::sync();
        let closed = self.closed_segments(topic)?;
        let before = ProcessReading::of(self.node.pid())?;
        let began = Instant::now();
        self.alter(topic, "remote.storage.enable=true")?;
        self.wait_until("copied", |turn| {
            Ok(turn.store.segments(topic)? >= closed.count)
        })?;
        let took = began.elapsed();
        let used = ProcessReading::of(self.node.pid())?.since(&before);
        let gigabytes = closed.bytes as f64 / 1e9;
        self.add(
            &format!("{name}: broker CPU s per GB"),
            used.cpu_seconds / gigabytes,
        );
        self.add(
            &format!("{name}: MB/s"),
            gigabytes * 1e3 / took.as_secs_f64(),
        );
        Ok(())
    }

    fn cold_read(&mut self) -> Result<()> {
        let closed = self.closed_segments(PLAIN)?;
        self.alter(PLAIN, "local.retention.bytes=1")?;
        self.wait_until("deleted locally", |turn| {
            Ok(turn.closed_segments(PLAIN)?.count == 0)
        })?;
        self.start_again(self.store.settings())?;
        std::thread::sleep(QUIET);
        self.at_rest = Some(ProcessReading::of(self.node.pid())?);
        self.wait_until_read(1)?;
        let report = self.load(&format!(
            "fetch --topic {PLAIN} --connections 1 --fetch-bytes 1048576"
        ))?;
        let read = number_at(&report, "/bytes")?;
        self.add(
            "cold read: MB/s",
            number_at(&report, "/megabytes_per_second")?,
        );
        self.add(
            "cold read: broker CPU s per GB",
            number_at(&report, "/broker/cpu_seconds_per_gb")?,
        );
        self.add("cold read: part in the store", closed.bytes as f64 / read);
        self.add_memory("one reader")
    }

    /// Growth right after the readers, which includes what their reads take besides caches, and the
    /// growth that stays.
    fn add_memory(&mut self, readers: &str) -> Result<()> {
        self.add_growth(&format!("right after {readers}"))?;
        std::thread::sleep(QUIET);
        self.add_growth(&format!("{} s after {readers}", QUIET.as_secs()))
    }

    /// Compares the growth since the idle state with the configured cache sizes.
    fn add_growth(&mut self, when: &str) -> Result<()> {
        let at_rest = self.at_rest.context("nothing was read before")?;
        let now = ProcessReading::of(self.node.pid())?;
        let grown = now.resident_mb() - at_rest.resident_mb();
        let caches = CHUNK_CACHE_BYTES + INDEX_CACHE_BYTES + PLUGIN_INDEX_CACHE_BYTES;
        self.add(&format!("memory {when}: growth, MB"), grown);
        self.add(
            &format!("memory {when}: growth / caches that are set"),
            grown * 1e6 / caches as f64,
        );
        Ok(())
    }

    /// All cases in turn, repeatedly. A ratio compares a case with the tail alone of the same
    /// repetition.
    fn tail(&mut self) -> Result<()> {
        ensure!(
            process::is_on_path("chrt"),
            "giving a process idle priority needs chrt, of the package util-linux"
        );
        // Creates the topics, and lets Java compile the code paths.
        self.tail_once()?;
        for _ in 0..TAIL_REPETITIONS {
            let mut p99 = Vec::new();
            let mut readers = Vec::new();
            let mut idle = Vec::new();
            for (with, beside) in CASES {
                let start = |beside: Beside| {
                    let command = |launcher, rate| self.cold_readers(launcher, rate);
                    beside.start(command, self.store.pid())
                };
                let running = beside.map(start).transpose()?;
                let before = ProcessorTime::now()?;
                p99.push((with, self.tail_once()?));
                idle.push((with, ProcessorTime::now()?.idle_percent_since(&before)));
                if let Some(running) = running
                    && let Some(megabytes_per_second) = running.end()?
                {
                    readers.push((with, megabytes_per_second));
                }
            }
            let (_, (produced_alone, consumed_alone)) = p99[0];
            for (with, (produced, _)) in &p99 {
                self.add_tail("producers", with, *produced, produced_alone);
            }
            for (with, (_, consumed)) in &p99 {
                self.add_tail("consumers", with, *consumed, consumed_alone);
            }
            for (with, megabytes_per_second) in readers {
                let measure = format!("tail{with}: MB/s of these readers");
                self.add(&measure, megabytes_per_second);
            }
            for (with, percent) in idle {
                self.add(&format!("tail{with}: idle processor time, %"), percent);
            }
        }
        self.add_memory("the cold readers")
    }

    fn add_tail(&mut self, name: &str, with: &str, p99: f64, alone: f64) {
        self.add(&format!("tail {name}: p99{with}, µs"), p99);
        if !with.is_empty() {
            self.add(&format!("tail {name}: p99{with} / without"), p99 / alone);
        }
    }

    /// The 99th percentiles in µs: of the acknowledgement, and from producer to consumer. Both at fixed rates,
    /// so that the length of a stall counts in both.
    fn tail_once(&self) -> Result<(f64, f64)> {
        let produced = self.load(&format!(
            "produce-latency --topic tail --rate 2000 --seconds {TAIL_SECONDS}"
        ))?;
        let records = TAIL_RECORDS_PER_SECOND * TAIL_SECONDS;
        let consumed = self.load(&format!(
            "end-to-end --topic tail-end-to-end --records {records} --warmup-records 200 \
             --rate {TAIL_RECORDS_PER_SECOND}"
        ))?;
        Ok((
            number_at(&produced, "/latency/p99_us")?,
            number_at(&consumed, "/latency/p99_us")?,
        ))
    }

    /// Each reads its own partition repeatedly, until the standard input ends. The rate, in MB/s, is that
    /// of all readers together.
    fn cold_readers(&self, launcher: Vec<String>, rate: Option<u32>) -> Result<Command> {
        let mut load = Load::on(self.setting.load_generator()?, &self.node);
        load.launcher = launcher;
        let rate = rate.map_or_else(String::new, |rate| {
            format!(" --megabytes-per-second {rate}")
        });
        Ok(load.command(&format!(
            "fetch --topic {PLAIN} --connections {COLD_READERS} --fetch-bytes 1048576 --until-input-ends{rate}"
        )))
    }

    fn first_byte(&mut self) -> Result<()> {
        let port = self.store.port().context("the store has no port")?;
        let proxy = DelayingProxy::start(port, DELAY)?;
        self.start_again(self.store.settings_at(&proxy.endpoint()))?;
        self.wait_until_read(PARTITIONS as i32)?;
        let mut times = Vec::new();
        let mut round_trips = Vec::new();
        for partition in 0..PARTITIONS as i32 {
            let mut asker = connect(self.node.port())?.patient(FIRST_BYTE_PATIENCE)?;
            let end = asker.high_watermarks(PLAIN, &[partition])?;
            // In a later segment than the first, which has been read since the start.
            let offset = end / 2;
            proxy.forget();
            let began = Instant::now();
            while asker.fetch(PLAIN, partition, offset, 1 << 16)? == 0 {
                ensure!(
                    began.elapsed() < FIRST_BYTE_PATIENCE,
                    "partition {partition} gives no record at offset {offset}"
                );
            }
            let answered = Instant::now();
            times.push((answered - began).as_secs_f64() * 1e3);
            round_trips.push(proxy.round_trips(answered) as f64);
        }
        times.sort_by(f64::total_cmp);
        round_trips.sort_by(f64::total_cmp);
        self.add(
            "first byte of a cold read, the store answers in 30 ms: ms",
            median(&times),
        );
        self.add(
            "first byte of a cold read: round trips",
            median(&round_trips),
        );
        Ok(())
    }

    fn sealed_upload(&mut self, bytes: u64) -> Result<()> {
        let mut settings = self.store.settings();
        settings.push((
            "rsm.config.compression.enabled".to_owned(),
            "true".to_owned(),
        ));
        settings.extend(tiered::encryption_settings(&self.dir)?);
        self.start_again(settings)?;
        let bytes = (bytes as f64 * SEALED_PART) as u64;
        self.upload(SEALED, "upload, zstd and encryption", bytes)
    }

    // ---- parts of the steps
    // --------------------------------------------------------------------------------

    /// The local segments of a topic but for the active one of each partition.
    fn closed_segments(&self, topic: &str) -> Result<Segments> {
        let mut closed = Segments::default();
        for partition in 0..PARTITIONS {
            let dir = self.node.data_dir().join(format!("{topic}-{partition}"));
            let mut files = tiered::files_below(&dir, "log")?;
            // The names are base offsets.
            files.pop();
            for file in files {
                // Retention may delete it at any time.
                if let Ok(file) = std::fs::metadata(file) {
                    closed.count += 1;
                    closed.bytes += file.len();
                }
            }
        }
        Ok(closed)
    }

    fn wait_until(
        &mut self,
        what: &str,
        is_done: impl Fn(&Turn<'_>) -> Result<bool>,
    ) -> Result<()> {
        let began = Instant::now();
        loop {
            let this: &Turn<'_> = self;
            if is_done(this)? {
                return Ok(());
            }
            if let Some(status) = self.node.ended()? {
                bail!("the broker ended ({status}):\n{}", self.node.output_tail());
            }
            ensure!(
                began.elapsed() < PATIENCE,
                "the segments are not {what} after {PATIENCE:?}:\n{}",
                self.node.output_tail()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the first partitions give records of the store: a broker first reads their metadata.
    /// Reads the beginning of each.
    fn wait_until_read(&self, partitions: i32) -> Result<()> {
        for partition in 0..partitions {
            process::retried(FIRST_BYTE_PATIENCE, "remote records are read", || {
                let mut asker = connect(self.node.port())?.patient(FIRST_BYTE_PATIENCE)?;
                let bytes = asker.fetch(PLAIN, partition, 0, 1 << 16)?;
                ensure!(bytes > 0, "partition {partition} gives no records");
                Ok(())
            })?;
        }
        Ok(())
    }

    fn alter(&self, topic: &str, config: &str) -> Result<()> {
        let mut command = Command::new(&self.ottla);
        command
            .args(["configs", "--bootstrap-server", &self.node.bootstrap()])
            .args(["--alter", "--topic", topic, "--add-config", config]);
        process::output_of(&mut command).map(drop)
    }

    /// `line` is a command of the load generator with its arguments.
    fn load(&self, line: &str) -> Result<Value> {
        Load::on(self.setting.load_generator()?, &self.node).run(line)
    }
}

#[derive(Default)]
struct Segments {
    count: usize,
    bytes: u64,
}

fn node_options(options: &Options, dir: &Path, of_store: Vec<(String, String)>) -> NodeOptions {
    let mut overrides = tiered::broker_settings();
    overrides.extend(of_store);
    let (key, value) = DELETE_SOON;
    overrides.push((key.to_owned(), value.to_owned()));
    overrides.push((
        "remote.log.index.file.cache.total.size.bytes".to_owned(),
        INDEX_CACHE_BYTES.to_string(),
    ));
    overrides.extend(options.overrides.iter().cloned());
    NodeOptions {
        dir: dir.join("node"),
        overrides,
        ..NodeOptions::default()
    }
}
