//! The operations on a cluster during a turn: the topics and writers of a run, and the
//! administrative changes, chosen by the seed. Every operation is recorded in the model.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use super::churn::{Change, await_applied};
use super::model::{self, Findings, Kind, Model, Topic, Transaction};
use super::picture::{Picture, picture};
use super::workload::{Refusal, Workload};
use crate::seeded::Seeded;

/// The initial topics: kind, partitions, settings.
#[rustfmt::skip]
const TOPICS: [(&str, Kind, usize, &[(&str, &str)]); 10] = [
    ("codec-none", Kind::Plain, 3, &[("segment.ms", "1500")]),
    ("codec-gzip", Kind::Plain, 2, &[]),
    ("codec-snappy", Kind::Plain, 2, &[("segment.bytes", "1048576")]),
    ("codec-lz4", Kind::Plain, 2, &[("flush.messages", "1")]),
    ("codec-zstd", Kind::Plain, 2, &[("index.interval.bytes", "200")]),
    ("recompressed", Kind::Plain, 1, &[("compression.type", "zstd")]),
    ("append-time", Kind::Plain, 1, &[("message.timestamp.type", "LogAppendTime")]),
    ("not-idempotent", Kind::Repeating, 2, &[]),
    ("compacted", Kind::Compacted, 3, &[("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.01"), ("segment.ms", "400"), ("delete.retention.ms", "500")]),
    (
        "compacted-and-deleted",
        Kind::Compacted,
        1,
        &[
            ("cleanup.policy", "compact,delete"),
            ("min.cleanable.dirty.ratio", "0.01"),
            ("segment.ms", "400"),
            ("max.compaction.lag.ms", "1000"),
        ],
    ),
];

/// Name, topic name prefixes, producer settings, distinct keys (0 means any), largest value,
/// records per second.
#[rustfmt::skip]
const WRITERS: [(&str, &[&str], &[(&str, &str)], u64, u64, u64); 8] = [
    ("w-none", &["codec-none", "append-time"], &[ONE_IN_FLIGHT], 0, 900, 250),
    ("w-gzip", &["codec-gzip", "recompressed"], &[("compression.type", "gzip")], 0, 400, 120),
    ("w-snappy", &["codec-snappy"], &[("compression.type", "snappy")], 0, 9000, 150),
    ("w-lz4", &["codec-lz4"], &[("compression.type", "lz4")], 0, 300, 60),
    ("w-zstd", &["codec-zstd"], &[("compression.type", "zstd"), ONE_IN_FLIGHT], 0, 500, 150),
    ("w-plain", &["not-idempotent"], &[("enable.idempotence", "false"), ("acks", "1")], 0, 300, 150),
    ("w-keys", &["compacted"], &[ONE_IN_FLIGHT], 150, 300, 300),
    ("w-keys-lz4", &["compacted-and-deleted", "compacted"], &[("compression.type", "lz4")], 40, 300, 200),
];

/// A group with a member that stays for the whole run, and the topic that it reads.
const MEMBERS_GROUP: &str = "live";
const MEMBERS_TOPIC: &str = "codec-snappy";

/// With this setting an idempotent producer never writes duplicates.
const ONE_IN_FLIGHT: (&str, &str) = ("max.in.flight.requests.per.connection", "1");

/// Maximum duration of a replica move between log directories.
const MOVE_SECONDS: u64 = 120;

const TOOL_TOPIC: &str = "by-tools";
/// By default, the console producer gives up after three retries, and waits 1.5 s for a response.
/// A slow machine takes longer, and the lines may be written nevertheless. It also waits a second
/// for more lines to send along, although it then sends each line alone.
#[rustfmt::skip]
const PATIENT_PRODUCER: [&str; 7] = [
    "--sync", "--timeout", "0", "--request-timeout-ms", "30000",
    "--message-send-max-retries", "100000",
];
const TRANSACTIONS: &str = "transactions";
const TRANSACTION_PARTITIONS: usize = 2;

