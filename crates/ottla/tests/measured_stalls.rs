//! Checks that the open loops of `producer-perf-test` and `ottla bench` measure correctly: a broker
//! that does not answer for S seconds of a run of T seconds yields a distribution that can be
//! computed. A record that is due u seconds after the beginning of the stall takes S - u, so the
//! share q of all records has a latency above S - q·T, and the maximum is S.
//!
//! A client without room for the records due during the stall has a backlog afterwards, and sends
//! it at its maximum rate while further records become due. With a maximum of m records per second
//! and r due per second, a record due after u seconds follows r·u other records and is acknowledged
//! r·u/m after the end of the stall. It takes S - u·(1 - r/m), so the share q of all records has a
//! latency above S - q·T·(1 - r/m). m is measured in a run without a target rate.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ottla_bench::results::ResultFile;
use ottla_testkit::{BrokerBuilder, BrokerProcess, StallingProxy, ottla_binary};

const RECORDS_PER_SECOND: u64 = 500;
const RUN_SECONDS: u64 = 8;
const STALL: Duration = Duration::from_secs(2);
const BEFORE_STALL: Duration = Duration::from_secs(4);
/// As a fraction of the stall.
const TOLERANCE: f64 = 0.02;
/// Other work on the machine can only increase the measured latencies, so one correct run of
/// several is enough.
const ATTEMPTS: usize = 4;
/// Measurements must not run concurrently.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// A row of a percentile file: latency in microseconds, the fraction of records at or below it, and
/// their number.
#[derive(Clone, Copy, Debug)]
struct Row {
    latency_us: f64,
    quantile: f64,
}

fn rows(path: &Path) -> Vec<Row> {
    let text = std::fs::read_to_string(path).expect("the histogram was written");
    text.lines()
        .skip(2)
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut numbers = line.split_whitespace().map(|it| it.parse::<f64>().unwrap());
            let mut next = || numbers.next().expect("a number");
            Row {
                latency_us: next(),
                quantile: next(),
            }
        })
        .collect()
}

fn broker_behind(proxy: &mut StallingProxy) -> BrokerProcess {
    let advertised = format!("PLAINTEXT://{}", proxy.bootstrap());
    let broker = BrokerBuilder::new()
        .property("advertised.listeners", &advertised)
        .start();
    proxy.pass_to(&broker.bootstrap());
    broker
}

fn start_tool(proxy: &StallingProxy, histogram: &Path, properties: &[&str]) -> Child {
    let records = (RECORDS_PER_SECOND * RUN_SECONDS).to_string();
    Command::new(ottla_binary())
        .args(["producer-perf-test", "--topic", "stalls"])
        .args(["--bootstrap-server", &proxy.bootstrap()])
        .args(["--num-records", &records, "--record-size", "100"])
        .args(["--throughput", &RECORDS_PER_SECOND.to_string()])
        .arg("--histogram-out")
        .arg(histogram)
        .args(["--command-property", "acks=1", "linger.ms=0"])
        .args(properties)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts")
}

/// The maximum rate of the client through the proxy, in records per second, without a target rate.
fn highest_rate(proxy: &StallingProxy, properties: &[&str]) -> f64 {
    let output = Command::new(ottla_binary())
        .args(["producer-perf-test", "--topic", "stalls"])
        .args(["--bootstrap-server", &proxy.bootstrap()])
        .args(["--num-records", "11000", "--warmup-records", "1000"])
        .args(["--record-size", "100", "--throughput", "-1"])
        .args(["--command-property", "acks=1", "linger.ms=0"])
        .args(properties)
        .output()
        .expect("the binary starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    let rate = printed
        .lines()
        .find_map(|line| line.split_once(" steady state records sent, "))
        .and_then(|(_, rest)| rest.split_once(" records/sec"))
        .and_then(|(rate, _)| rate.parse().ok());
    rate.unwrap_or_else(|| panic!("no rate in {printed}"))
}

/// The maximum deviation of the curve from the computed one, as a fraction of the stall.
/// `share_of_highest_rate` is the target rate as a fraction of the maximum, or 0 if the client has
/// room for everything due during the stall.
fn deviation(rows: &[Row], share_of_highest_rate: f64) -> f64 {
    let stall = STALL.as_secs_f64();
    let slope = RUN_SECONDS as f64 * (1.0 - share_of_highest_rate);
    let expected = |quantile: f64| stall - (1.0 - quantile) * slope;
    // Below this, the machine's ordinary latencies dominate.
    let in_stall = |row: &&Row| expected(row.quantile) > stall * 0.1;
    let counted: Vec<&Row> = rows.iter().filter(in_stall).collect();
    assert!(counted.len() > 10, "{rows:?}");
    counted
        .into_iter()
        .map(|row| (row.latency_us / 1e6 - expected(row.quantile)).abs() / stall)
        .fold(0.0, f64::max)
}

/// Whether the client has room for everything due during the stall.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Room {
    ForAll,
    ForFew,
}

