//! Very many partitions in several topics: creates them, writes a record to each, reads each.
//!
//! A refused partition is counted by the error and tried again, until all are done or the time is
//! over. A broker that refuses is a result of this mode and not an error.

use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use ottla_protocol::Records;
use ottla_protocol::messages::create_topics_request::{CreatableTopic, CreateTopicsRequest};
use ottla_protocol::messages::fetch_request::{FetchPartition, FetchRequest, FetchTopic};
use ottla_protocol::messages::produce_request::{
    PartitionProduceData, ProduceRequest, TopicProduceData,
};
use ottla_records::{Compression, RecordBatchBuilder};
use ottla_types::{ErrorCode, Timestamp};
use serde::Serialize;

use super::access::{Access, AccessArgs};
use super::cluster::{CREATE_TIMEOUT_MS, ask_for_topic};
use super::fetch::{self, NO_SESSION};
use super::prepared::{self, PRODUCE_TIMEOUT_MS};
use super::topic::Topic;
use super::wire::Connection;

/// Partitions of one request.
const OF_A_REQUEST: usize = 200;
const RECORD_BYTES: usize = 100;
/// Larger than the batch of one record.
const READ_BYTES: i32 = 4096;
/// After a refusal.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Step {
    /// Create the topics, and wait until each partition has a leader.
    Create,
    /// Write a record to each partition, with acks=1.
    Write,
    /// Read the first record of each partition.
    Read,
}

#[derive(Args, Debug)]
pub struct PartitionsArgs {
    #[arg(value_enum)]
    pub step: Step,
    #[command(flatten)]
    pub access: AccessArgs,
    /// The topics are called PREFIX-0, PREFIX-1 and so on.
    #[arg(long, value_name = "PREFIX", default_value = "many")]
    pub topic: String,
    #[arg(long, default_value_t = 10_000)]
    pub partitions: usize,
    /// Partitions of a topic.
    #[arg(long, default_value_t = 5_000)]
    pub of_each: usize,
    /// When to give up.
    #[arg(long, default_value_t = 120.0)]
    pub patience_seconds: f64,
    /// Print the report as one line of JSON.
    #[arg(long)]
    pub json: bool,
}

#[derive(Clone, Debug, Serialize)]
pub struct PartitionsReport {
    pub wanted: usize,
    /// Partitions that were created, written or read.
    pub done: usize,
    /// Refusals, by the name of the error; a partition may be refused several times.
    pub refused: BTreeMap<String, u64>,
    pub seconds: f64,
    /// The last refusal, if not all partitions are done.
    pub stopped_by: Option<String>,
}

/// Runs one step and prints its report.
pub fn run(args: &PartitionsArgs) -> Result<()> {
    let report = measure(args)?;
    if args.json {
        println!("{}", serde_json::to_string(&report)?);
        return Ok(());
    }
    let refused: u64 = report.refused.values().sum();
    println!(
        "{} of {} partitions in {:.2} s, {refused} refusals {:?}",
        report.done, report.wanted, report.seconds, report.refused
    );
    if let Some(error) = &report.stopped_by {
        println!("  stopped by: {error}");
    }
    Ok(())
}

fn measure(args: &PartitionsArgs) -> Result<PartitionsReport> {
    ensure!(
        args.partitions > 0 && args.of_each > 0,
        "--partitions and --of-each must be 1 or more"
    );
    let patience = Duration::try_from_secs_f64(args.patience_seconds);
    let patience = patience.context("--patience-seconds")?;
    let began = Instant::now();
    let mut attempts = Attempts {
        access: args.access.access()?,
        deadline: began + patience,
        connections: BTreeMap::new(),
        refused: BTreeMap::new(),
        last_error: None,
    };
    let (mut done, mut number) = (0, 0);
    while done < args.partitions {
        let name = format!("{}-{number}", args.topic);
        let count = (args.partitions - done).min(args.of_each);
        let of_topic = match args.step {
            Step::Create => attempts.create(&name, count),
            Step::Write | Step::Read => match attempts.found(&name) {
                Some(topic) => attempts.access_each(&topic, args.step)?,
                None => 0,
            },
        };
        done += of_topic;
        number += 1;
        if of_topic < count {
            break;
        }
    }
    Ok(PartitionsReport {
        wanted: args.partitions,
        done,
        refused: attempts.refused,
        seconds: began.elapsed().as_secs_f64(),
        stopped_by: attempts.last_error.filter(|_| done < args.partitions),
    })
}