/// Topic settings that are changed, with possible values. None moves or deletes records that are
/// compared.
const TOPIC_SETTINGS: [(&str, &[&str]); 6] = [
    ("max.message.bytes", &["1048588", "900000", "2000000"]),
    ("retention.ms", &["-1", "604800001", "999999999999"]),
    ("segment.jitter.ms", &["0", "100"]),
    ("unclean.leader.election.enable", &["true", "false"]),
    ("file.delete.delay.ms", &["1000", "60000"]),
    ("message.timestamp.after.max.ms", &["3600000", "7200000"]),
];
const BROKER_SETTINGS: [(&str, &[&str]); 4] = [
    ("log.cleaner.backoff.ms", &["200", "400"]),
    ("log.retention.ms", &["-1", "700000000"]),
    ("message.max.bytes", &["1048588", "1500000"]),
    ("num.io.threads", &["6", "8"]),
];

/// The state of the run's operations.
pub struct Story {
    pub model: Model,
    /// Topics created during the run, with their partition counts.
    created: BTreeMap<String, usize>,
    /// Transactional IDs with an open transaction: its index in the model, and the offsets that it
    /// will commit.
    open: BTreeMap<String, (usize, Vec<Value>)>,
    count: u64,
    log_dirs: Vec<PathBuf>,
    /// Changes requested while the broker was killed, by topic name.
    churned: Vec<Value>,
    /// Whether the cluster was created by a version without `group.version`. It keeps its creator's
    /// feature levels, so no broker supports the consumer protocol in it.
    lacks_consumer_protocol: bool,
    /// Whether it was created by a version without `share.version`, or by a version that does not
    /// set it by default.
    lacks_share_groups: bool,
}

impl Story {
    /// The initial state, for a cluster to be created by this peer, the name of a file in `peers/`.
    pub fn new(log_dirs: Vec<PathBuf>, made_by: &str) -> Story {
        Story {
            model: Model::default(),
            created: BTreeMap::new(),
            open: BTreeMap::new(),
            count: 0,
            log_dirs,
            churned: Vec::new(),
            lacks_consumer_protocol: made_by == "kafka39",
            lacks_share_groups: ["kafka39", "kafka40"].contains(&made_by),
        }
    }

    /// Creates the topics and starts the writers, on Kafka.
    pub fn begin(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let own = [
            (TOOL_TOPIC, Kind::Plain, 1, &[][..]),
            (
                TRANSACTIONS,
                Kind::Transactional,
                TRANSACTION_PARTITIONS,
                &[],
            ),
        ];
        for (name, kind, partitions, settings) in TOPICS.into_iter().chain(own) {
            self.create(workload, name, kind, partitions, settings)?;
        }
        for (name, topics, settings, keys, size, per_second) in WRITERS {
            let partitions: Vec<Value> = topics
                .iter()
                .flat_map(|topic| {
                    let count = self.model.topics[*topic].partitions.len();
                    (0..count).map(move |number| json!([topic, number]))
                })
                .collect();
            let settings: BTreeMap<&str, &str> = settings.iter().copied().collect();
            workload.perform(
                "start-writer",
                json!({"name": name, "partitions": partitions, "settings": settings, "keys": keys,
                    "size": size, "per_second": per_second, "seed": random.next() >> 1}),
            )?;
        }
        workload.perform(
            "join",
            json!({"group": MEMBERS_GROUP, "topic": MEMBERS_TOPIC}),
        )?;
        Ok(())
    }

    fn create(
        &mut self,
        workload: &mut Workload,
        name: &str,
        kind: Kind,
        partitions: usize,
        settings: &[(&str, &str)],
    ) -> Result<()> {
        let configs: BTreeMap<&str, &str> = settings.iter().copied().collect();
        workload.perform(
            "create",
            json!({"topic": name, "partitions": partitions, "configs": configs}),
        )?;
        let topic = Topic::new(kind, partitions);
        self.model.topics.insert(name.to_owned(), topic);
        for (key, value) in settings {
            self.model
                .facts
                .insert(topic_setting(name, key), Some((*value).to_owned()));
        }
        Ok(())
    }