/// Measures a stall with these producer settings until the curve is correct. Returns the curves
/// from due and from send.
fn measure(properties: &[&str], room: Room) -> (Vec<Row>, Vec<Row>) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut proxy = StallingProxy::bind();
    let broker = broker_behind(&mut proxy);
    broker.create_topic("stalls", 1);
    let mut deviations = Vec::new();
    for attempt in 0..ATTEMPTS {
        let share = match room {
            Room::ForAll => 0.0,
            Room::ForFew => RECORDS_PER_SECOND as f64 / highest_rate(&proxy, properties),
        };
        let histogram = broker.dir().join(format!("{attempt}.hgrm"));
        let mut tool = start_tool(&proxy, &histogram, properties);
        std::thread::sleep(BEFORE_STALL);
        proxy.stall(STALL);
        assert!(tool.wait().expect("the tool ends").success());
        let from_due = rows(&histogram);
        let deviates = deviation(&from_due, share);
        println!(
            "{properties:?}, at {share:.4} of its highest rate: {deviates:.4} of the stall at most"
        );
        if deviates <= TOLERANCE {
            let from_sent = rows(&broker.dir().join(format!("{attempt}.sent.hgrm")));
            return (from_due, from_sent);
        }
        deviations.push(deviates);
    }
    panic!("the curve deviates by {deviations:?} of the stall, and {TOLERANCE} are allowed");
}

#[test]
fn a_stall_is_measured_accurately() {
    let (from_due, from_sent) = measure(&[], Room::ForAll);
    // The client has room for the records that are due during the stall, so every record is sent
    // when it is due.
    assert!(
        deviation(&from_sent, 0.0) <= 2.0 * TOLERANCE,
        "{from_sent:?}"
    );
    assert_eq!(from_due.last().unwrap().quantile, 1.0);
}

/// The client allows few records in flight. Latencies from send show the stall only for those few
/// records; latencies from due show it for all records that it delayed.
#[test]
fn a_client_that_must_wait_does_not_hide_latency() {
    let (_, from_sent) = measure(&["batch.size=4096", "buffer.memory=16384"], Room::ForFew);
    let in_stall = from_sent
        .iter()
        .rfind(|row| row.latency_us < STALL.as_secs_f64() * 0.5e6)
        .map_or(0.0, |row| 1.0 - row.quantile);
    let due = 0.5 * STALL.as_secs_f64() / RUN_SECONDS as f64;
    assert!(in_stall < due / 4.0, "{in_stall} {due}");
    assert!(deviation(&from_sent, 0.0) > 0.2, "{from_sent:?}");
}

/// The same for `ottla bench`, in its result: acknowledgements, and records at a consumer.
#[test]
fn bench_results_contain_the_stall() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let mut proxy = StallingProxy::bind();
    let broker = broker_behind(&mut proxy);
    let scenario = broker.dir().join("stall.toml");
    std::fs::write(&scenario, scenario_text()).expect("written");
    let mut deviations = Vec::new();
    for attempt in 0..ATTEMPTS {
        let out = broker.dir().join(format!("result-{attempt}"));
        let mut bench = Command::new(ottla_binary())
            .args(["bench", "run"])
            .arg(&scenario)
            .args(["--bootstrap-server", &proxy.bootstrap(), "--out"])
            .arg(&out)
            .stdout(Stdio::null())
            .spawn()
            .expect("the binary starts");
        wait_for_records(&broker);
        std::thread::sleep(Duration::from_secs(2));
        proxy.stall(STALL);
        assert!(bench.wait().expect("bench ends").success());
        let result = result_in(&out);
        let curves = &result.scenarios[0].points[0].runs[0].curves;
        let of_curve = |name: &str| -> f64 {
            let points = &curves[name].points;
            let row = |(quantile, latency_us): &(f64, f64)| Row {
                latency_us: *latency_us,
                quantile: *quantile,
            };
            deviation(&points.iter().map(row).collect::<Vec<_>>(), 0.0)
        };
        let deviates = of_curve("ack").max(of_curve("e2e"));
        println!("bench: {deviates:.4} of the stall at most");
        if deviates <= TOLERANCE {
            return;
        }
        deviations.push(deviates);
    }
    panic!("the curves deviate by {deviations:?} of the stall, and {TOLERANCE} are allowed");
}

fn scenario_text() -> String {
    format!(
        r#"title = "A stall"
[records]
size = 100
[producers.settings]
"acks" = "1"
"linger.ms" = 0
[consumers]
count = 1
[consumers.settings]
"fetch.max.wait.ms" = 100
[load]
kind = "rate"
rate = {RECORDS_PER_SECOND}
[measure]
time = "{RUN_SECONDS}s"
repetitions = 1
end_to_end = true
"#
    )
}

/// Waits until the topic of a run has its first records.
fn wait_for_records(broker: &BrokerProcess) {
    let has_records = || {
        let dirs = std::fs::read_dir(broker.data_dir()).expect("the broker's directory");
        dirs.flatten().any(|dir| {
            let name = dir.file_name().to_string_lossy().into_owned();
            // Directories deleted after an earlier attempt remain for a while under another name.
            let is_of_run = name.starts_with("ottla-bench-") && !name.ends_with("-delete");
            let log = dir.path().join("00000000000000000000.log");
            is_of_run && std::fs::metadata(log).is_ok_and(|it| it.len() > 0)
        })
    };
    let began = Instant::now();
    while !has_records() {
        assert!(began.elapsed() < Duration::from_secs(60), "nothing is sent");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn result_in(dir: &Path) -> ResultFile {
    let files = std::fs::read_dir(dir).expect("the result was written");
    let mut paths = files.flatten().map(|file| file.path());
    let json = paths.find(|path| path.extension().is_some_and(|it| it == "json"));
    ResultFile::read(&json.expect("a result")).expect("a whole result")
}
