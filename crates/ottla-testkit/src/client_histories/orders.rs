//! Checks the sequence of records that each process received, and the offsets of the records that
//! it sent.

use std::collections::BTreeMap;

use super::logs::Logs;
use super::{Findings, Kind, Log, Operation, Step};

/// The last offset of each log that a process polled or sent to.
#[derive(Default)]
struct Process {
    given: BTreeMap<Log, i64>,
    sent: BTreeMap<Log, i64>,
}

pub(super) fn check(history: &[Operation], logs: &Logs, findings: &mut Findings) {
    let mut processes: BTreeMap<u32, Process> = BTreeMap::new();
    for operation in history {
        let number = operation.process;
        let process = processes.entry(number).or_default();
        for step in &operation.steps {
            match step {
                Step::Sought { log } => {
                    process.given.remove(log);
                }
                Step::Polled { records, .. } => {
                    for record in records {
                        let (log, offset) = (record.log, record.offset);
                        let Some(last) = process.given.insert(log, offset) else {
                            continue;
                        };
                        if offset <= last {
                            let sentence = format!(
                                "process {number} was given offset {offset} of log {log} after {last}"
                            );
                            findings.add(Kind::NonMonotonicPoll, sentence);
                        } else if let Some((between, value)) = logs.seen_between(log, last, offset)
                        {
                            let sentence = format!(
                                "process {number} was given offset {offset} of log {log} after {last}, and not {value} at \
                                 {between}"
                            );
                            findings.add(Kind::PollSkip, sentence);
                        }
                    }
                }
                Step::Sent { log, value, offset } => {
                    let Some(offset) = *offset else { continue };
                    if let Some(last) = process.sent.insert(*log, offset)
                        && last >= offset
                    {
                        let sentence = format!(
                            "{value} of process {number} is at offset {offset} of log {log}, and an earlier value of the process at {last}"
                        );
                        findings.add(Kind::NonMonotonicSend, sentence);
                    }
                }
            }
        }
    }
}
