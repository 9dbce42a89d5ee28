//! The state of a cluster as an administrator sees it, by name.

use std::collections::BTreeMap;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::workload::{Refusal, Workload};

pub type Picture = BTreeMap<String, String>;

/// Number of pictures that a change of leaders may spoil. A slow machine fences its broker now and
/// then, but not all the time.
const ATTEMPTS: usize = 10;

/// Everything that an administrator can query, and the output of Kafka's tools, at a time when no
/// leader changes.
///
/// A broker that misses its heartbeats is fenced, resigns, and soon leads again. Until its
/// coordinators have loaded their partitions, Kafka's ListGroups and ListTransactions omit what is
/// in them, without an error: an unloaded partition looks like one that another broker coordinates.
pub fn picture(workload: &mut Workload) -> Result<Picture> {
    undisturbed(
        workload,
        |workload| workload.perform("leadership", json!({})),
        observed,
    )
}

/// Repeats an observation until the leadership after it is the same as before it. The result of an
/// observation during which leaders changed means nothing, even if it is an error.
fn undisturbed<C, T>(
    context: &mut C,
    leadership: impl Fn(&mut C) -> Result<Value>,
    observe: impl Fn(&mut C) -> Result<T>,
) -> Result<T> {
    let mut before = leadership(context)?;
    for _ in 0..ATTEMPTS {
        let observed = observe(context);
        let after = leadership(context)?;
        if before == after {
            return observed;
        }
        before = after;
    }
    bail!("leaders changed during each of {ATTEMPTS} observations; their last epochs: {before}")
}

fn observed(workload: &mut Workload) -> Result<Picture> {
    let mut picture: Picture = serde_json::from_value(workload.perform("picture", json!({}))?)?;
    let tools = [
        (
            "org.apache.kafka.tools.TopicCommand",
            vec!["--describe", "--topic", "codec.*|compacted.*|transactions"],
        ),
        (
            "org.apache.kafka.tools.GetOffsetShell",
            vec!["--topic", "by-tools|transactions|codec.*"],
        ),
    ];
    for (class, arguments) in tools {
        let printed =
            match workload.attempt("tool", json!({"class": class, "arguments": arguments}))? {
                Ok(printed) => printed,
                Err(Refusal(why)) => json!(format!("refused: {why}")),
            };
        let tool = class.rsplit('.').next().unwrap_or_default();
        for line in printed.as_str().unwrap_or_default().lines() {
            picture.insert(format!("{tool}: {}", sorted_settings(line)), String::new());
        }
    }
    Ok(picture)
}

/// The settings of a topic are printed in hash table order.
fn sorted_settings(line: &str) -> String {
    match line.split_once("Configs: ") {
        Some((before, settings)) => {
            let mut settings: Vec<&str> = settings.trim().split(',').collect();
            settings.sort_unstable();
            format!("{before}Configs: {}", settings.join(","))
        }
        None => line.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A broker with a leader epoch for each look at its leadership, and what it lists in between.
    struct Broker {
        epochs: Vec<i32>,
        listed: Vec<Result<Vec<&'static str>>>,
    }

    fn listed(broker: &mut Broker) -> Result<Vec<&'static str>> {
        undisturbed(
            broker,
            |broker| Ok(json!({"__consumer_offsets-0": broker.epochs.remove(0)})),
            |broker| broker.listed.remove(0),
        )
    }

    #[test]
    fn groups_that_a_fenced_broker_omits_are_not_missing() {
        let mut broker = Broker {
            epochs: vec![0, 2, 2],
            listed: vec![Ok(vec![]), Ok(vec!["reading-2"])],
        };
        assert_eq!(listed(&mut broker).unwrap(), ["reading-2"]);
    }

    #[test]
    fn an_error_counts_only_while_no_leader_changes() {
        let refused = || Err(anyhow::anyhow!("refused"));
        let mut broker = Broker {
            epochs: vec![0, 2, 2],
            listed: vec![refused(), Ok(vec!["live"])],
        };
        assert_eq!(listed(&mut broker).unwrap(), ["live"]);
        let mut broker = Broker {
            epochs: vec![0, 0],
            listed: vec![refused()],
        };
        assert_eq!(listed(&mut broker).unwrap_err().to_string(), "refused");
    }

    #[test]
    fn leaders_that_always_change_end_the_attempts() {
        let mut broker = Broker {
            epochs: (0..=ATTEMPTS as i32).collect(),
            listed: (0..ATTEMPTS).map(|_| Ok(vec![])).collect(),
        };
        let error = listed(&mut broker).unwrap_err().to_string();
        assert!(error.starts_with("leaders changed during each"), "{error}");
    }

    #[test]
    fn the_settings_of_a_topic_are_sorted() {
        assert_eq!(
            sorted_settings("Topic: t\tConfigs: segment.ms=1,flush.ms=2"),
            "Topic: t\tConfigs: flush.ms=2,segment.ms=1"
        );
        assert_eq!(sorted_settings("by-tools:0:7"), "by-tools:0:7");
    }
}
