//! Parses and checks the reports of Kafka's verifiable clients. Pure: lines in, violations out.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

/// Maximum number of violations reported per kind.
const TOLD: usize = 5;

/// A record with its partition and offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placed {
    pub partition: i32,
    pub offset: i64,
    pub value: i64,
}

/// The results that the producer reported for its records.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Produced {
    pub acknowledged: Vec<Placed>,
    /// The client's error messages.
    pub failed: Vec<String>,
}

/// Parses the output of `VerifiableProducer`.
pub fn produced(output: &str) -> Result<Produced> {
    let mut produced = Produced::default();
    for event in events(output) {
        match event["name"].as_str() {
            Some("producer_send_success") => {
                let number = |field: &str| event[field].as_i64().context(field.to_owned());
                let value = event["value"].as_str().context("value")?;
                produced.acknowledged.push(Placed {
                    partition: number("partition")? as i32,
                    offset: number("offset")?,
                    value: value.parse()?,
                });
            }
            Some("producer_send_error") => produced.failed.push(event.to_string()),
            _ => {}
        }
    }
    Ok(produced)
}

/// Parses the output of `VerifiableConsumer --verbose`.
pub fn consumed(output: &str) -> Result<Vec<Placed>> {
    let records = events(output).filter(|event| event["name"] == "record_data");
    records
        .map(|event| {
            let number = |field: &str| event[field].as_i64().context(field.to_owned());
            let value = event["value"].as_str().context("value")?;
            Ok(Placed {
                partition: number("partition")? as i32,
                offset: number("offset")?,
                value: value.parse()?,
            })
        })
        .collect()
}

/// The complete lines; a killed client may leave a partial last line.
fn events(output: &str) -> impl Iterator<Item = Value> + '_ {
    output
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
}

/// The longest time between two acknowledgements in a producer's output.
pub fn longest_gap(output: &str) -> Duration {
    let acknowledged = events(output).filter(|event| event["name"] == "producer_send_success");
    let times: Vec<u64> = acknowledged
        .filter_map(|event| event["timestamp"].as_u64())
        .collect();
    let gaps = times.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
    Duration::from_millis(gaps.max().unwrap_or(0))
}

/// Violations in the final log, compared with the producer's results.
pub fn check_log(produced: &Produced, log: &[Placed]) -> Vec<String> {
    let mut wrong = Vec::new();
    tell(&mut wrong, "given up by the producer", || {
        produced.failed.iter().cloned()
    });
    let at: HashMap<(i32, i64), i64> = log
        .iter()
        .map(|record| ((record.partition, record.offset), record.value))
        .collect();
    tell(&mut wrong, "acknowledged and lost", || {
        produced.acknowledged.iter().filter_map(|record| {
            let found = at.get(&(record.partition, record.offset));
            (found != Some(&record.value)).then(|| format!("{record:?}, but {found:?}"))
        })
    });
    let mut times: BTreeMap<i64, usize> = BTreeMap::new();
    for record in log {
        *times.entry(record.value).or_default() += 1;
    }
    tell(&mut wrong, "stored more than once", || {
        let often = times.iter().filter(|(_, times)| **times > 1);
        often.map(|(value, times)| format!("{value}, {times} times"))
    });
    let mut last: BTreeMap<i32, &Placed> = BTreeMap::new();
    let mut gaps = Vec::new();
    let mut disorder = Vec::new();
    for record in log {
        let before = last.insert(record.partition, record);
        if before.map_or(0, |before| before.offset + 1) != record.offset {
            gaps.push(format!("{record:?} after {before:?}"));
        }
        if before.is_some_and(|before| before.value >= record.value) {
            disorder.push(format!("{record:?} after {before:?}"));
        }
    }
    tell(&mut wrong, "not the next offset", || gaps.into_iter());
    tell(&mut wrong, "not in the order of the producer", || {
        disorder.into_iter()
    });
    wrong
}

/// Violations in the records that a group's consumer received during the run. It may see a record
/// again after a rebalance, but must not skip an offset or see another record at it.
pub fn check_consumer(seen: &[Placed], log: &[Placed]) -> Vec<String> {
    let mut wrong = Vec::new();
    let at: HashMap<(i32, i64), i64> = log
        .iter()
        .map(|record| ((record.partition, record.offset), record.value))
        .collect();
    tell(&mut wrong, "consumed and not in the log", || {
        seen.iter().filter_map(|record| {
            let found = at.get(&(record.partition, record.offset));
            (found != Some(&record.value)).then(|| format!("{record:?}, but {found:?}"))
        })
    });
    let mut ends: BTreeMap<i32, i64> = BTreeMap::new();
    let mut left_out = Vec::new();
    for record in seen {
        let end = ends.entry(record.partition).or_default();
        if record.offset > *end {
            left_out.push(format!("{record:?}, but {end} was the next"));
        }
        *end = (*end).max(record.offset + 1);
    }
    tell(&mut wrong, "skipped by the consumer", || {
        left_out.into_iter()
    });
    wrong
}

