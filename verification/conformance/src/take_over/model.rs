//! The expected contents of the directory, independent of the broker: every record with its offset,
//! the outcomes of transactions, committed offsets and settings. The model learns from
//! acknowledgements and, where those leave something open, from the first read; from then on it
//! must not change.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

/// How the records of a topic are checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All acknowledged records are there, without an offset gap.
    Plain,
    /// Like `Plain`, but a record retried after a lost acknowledgement may occur twice (no
    /// idempotent producer).
    Repeating,
    /// The latest record of each key is there; earlier ones may be.
    Compacted,
    /// Transaction markers lie between records, and their outcome determines what `read_committed`
    /// returns.
    Transactional,
}

#[derive(Debug, Clone)]
pub struct Record {
    /// `None` until it is first read, if the broker assigns it without returning it.
    pub timestamp: Option<i64>,
    pub digest: String,
    /// As first read; acknowledgements do not contain it.
    pub leader_epoch: Option<i64>,
    pub key: Option<String>,
    pub is_tombstone: bool,
    /// Index into the topic's transactions.
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
    /// Records deleted since the last clean stop, by the log start offset before the deletion.
    /// Kafka writes the log start offset checkpoint once a minute, so a kill undoes later
    /// deletions.
    deleted: BTreeMap<i64, BTreeMap<i64, Record>>,
    /// Records deleted before the last clean stop. They can reappear only if a move to another log
    /// directory copies the batch that contains the log start offset, and a kill comes before the
    /// checkpoint of that directory is written.
    deleted_for_good: BTreeMap<i64, Record>,
    /// A move was requested since the last clean stop; it may continue after the stop.
    is_moving: bool,
    /// Sent without acknowledgement, or acknowledged to a producer that may have sent it twice.
    may_appear: HashMap<String, Record>,
    /// Written in order by a tool that does not report offsets.
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
    /// Expected settings and committed offsets; `None` means that the entry must be absent.
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
    /// The offset after the last known record.
    pub fn end(&self) -> i64 {
        self.records
            .last_key_value()
            .map_or(self.start, |(offset, _)| offset + 1)
    }

    /// Deletes the records below `offset`.
    pub fn delete_before(&mut self, offset: i64) {
        let kept = self.records.split_off(&offset);
        let deleted = std::mem::replace(&mut self.records, kept);
        self.deleted.entry(self.start).or_default().extend(deleted);
        self.start = offset;
    }

    /// The partition will be copied to another log directory.
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

    /// Whether a kill may have moved the log start offset back to `start`. This need not be an
    /// earlier log start offset: segments below the new one may be deleted already, and the first
    /// remaining segment then determines the start.
    fn may_start_again_at(&self, start: i64) -> bool {
        let first = self.deleted.first_key_value();
        first.is_some_and(|(first, _)| (*first..self.start).contains(&start))
    }

    /// Restores the deleted records from `start` on.
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

/// The number of compared records, and the violations.
#[derive(Debug, Default)]
pub struct Findings {
    pub records: usize,
    pub facts: usize,
    pub wrong: Vec<String>,
}

impl Model {
    /// The broker was stopped cleanly, so deletions are now permanent.
    pub fn stopped_cleanly(&mut self) {
        for topic in self.topics.values_mut() {
            for partition in &mut topic.partitions {
                partition.stopped_cleanly();
            }
        }
    }

    /// Records a writer's acknowledgements: the rows of `Writer.row`.
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
                // A producer does not learn the offset of a record that was detected as a
                // duplicate.
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

    /// These records may occur a second time.
    pub fn repeat(&mut self, rows: &Value) {
        self.refuse(rows);
    }

    /// Records a writer's failed sends.
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

    /// Compares the records that a reader of a topic received with the expected ones, and resolves
    /// unknown outcomes.
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

    /// Compares the records that a `read_committed` reader received: no aborted records, and none
    /// from the last stable offset on.
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

    /// Compares settings and committed offsets with the observed state.
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
                            "offset {offset} holds {digest}, which no producer wrote there"
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

/// Checks known records that were not found. Records that compaction may have removed are dropped
/// from the model and must not reappear.
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

/// The digest of a record with this value and nothing else, as in `Payload.digest` of the workload.
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
