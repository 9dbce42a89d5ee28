//! Runs the programs in `examples/` as a user does, one after the other on the same topics.
//!
//! Cargo builds them with the tests; `cargo xtask client` builds them first.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use ottla_client::admin::{ConfigOperation, ConfigResourceType};
use ottla_client::{Client, ClientConfig, Consumer, ConsumerConfig, OffsetReset};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::cluster::{Cluster, read};

const RECORDS: usize = 100;
const PATIENCE: Duration = Duration::from_secs(60);

/// `target/debug/examples/NAME`, from `target/debug/deps/THIS`.
fn program(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("this program has a path");
    let profile = tests.ancestors().nth(2).expect("a folder of the profile");
    let program = profile.join("examples").join(name);
    assert!(
        program.exists(),
        "{} is not there; cargo build --package ottla-client --examples",
        program.display()
    );
    program
}

fn start(name: &str, arguments: &[&str]) -> Child {
    Command::new(program(name))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the example can be started")
}

fn lines_of(child: &mut Child) -> Lines<BufReader<ChildStdout>> {
    BufReader::new(child.stdout.take().expect("its output")).lines()
}

/// What an example prints until it ends by itself.
async fn printed_by(child: Child) -> String {
    let ended = tokio::time::timeout(PATIENCE, child.wait_with_output()).await;
    let output = ended.expect("it ends in time").expect("it ends");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}");
    printed
}

/// Waits until an example has printed a line about each record. The pipe stays open as long as the
/// result.
async fn await_records(
    child: &mut Child,
    is_about_one: impl Fn(&str) -> bool,
) -> Lines<BufReader<ChildStdout>> {
    let mut lines = lines_of(child);
    let mut count = 0;
    while count < RECORDS {
        let line = tokio::time::timeout(PATIENCE, lines.next_line()).await;
        let line = line.expect("more output").expect("text").expect("a line");
        count += usize::from(is_about_one(&line));
    }
    lines
}

/// Ctrl-C, and a clean exit.
async fn interrupt(mut child: Child) {
    let pid = child.id().and_then(|id| Pid::from_raw(id as i32));
    kill_process(pid.expect("it runs"), Signal::INT).expect("signalled");
    let ended = tokio::time::timeout(PATIENCE, child.wait()).await;
    let status = ended.expect("it ends in time").expect("it ends");
    assert!(status.success(), "{status}");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_example_runs_as_documented() {
    let cluster = Cluster::start().await;
    let bootstrap = cluster.admin.client().config().bootstrap_servers.join(",");
    let source = cluster.topic("lines", 3).await;
    let target = cluster.topic("shouted", 3).await;

    let mut produce = start("produce", &[&bootstrap, &source]);
    let mut input = produce.stdin.take().expect("its input");
    for number in 0..RECORDS {
        let line = format!("line {number}\n");
        input.write_all(line.as_bytes()).await.expect("it reads");
    }
    drop(input);
    let printed = printed_by(produce).await;
    assert!(
        printed.starts_with(&format!("the last one is at {source}-")),
        "{printed}"
    );
    assert!(printed.contains("record-send-total 100"), "{printed}");

    let printed = printed_by(start("read_from_a_time", &[&bootstrap, &source, "0"])).await;
    let records = printed.lines().filter(|line| line.contains(": line "));
    assert_eq!(records.count(), RECORDS, "{printed}");

    let processing = start("read_process_write", &[&bootstrap, &source, &target]);
    let config = ClientConfig::new(&bootstrap).expect("an address");
    let committed = ConsumerConfig {
        offset_reset: OffsetReset::Earliest,
        read_committed: true,
        ..ConsumerConfig::default()
    };
    let client = Client::connect(config).await.expect("the broker answers");
    let mut consumer = Consumer::new(client, committed);
    consumer.assign(&(0..3).map(|it| (target.clone(), it)).collect::<Vec<_>>());
    let records = read(&mut consumer, RECORDS).await;
    let mut values: Vec<String> = records
        .iter()
        .map(|it| String::from_utf8_lossy(it.value.as_deref().unwrap_or_default()).into_owned())
        .collect();
    values.sort_unstable();
    let mut expected: Vec<String> = (0..RECORDS).map(|it| format!("LINE {it}")).collect();
    expected.sort_unstable();
    assert_eq!(values, expected);
    interrupt(processing).await;

    let group = cluster.name("listeners");
    let mut consuming = start("consume_in_a_group", &[&bootstrap, &target, &group]);
    let _lines = await_records(&mut consuming, |line| line.contains(": LINE ")).await;
    interrupt(consuming).await;
    // All returned records are committed, and the markers of the transactions after them.
    let committed: i64 = cluster.committed(&group).await.iter().sum();
    assert!(committed >= RECORDS as i64, "{committed}");

    let new = cluster.name("new");
    let printed = printed_by(start("administer", &[&bootstrap, &new, &group])).await;
    assert_eq!(printed, format!("created {new}\n"));
    let printed = printed_by(start("administer", &[&bootstrap, &target, &group])).await;
    assert!(
        printed.starts_with(&format!("{target} exists\n")),
        "{printed}"
    );
    assert!(printed.contains(" records of "), "{printed}");

    let workers = cluster.name("workers");
    let earliest = ConfigOperation::Set("earliest".to_owned());
    let settings = BTreeMap::from([("share.auto.offset.reset".to_owned(), earliest)]);
    let kind = ConfigResourceType::Group;
    let altered = cluster
        .admin
        .alter_configs(kind, &workers, &settings, false);
    altered.await.expect("the group is set up");
    let mut sharing = start("share_work", &[&bootstrap, &source, &workers]);
    let _lines = await_records(&mut sharing, |line| line.ends_with(" (delivery 1)")).await;
    interrupt(sharing).await;
}

#[test]
fn no_example_is_left_out() {
    let examples = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples"));
    for example in examples.expect("a folder") {
        let path = example.expect("a file").path();
        let name = path.file_stem().and_then(|name| name.to_str());
        let started = format!("start(\"{}\"", name.expect("a name"));
        assert!(
            include_str!("examples_run.rs").contains(&started),
            "{started}"
        );
    }
}
