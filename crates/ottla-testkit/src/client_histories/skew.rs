//! Checks isolation between transactions: cycles of writes (Adya's G0), and reads of one part of a
//! transaction without the other.

use std::collections::{BTreeMap, BTreeSet};

use super::logs::Logs;
use super::{Findings, Kind, Log, Operation, Step};

pub(super) fn check(history: &[Operation], logs: &Logs, findings: &mut Findings) {
    for circle in circles(&written_before(history.len(), logs)) {
        let processes: BTreeSet<u32> = circle.iter().map(|&at| history[at].process).collect();
        let sentence = format!(
            "{} transactions of processes {processes:?} each wrote before another of them",
            circle.len()
        );
        findings.add(Kind::WriteSkew, sentence);
    }
    for operation in history {
        check_reads(operation, history, logs, findings);
    }
}

/// For each operation, the operations whose record directly follows one of its records. All other
/// precedence relations follow by transitivity.
fn written_before(operations: usize, logs: &Logs) -> Vec<Vec<usize>> {
    let mut after = vec![Vec::new(); operations];
    for (log, seen) in logs.seen() {
        let senders = seen
            .values()
            .filter_map(|value| logs.sender(log, *value))
            .map(|sender| sender.operation);
        let mut last = None;
        for sender in senders {
            if let Some(last) = last.replace(sender)
                && last != sender
            {
                after[last].push(sender);
            }
        }
    }
    after
}

/// Finds a read of a log that ends before a record of a transaction, although another record of
/// that transaction was read earlier in the operation.
fn check_reads(operation: &Operation, history: &[Operation], logs: &Logs, findings: &mut Findings) {
    // What may still be missing: for each log, the first offset written by each transaction that
    // was read from.
    let mut expected: BTreeMap<Log, BTreeMap<i64, usize>> = BTreeMap::new();
    let mut read_from = BTreeSet::new();
    for step in &operation.steps {
        let Step::Polled { records, .. } = step else {
            continue;
        };
        let mut reached: BTreeMap<Log, i64> = BTreeMap::new();
        for record in records {
            let end = reached.entry(record.log).or_insert(record.offset);
            *end = record.offset.max(*end);
        }
        for (log, end) in reached {
            let Some(missing) = expected.get_mut(&log) else {
                continue;
            };
            // Offsets below the end of the poll exist; whether they were read is checked by
            // `orders`.
            missing.retain(|offset, _| *offset > end);
            if let Some((offset, of)) = missing.pop_first() {
                let sentence = format!(
                    "process {} read log {log} up to offset {end}, and had read from a transaction of process {} that wrote at \
                     {offset}",
                    operation.process, history[of].process
                );
                findings.add(Kind::ReadSkew, sentence);
            }
        }
        for record in records {
            let Some(sender) = logs.sender(record.log, record.value) else {
                continue;
            };
            if !read_from.insert(sender.operation) {
                continue;
            }
            for other in &history[sender.operation].steps {
                if let Step::Sent {
                    log,
                    offset: Some(offset),
                    ..
                } = other
                    && *log != record.log
                {
                    let missing = expected.entry(*log).or_default();
                    missing.insert(*offset, sender.operation);
                }
            }
        }
    }
}

/// The strongly connected components with more than one member, by Tarjan's algorithm. It uses an
/// explicit stack, because a chain of transactions can be deeper than a thread's stack.
pub(super) fn circles(after: &[Vec<usize>]) -> Vec<Vec<usize>> {
    const UNSEEN: usize = usize::MAX;
    let mut index = vec![UNSEEN; after.len()];
    let mut low = vec![UNSEEN; after.len()];
    let mut is_open = vec![false; after.len()];
    let (mut open, mut found, mut next) = (Vec::new(), Vec::new(), 0);
    for root in 0..after.len() {
        if index[root] != UNSEEN {
            continue;
        }
        // A node, and the index of its next edge.
        let mut path = vec![(root, 0)];
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                (index[node], low[node]) = (next, next);
                next += 1;
                open.push(node);
                is_open[node] = true;
            }
            if let Some(&to) = after[node].get(edge) {
                path.push((node, edge + 1));
                if index[to] == UNSEEN {
                    path.push((to, 0));
                } else if is_open[to] {
                    low[node] = low[node].min(index[to]);
                }
                continue;
            }
            if let Some(&(parent, _)) = path.last() {
                low[parent] = low[parent].min(low[node]);
            }
            if low[node] != index[node] {
                continue;
            }
            let mut circle = Vec::new();
            while let Some(member) = open.pop() {
                is_open[member] = false;
                circle.push(member);
                if member == node {
                    break;
                }
            }
            if circle.len() > 1 {
                circle.reverse();
                found.push(circle);
            }
        }
    }
    found
}