    /// Waits until the writers have a result for every send, and records the results.
    ///
    /// After a kill under load, a producer with several requests in flight may write the records in
    /// flight twice. Kafka restores producer state from its snapshots, which hold only the last
    /// batch of each producer, also after recovery. It answers a retry of an earlier batch with
    /// `OUT_OF_ORDER_SEQUENCE_NUMBER`, after which clients start a new epoch.
    pub fn drain(
        &mut self,
        workload: &mut Workload,
        was_under_load: bool,
        findings: &mut Findings,
    ) -> Result<()> {
        let drained = workload.perform("drain", json!({"seconds": 100}))?;
        for (writer, answers) in drained.as_object().into_iter().flatten() {
            if was_under_load && !sends_one_at_a_time(writer) {
                self.model.repeat(&answers["acknowledged"]);
            }
            let wrong = self.model.acknowledge(&answers["acknowledged"], None);
            findings.wrong.extend(wrong);
            self.model.refuse(&answers["refused"]);
        }
        let partitions = self.model.topics[MEMBERS_TOPIC].partitions.len();
        let member = workload.perform(
            "member",
            json!({"topic": MEMBERS_TOPIC, "partitions": partitions}),
        )?;
        for what in member["wrong"].as_array().into_iter().flatten() {
            findings
                .wrong
                .push(what.as_str().unwrap_or_default().to_owned());
        }
        Ok(())
    }

    /// Reads every topic with both isolation levels, observes the state, and compares all with the
    /// model.
    pub fn compare(&mut self, workload: &mut Workload, findings: &mut Findings) -> Result<Picture> {
        let topics: Vec<(String, Kind, usize)> = self
            .model
            .topics
            .iter()
            .map(|(name, topic)| (name.clone(), topic.kind, topic.partitions.len()))
            .collect();
        for (name, kind, partitions) in topics {
            let mut read = |isolation: &str| {
                workload.perform(
                    "read",
                    json!({"topic": name, "partitions": partitions, "isolation": isolation}),
                )
            };
            self.model
                .compare_records(&name, &read("read_uncommitted")?, findings);
            if kind == Kind::Transactional {
                self.model
                    .compare_committed(&name, &read("read_committed")?, findings);
            }
        }
        let picture = picture(workload)?;
        self.model.compare_facts(&picture, findings);
        Ok(picture)
    }

