//! What the directory must hold, whoever serves it: every record with its offset, what transactions came to, committed
//! offsets and settings. It learns from acknowledgements and, where those leave something open, from the first sight
//! of it; from then on it must stay.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

/// How a topic's records are judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All that was acknowledged is there, at every offset without a gap.
    Plain,
    /// The same, and what was sent again after a lost acknowledgement may be there twice (no idempotent producer).
    Repeating,
    /// The latest record of each key is there, and of the others any.
    Compacted,
    /// Between records stand the markers of transactions, whose outcome decides what is shown to a reader of committed
    /// records.
    Transactional,
}

#[derive(Debug, Clone)]
pub struct Record {
    /// Unknown until it is read where the broker gives it and did not tell.
    pub timestamp: Option<i64>,
    pub digest: String,
    /// As the first reader saw it; no acknowledgement tells.
    pub leader_epoch: Option<i64>,
    pub key: Option<String>,
    pub is_tombstone: bool,
    /// An index into the topic's transactions.
    pub transaction: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transaction {
    Open,
    Committed,
    Aborted,
}

#[derive(Debug, Default)]
pub struct Partition {
    pub start: i64,
    pub records: BTreeMap<i64, Record>,
    /// Deleted since the last clean stop, by where the partition started before. Kafka writes the checkpoint of log
    /// start offsets once a minute, so that a kill undoes what was deleted since.
    deleted: BTreeMap<i64, BTreeMap<i64, Record>>,
    /// Deleted before the last clean stop: back only where a move to another log directory copies the batch in which the
    /// partition starts, and a kill comes before that directory's checkpoint says where in the batch.
    deleted_for_good: BTreeMap<i64, Record>,
    /// A move was asked for since the last clean stop; it may go on after that.
    is_moving: bool,
    /// Sent and not acknowledged, or acknowledged to a producer that may have sent it twice.
    may_appear: HashMap<String, Record>,
    /// Written by a tool that does not say where, in order.
    to_appear: Vec<String>,
}

#[derive(Debug)]
pub struct Topic {
    pub kind: Kind,
    pub partitions: Vec<Partition>,
    pub transactions: Vec<Transaction>,
}

#[derive(Debug, Default)]
pub struct Model {
    pub topics: BTreeMap<String, Topic>,
    /// What a picture must hold of settings and committed offsets; `None` is what it must not hold.
    pub facts: BTreeMap<String, Option<String>>,
}

impl Topic {
    pub fn new(kind: Kind, partitions: usize) -> Topic {
        let partitions = (0..partitions).map(|_| Partition::default()).collect();
        Topic {
            kind,
            partitions,
            transactions: Vec::new(),
        }
    }
}

impl Partition {
    /// One above the last record that is known.
    pub fn end(&self) -> i64 {
        self.records
            .last_key_value()
            .map_or(self.start, |(offset, _)| offset + 1)
    }

    /// Records below are deleted.
    pub fn delete_before(&mut self, offset: i64) {
        let kept = self.records.split_off(&offset);
        let deleted = std::mem::replace(&mut self.records, kept);
        self.deleted.entry(self.start).or_default().extend(deleted);
        self.start = offset;
    }

    /// The partition is to be copied to another log directory.
    pub fn begin_move(&mut self) {
        self.is_moving = true;
        if let Some((&first, _)) = self.deleted_for_good.first_key_value() {
            let again = std::mem::take(&mut self.deleted_for_good);
            self.deleted.entry(first).or_default().extend(again);
        }
    }

    fn stopped_cleanly(&mut self) {
        if !std::mem::take(&mut self.is_moving) {
            for deleted in std::mem::take(&mut self.deleted).into_values() {
                self.deleted_for_good.extend(deleted);
            }
        }
    }

