//! Failover: kills a leader and measures the time until the first write with `acks=all` is accepted
//! again.
//!
//! Three brokers and one controller, each a process, with the same timeouts: all Apache Kafka,
//! Ottla brokers under a Kafka controller, and all Ottla. In a turn each broker is killed once and
//! restarted; the median counts. Two threads of this process send a record for every partition of
//! the killed leader to both survivors, almost without a pause, so that a client's backoff is
//! excluded.
//!
//! The time at which the controller fenced the broker is in its metadata log, in milliseconds.
//! Before it is detection, mostly the session timeout. After it is election: the new leader must
//! learn of it, become leader, and replicate the record to a follower.

use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, bail, ensure};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::Timestamp;
use serde_json::Value;

use super::disk::Scratch;
use super::setting::Setting;
use super::table::{Results, median};
use ottla_peers::{Asker, Cluster, Member, connect};
use ottla_workspace::{process, workspace};

/// In the order of [`MAKERS`]; Ottla last, as [`Results`] requires.
pub const NAMES: [&str; 3] = [
    "all Apache Kafka",
    "Ottla's brokers, Kafka's controller",
    "all Ottla",
];

/// The peers of the brokers, and of the controller: names of files in peers/.
const MAKERS: [(&str, &str); 3] = [("kafka", "kafka"), ("ottla", "kafka"), ("ottla", "ottla")];

const BROKERS: usize = 3;
const PARTITIONS: &str = "6";
const TOPIC: &str = "failover";
const HEARTBEAT_MS: &str = "500";
/// Far longer than any session timeout that is worth measuring.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pause between two records sent to a broker that refuses: short compared with the measured times,
/// and long enough to leave the CPU to the brokers.
const PAUSE: Duration = Duration::from_millis(2);

pub fn settings_in_words(session_ms: u64) -> String {
    format!(
        "{BROKERS} brokers and one controller, a topic of {PARTITIONS} partitions and {BROKERS} replicas with \
         min.insync.replicas=2, broker.session.timeout.ms={session_ms}, broker.heartbeat.interval.ms={HEARTBEAT_MS}; \
         each broker is killed once per turn, and the median counts"
    )
}

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    setting.alternate(results, |side, round, results| {
        let scratch = Scratch::new("failover", 500_000_000)?;
        let mut cluster = start(setting, MAKERS[side], &scratch)?;
        let mut took: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for victim in 0..BROKERS {
            cluster.wait_until_in_sync(TOPIC, BROKERS)?;
            for (measure, value) in fail_over(&mut cluster, victim)? {
                took.entry(measure).or_default().push(value);
            }
            cluster.brokers[victim].start()?;
        }
        cluster.stop()?;
        for (measure, mut values) in took {
            values.sort_by(f64::total_cmp);
            results.add(side, round, format!("failover: {measure}"), median(&values));
        }
        Ok(())
    })
}

fn start(
    setting: &Setting<'_>,
    (broker, controller): (&str, &str),
    scratch: &Scratch,
) -> Result<Cluster> {
    let session_ms = setting.options.session_timeout_ms.to_string();
    let mut settings = vec![
        ("broker.session.timeout.ms", session_ms),
        ("broker.heartbeat.interval.ms", HEARTBEAT_MS.to_owned()),
        // Only the kills move leaders.
        ("auto.leader.rebalance.enable", "false".to_owned()),
    ];
    let of_everybody = setting.options.overrides.iter();
    settings.extend(of_everybody.map(|(key, value)| (&**key, value.clone())));
    let brokers = vec![broker.to_owned(); BROKERS];
    let controllers = [controller.to_owned()];
    let mut cluster = Cluster::plan(&brokers, &controllers, scratch.path(), &settings)?;
    cluster.start()?;
    let mut create = setting.kafka.tool("org.apache.kafka.tools.TopicCommand");
    create.args(["--bootstrap-server", &cluster.bootstrap(), "--create"]);
    create.args(["--topic", TOPIC, "--partitions", PARTITIONS]);
    create.args(["--replication-factor", &BROKERS.to_string()]);
    create.args(["--config", "min.insync.replicas=2"]);
    process::output_of(&mut create)?;
    Ok(cluster)
}

