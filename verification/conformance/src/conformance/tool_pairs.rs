//! Runs the same command with Kafka's command-line tool and with Ottla's, on both brokers. Standard
//! output and exit status must agree. A command that changes state does so on its own subject
//! (`theirs`, `ours`).
//!
//! Performance tools never print the same numbers twice, so the shapes of their lines are compared:
//! which lines there are and how each number is formatted.
//!
//! Standard error is not compared, because its wording is Ottla's own, except for the lines that
//! report something skipped, which scripts search for.
//!
//! Kafka's tools run in one Java process per broker.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, Result};
use ottla_peers::settle;
use serde_json::json;

use super::clients::{Client, PAIRS};
use super::comparison::{self, KnownDifferences, Line};
use super::printed::{Compared, SUBJECTS, without_stack_traces};
use super::repeated::Found;
use super::tool_server::{ToolOutput, ToolServer};
use super::tools::{
    API_VERSIONS, CLUSTER, CONFIGS, CONSUMER, CONSUMER_GROUPS, CONSUMER_TEST, DELETE_RECORDS,
    ELECTION, FEATURES, GROUPS, LATENCY_TEST, LOG_DIRS, METRICS, OFFSETS, PRODUCER, PRODUCER_TEST,
    QUORUM, REASSIGN, REPLICAS, STORAGE, TOKENS, TOPICS, Tool,
};
use super::{Side, shown};

/// A command: the tool, its arguments as one string, and its standard input. `BROKER` is replaced
/// with the bootstrap flag and address, `AS-USER` with the flags with which this user connects to a
/// secured broker, `ADDRESS` with the address, `SUBJECT` with `theirs` or `ours`, `FILE` with a
/// file that lists partitions of the subject's topic, and `TOPICS` with a file that lists the
/// topic.
pub(super) struct Step {
    tool: Tool,
    arguments: &'static str,
    input: &'static str,
    compared: Compared,
}

impl Step {
    /// Whether it certainly changes nothing.
    fn only_reads(&self) -> bool {
        let mut words = self.arguments.split_whitespace();
        words.any(|word| matches!(word, "--describe" | "--list" | "describe"))
    }
}

pub(super) const fn measuring(tool: Tool, arguments: &'static str) -> Step {
    Step {
        tool,
        arguments,
        input: "",
        compared: Compared::Shapes,
    }
}

/// For a tool that prints delegation tokens.
pub(super) const fn of_tokens(arguments: &'static str) -> Step {
    Step {
        tool: TOKENS,
        arguments,
        input: "",
        compared: Compared::Tokens,
    }
}

pub(super) const fn step(tool: Tool, arguments: &'static str) -> Step {
    Step {
        tool,
        arguments,
        input: "",
        compared: Compared::Lines,
    }
}