    /// Whether a kill may have brought the start back to there. It need not be where the partition started before:
    /// segments below the new start may have been deleted already, and then the first that is left begins the partition.
    fn may_start_again_at(&self, start: i64) -> bool {
        let first = self.deleted.first_key_value();
        first.is_some_and(|(first, _)| (*first..self.start).contains(&start))
    }

    /// Takes back what was deleted from there on.
    fn undelete(&mut self, start: i64) {
        for deleted in self.deleted.values_mut() {
            self.records.extend(deleted.split_off(&start));
        }
        self.deleted.retain(|before, _| *before < start);
        self.start = start;
    }

    pub fn append_by_tool(&mut self, digest: String) {
        self.to_appear.push(digest);
    }
}

/// How many records were compared, and what was found wrong.
#[derive(Debug, Default)]
pub struct Findings {
    pub records: usize,
    pub facts: usize,
    pub wrong: Vec<String>,
}

impl Model {
    /// The broker was stopped: what was deleted stays deleted.
    pub fn stopped_cleanly(&mut self) {
        for topic in self.topics.values_mut() {
            for partition in &mut topic.partitions {
                partition.stopped_cleanly();
            }
        }
    }

    /// Takes in what a writer was answered: the rows of `Writer.row`.
    pub fn acknowledge(&mut self, rows: &Value, transaction: Option<usize>) -> Vec<String> {
        let mut wrong = Vec::new();
        for row in rows.as_array().into_iter().flatten() {
            let (topic, number, offset, record) = parsed(row, transaction);
            let Some(entry) = self.topics.get_mut(&topic) else {
                continue;
            };
            let is_repeating = entry.kind == Kind::Repeating;
            let Some(partition) = entry.partitions.get_mut(number) else {
                continue;
            };
            if is_repeating {
                partition
                    .may_appear
                    .insert(record.digest.clone(), record.clone());
            }
            if offset < 0 {
                // A producer is not told where a record went that was found to be there already.
                wrong.push(format!(
                    "{topic}-{number}: a record was acknowledged without an offset"
                ));
                continue;
            }
            if let Some(other) = partition.records.insert(offset, record)
                && partition.records[&offset].digest != other.digest
            {
                wrong.push(format!(
                    "{topic}-{number}: offset {offset} was given to two records"
                ));
            }
        }
        wrong
    }

    /// What may be there a second time.
    pub fn repeat(&mut self, rows: &Value) {
        self.refuse(rows);
    }

    /// Takes in what a writer had to give up.
    pub fn refuse(&mut self, rows: &Value) {
        for row in rows.as_array().into_iter().flatten() {
            let (topic, number, _, record) = parsed(row, None);
            if let Some(partition) = self
                .topics
                .get_mut(&topic)
                .and_then(|topic| topic.partitions.get_mut(number))
            {
                partition.may_appear.insert(record.digest.clone(), record);
            }
        }
    }

    /// Compares what a reader of a topic was given with what must be there, and takes in what it learned.
    pub fn compare_records(&mut self, name: &str, found: &Value, findings: &mut Findings) {
        let Some(topic) = self.topics.get_mut(name) else {
            return;
        };
        for (number, partition) in topic.partitions.iter_mut().enumerate() {
            let mut wrong = Vec::new();
            let found = &found[number.to_string()];
            findings.records += compare_partition(topic.kind, partition, found, &mut wrong);
            let shown = wrong.len().min(5);
            for what in &wrong[..shown] {
                findings.wrong.push(format!("{name}-{number}: {what}"));
            }
            if shown < wrong.len() {
                let more = wrong.len() - shown;
                findings
                    .wrong
                    .push(format!("{name}-{number}: {more} more like this"));
            }
        }
    }