/// Adds the first few violations of a kind, and their total number.
fn tell<I: Iterator<Item = String>>(
    wrong: &mut Vec<String>,
    what: &str,
    complaints: impl FnOnce() -> I,
) {
    let all: Vec<String> = complaints().collect();
    if all.is_empty() {
        return;
    }
    let some = all.iter().take(TOLD).map(String::as_str);
    let some: Vec<&str> = some.collect();
    wrong.push(format!("{what}: {}: {}", all.len(), some.join("; ")));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(rows: &[(i32, i64, i64)]) -> Vec<Placed> {
        let place = |&(partition, offset, value): &(i32, i64, i64)| Placed {
            partition,
            offset,
            value,
        };
        rows.iter().map(place).collect()
    }

    fn acknowledged(rows: &[(i32, i64, i64)]) -> Produced {
        Produced {
            acknowledged: placed(rows),
            failed: Vec::new(),
        }
    }

    #[test]
    fn the_longest_gap_is_between_acknowledgements() {
        let line = |name: &str, at: u64| format!("{{\"name\":\"{name}\",\"timestamp\":{at}}}\n");
        let ok = "producer_send_success";
        let output = [
            line("startup_complete", 0),
            line(ok, 5000),
            line(ok, 5010),
            line("producer_send_error", 9000),
            line(ok, 5510),
        ];
        let gap = longest_gap(&output.concat());
        assert_eq!(gap, Duration::from_millis(500));
        assert_eq!(longest_gap(""), Duration::ZERO);
    }

    #[test]
    fn each_violation_is_reported() {
        let log = placed(&[(0, 0, 1), (1, 0, 2), (0, 1, 3)]);
        let told = acknowledged(&[(0, 0, 1), (1, 0, 2)]);
        assert_eq!(check_log(&told, &log), Vec::<String>::new());
        let faults: [(&[(i32, i64, i64)], &str); 5] = [
            (&[(0, 0, 1), (0, 1, 3)], "acknowledged and lost"),
            (&[(0, 0, 1), (1, 0, 9)], "acknowledged and lost"),
            (&[(0, 0, 1), (1, 0, 2), (0, 1, 2)], "stored more than once"),
            (&[(0, 0, 1), (1, 0, 2), (0, 2, 3)], "not the next offset"),
            (&[(0, 0, 1), (1, 0, 2), (0, 1, 0)], "not in the order"),
        ];
        for (log, fault) in faults {
            let wrong = check_log(&told, &placed(log));
            assert_eq!(wrong.len(), 1, "{wrong:?}");
            assert!(wrong[0].starts_with(fault), "{wrong:?}");
        }
        let gave_up = Produced {
            failed: vec!["a record".to_owned()],
            ..acknowledged(&[])
        };
        assert!(check_log(&gave_up, &log)[0].starts_with("given up by the producer"));
    }

    #[test]
    fn a_consumer_may_repeat_but_not_skip_records() {
        let log = placed(&[(0, 0, 1), (0, 1, 2), (0, 2, 3)]);
        let again = placed(&[(0, 0, 1), (0, 1, 2), (0, 1, 2), (0, 2, 3)]);
        assert_eq!(check_consumer(&again, &log), Vec::<String>::new());
        let skipping = placed(&[(0, 0, 1), (0, 2, 3)]);
        assert!(check_consumer(&skipping, &log)[0].starts_with("skipped"));
        let of_another_log = placed(&[(0, 0, 7)]);
        assert!(check_consumer(&of_another_log, &log)[0].starts_with("consumed and not"));
    }

    #[test]
    fn lines_of_the_clients_are_parsed() {
        let output = concat!(
            r#"{"timestamp":1,"name":"startup_complete"}"#,
            "\n",
            r#"{"timestamp":2,"name":"producer_send_success","key":null,"value":"5","offset":7,"topic":"t","partition":1}"#,
            "\n",
            r#"{"timestamp":3,"name":"producer_send_error","key":null,"value":"6","topic":"t","exception":"E","message":"m"}"#,
            "\n",
            r#"{"timestamp":4,"name":"producer_send_succ"#,
        );
        let produced = produced(output).unwrap();
        assert_eq!(produced.acknowledged, placed(&[(1, 7, 5)]));
        assert_eq!(produced.failed.len(), 1);
        let output = r#"{"timestamp":2,"name":"record_data","key":null,"value":"5","topic":"t","partition":1,"offset":7}"#;
        assert_eq!(consumed(output).unwrap(), placed(&[(1, 7, 5)]));
    }
}