/// Ordered: each step depends on the state that earlier ones left.
#[rustfmt::skip]
pub(super) const STEPS: &[Step] = &[
    step(TOPICS, "--version"),
    step(TOPICS, "BROKER --create --topic pairs-SUBJECT --partitions 2 --config retention.ms=100000"),
    step(TOPICS, "BROKER --create --topic pairs-SUBJECT"),
    step(TOPICS, "BROKER --create --if-not-exists --topic pairs-SUBJECT"),
    step(TOPICS, "BROKER --alter --topic pairs-SUBJECT --partitions 3"),
    step(TOPICS, "BROKER --alter --topic pairs-SUBJECT --partitions 1"),
    step(TOPICS, "BROKER --describe --topic pairs-SUBJECT"),
    step(TOPICS, "BROKER --describe --topic pairs-nothing"),
    step(TOPICS, "BROKER --describe --under-replicated-partitions"),
    step(TOPICS, "BROKER --list"),
    step(TOPICS, "BROKER --delete --topic pairs-nothing"),
    Step {
        tool: PRODUCER,
        arguments: "BROKER --topic pairs-SUBJECT --reader-property parse.key=true --reader-property key.separator=:",
        input: "a:1\na:2\na:3\nb:4\n",
        compared: Compared::Lines,
    },
    Step { tool: PRODUCER, arguments: "BROKER --topic pairs-SUBJECT --sync --reader-property parse.key=true", input: "no separator\n", compared: Compared::Lines },
    step(OFFSETS, "BROKER --topic pairs-SUBJECT"),
    step(OFFSETS, "BROKER --topic pairs-SUBJECT --time earliest"),
    step(OFFSETS, "BROKER --topic-partitions pairs-SUBJECT:0-2"),
    step(OFFSETS, "BROKER --topic pairs-nothing"),
    step(OFFSETS, "BROKER --topic pairs-SUBJECT --time -9"),
    step(
        CONSUMER,
        "BROKER --topic pairs-SUBJECT --group pairs-SUBJECT --from-beginning --max-messages 4 \
         --formatter-property print.key=true --formatter-property print.partition=true",
    ),
    step(CONSUMER_GROUPS, "BROKER --describe --group pairs-SUBJECT --offsets"),
    step(CONSUMER_GROUPS, "BROKER --describe --group pairs-SUBJECT --state"),
    step(CONSUMER_GROUPS, "BROKER --reset-offsets --group pairs-SUBJECT --topic pairs-SUBJECT --to-earliest --execute"),
    step(CONSUMER_GROUPS, "BROKER --describe --group pairs-SUBJECT --offsets"),
    step(CONSUMER_GROUPS, "BROKER --describe --group pairs-nothing"),
    step(
        CONSUMER,
        "BROKER --topic pairs-SUBJECT --group pairs-SUBJECT-848 --from-beginning --max-messages 4 \
         --command-property group.protocol=consumer",
    ),
    step(CONSUMER_GROUPS, "BROKER --describe --group pairs-SUBJECT-848 --offsets --verbose"),
    step(CONSUMER_GROUPS, "BROKER --describe --group pairs-SUBJECT-848 --state"),
    step(CONSUMER_GROUPS, "BROKER --describe --group pairs-SUBJECT-848 --members"),
    step(CONSUMER_GROUPS, "BROKER --reset-offsets --group pairs-SUBJECT-848 --topic pairs-SUBJECT --to-earliest --execute"),
    step(CONSUMER_GROUPS, "BROKER --delete-offsets --group pairs-SUBJECT-848 --topic pairs-SUBJECT"),
    step(GROUPS, "BROKER --list --consumer"),
    step(DELETE_RECORDS, "BROKER --offset-json-file FILE"),
    step(ELECTION, "BROKER --election-type preferred --topic pairs-SUBJECT --partition 0"),
    step(ELECTION, "BROKER --election-type preferred --topic pairs-nothing --partition 0"),
    step(REASSIGN, "BROKER --generate --topics-to-move-json-file TOPICS --broker-list 1"),
    step(REASSIGN, "BROKER --execute --reassignment-json-file FILE --throttle 4096 --replica-alter-log-dirs-throttle 8192"),
    step(CONFIGS, "BROKER --describe --broker 1"),
    step(REASSIGN, "BROKER --verify --reassignment-json-file FILE"),
    step(CONFIGS, "BROKER --describe --broker 1"),
    step(REASSIGN, "BROKER --cancel --reassignment-json-file FILE --preserve-throttles"),
    step(REASSIGN, "BROKER --list"),
    step(REPLICAS, "--broker-list localhost"),
    step(LOG_DIRS, "BROKER --describe --topic-list pairs-SUBJECT"),
    step(LOG_DIRS, "BROKER --describe --broker-list 77"),
    step(CONFIGS, "BROKER --alter --topic pairs-SUBJECT --add-config retention.ms=1000,cleanup.policy=[compact,delete]"),
    step(CONFIGS, "BROKER --describe --topic pairs-SUBJECT"),
    step(CONFIGS, "BROKER --describe --topic pairs-SUBJECT --all"),
    step(CONFIGS, "BROKER --describe --topic pairs-nothing"),
    step(CONFIGS, "BROKER --alter --topic pairs-SUBJECT --add-config retention.ms=soon"),
    step(CONFIGS, "BROKER --alter --user pairs-SUBJECT --add-config producer_byte_rate=10485760,request_percentage=12.5"),
    step(CONFIGS, "BROKER --alter --user pairs-SUBJECT --add-config SCRAM-SHA-256=[iterations=8192,password=secret]"),
    step(CONFIGS, "BROKER --describe --user pairs-SUBJECT"),
    step(CONFIGS, "BROKER --alter --user pairs-SUBJECT --delete-config producer_byte_rate,request_percentage"),
    step(CONFIGS, "BROKER --alter --user pairs-SUBJECT --delete-config SCRAM-SHA-256"),
    step(CONFIGS, "BROKER --describe --user pairs-SUBJECT"),
    step(CONFIGS, "BROKER --alter --user pairs-SUBJECT --add-config colour=red"),
    step(METRICS, "BROKER --alter --name pairs-SUBJECT --metrics a.,b. --interval 10000 --match client_id=x"),
    step(METRICS, "BROKER --describe --name pairs-SUBJECT"),
    step(METRICS, "BROKER --delete --name pairs-SUBJECT"),
    step(METRICS, "BROKER --describe --name pairs-SUBJECT"),
    step(CLUSTER, "cluster-id BROKER"),
    step(CLUSTER, "list-endpoints BROKER"),
    step(CLUSTER, "unregister BROKER --id 77"),
    step(QUORUM, "BROKER describe --status"),
    step(QUORUM, "BROKER describe --replication"),
    step(QUORUM, "BROKER describe"),
    step(FEATURES, "BROKER describe"),
    step(FEATURES, "BROKER downgrade --feature group.version=0 --dry-run"),
    step(FEATURES, "BROKER upgrade --feature metadata.version=99 --dry-run"),
    step(FEATURES, "BROKER upgrade --feature group.version=0"),
    step(FEATURES, "version-mapping --release-version 4.0"),
    step(API_VERSIONS, "BROKER"),
    step(STORAGE, "version-mapping --release-version 3.9"),
    step(STORAGE, "feature-dependencies --feature share.version=1 --feature metadata.version=25"),
    // The subject's own topic is compacted at this point and rejects records without a key.
    step(TOPICS, "BROKER --create --topic pairs-SUBJECT-load --partitions 2"),
    measuring(PRODUCER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 5000 --record-size 100 --throughput -1 --reporting-interval 600000"),
    measuring(
        PRODUCER_TEST,
        "BROKER --topic pairs-SUBJECT-load --num-records 4000 --record-size 10 --throughput 1500 --warmup-records 1000 \
         --reporting-interval 300 --producer-props acks=1 linger.ms=0",
    ),
    measuring(PRODUCER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 10 --payload-monotonic --throughput -1 --reporting-interval 600000"),
    measuring(PRODUCER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 10 --payload-file FILE --payload-delimiter , --throughput -1 --reporting-interval 600000"),
    measuring(PRODUCER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 2 --record-size 2000000 --throughput -1 --reporting-interval 600000"),
    measuring(
        PRODUCER_TEST,
        "BROKER --topic pairs-SUBJECT-load --num-records 300 --record-size 10 --throughput 500 --transaction-duration-ms 100 \
         --reporting-interval 600000",
    ),
    measuring(PRODUCER_TEST, "BROKER --topic pairs-SUBJECT-load"),
    measuring(PRODUCER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 0 --record-size 10 --throughput -1"),
    measuring(PRODUCER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 1 --record-size 10 --throughput -1 --producer-props a=b=c"),
    measuring(PRODUCER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 1 --record-size 10 --throughput -1 --producer-props acks=7"),
    measuring(CONSUMER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 5000 --timeout 20000"),
    measuring(
        CONSUMER_TEST,
        "BROKER --include pairs-SUBJECT-load --messages 5000 --timeout 20000 --show-detailed-stats \
         --reporting-interval 1",
    ),
    measuring(CONSUMER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 5 --timeout 1500 --from-latest --hide-header"),
    measuring(CONSUMER_TEST, "BROKER --topic pairs-SUBJECT-load"),
    measuring(CONSUMER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 5 --reporting-interval 0"),
    measuring(CONSUMER_TEST, "BROKER --topic pairs-SUBJECT-load --num-records 5 --date-format b"),
    measuring(
        LATENCY_TEST,
        "BROKER --topic pairs-SUBJECT-latency --num-records 20 --producer-acks 1 --record-size 10 --num-headers 1 \
         --record-key-size 3",
    ),
    measuring(LATENCY_TEST, "BROKER --topic pairs-SUBJECT-latency --num-records 1 --producer-acks 0 --record-size 10"),
    measuring(LATENCY_TEST, "ADDRESS pairs-SUBJECT-latency 20 all 10"),
    measuring(LATENCY_TEST, "ADDRESS pairs-SUBJECT-latency 20"),
    step(TOPICS, "BROKER --delete --topic pairs-SUBJECT-load"),
    step(TOPICS, "BROKER --delete --topic pairs-SUBJECT-latency"),
    step(CONSUMER_GROUPS, "BROKER --delete --group pairs-SUBJECT"),
    step(CONSUMER_GROUPS, "BROKER --delete --group pairs-SUBJECT-848"),
    step(TOPICS, "BROKER --delete --topic pairs-SUBJECT"),
];

/// Prefix of the lines of standard error that are compared.
const PASSED_OVER: &str = "Skip getting offsets";

/// Runs the tools of both sides on both brokers. Some steps depend on the state that a client's
/// script left.
pub(super) fn compare(
    steps: &'static [Step],
    client: Option<Client>,
    sides: &[Side; 2],
    out: &Path,
    known: &KnownDifferences,
) -> Result<Found> {
    let dir = out.join(match client {
        Some(client) => format!("pairs-after-{}", client.name()),
        None => "pairs".to_owned(),
    });
    // The brokers are independent, so their steps run in parallel.
    let on_each = std::thread::scope(|scope| {
        let threads = sides.each_ref().map(|broker| {
            let dir = dir.join(&broker.label);
            scope.spawn(move || steps_on(steps, broker, sides, &dir))
        });
        threads.map(|thread| thread.join().expect("a comparison does not panic"))
    });
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for lines in on_each {
        let (theirs, ours) = lines?;
        left.extend(theirs);
        right.extend(ours);
    }
    let (listed_as, name) = match client {
        Some(client) => (
            format!("{PAIRS} after {}", client.name()),
            format!("tools after {}", client.name()),
        ),
        None => (PAIRS.to_owned(), "tools alone".to_owned()),
    };
    let outcome = comparison::compare(&listed_as, &left, &right, known);
    let (alike, differing, unknown) = (outcome.alike, outcome.known, outcome.unknown.len());
    let found = Found {
        name,
        client,
        outcome: Ok(outcome),
    };
    println!(
        "{} {} commands of Kafka's tools and ours: {alike} alike, {differing} differ as known, {unknown} unknown",
        found.verdict(),
        left.len()
    );
    if let Ok(outcome) = &found.outcome
        && found.has_differed()
    {
        let heading = "  - Kafka's tools, + ours";
        print!("{}", shown(heading, &outcome.unknown));
    }
    Ok(found)
}

/// The output of both sides' tools on one broker.
fn steps_on(
    steps: &[Step],
    broker: &Side,
    sides: &[Side; 2],
    dir: &Path,
) -> Result<(Vec<Line>, Vec<Line>)> {
    std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    let start = |tools: &Side| -> Result<Option<ToolServer>> {
        let has_classes = tools.peer.class_path().is_some();
        has_classes
            .then(|| ToolServer::start(&tools.peer, dir))
            .transpose()
    };
    let mut servers = [start(&sides[0])?, start(&sides[1])?];
    let (mut left, mut right) = (Vec::new(), Vec::new());
    for (index, step) in steps.iter().enumerate() {
        let name = format!(
            "{} {index}: {} {}",
            broker.label, step.tool.command, step.arguments
        );
        for (side, lines) in [&mut left, &mut right].into_iter().enumerate() {
            let (tools, subject) = (&sides[side], SUBJECTS[side]);
            let outcome = run(step, tools, servers[side].as_mut(), broker, subject, dir)
                .with_context(|| format!("{name}, by {}", tools.label))?;
            if !step.only_reads() {
                // A controller acknowledges a change before its broker has applied it.
                settle(broker.node.port(), "settled-tools")
                    .with_context(|| format!("after {name}, by {}", tools.label))?;
            }
            lines.push(Line {
                step: name.clone(),
                outcome,
            });
        }
    }
    Ok((left, right))
}

/// The output and exit status of a side's tool on a broker.
fn run(
    step: &Step,
    tools: &Side,
    server: Option<&mut ToolServer>,
    broker: &Side,
    subject: &str,
    dir: &Path,
) -> Result<serde_json::Value> {
    let file = dir.join(format!("partitions-{subject}.json"));
    std::fs::write(
        &file,
        format!(
            r#"{{"partitions":[{{"topic":"pairs-{subject}","partition":0,"offset":-1,"replicas":[1]}}],"version":1}}"#
        ),
    )?;
    let topics = dir.join(format!("topics-{subject}.json"));
    std::fs::write(
        &topics,
        format!(r#"{{"topics":[{{"topic":"pairs-{subject}"}}],"version":1}}"#),
    )?;
    let mut arguments: Vec<String> = Vec::new();
    for word in step.arguments.split_whitespace() {
        match word {
            "BROKER" => {
                arguments.extend(["--bootstrap-server".to_owned(), broker.node.bootstrap()])
            }
            "ADDRESS" => arguments.push(broker.node.bootstrap()),
            "FILE" => arguments.push(file.display().to_string()),
            "TOPICS" => arguments.push(topics.display().to_string()),
            word => match (word.strip_prefix("AS-"), &broker.logins) {
                (Some(user), Some(logins)) => arguments.extend([
                    "--bootstrap-server".to_owned(),
                    logins.bootstrap.clone(),
                    "--command-config".to_owned(),
                    logins.of(user).display().to_string(),
                ]),
                _ => arguments.push(word.replace("SUBJECT", subject)),
            },
        }
    }
    let output = match (server, step.tool.class_in(&tools.peer)) {
        (Some(server), Some(class)) => server.run(class, &arguments, step.input)?,
        _ => run_alone(step, tools, &arguments, dir)?,
    };
    let mut printed = without_stack_traces(&output.out).to_owned();
    for line in output
        .err
        .lines()
        .filter(|line| line.starts_with(PASSED_OVER))
    {
        printed.push('\n');
        printed += line;
    }
    for port in &broker.ports {
        printed = without_port(&printed, *port);
    }
    Ok(json!({
        "status": output.status,
        "out": step.compared.lines(&printed, subject),
    }))
}

/// Runs a side's tool in a process of its own.
fn run_alone(step: &Step, tools: &Side, arguments: &[String], dir: &Path) -> Result<ToolOutput> {
    let mut child = step
        .tool
        .of(&tools.peer)
        .args(arguments)
        .current_dir(dir)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let mut stdin = child.stdin.take().context("standard input")?;
    // A tool that exits before it has read all input is judged by its output.
    let _ = stdin.write_all(step.input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output()?;
    Ok(ToolOutput {
        status: output.status.code(),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    })
}

/// Masks the broker's port if it is a whole number, not digits of another number such as a rate.
fn without_port(printed: &str, port: u16) -> String {
    let port = port.to_string();
    let mut parts = printed.split(&port);
    let mut named = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let goes_on = part.strip_prefix('.').unwrap_or(part);
        let is_digits = named.ends_with(|before: char| before.is_ascii_digit() || before == '.')
            || goes_on.starts_with(|after: char| after.is_ascii_digit());
        named += if is_digits { &port } else { "PORT" };
        named += part;
    }
    named
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_replaced_only_as_a_whole_number() {
        assert_eq!(
            without_port(
                "1 at 127.0.0.1:19092, 12345.190921, 190920, 19092.5, at 19092.",
                19092
            ),
            "1 at 127.0.0.1:PORT, 12345.190921, 190920, 19092.5, at PORT."
        );
    }

    #[test]
    fn different_statuses_and_lines_are_found() {
        let line = |outcome| {
            [Line {
                step: "s".into(),
                outcome,
            }]
        };
        let one = line(json!({"status": 0, "out": ["a"]}));
        for other in [
            line(json!({"status": 1, "out": ["a"]})),
            line(json!({"status": 0, "out": ["b"]})),
        ] {
            let known = KnownDifferences::default();
            let outcome = comparison::compare(PAIRS, &one, &other, &known);
            assert_eq!(outcome.unknown.len(), 1);
        }
    }
}
