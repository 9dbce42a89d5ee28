//! Kafka's `VerifiableProducer` and `VerifiableConsumer` as processes, which report their
//! operations line by line.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::history::{self, Placed, Produced};
use ottla_peers::InstalledPeer;
use ottla_workspace::process::{self, OwnedChild};

/// By default the tool gives up a record at its first error.
const PRODUCER_PROPERTIES: &str =
    "enable.idempotence=true\nretries=2147483647\ndelivery.timeout.ms=120000\n";
const READ_ATTEMPTS: usize = 3;
/// Records per second.
const THROUGHPUT: &str = "500";
/// The producer exits when all records in flight are acknowledged or failed.
const END_PATIENCE: Duration = Duration::from_secs(150);
/// The consumer may first have to find its group's new coordinator.
const CATCH_UP_PATIENCE: Duration = Duration::from_secs(120);

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
            "consumer.json",
            &access.with("", dir, "consumer.properties")?,
            &[
                "--group-id",
                "mixed",
                "--verbose",
                "--reset-policy",
                "earliest",
            ],
        )?;
        let producer = start(
            "org.apache.kafka.tools.VerifiableProducer",
            "producer.json",
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
            ("producer.json", "producer_send_success"),
            ("consumer.json", "record_data"),
        ] {
            while !clients.output(output)?.contains(event) {
                for (name, child) in [
                    ("producer", &mut clients.producer),
                    ("consumer", &mut clients.consumer),
                ] {
                    if let Some(status) = child.try_wait()? {
                        bail!(
                            "the {name} ended at its start ({status}); see {}",
                            dir.display()
                        );
                    }
                }
                if began.elapsed() > CATCH_UP_PATIENCE {
                    bail!("no {event} in {output} after {CATCH_UP_PATIENCE:?}");
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

    /// Waits for another acknowledgement, which shows that the producer can still write.
    pub fn wait_for_more(&mut self) -> Result<()> {
        let began = Instant::now();
        let before = self.output("producer.json")?.len();
        while began.elapsed() < CATCH_UP_PATIENCE {
            if let Some(status) = self.producer.try_wait()? {
                bail!("the producer has ended by itself ({status})");
            }
            if self.output("producer.json")?[before..].contains("producer_send_success") {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
        }
        bail!("nothing more was acknowledged for {CATCH_UP_PATIENCE:?}");
    }

    /// The longest time between two acknowledgements.
    pub fn longest_gap(&self) -> Result<Duration> {
        Ok(history::longest_gap(&self.output("producer.json")?))
    }

    /// Stops the producer, which first waits for its records in flight.
    pub fn stop_producing(&mut self) -> Result<Produced> {
        self.producer.stop(END_PATIENCE).context("the producer")?;
        history::produced(&self.output("producer.json")?)
    }

    /// Waits until the consumer has reached the end of the log, and stops it.
    pub fn stop_consuming(&mut self, log: &[Placed]) -> Result<Vec<Placed>> {
        let began = Instant::now();
        loop {
            let seen = history::consumed(&self.output("consumer.json")?)?;
            let has_seen = |record: &Placed| seen.contains(record);
            let partitions = log.iter().map(|record| record.partition).max();
            let last_of = |partition| log.iter().rfind(|record| record.partition == partition);
            let mut last = (0..=partitions.unwrap_or(0)).filter_map(last_of);
            if last.all(has_seen) {
                self.consumer.stop(END_PATIENCE).context("the consumer")?;
                return history::consumed(&self.output("consumer.json")?);
            }
            if began.elapsed() > CATCH_UP_PATIENCE {
                bail!("the consumer has not come to the end of the log in {CATCH_UP_PATIENCE:?}");
            }
            std::thread::sleep(Duration::from_millis(500));
        }
    }
}

/// Reads a topic completely with Kafka's console consumer, which exits when no record arrives for a
/// while. On a busy machine that may be before the first record, so it retries if there are fewer
/// than `expected`.
pub fn read_all(
    kafka: &InstalledPeer,
    access: &Access,
    topic: &str,
    expected: usize,
) -> Result<Vec<Placed>> {
    let mut records = read_once(kafka, access, topic)?;
    for _ in 1..READ_ATTEMPTS {
        if records.len() >= expected {
            break;
        }
        records = read_once(kafka, access, topic)?;
    }
    Ok(records)
}

fn read_once(kafka: &InstalledPeer, access: &Access, topic: &str) -> Result<Vec<Placed>> {
    let mut consume = access.tool(kafka, "org.apache.kafka.tools.consumer.ConsoleConsumer");
    consume.args(["--topic", topic]);
    consume.args(["--from-beginning", "--timeout-ms", "8000"]);
    for property in ["print.partition=true", "print.offset=true"] {
        consume.args(["--formatter-property", property]);
    }
    let output = process::output_of(&mut consume)?;
    let lines = output.lines().filter(|line| line.starts_with("Partition:"));
    lines
        .map(|line| read_line(line).context(line.to_owned()))
        .collect()
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
