//! Kafka's `VerifiableProducer` and `VerifiableConsumer` as processes, which report their
//! operations line by line.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::history::{self, Placed, Produced};
use ottla_peers::InstalledPeer;
use ottla_workspace::process::{self, OwnedChild};

/// By default the tool gives up a record at its first error.
const PRODUCER_PROPERTIES: &str =
    "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=120000\n";
/// The files with the outputs of the clients.
const PRODUCER: &str = "producer.json";
const CONSUMER: &str = "consumer.json";
/// Records per second.
const THROUGHPUT: &str = "500";
/// The producer exits when all records in flight are acknowledged or failed.
const END_PATIENCE: Duration = Duration::from_secs(150);
/// The consumer may first have to find its group's new coordinator.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(120);
/// How long the reader of a whole topic waits for a record. The first one needs a JVM, logins at
/// several brokers and a group, and all cores may be busy; an end is recognized by its offset.
const READ_PATIENCE: Duration = Duration::from_secs(180);

/// Where clients connect, and how they log in.
#[derive(Debug, Clone)]
pub struct Access {
    pub bootstrap: String,
    /// A properties file; `None` for a listener without TLS and login.
    pub login: Option<PathBuf>,
}

impl Access {
    pub fn plain(bootstrap: String) -> Access {
        Access {
            bootstrap,
            login: None,
        }
    }

    /// The same, with the address of one broker at a time. A broker may have older metadata than
    /// other brokers.
    pub fn each_broker(&self) -> impl Iterator<Item = Access> {
        self.bootstrap.split(',').map(|address| Access {
            bootstrap: address.to_owned(),
            login: self.login.clone(),
        })
    }

    /// One of Kafka's tools that connects like this. Tools that write properties of their own get
    /// the file from [`Access::with`] instead.
    pub fn tool(&self, kafka: &InstalledPeer, class: &str) -> Command {
        let mut tool = kafka.tool(class);
        tool.args(["--bootstrap-server", &self.bootstrap]);
        if let Some(login) = &self.login {
            tool.arg("--command-config").arg(login);
        }
        tool
    }

    /// Properties with the login, in a file below `dir`.
    fn with(&self, properties: &str, dir: &Path, name: &str) -> Result<PathBuf> {
        let mut text = properties.to_owned();
        if let Some(login) = &self.login {
            text.push_str(&std::fs::read_to_string(login)?);
        }
        let path = dir.join(name);
        std::fs::write(&path, text)?;
        Ok(path)
    }
}

pub struct Clients {
    producer: OwnedChild,
    consumer: OwnedChild,
    dir: PathBuf,
}

impl Clients {
    /// Starts both, and returns when each has made progress.
    pub fn start(
        kafka: &InstalledPeer,
        access: &Access,
        topic: &str,
        dir: &Path,
    ) -> Result<Clients> {
        let start = |class: &str, output: &str, properties: &Path, arguments: &[&str]| {
            let mut command = kafka.tool(class);
            command.args(["--bootstrap-server", &access.bootstrap, "--topic", topic]);
            command.arg("--command-config").arg(properties);
            command.args(arguments);
            command.stdout(File::create(dir.join(output))?);
            command.stderr(File::create(dir.join(format!("{output}.errors")))?);
            OwnedChild::start(&mut command)
        };
        let consumer = start(
            "org.apache.kafka.tools.VerifiableConsumer",
            CONSUMER,
            &access.with("", dir, "consumer.properties")?,
            &[
                // Clients that run at the same time for different topics share no group.
                "--group-id",
                topic,
                "--verbose",
                "--reset-policy",
                "earliest",
            ],
        )?;
        let producer = start(
            "org.apache.kafka.tools.VerifiableProducer",
            PRODUCER,
            &access.with(PRODUCER_PROPERTIES, dir, "producer.properties")?,
            &[
                "--acks",
                "-1",
                "--throughput",
                THROUGHPUT,
                "--max-messages",
                "-1",
            ],
        )?;
        let mut clients = Clients {
            producer,
            consumer,
            dir: dir.to_owned(),
        };
        let began = Instant::now();
        for (output, event) in [
            (PRODUCER, "producer_send_success"),
            (CONSUMER, "record_data"),
        ] {
            while !clients.output(output)?.contains(event) {
                clients.check_running()?;
                if began.elapsed() > CATCH_UP_PATIENCE {
                    let errors = clients.errors(output);
                    bail!("no {event} in {output} after {CATCH_UP_PATIENCE:?}: {errors}");
                }
                std::thread::sleep(Duration::from_millis(100));
            }
        }
        Ok(clients)
    }