    /// Compares what a reader of committed records was given: nothing aborted, nothing from the first open
    /// transaction on.
    pub fn compare_committed(&mut self, name: &str, found: &Value, findings: &mut Findings) {
        let Some(topic) = self.topics.get(name) else {
            return;
        };
        for (number, partition) in topic.partitions.iter().enumerate() {
            let state = |record: &Record| record.transaction.map(|index| topic.transactions[index]);
            let first_open = partition
                .records
                .iter()
                .find(|(_, record)| state(record) == Some(Transaction::Open));
            let stable_end = first_open.map_or(i64::MAX, |(offset, _)| *offset);
            let wanted: Vec<(i64, &str)> = partition
                .records
                .range(..stable_end)
                .filter(|(_, record)| state(record) != Some(Transaction::Aborted))
                .map(|(offset, record)| (*offset, record.digest.as_str()))
                .collect();
            let rows = found[number.to_string()]["records"].as_array();
            let got: Vec<(i64, &str)> = rows
                .into_iter()
                .flatten()
                .map(|row| (int(&row[0]), row[2].as_str().unwrap_or_default()))
                .collect();
            findings.records += got.len();
            if let Some(at) =
                (0..wanted.len().max(got.len())).find(|at| wanted.get(*at) != got.get(*at))
            {
                findings.wrong.push(format!(
                    "{name}-{number}, committed records: record {at} should be {:?} and is {:?}",
                    wanted.get(at),
                    got.get(at)
                ));
            }
        }
    }

