//! Which value is at which offset of which log, which process sent it, and whether a consumer
//! received it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Findings, Kind, Log, Operation, Outcome, Step, Value};

/// The sender of a value, and when the value may become visible.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sender {
    /// The operation's index in the history.
    pub operation: usize,
    outcome: Outcome,
    commit_asked_at: Option<u64>,
}

/// All logs of a history.
#[derive(Debug, Default)]
pub(super) struct Logs {
    senders: HashMap<(Log, Value), Sender>,
    /// Values by offset, from poll results and producer acknowledgements.
    values: BTreeMap<Log, BTreeMap<i64, BTreeSet<Value>>>,
    /// Values by offset, from poll results only.
    seen: BTreeMap<Log, BTreeMap<i64, Value>>,
    seen_values: BTreeSet<(Log, Value)>,
}

impl Logs {
    pub(super) fn of(history: &[Operation]) -> Logs {
        let mut logs = Logs::default();
        for (number, operation) in history.iter().enumerate() {
            for step in &operation.steps {
                match step {
                    Step::Sent { log, value, offset } => {
                        let sender = Sender {
                            operation: number,
                            outcome: operation.outcome,
                            commit_asked_at: operation.commit_asked_at,
                        };
                        logs.senders.insert((*log, *value), sender);
                        if let Some(offset) = offset {
                            logs.put(*log, *offset, *value);
                        }
                    }
                    Step::Polled { records, .. } => {
                        for record in records {
                            logs.put(record.log, record.offset, record.value);
                            let seen = logs.seen.entry(record.log).or_default();
                            seen.insert(record.offset, record.value);
                            logs.seen_values.insert((record.log, record.value));
                        }
                    }
                    Step::Sought { .. } => {}
                }
            }
        }
        logs
    }

    fn put(&mut self, log: Log, offset: i64, value: Value) {
        let offsets = self.values.entry(log).or_default();
        offsets.entry(offset).or_default().insert(value);
    }

    pub(super) fn sender(&self, log: Log, value: Value) -> Option<Sender> {
        self.senders.get(&(log, value)).copied()
    }

    /// The values that consumers received, by log, in offset order.
    pub(super) fn seen(&self) -> impl Iterator<Item = (Log, &BTreeMap<i64, Value>)> {
        self.seen.iter().map(|(log, seen)| (*log, seen))
    }

    /// The first offset between `after` and `before`, both exclusive, at which a consumer received
    /// a record.
    pub(super) fn seen_between(&self, log: Log, after: i64, before: i64) -> Option<(i64, Value)> {
        let from = after.saturating_add(1);
        if from >= before {
            return None;
        }
        let mut between = self.seen.get(&log)?.range(from..before);
        between.next().map(|(offset, value)| (*offset, *value))
    }

    pub(super) fn check(&self, history: &[Operation], findings: &mut Findings) {
        self.check_places(findings);
        self.check_polls(history, findings);
        self.check_sends(history, findings);
    }

    fn check_places(&self, findings: &mut Findings) {
        for (log, offsets) in &self.values {
            let mut places: BTreeMap<Value, Vec<i64>> = BTreeMap::new();
            for (offset, values) in offsets {
                if values.len() > 1 {
                    let sentence = format!("offset {offset} of log {log} has had {values:?}");
                    findings.add(Kind::TwoValuesAtOnePlace, sentence);
                }
                for value in values {
                    places.entry(*value).or_default().push(*offset);
                }
            }
            for (value, offsets) in places.iter().filter(|(_, offsets)| offsets.len() > 1) {
                let sentence = format!("{value} is at offsets {offsets:?} of log {log}");
                findings.add(Kind::Duplicate, sentence);
            }
        }
    }

    fn check_polls(&self, history: &[Operation], findings: &mut Findings) {
        // Each value is reported once, by the poll that saw it first.
        let mut reported = BTreeSet::new();
        for operation in history {
            let process = operation.process;
            for step in &operation.steps {
                let Step::Polled { at, records } = step else {
                    continue;
                };
                for record in records {
                    let (log, value) = (record.log, record.value);
                    let place = format!("{value} at offset {} of log {log}", record.offset);
                    let (kind, why) = match self.sender(log, value) {
                        None => (Kind::NeverSent, "no process sent it there".to_owned()),
                        Some(sender) if sender.outcome == Outcome::Aborted => {
                            let of = history[sender.operation].process;
                            let why = format!("process {of} never committed it");
                            (Kind::AbortedRead, why)
                        }
                        Some(sender) => match sender.commit_asked_at {
                            Some(asked) if asked > *at => {
                                let why = format!("at {at}, and its commit began at {asked}");
                                (Kind::EarlyRead, why)
                            }
                            _ => continue,
                        },
                    };
                    if reported.insert((kind, log, value)) {
                        findings.add(kind, format!("process {process} was given {place}: {why}"));
                    }
                }
            }
        }
    }

    fn check_sends(&self, history: &[Operation], findings: &mut Findings) {
        for operation in history {
            let sent = operation.steps.iter().filter_map(|step| match step {
                Step::Sent { log, value, offset } => Some((*log, *value, *offset)),
                _ => None,
            });
            let (there, missing): (Vec<_>, Vec<_>) =
                sent.partition(|(log, value, _)| self.seen_values.contains(&(*log, *value)));
            let process = operation.process;
            match operation.outcome {
                Outcome::Committed => {
                    for (log, value, offset) in missing {
                        let last = self.seen.get(&log).and_then(|seen| seen.last_key_value());
                        let last = last.map(|(offset, _)| *offset);
                        let sentence = format!(
                            "{value} of process {process}, acknowledged at {offset:?} of log {log}, was received by no consumer; \
                             the last received offset is {last:?}"
                        );
                        findings.add(Kind::LostWrite, sentence);
                    }
                }
                Outcome::Unknown if !there.is_empty() && !missing.is_empty() => {
                    let sentence = format!(
                        "of one transaction of process {process}, {there:?} are there and {missing:?} are not"
                    );
                    findings.add(Kind::TornTransaction, sentence);
                }
                Outcome::Aborted | Outcome::Unknown => {}
            }
        }
    }
}