    fn output(&self, name: &str) -> Result<String> {
        let bytes = std::fs::read(self.dir.join(name))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The end of a client's standard error.
    fn errors(&self, output: &str) -> String {
        process::last_lines(&self.dir.join(format!("{output}.errors")))
    }

    /// It is an error if one of both has ended. The consumer ends with status 0 after a denial or a
    /// failed login.
    fn check_running(&mut self) -> Result<()> {
        let ended = [
            (PRODUCER, self.producer.try_wait()?),
            (CONSUMER, self.consumer.try_wait()?),
        ];
        for (output, status) in ended {
            if let Some(status) = status {
                let errors = self.errors(output);
                bail!("the client of {output} has ended by itself ({status}); {errors}");
            }
        }
        Ok(())
    }

    /// Waits for another acknowledgement, which shows that the producer can still write.
    pub fn wait_for_more(&mut self) -> Result<()> {
        let began = Instant::now();
        let before = self.output(PRODUCER)?.len();
        while began.elapsed() < CATCH_UP_PATIENCE {
            self.check_running()?;
            if self.output(PRODUCER)?[before..].contains("producer_send_success") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        let errors = self.errors(PRODUCER);
        bail!("nothing more was acknowledged for {CATCH_UP_PATIENCE:?}; {errors}");
    }

    /// The longest time between two acknowledgements.
    pub fn longest_gap(&self) -> Result<Duration> {
        Ok(history::longest_gap(&self.output(PRODUCER)?))
    }

    /// Stops both. Returns the produced records, and the violations in the topic's log and in the
    /// consumer's records.
    pub fn finish(
        mut self,
        kafka: &InstalledPeer,
        access: &Access,
        topic: &str,
    ) -> Result<(Produced, Vec<String>)> {
        let produced = self.stop_producing()?;
        let acknowledged = produced.acknowledged.len();
        ensure!(acknowledged > 0, "nothing was written to {topic}");
        let log = read_all(kafka, access, topic, &produced)?;
        let seen = self.stop_consuming(&log)?;
        println!(
            "{topic}: {acknowledged} records acknowledged, {} failed, {} in the log, {} consumed during the run",
            produced.failed.len(),
            log.len(),
            seen.len()
        );
        let mut wrong = history::check_log(&produced, &log);
        wrong.extend(history::check_consumer(&seen, &log));
        Ok((produced, wrong))
    }

    /// Stops the producer, which first waits for its records in flight.
    fn stop_producing(&mut self) -> Result<Produced> {
        self.producer.stop(END_PATIENCE).context("the producer")?;
        history::produced(&self.output(PRODUCER)?)
    }

    /// Waits until the consumer has reached the end of the log, and stops it.
    fn stop_consuming(&mut self, log: &[Placed]) -> Result<Vec<Placed>> {
        let mut last: BTreeMap<i32, &Placed> = BTreeMap::new();
        for record in log {
            last.insert(record.partition, record);
        }
        // Any consumer would have reached the end of nothing.
        ensure!(
            !last.is_empty(),
            "there is no log that the consumer could reach the end of"
        );
        let began = Instant::now();
        loop {
            // Wait before the output is read, so that the output is complete.
            let ended = self.consumer.try_wait()?;
            let seen = history::consumed(&self.output(CONSUMER)?)?;
            if let Some(status) = ended {
                let (records, errors) = (seen.len(), self.errors(CONSUMER));
                bail!(
                    "the consumer has ended by itself after {records} records ({status}); {errors}"
                );
            }
            let missing: Vec<&&Placed> = last.values().filter(|it| !seen.contains(it)).collect();
            if missing.is_empty() {
                self.consumer.stop(END_PATIENCE).context("the consumer")?;
                return history::consumed(&self.output(CONSUMER)?);
            }
            if began.elapsed() > CATCH_UP_PATIENCE {
                let (records, errors) = (seen.len(), self.errors(CONSUMER));
                bail!(
                    "the consumer has seen {records} records, and after {CATCH_UP_PATIENCE:?} still \
                     not the last ones of the log, {missing:?}; {errors}"
                );
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

/// Reads a topic without active producers with Kafka's console consumer: from its start to its end
/// offsets, which must include all acknowledged records.
///
/// The console consumer exits with 0 after every error, denials and failed logins included, and
/// after a silence, which may be before its first record. So only the number of records shows that
/// all were read. A smaller number is an error with the output of the consumer.
pub fn read_all(
    kafka: &InstalledPeer,
    access: &Access,
    topic: &str,
    produced: &Produced,
) -> Result<Vec<Placed>> {
    let ends = end_offsets(kafka, access, topic, &produced.acknowledged)?;
    let expected = usize::try_from(ends.values().sum::<i64>())?;
    ensure!(
        expected > 0,
        "{topic} is empty; its end offsets are {ends:?}"
    );
    let mut consume = access.tool(kafka, "org.apache.kafka.tools.consumer.ConsoleConsumer");
    consume.args(["--topic", topic, "--from-beginning"]);
    consume.args(["--max-messages", &expected.to_string()]);
    consume.args(["--timeout-ms", &READ_PATIENCE.as_millis().to_string()]);
    for property in ["print.partition=true", "print.offset=true"] {
        consume.args(["--formatter-property", property]);
    }
    let output = process::run_captured(&mut consume)?;
    let printed = String::from_utf8_lossy(&output.stdout);
    let lines = printed
        .lines()
        .filter(|line| line.starts_with("Partition:"));
    let records: Vec<Placed> = lines
        .map(|line| read_line(line).with_context(|| line.to_owned()))
        .collect::<Result<_>>()?;
    ensure!(
        records.len() == expected,
        "{} of {expected} records were read from {topic}, whose end offsets are {ends:?}; {} ended \
         with {} and printed:\n{}",
        records.len(),
        process::shown(&consume),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(records)
}

/// The end offset of each partition, once they include all acknowledged records. At the timeout
/// they are returned as they are, and the comparison reports the missing records.
fn end_offsets(
    kafka: &InstalledPeer,
    access: &Access,
    topic: &str,
    acknowledged: &[Placed],
) -> Result<BTreeMap<i32, i64>> {
    let began = Instant::now();
    loop {
        let mut ask = access.tool(kafka, "org.apache.kafka.tools.GetOffsetShell");
        ask.args(["--topic", topic]);
        let output = process::run_captured(&mut ask)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let ends: BTreeMap<i32, i64> = printed.lines().filter_map(end_offset).collect();
        let is_before_end = |record: &Placed| {
            ends.get(&record.partition)
                .is_some_and(|end| record.offset < *end)
        };
        let errors = String::from_utf8_lossy(&output.stderr);
        // The tool leaves out a partition whose leader reports an error, and exits with 0.
        let is_complete = output.status.success() && !errors.contains("Skip getting offsets");
        if is_complete && acknowledged.iter().all(is_before_end) {
            return Ok(ends);
        }
        if began.elapsed() > CATCH_UP_PATIENCE {
            println!(
                "after {CATCH_UP_PATIENCE:?}, the end offsets of {topic} do not include all \
                 acknowledged records: {ends:?}; the tool ended with {} and printed: {errors}",
                output.status
            );
            ensure!(is_complete, "the end offsets of {topic} are not known");
            return Ok(ends);
        }
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Parses a line `topic:partition:offset`.
fn end_offset(line: &str) -> Option<(i32, i64)> {
    let (partition, offset) = line.split_once(':')?.1.split_once(':')?;
    Some((partition.parse().ok()?, offset.trim().parse().ok()?))
}

/// The fields of a line are tab-separated: `Partition:0`, `Offset:12`, the value.
fn read_line(line: &str) -> Result<Placed> {
    let mut fields = line.split('\t');
    let mut field = |name: &str| -> Result<i64> {
        let field = fields.next().with_context(|| format!("no {name}"))?;
        Ok(field.strip_prefix(name).unwrap_or(field).parse()?)
    };
    Ok(Placed {
        partition: field("Partition:")? as i32,
        offset: field("Offset:")?,
        value: field("")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_offsets_tool_is_read() {
        assert_eq!(end_offset("orders:2:37231"), Some((2, 37231)));
        assert_eq!(end_offset("orders:2:"), None);
        assert_eq!(end_offset("nothing of the kind"), None);
    }

    #[test]
    fn a_line_of_the_console_consumer_is_read() {
        let expected = Placed {
            partition: 2,
            offset: 17,
            value: 345,
        };
        assert_eq!(read_line("Partition:2\tOffset:17\t345").unwrap(), expected);
        assert!(read_line("Partition:2\tOffset:17").is_err());
    }
}