    /// Compares settings and committed offsets with a picture.
    pub fn compare_facts(&self, picture: &BTreeMap<String, String>, findings: &mut Findings) {
        for (name, wanted) in &self.facts {
            findings.facts += 1;
            if picture.get(name) != wanted.as_ref() {
                findings.wrong.push(format!(
                    "{name}: should be {} and is {}",
                    shown(wanted.as_ref()),
                    shown(picture.get(name))
                ));
            }
        }
    }
}

fn shown(value: Option<&String>) -> String {
    value.map_or("absent".to_owned(), |value| format!("`{value}`"))
}

fn compare_partition(
    kind: Kind,
    partition: &mut Partition,
    found: &Value,
    wrong: &mut Vec<String>,
) -> usize {
    let start = int(&found["start"]);
    if partition.may_start_again_at(start) {
        partition.undelete(start);
    }
    if start != partition.start && kind != Kind::Compacted {
        wrong.push(format!(
            "starts at {start} and should at {}",
            partition.start
        ));
    }
    let mut seen = BTreeSet::new();
    let mut last = None;
    let mut to_appear = std::mem::take(&mut partition.to_appear).into_iter();
    for row in found["records"].as_array().into_iter().flatten() {
        let (offset, timestamp) = (int(&row[0]), int(&row[1]));
        let digest = row[2].as_str().unwrap_or_default();
        let leader_epoch = int(&row[3]);
        if last.is_some_and(|last| offset <= last) {
            wrong.push(format!("offset {offset} comes after {}", last.unwrap_or(0)));
        }
        if matches!(kind, Kind::Plain | Kind::Repeating) {
            let expected = last.map_or(start, |last| last + 1);
            if offset != expected {
                wrong.push(format!("{expected} is missing, {offset} follows"));
            }
        }
        last = Some(offset);
        seen.insert(offset);
        match partition.records.get_mut(&offset) {
            Some(record) => {
                if record.digest != digest {
                    wrong.push(format!(
                        "offset {offset} holds {digest} and should hold {}",
                        record.digest
                    ));
                }
                match record.timestamp {
                    Some(wanted) if wanted != timestamp => wrong.push(format!(
                        "offset {offset} has timestamp {timestamp} and should have {wanted}"
                    )),
                    _ => record.timestamp = Some(timestamp),
                }
                match record.leader_epoch {
                    Some(wanted) if wanted != leader_epoch => wrong.push(format!(
                        "offset {offset} has leader epoch {leader_epoch} and should have {wanted}"
                    )),
                    _ => record.leader_epoch = Some(leader_epoch),
                }
            }
            None => {
                let mut record = match partition.may_appear.get(digest) {
                    Some(record) => record.clone(),
                    None if to_appear.next().as_deref() == Some(digest) => Record {
                        timestamp: None,
                        digest: digest.to_owned(),
                        leader_epoch: None,
                        key: None,
                        is_tombstone: false,
                        transaction: None,
                    },
                    None => {
                        wrong.push(format!(
                            "offset {offset} holds {digest}, which nobody wrote there"
                        ));
                        continue;
                    }
                };
                if kind != Kind::Repeating {
                    partition.may_appear.remove(digest);
                }
                if record.timestamp.is_some_and(|sent| sent != timestamp) {
                    wrong.push(format!(
                        "offset {offset} has timestamp {timestamp} and was sent with another"
                    ));
                }
                record.timestamp = Some(timestamp);
                record.leader_epoch = Some(leader_epoch);
                partition.records.insert(offset, record);
            }
        }
    }
    let missing_of_tool = to_appear.count();
    if missing_of_tool > 0 {
        wrong.push(format!(
            "{missing_of_tool} records of a tool are missing at the end"
        ));
    }
    forget_missing(kind, partition, &seen, wrong);
    seen.len()
}

/// Judges what is known and was not found; what compaction may have taken is forgotten, and must not come back.
fn forget_missing(
    kind: Kind,
    partition: &mut Partition,
    seen: &BTreeSet<i64>,
    wrong: &mut Vec<String>,
) {
    let missing: Vec<i64> = partition
        .records
        .keys()
        .filter(|offset| !seen.contains(offset))
        .copied()
        .collect();
    let mut latest: HashMap<&str, i64> = HashMap::new();
    if kind == Kind::Compacted {
        for (offset, record) in &partition.records {
            if let Some(key) = &record.key {
                latest.insert(key, *offset);
            }
        }
    }
    let mut lost = Vec::new();
    for offset in &missing {
        let record = &partition.records[offset];
        let is_superseded = record
            .key
            .as_deref()
            .is_some_and(|key| latest.get(key) > Some(offset));
        if !(is_superseded || kind == Kind::Compacted && record.is_tombstone) {
            lost.push(*offset);
        }
    }
    for (offset, key) in missing.iter().filter_map(|offset| {
        let record = &partition.records[offset];
        let key = record.key.as_deref().filter(|_| record.is_tombstone)?;
        (latest.get(key) == Some(offset)).then_some((*offset, key))
    }) {
        let older = partition.records.range(..offset);
        if let Some((back, _)) = older
            .rev()
            .find(|(at, record)| seen.contains(at) && record.key.as_deref() == Some(key))
        {
            wrong.push(format!(
                "the tombstone of {key} at {offset} is gone and its record at {back} is not"
            ));
        }
    }
    for offset in lost {
        wrong.push(format!("offset {offset} is missing"));
    }
    for offset in missing {
        partition.records.remove(&offset);
    }
}

fn parsed(row: &Value, transaction: Option<usize>) -> (String, usize, i64, Record) {
    let record = Record {
        timestamp: row[3].as_i64(),
        digest: row[4].as_str().unwrap_or_default().to_owned(),
        leader_epoch: None,
        key: row[5].as_str().map(str::to_owned),
        is_tombstone: row[6].as_bool().unwrap_or(false),
        transaction,
    };
    (
        row[0].as_str().unwrap_or_default().to_owned(),
        int(&row[1]) as usize,
        int(&row[2]),
        record,
    )
}

fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or(i64::MIN)
}

/// The digest that the workload gives a record with this value and nothing else, `Payload.digest`.
pub fn digest_of_value(value: &str) -> String {
    let mut bytes = b"-".to_vec();
    bytes.extend_from_slice(format!("{}:", value.len()).as_bytes());
    bytes.extend_from_slice(value.as_bytes());
    let one = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32IsoHdlc, &bytes);
    let other = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &bytes);
    format!("{one:08x}{other:08x}")
}

#[cfg(test)]
mod tests;