/// Tries again until the deadline.
struct Attempts {
    access: Access,
    deadline: Instant,
    /// By address.
    connections: BTreeMap<String, Connection>,
    refused: BTreeMap<String, u64>,
    last_error: Option<String>,
}

impl Attempts {
    fn is_in_time(&self) -> bool {
        Instant::now() < self.deadline
    }

    fn refuse(&mut self, name: &str, error: String) {
        *self.refused.entry(name.to_owned()).or_default() += 1;
        self.last_error = Some(error);
    }

    /// Sends with `ask` on a connection to the address, which is opened if there is none. After a
    /// failure the next attempt opens another.
    fn ask<T>(
        &mut self,
        address: &str,
        ask: impl FnOnce(&mut Connection) -> Result<T>,
    ) -> Result<T> {
        let mut connection = match self.connections.remove(address) {
            Some(connection) => connection,
            None => self.access.open(address)?,
        };
        let answer = ask(&mut connection)?;
        self.connections.insert(address.to_owned(), connection);
        Ok(answer)
    }

    /// Returns how many partitions were created: all or none.
    fn create(&mut self, name: &str, partitions: usize) -> usize {
        let request = CreateTopicsRequest {
            topics: vec![CreatableTopic {
                name: name.to_owned().into(),
                num_partitions: i32::try_from(partitions).unwrap_or(i32::MAX),
                replication_factor: -1,
                ..Default::default()
            }],
            timeout_ms: CREATE_TIMEOUT_MS,
            ..Default::default()
        };
        let address = self.access.bootstrap().to_owned();
        while self.is_in_time() {
            let answer = self.ask(&address, |connection| connection.request(&request));
            let code = match answer {
                Ok(answer) => answer.topics.first().map_or(0, |topic| topic.error_code),
                Err(error) => {
                    self.refuse("no answer", format!("creating {name}: {error:#}"));
                    std::thread::sleep(PAUSE);
                    continue;
                }
            };
            match ErrorCode::from_code(code) {
                // A creation without an answer may have taken effect.
                ErrorCode::None | ErrorCode::TopicAlreadyExists => {
                    let found = self.found(name);
                    return found.map_or(0, |topic| topic.partitions.len());
                }
                code => self.refuse(code.name(), format!("creating {name}: {code}")),
            }
            std::thread::sleep(PAUSE);
        }
        0
    }

    /// The topic, once all its partitions have leaders.
    fn found(&mut self, name: &str) -> Option<Topic> {
        let access = self.access.clone();
        while self.is_in_time() {
            let found = self.ask(access.bootstrap(), |connection| {
                ask_for_topic(&access, connection, name)
            });
            match found {
                Ok(topic) => return Some(topic),
                // A new topic has no leaders at first: not a refusal.
                Err(error) => self.last_error = Some(format!("{error:#}")),
            }
            std::thread::sleep(PAUSE);
        }
        None
    }