    /// The changes of a turn by an administrator and by tools.
    pub fn operate(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<usize> {
        let count = 6 + random.below(5);
        for _ in 0..count {
            match random.below(11) {
                0 | 1 => self.create_some(workload, random)?,
                2 => self.delete_one(workload, random)?,
                3 => self.add_partitions(workload, random)?,
                4 | 5 => self.configure_topic(workload, random)?,
                6 => self.configure_broker(workload, random)?,
                7 => self.commit(workload, random)?,
                8 => self.consume(workload, random)?,
                9 => self.move_replica(workload, random, MOVE_SECONDS)?,
                _ => self.delete_records(workload, random)?,
            }
        }
        self.produce_with_tool(workload, random)?;
        self.transact(workload, random)?;
        let is_served = self.use_consumer_group(workload, random)?;
        if is_served {
            self.use_share_group(workload)?;
        }
        Ok(count as usize + 1)
    }

    fn create_some(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        self.count += 1;
        let name = format!("made-{}", self.count);
        let partitions = 1 + random.below(4) as usize;
        let (key, values) = random.pick(&TOPIC_SETTINGS);
        let setting = (*key, *random.pick(values));
        self.create(workload, &name, Kind::Plain, partitions, &[setting])?;
        self.created.insert(name, partitions);
        Ok(())
    }

    fn pick_created(&self, random: &mut Seeded) -> Option<String> {
        let names: Vec<&String> = self.created.keys().collect();
        (!names.is_empty()).then(|| (*random.pick(&names)).clone())
    }

    fn delete_one(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let Some(name) = self.pick_created(random) else {
            return Ok(());
        };
        workload.perform("delete", json!({"topic": name}))?;
        self.created.remove(&name);
        self.model.topics.remove(&name);
        let of_topic = format!("setting TOPIC {name} ");
        for (fact, value) in &mut self.model.facts {
            if fact.starts_with(&of_topic) || fact.contains(&format!(" {name}-")) {
                *value = None;
            }
        }
        self.model.facts.insert(format!("topic {name}"), None);
        Ok(())
    }

    fn add_partitions(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let Some(name) = self.pick_created(random) else {
            return Ok(());
        };
        let count = self.created[&name] + 1;
        workload.perform(
            "add-partitions",
            json!({"topic": name, "partitions": count}),
        )?;
        self.created.insert(name.clone(), count);
        if let Some(topic) = self.model.topics.get_mut(&name) {
            *topic = Topic::new(topic.kind, count);
        }
        Ok(())
    }

    fn configure_topic(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let (key, values) = random.pick(&TOPIC_SETTINGS);
        let name = match self.pick_created(random) {
            Some(name) if random.one_in(2) => name,
            _ => TOPICS[random.below(TOPICS.len() as u64) as usize]
                .0
                .to_owned(),
        };
        let fact = topic_setting(&name, key);
        self.configure(workload, random, "TOPIC", &name, (key, values), fact)
    }

    fn configure_broker(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let (key, values) = random.pick(&BROKER_SETTINGS);
        let (name, source) = if random.one_in(2) {
            ("1", "DYNAMIC_BROKER_CONFIG")
        } else {
            ("", "DYNAMIC_DEFAULT_BROKER_CONFIG")
        };
        let fact = format!("setting BROKER {name} {key} {source}");
        self.configure(workload, random, "BROKER", name, (key, values), fact)
    }

    fn configure(
        &mut self,
        workload: &mut Workload,
        random: &mut Seeded,
        kind: &str,
        name: &str,
        (key, values): (&str, &[&str]),
        fact: String,
    ) -> Result<()> {
        let (set, delete, value) = if random.one_in(3) {
            (json!({}), json!([key]), None)
        } else {
            let value = *random.pick(values);
            (json!({key: value}), json!([]), Some(value.to_owned()))
        };
        workload.perform(
            "configure",
            json!({"type": kind, "name": name, "set": set, "delete": delete}),
        )?;
        self.model.facts.insert(fact, value);
        Ok(())
    }

    /// Sets committed offsets of a group.
    fn commit(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let group = format!("set-{}", random.below(6));
        let rows = self.some_offsets("codec-none", random);
        workload.perform("commit", json!({"group": group, "offsets": rows}))?;
        self.committed(&group, &json!(rows));
        Ok(())
    }

    /// An offset of each partition of a topic, with metadata.
    fn some_offsets(&self, topic: &str, random: &mut Seeded) -> Vec<Value> {
        let partitions = self.model.topics[topic].partitions.iter().enumerate();
        let offsets = partitions.map(|(number, partition)| {
            let offset = random.below(partition.end() as u64 + 1);
            let metadata = format!("m{}", random.below(1000));
            json!([topic, number, offset, metadata])
        });
        offsets.collect()
    }

    /// A consumer that continues from its group's offsets, commits and leaves.
    fn consume(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let group = format!("reading-{}", random.below(4));
        let rows = workload.perform(
            "consume",
            json!({"group": group, "protocol": "classic", "topic": "codec-gzip", "count": 200}),
        )?;
        self.committed(&group, &rows);
        Ok(())
    }

    fn committed(&mut self, group: &str, rows: &Value) {
        for row in rows.as_array().into_iter().flatten() {
            let fact = format!(
                "offset {group} {}-{}",
                row[0].as_str().unwrap_or_default(),
                row[1]
            );
            let value = format!("{} - {}", row[2], row[3].as_str().unwrap_or_default());
            self.model.facts.insert(fact, Some(value));
        }
    }

    fn delete_records(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let names = ["codec-none", "codec-zstd", "not-idempotent", "append-time"];
        let name = *random.pick(&names);
        let Some(topic) = self.model.topics.get_mut(name) else {
            return Ok(());
        };
        let number = random.below(topic.partitions.len() as u64) as usize;
        let partition = &mut topic.partitions[number];
        let span = (partition.end() - partition.start) as u64;
        let before = partition.start + random.below(span / 2 + 1) as i64;
        let low = workload.perform(
            "delete-records",
            json!({"topic": name, "partition": number, "before": before}),
        )?;
        anyhow::ensure!(
            low == json!(before),
            "records before {before} of {name} deleted, low watermark {low}"
        );
        partition.delete_before(before);
        Ok(())
    }

    /// Moves a replica to one of the log directories, possibly the current one.
    pub fn move_replica(
        &mut self,
        workload: &mut Workload,
        random: &mut Seeded,
        seconds: u64,
    ) -> Result<()> {
        let (name, _, partitions, _) = random.pick(&TOPICS);
        let directory = random.pick(&self.log_dirs).display().to_string();
        let number = random.below(*partitions as u64);
        if let Some(topic) = self.model.topics.get_mut(*name)
            && let Some(partition) = topic.partitions.get_mut(number as usize)
        {
            partition.begin_move();
        }
        workload.perform(
            "move",
            json!({"topic": name, "partition": number, "directory": directory, "seconds": seconds}),
        )?;
        Ok(())
    }

    /// Creates empty topics of a hundred partitions each.
    pub fn create_many(&self, workload: &mut Workload, partitions: usize) -> Result<()> {
        for number in 0..partitions.div_ceil(100) {
            workload.perform(
                "create-many",
                json!({"prefix": format!("many-{number}-"), "count": 1, "partitions": 100}),
            )?;
        }
        Ok(())
    }

    /// Kafka's console producer writes lines, and its tools read them.
    fn produce_with_tool(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let mut input = String::new();
        let partition = &mut self
            .model
            .topics
            .get_mut(TOOL_TOPIC)
            .context("the tools' topic")?
            .partitions[0];
        for _ in 0..3 + random.below(20) {
            self.count += 1;
            let line = format!("line {} {}", self.count, random.next());
            input.push_str(&line);
            input.push('\n');
            partition.append_by_tool(model::digest_of_value(&line));
        }
        let codec = *random.pick(&["none", "gzip", "snappy", "lz4", "zstd"]);
        let mut arguments = vec!["--topic", TOOL_TOPIC, "--compression-codec", codec];
        arguments.extend(PATIENT_PRODUCER);
        workload.perform(
            "tool",
            json!({"class": "org.apache.kafka.tools.ConsoleProducer", "input": input,
                "arguments": arguments}),
        )?;
        Ok(())
    }

    /// Two transactional producers. Each commits, aborts or leaves its transaction open. The
    /// transactions include group offsets, which take effect when the transaction commits, even if
    /// another broker then runs on the directory.
    fn transact(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        for id in ["tx-a", "tx-b"] {
            let end = *random.pick(&["commit", "abort", "open"]);
            let group = format!("moved-by-{id}");
            let offsets = self.some_offsets("codec-none", random);
            let rows = workload.perform(
                "transact",
                json!({"id": id, "topic": TRANSACTIONS, "partitions": TRANSACTION_PARTITIONS,
                    "count": 1 + random.below(12), "end": end, "group": group, "offsets": offsets}),
            )?;
            let topic = self
                .model
                .topics
                .get_mut(TRANSACTIONS)
                .context("the topic of transactions")?;
            let (number, waiting) = self.open.entry(id.to_owned()).or_insert_with(|| {
                topic.transactions.push(Transaction::Open);
                (topic.transactions.len() - 1, Vec::new())
            });
            let number = *number;
            waiting.extend(offsets);
            topic.transactions[number] = match end {
                "commit" => Transaction::Committed,
                "abort" => Transaction::Aborted,
                _ => Transaction::Open,
            };
            if end != "open"
                && let Some((_, offsets)) = self.open.remove(id)
                && end == "commit"
            {
                self.committed(&group, &json!(offsets));
            }
            self.model.acknowledge(&rows, Some(number));
        }
        Ok(())
    }

    /// Uses a group of the consumer protocol (KIP-848). Returns false if the cluster does not
    /// support it.
    fn use_consumer_group(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<bool> {
        let group = format!("newer-{}", random.below(2));
        let consume =
            json!({"group": group, "protocol": "consumer", "topic": "codec-zstd", "count": 100});
        match workload.attempt("consume", consume)? {
            Ok(rows) => self.committed(&group, &rows),
            Err(Refusal(why))
                if self.lacks_consumer_protocol
                    && why.starts_with("UnsupportedVersionException") =>
            {
                return Ok(false);
            }
            Err(Refusal(why)) => bail!("the group {group}: {why}"),
        }
        Ok(true)
    }

    /// Uses a share group (KIP-932); must be refused if the cluster does not support them.
    fn use_share_group(&self, workload: &mut Workload) -> Result<()> {
        const NOT_SERVED: [&str; 3] = [
            "UnsupportedVersionException",
            "InvalidConfigurationException",
            "InvalidRequestException",
        ];
        let share = json!({"group": "share-0", "topic": TOOL_TOPIC});
        match workload.attempt("share", share)? {
            Ok(_) => Ok(()),
            Err(Refusal(why))
                if self.lacks_share_groups
                    && NOT_SERVED.iter().any(|class| why.starts_with(class)) =>
            {
                Ok(())
            }
            Err(Refusal(why)) => bail!("the share group: {why}"),
        }
    }

    /// Sends topic changes without waiting for responses, so that a kill interrupts them.
    pub fn churn(&mut self, workload: &mut Workload, random: &mut Seeded) -> Result<()> {
        let mut asked = Vec::new();
        for _ in 0..30 {
            self.count += 1;
            asked.push(json!({"create": format!("churn-{}", self.count), "partitions": 1 + random.below(3)}));
            if random.one_in(3)
                && let Some(name) = self.pick_created(random)
            {
                self.created.remove(&name);
                asked.push(json!({"delete": name}));
            }
        }
        workload.perform("churn", json!({"asked": asked}))?;
        self.churned = asked;
        Ok(())
    }

    /// Determines the outcome of the interrupted changes.
    pub fn settle_churn(&mut self, workload: &mut Workload, findings: &mut Findings) -> Result<()> {
        if self.churned.is_empty() {
            return Ok(());
        }
        let answers = workload.perform("churn-answers", json!({}))?;
        let answers = answers.as_array().into_iter().flatten();
        let asked = std::mem::take(&mut self.churned);
        let changes: Vec<Change> = asked
            .iter()
            .zip(answers)
            .map(|(asked, answer)| Change::new(asked, answer))
            .collect();
        let picture = await_applied(&changes, || picture(workload))?;
        for change in changes {
            findings.facts += 1;
            findings.wrong.extend(change.contradiction(&picture));
            let is_there = change.is_there(&picture);
            let name = change.topic;
            if is_there {
                let partitions = change.created.unwrap_or_else(|| {
                    let topic = self.model.topics.get(&name);
                    topic.map_or(1, |topic| topic.partitions.len())
                });
                self.created.insert(name.clone(), partitions);
                let topic = Topic::new(Kind::Plain, partitions);
                self.model.topics.entry(name).or_insert(topic);
            } else {
                self.model.topics.remove(&name);
                let of_topic = format!("setting TOPIC {name} ");
                self.model
                    .facts
                    .retain(|fact, _| !fact.starts_with(&of_topic));
            }
        }
        Ok(())
    }
}

fn sends_one_at_a_time(writer: &str) -> bool {
    WRITERS
        .iter()
        .any(|(name, _, settings, ..)| *name == writer && settings.contains(&ONE_IN_FLIGHT))
}

fn topic_setting(topic: &str, key: &str) -> String {
    format!("setting TOPIC {topic} {key} DYNAMIC_TOPIC_CONFIG")
}