/// Kills a broker; returns the measures with their values in milliseconds.
fn fail_over(cluster: &mut Cluster, victim: usize) -> Result<[(&'static str, f64); 4]> {
    let victim_id = cluster.brokers[victim].node_id;
    let survivors: Vec<u16> = cluster
        .running()
        .filter(|broker| broker.node_id != victim_id)
        .map(|broker| broker.port)
        .collect();
    let led = led_by(survivors[0], victim_id)?;
    ensure!(!led.is_empty(), "broker {victim_id} leads nothing");
    let batch = one_record();
    // Each broker serves a write first, so that no measured write is a broker's first.
    warm_up(cluster, &batch)?;
    let mut node = cluster.brokers[victim].take()?;
    let (killed, killed_ms) = (Instant::now(), now_ms()?);
    node.kill()?;
    let accepted = offer(&survivors, &led, &batch, killed)?;
    let ms = |instant: Instant| (instant - killed).as_secs_f64() * 1e3;
    let first = ms(*accepted.iter().min().context("no partition was led")?);
    let last = ms(*accepted.iter().max().context("no partition was led")?);
    let fenced_ms = fenced_at(&cluster.controllers[0], victim_id, killed_ms)?;
    let detection = fenced_ms - killed_ms;
    Ok([
        ("kill -9 to the first accepted write, ms", first),
        ("detection: kill -9 to fenced, ms", detection),
        (
            "election: fenced to the first accepted write, ms",
            first - detection,
        ),
        (
            "fenced to a write accepted by all its partitions, ms",
            last - detection,
        ),
    ])
}

fn led_by(port: u16, leader: i32) -> Result<Vec<i32>> {
    let partitions = connect(port)?.partitions(TOPIC)?;
    let led = partitions.iter().filter(|it| it.leader == Some(leader));
    Ok(led.map(|it| it.index).collect())
}

fn warm_up(cluster: &Cluster, batch: &[u8]) -> Result<()> {
    for broker in &cluster.brokers {
        for partition in led_by(broker.port, broker.node_id)? {
            let code = connect(broker.port)?.produce(TOPIC, partition, batch)?;
            ensure!(code == 0, "{} refuses a write: error {code}", broker.name());
        }
    }
    Ok(())
}

/// Sends a record for each partition to all survivors until one accepts it; returns when.
fn offer(
    survivors: &[u16],
    partitions: &[i32],
    batch: &[u8],
    began: Instant,
) -> Result<Vec<Instant>> {
    let accepted: Mutex<BTreeMap<i32, Instant>> = Mutex::new(BTreeMap::new());
    let pending = || -> Vec<i32> {
        let accepted = accepted.lock().expect("no holder panics");
        let is_pending = |partition: &&i32| !accepted.contains_key(partition);
        partitions.iter().filter(is_pending).copied().collect()
    };
    std::thread::scope(|scope| {
        for &port in survivors {
            let (accepted, pending) = (&accepted, &pending);
            scope.spawn(move || {
                let mut connection: Option<Asker> = None;
                loop {
                    let pending = pending();
                    if pending.is_empty() || began.elapsed() > PATIENCE {
                        return;
                    }
                    for partition in pending {
                        let mut broker = match connection.take().map_or_else(|| connect(port), Ok) {
                            Ok(broker) => broker,
                            Err(_) => break,
                        };
                        let answer = broker.produce(TOPIC, partition, batch);
                        // After a timeout, the next response on this connection would belong to the
                        // wrong request.
                        if let Ok(code) = answer {
                            connection = Some(broker);
                            if code == 0 {
                                let now = Instant::now();
                                let mut accepted = accepted.lock().expect("no holder panics");
                                accepted.entry(partition).or_insert(now);
                            }
                        }
                    }
                    std::thread::sleep(PAUSE);
                }
            });
        }
    });
    let accepted = accepted.into_inner().expect("no holder panics");
    if accepted.len() < partitions.len() {
        bail!(
            "of {} partitions {} take writes after {PATIENCE:?}",
            partitions.len(),
            accepted.len()
        );
    }
    Ok(accepted.into_values().collect())
}

pub(super) fn one_record() -> Vec<u8> {
    let mut builder = RecordBatchBuilder::new(Compression::None);
    let now = now_ms().unwrap_or_default() as i64;
    builder.append(Timestamp(now), None, Some(b"failover"), &[]);
    builder.build_in_place().to_vec()
}

pub(super) fn now_ms() -> Result<f64> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(now.as_secs_f64() * 1e3)
}

/// When the controller wrote the fencing of the broker, in milliseconds since 1970.
pub(super) fn fenced_at(controller: &Member, broker: i32, since_ms: f64) -> Result<f64> {
    let folder = controller
        .partition_dir("__cluster_metadata-0")
        .context("the controller has no metadata log")?;
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "log") {
            segments.push(path.display().to_string());
        }
    }
    let mut dump = Command::new(workspace::release_binary("ottla", "ottla")?);
    dump.args(["dump-log", "--cluster-metadata-decoder", "--files"]);
    dump.arg(segments.join(","));
    let printed = process::output_of(&mut dump)?;
    let fenced = printed
        .lines()
        .filter_map(|line| fenced_by(line, broker))
        .find(|at| *at >= since_ms.floor());
    fenced.with_context(|| format!("the metadata log does not fence broker {broker}"))
}

/// The timestamp of a line of `dump-log`, if its record fences that broker.
fn fenced_by(line: &str, broker: i32) -> Option<f64> {
    let (metadata, record) = line.split_once(" payload: ")?;
    let record: Value = serde_json::from_str(record).ok()?;
    let data = &record["data"];
    let is_it = record["type"] == "BROKER_REGISTRATION_CHANGE_RECORD"
        && data["brokerId"] == broker
        && data["fenced"] == 1;
    let (_, time) = metadata.split_once("CreateTime: ")?;
    is_it.then(|| time.split(' ').next()?.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_fencing_is_read() {
        let line = |kind: &str, fenced: i32| {
            format!(
                "| offset: 9 CreateTime: 1700000000123 keySize: -1 valueSize: 20 sequence: -1 headerKeys: [] payload: \
                 {{\"type\":\"{kind}\",\"version\":2,\"data\":{{\"brokerId\":2,\"brokerEpoch\":7,\"fenced\":{fenced}}}}}"
            )
        };
        let change = "BROKER_REGISTRATION_CHANGE_RECORD";
        assert_eq!(fenced_by(&line(change, 1), 2), Some(1_700_000_000_123.0));
        assert_eq!(fenced_by(&line(change, 1), 3), None);
        assert_eq!(fenced_by(&line(change, -1), 2), None);
        assert_eq!(fenced_by(&line("PARTITION_CHANGE_RECORD", 1), 2), None);
        assert_eq!(fenced_by("baseOffset: 0", 2), None);
    }
}