    /// Returns how many partitions were written or read.
    fn access_each(&mut self, topic: &Topic, step: Step) -> Result<usize> {
        let batch = one_record()?;
        let mut done = 0;
        for (leader, mut pending) in topic.by_leader() {
            while !pending.is_empty() && self.is_in_time() {
                let mut refused = Vec::new();
                for partitions in pending.chunks(OF_A_REQUEST) {
                    if !self.is_in_time() {
                        refused.extend_from_slice(partitions);
                        continue;
                    }
                    let codes = self.ask(&leader, |connection| match step {
                        Step::Read => read(connection, topic, partitions),
                        Step::Create | Step::Write => write(connection, topic, partitions, &batch),
                    });
                    match codes {
                        Ok(codes) => {
                            for (partition, outcome) in codes {
                                match outcome {
                                    None => done += 1,
                                    Some(why) => {
                                        refused.push(partition);
                                        let error = format!("{}-{partition}: {why}", topic.name);
                                        self.refuse(why, error);
                                    }
                                }
                            }
                        }
                        Err(error) => {
                            refused.extend_from_slice(partitions);
                            self.refuse("no answer", format!("{error:#}"));
                        }
                    }
                }
                pending = refused;
                if !pending.is_empty() {
                    std::thread::sleep(PAUSE);
                }
            }
        }
        Ok(done)
    }
}

fn one_record() -> Result<Bytes> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis() as i64;
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp(now), None, Some(&[b'x'; RECORD_BYTES]), &[]);
    Ok(builder.build().to_bytes())
}

/// A partition, and why it was refused.
type Outcomes = Vec<(i32, Option<&'static str>)>;

fn why(error_code: i16) -> Option<&'static str> {
    match ErrorCode::from_code(error_code) {
        ErrorCode::None => None,
        code => Some(code.name()),
    }
}

fn write(
    connection: &mut Connection,
    topic: &Topic,
    partitions: &[i32],
    batch: &Bytes,
) -> Result<Outcomes> {
    let by_id = connection.version::<ProduceRequest>()? >= prepared::FIRST_VERSION_WITH_TOPIC_ID;
    let partition_data = partitions.iter().map(|&index| PartitionProduceData {
        index,
        records: Some(Records::Bytes(batch.clone())),
        ..Default::default()
    });
    let answer = connection.request(&ProduceRequest {
        acks: 1,
        timeout_ms: PRODUCE_TIMEOUT_MS,
        topic_data: vec![TopicProduceData {
            name: match by_id {
                true => Default::default(),
                false => topic.name.clone().into(),
            },
            topic_id: if by_id { topic.id } else { Default::default() },
            partition_data: partition_data.collect(),
            ..Default::default()
        }],
        ..Default::default()
    })?;
    let parts = answer.responses.iter();
    let parts = parts.flat_map(|topic| &topic.partition_responses);
    Ok(parts
        .map(|part| (part.index, why(part.error_code)))
        .collect())
}

fn read(connection: &mut Connection, topic: &Topic, partitions: &[i32]) -> Result<Outcomes> {
    let by_id = connection.version::<FetchRequest>()? >= fetch::FIRST_VERSION_WITH_TOPIC_ID;
    let asked = partitions.iter().map(|&partition| FetchPartition {
        partition,
        fetch_offset: 0,
        partition_max_bytes: READ_BYTES,
        ..Default::default()
    });
    let answer = connection.request(&FetchRequest {
        max_wait_ms: 0,
        min_bytes: 1,
        max_bytes: READ_BYTES * OF_A_REQUEST as i32,
        session_epoch: NO_SESSION,
        topics: vec![FetchTopic {
            topic: match by_id {
                true => Default::default(),
                false => topic.name.clone().into(),
            },
            topic_id: if by_id { topic.id } else { Default::default() },
            partitions: asked.collect(),
            ..Default::default()
        }],
        ..Default::default()
    })?;
    let parts = answer.responses.iter().flat_map(|topic| &topic.partitions);
    let outcomes = parts.map(|part| {
        let has_records =
            matches!(&part.records, Some(Records::Bytes(records)) if !records.is_empty());
        let why = why(part.error_code).or((!has_records).then_some("no records"));
        (part.partition_index, why)
    });
    Ok(outcomes.collect())
}
