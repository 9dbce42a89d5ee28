//! The plan as a table, as JSON, and as the file of `reassign-partitions`.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use ottla_rebalance::{BrokerLoad, Image, Options, Plan, Unmet};
use ottla_types::shell_word;
use serde_json::{Value, json};

use super::arguments::MOVES_PER_BROKER;
use super::quantities::{bytes, duration, in_unit, unit_of};
use crate::columns;
use crate::counted::counted;
use crate::tools::java_text::joined as ids;
use crate::tools::reassign_partitions::assignment_file::to_json;

/// How many moves and unreached goals are listed; all are counted.
const LISTED: usize = 10;

/// The facts that the report states besides the plan.
pub(super) struct Surroundings<'a> {
    pub(super) throttle: Option<u64>,
    pub(super) sample_seconds: u64,
    /// The file with the plan.
    pub(super) written: Option<&'a Path>,
    /// The flags with which a command finds the cluster, for a shell.
    pub(super) cluster: &'a str,
}

/// The new replicas, in the format of `reassign-partitions`.
pub(super) fn assignment(image: &Image, plan: &Plan) -> Value {
    let replicas = plan.changes.iter().map(|change| {
        let it = &image.partitions[change.partition];
        ((it.topic.clone(), it.number), change.replicas.clone())
    });
    to_json(&replicas.collect(), &BTreeMap::new())
}

pub(super) fn json(image: &Image, plan: &Plan, throttle: Option<u64>) -> Value {
    let load = |it: &BrokerLoad| {
        json!({
            "replicas": it.replicas,
            "leaders": it.leaders,
            "bytes_in_per_second": it.bytes_in,
            "bytes": it.bytes,
            "disk_percent": it.disk_percent,
        })
    };
    let brokers = image.brokers.iter().zip(&plan.brokers);
    let brokers = brokers.map(|(broker, (before, after))| {
        json!({
            "broker": broker.id,
            "rack": broker.rack,
            "before": load(before),
            "after": load(after),
        })
    });
    let changes = plan.changes.iter().map(|change| {
        let it = &image.partitions[change.partition];
        json!({
            "topic": it.topic,
            "partition": it.number,
            "replicas": change.replicas,
            "adding": change.added,
            "removing": change.removed,
            "bytes": it.size_bytes * change.added.len() as u64,
            "changes_leader": change.changes_leader,
        })
    });
    json!({
        "version": 1,
        "moves": plan.moves(),
        "elections": elections(plan),
        "bytes": plan.cost.bytes(),
        "throttle": throttle,
        "seconds_at_least": throttle.map(|throttle| plan.cost.seconds_at(throttle)),
        "brokers": brokers.collect::<Vec<_>>(),
        "changes": changes.collect::<Vec<_>>(),
        "not_reached": plan.unmet.iter().map(|it| unmet(image, it)).collect::<Vec<_>>(),
    })
}

fn elections(plan: &Plan) -> usize {
    plan.changes.iter().filter(|it| it.changes_leader).count()
}

pub(super) fn print(image: &Image, options: &Options, plan: &Plan, surroundings: &Surroundings) {
    let sections = sections(image, options, plan, surroundings).into_iter();
    let sections = sections.filter(|lines| !lines.is_empty());
    let sections: Vec<String> = sections.map(|lines| lines.join("\n")).collect();
    println!("{}", sections.join("\n\n"));
}

/// The parts of the text, which blank lines separate.
fn sections(
    image: &Image,
    options: &Options,
    plan: &Plan,
    surroundings: &Surroundings,
) -> Vec<Vec<String>> {
    let replicas: usize = image.partitions.iter().map(|it| it.replicas.len()).sum();
    let size = format!(
        "{}, {} with {}",
        counted(image.brokers.len(), "broker"),
        counted(image.partitions.len(), "partition"),
        counted(replicas, "replica")
    );
    let mut sections = vec![
        vec![size],
        table(image, plan),
        summary(image, plan, surroundings),
    ];
    let warnings = warnings(image, plan, surroundings).into_iter();
    sections.extend(warnings.map(|line| vec![format!("Warning: {line}")]));
    if !plan.unmet.is_empty() {
        let mut lines = vec!["Not reached:".to_owned()];
        let listed = plan.unmet.iter().take(LISTED);
        lines.extend(listed.map(|it| format!("  {}", unmet(image, it))));
        if let Some(more @ 1..) = plan.unmet.len().checked_sub(LISTED) {
            lines.push(format!("  and {more} more; --json prints all"));
        }
        sections.push(lines);
    }
    sections.push(vec![match plan.changes.is_empty() {
        true => nothing_to_do(image, options, plan),
        false => next_step(surroundings),
    }]);
    sections
}

fn nothing_to_do(image: &Image, options: &Options, plan: &Plan) -> String {
    let tolerance = options.tolerance_percent;
    if !plan.unmet.is_empty() {
        return "Nothing to do: no move comes nearer to these goals.".to_owned();
    }
    match leaderless(image).len() {
        0 if image.brokers.len() == 1 => {
            "Nothing to do: the cluster has no other broker.".to_owned()
        }
        0 => format!("Nothing to do: every goal is reached within {tolerance} %."),
        count => format!(
            "Nothing to move: every goal is reached within {tolerance} %, but {} without a leader.",
            match count {
                1 => "1 partition is".to_owned(),
                _ => format!("{count} partitions are"),
            }
        ),
    }
}

fn next_step(surroundings: &Surroundings) -> String {
    let Some(path) = surroundings.written else {
        return "Nothing was changed or written; --plan FILE writes the plan for apply.".to_owned();
    };
    let throttle = surroundings
        .throttle
        .map_or("-1".to_owned(), |it| it.to_string());
    format!(
        "Nothing was changed. To carry out the plan:\n  ottla rebalance apply {} --plan {} --throttle {throttle}",
        surroundings.cluster,
        shell_word(&path.display().to_string())
    )
}

fn leaderless(image: &Image) -> Vec<String> {
    let partitions = image.partitions.iter();
    let leaderless = partitions.filter(|it| it.leader.is_none());
    leaderless.map(ottla_rebalance::Partition::name).collect()
}

/// A column: its title, and for each broker the values before and after.
type Column = (String, Vec<(String, String)>);

fn table(image: &Image, plan: &Plan) -> Vec<String> {
    let both = |value: &dyn Fn(&BrokerLoad) -> String| -> Vec<(String, String)> {
        let brokers = plan.brokers.iter();
        brokers
            .map(|(before, after)| (value(before), value(after)))
            .collect()
    };
    let scaled = |title: &str, per: &str, value: fn(&BrokerLoad) -> u64| -> Column {
        let (unit, factor) = unit_of(
            plan.brokers
                .iter()
                .flat_map(|(before, after)| [value(before), value(after)]),
        );
        let values = both(&|it| in_unit(value(it), factor));
        (format!("{title}, {unit}{per}"), values)
    };
    let fixed = |title: &str, value: &dyn Fn(usize) -> String| -> Column {
        let values = (0..image.brokers.len()).map(|at| (value(at), value(at)));
        (title.to_owned(), values.collect())
    };
    let mut columns = vec![fixed("BROKER", &|at| image.brokers[at].id.to_string())];
    if image.brokers.iter().any(|it| it.rack.is_some()) {
        columns.push(fixed("RACK", &|at| {
            image.brokers[at].rack.clone().unwrap_or_default()
        }));
    }
    columns.push(("REPLICAS".to_owned(), both(&|it| it.replicas.to_string())));
    columns.push(("LEADERS".to_owned(), both(&|it| it.leaders.to_string())));
    if plan
        .brokers
        .iter()
        .any(|(before, after)| before.bytes_in + after.bytes_in > 0)
    {
        columns.push(scaled("IN", "/s", |it| it.bytes_in));
    }
    columns.push(scaled("DATA", "", |it| it.bytes));
    if plan
        .brokers
        .iter()
        .any(|(before, _)| before.disk_percent.is_some())
    {
        let percent = |it: &BrokerLoad| it.disk_percent.map_or("-".to_owned(), |it| it.to_string());
        columns.push(("DISK, %".to_owned(), both(&percent)));
    }
    lines(&columns)
}

fn lines(columns: &[Column]) -> Vec<String> {
    let cells: Vec<Vec<String>> = columns
        .iter()
        .map(|(title, values)| {
            let width = values
                .iter()
                .map(|(before, _)| before.chars().count())
                .max()
                .unwrap_or(0);
            let cell = |(before, after): &(String, String)| match before == after {
                true => before.clone(),
                false => format!("{before:>width$} → {after}"),
            };
            std::iter::once(title.clone())
                .chain(values.iter().map(cell))
                .collect()
        })
        .collect();
    let rows = (0..cells.first().map_or(0, Vec::len)).map(|row| {
        let cells = cells.iter().map(|column| column[row].clone());
        cells.collect::<Vec<String>>()
    });
    columns::lines(&rows.collect::<Vec<_>>(), "  ")
}

fn summary(image: &Image, plan: &Plan, surroundings: &Surroundings) -> Vec<String> {
    let mut lines = Vec::new();
    if plan.changes.is_empty() {
        return lines;
    }
    let moving = plan
        .changes
        .iter()
        .filter(|it| !it.added.is_empty())
        .count();
    lines.push(format!(
        "Moves:    {} of {}, {}",
        counted(plan.moves(), "replica"),
        counted(moving, "partition"),
        bytes(plan.cost.bytes())
    ));
    lines.push(format!(
        "Leaders:  {} to change, with their moves or by election",
        elections(plan)
    ));
    if let Some((broker, traffic)) = plan.cost.busiest().filter(|(_, it)| it.most() > 0) {
        let does = match traffic.received_bytes >= traffic.sent_bytes {
            true => "receives",
            false => "sends",
        };
        let most = format!("broker {broker} {does} {}", bytes(traffic.most()));
        lines.push(match surroundings.throttle {
            Some(throttle) => format!(
                "Time:     at least {} at {}/s: {most}",
                duration(plan.cost.seconds_at(throttle)),
                bytes(throttle)
            ),
            None => format!("Time:     without a limit; {most}"),
        });
    }
    let mut moves: Vec<_> = plan
        .changes
        .iter()
        .filter(|it| !it.added.is_empty())
        .collect();
    moves.sort_by_key(|it| {
        (
            Reverse(image.partitions[it.partition].size_bytes),
            it.partition,
        )
    });
    if moves.is_empty() {
        return lines;
    }
    let column = |title: &str, cell: &dyn Fn(&ottla_rebalance::Change) -> String| -> Column {
        let cells = moves.iter().take(LISTED).map(|it| (cell(it), cell(it)));
        (title.to_owned(), cells.collect())
    };
    lines.push(String::new());
    lines.extend(self::lines(&[
        column("PARTITION", &|it| image.partitions[it.partition].name()),
        column("SIZE", &|it| {
            bytes(image.partitions[it.partition].size_bytes)
        }),
        column("FROM", &|it| ids(&it.removed)),
        column("TO", &|it| ids(&it.added)),
        column("REPLICAS THEN", &|it| ids(&it.replicas)),
    ]));
    if let Some(more @ 1..) = moves.len().checked_sub(LISTED) {
        lines.push(format!("and {more} more"));
    }
    lines
}

fn warnings(image: &Image, plan: &Plan, surroundings: &Surroundings) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(throttle) = surroundings.throttle {
        let outrun = plan.cost.outrun_at(throttle, MOVES_PER_BROKER as usize);
        if let Some((broker, written)) = outrun.first() {
            warnings.push(format!(
                "producers write {}/s to {MOVES_PER_BROKER} partitions that broker {broker} may copy at the same time, as \
                 much as --throttle {throttle} allows; raise it, or lower --max-moves-per-broker of apply, or the moves \
                 may never end",
                bytes(*written)
            ));
        }
    }
    if surroundings.sample_seconds == 0 {
        warnings
            .push("bytes in were not measured (--sample 0), so that goal is left out".to_owned());
    }
    let silent = image
        .brokers
        .iter()
        .filter(|it| it.is_alive && it.log_dirs.iter().any(|dir| dir.total_bytes.is_none()));
    let silent: Vec<i32> = silent.map(|it| it.id).collect();
    if !silent.is_empty() {
        warnings.push(format!(
            "--max-disk-used does not apply to brokers that do not report the size of their disks: {}",
            ids(&silent)
        ));
    }
    let dead: Vec<i32> = image
        .brokers
        .iter()
        .filter(|it| !it.is_alive)
        .map(|it| it.id)
        .collect();
    if !dead.is_empty() {
        warnings.push(format!(
            "brokers that do not run: {}; their replicas stay, unless --empty-brokers names them",
            ids(&dead)
        ));
    }
    let leaderless = leaderless(image);
    if let Some(first) = leaderless.first() {
        warnings.push(format!(
            "{} without a leader cannot move, {first} first; start the brokers that have their replicas",
            counted(leaderless.len(), "partition")
        ));
    }
    warnings
}

fn unmet(image: &Image, unmet: &Unmet) -> String {
    let range = |lower: &dyn std::fmt::Display, upper: &dyn std::fmt::Display| {
        format!("the goal is {lower} to {upper}")
    };
    match unmet {
        Unmet::Racks { partitions, first } => format!(
            "racks: {} with more replicas in one rack than needed, {} first",
            counted(*partitions, "partition"),
            image.partitions[*first].name()
        ),
        Unmet::Disk { broker, percent } => {
            format!("disk: broker {broker} stays {percent} % full; --max-disk-used is the limit")
        }
        Unmet::Replicas {
            broker,
            has,
            lower,
            upper,
        } => {
            format!(
                "replicas: broker {broker} has {has}; {}",
                range(lower, upper)
            )
        }
        Unmet::Leaders {
            broker,
            has,
            lower,
            upper,
        } => {
            format!(
                "leaders: broker {broker} has {has}; {}",
                range(lower, upper)
            )
        }
        Unmet::BytesIn {
            broker,
            has,
            lower,
            upper,
        } => format!(
            "bytes in: broker {broker} has {}/s; {}/s",
            bytes(*has),
            range(&bytes(*lower), &bytes(*upper))
        ),
    }
}

#[cfg(test)]
mod tests {
    use ottla_rebalance::{Broker, LogDir, Partition, Replica, plan};

    use super::*;

    /// Three brokers in racks, all partitions on the first.
    fn skewed() -> (Image, Plan) {
        let broker = |id: i32| Broker {
            id,
            rack: Some(format!("europe-{id}")),
            is_alive: true,
            log_dirs: vec![LogDir {
                total_bytes: Some(1_000_000_000_000),
                used_bytes: 300_000_000_000,
                accepts_replicas: true,
            }],
        };
        let partition = |number: i32| Partition {
            topic: "orders".to_owned(),
            number,
            replicas: vec![Replica {
                broker: 1,
                log_dir: Some(0),
                is_in_sync: true,
            }],
            leader: Some(1),
            size_bytes: 2_000_000_000,
            bytes_in: 1_500_000,
            is_movable: true,
        };
        let image = Image {
            brokers: (1..=3).map(broker).collect(),
            partitions: (0..24).map(partition).collect(),
        };
        let plan = plan(&image, &Options::default()).unwrap();
        (image, plan)
    }

    #[test]
    fn the_table_fits_a_narrow_terminal() {
        let (image, plan) = skewed();
        let lines = table(&image, &plan);
        assert_eq!(
            lines,
            [
                "BROKER  RACK      REPLICAS  LEADERS  IN, MB/s     DATA, GB     DISK, %",
                "1       europe-1  24 → 9    24 → 9   36.0 → 13.5  48.0 → 18.0  30 → 27",
                "2       europe-2   0 → 8     0 → 8    0.0 → 12.0   0.0 → 16.0  30 → 31",
                "3       europe-3   0 → 7     0 → 7    0.0 → 10.5   0.0 → 14.0  30 → 31",
            ]
        );
        assert!(lines.iter().all(|line| line.chars().count() <= 80));
    }

    #[test]
    fn the_report_has_bytes_and_duration() {
        let (image, plan) = skewed();
        let surroundings = Surroundings {
            throttle: Some(50_000_000),
            sample_seconds: 10,
            written: None,
            cluster: "--bootstrap-server 127.0.0.1:9092",
        };
        let lines = summary(&image, &plan, &surroundings);
        assert_eq!(
            lines[..3],
            [
                "Moves:    15 replicas of 15 partitions, 30.0 GB",
                "Leaders:  15 to change, with their moves or by election",
                "Time:     at least 10 min 0 s at 50.0 MB/s: broker 1 sends 30.0 GB",
            ]
        );
        assert_eq!(lines.last().unwrap(), "and 5 more");
        assert!(warnings(&image, &plan, &surroundings).is_empty());
        // All partitions that broker 2 receives have more, but they do not move at the same time.
        let enough = Surroundings {
            throttle: Some(8_000_000),
            ..surroundings
        };
        assert!(warnings(&image, &plan, &enough).is_empty());
        let slow = Surroundings {
            throttle: Some(1_000_000),
            sample_seconds: 0,
            ..surroundings
        };
        let warnings = warnings(&image, &plan, &slow);
        assert!(
            warnings[0].starts_with("producers write 7.5 MB/s to 5 partitions that broker 1"),
            "{warnings:?}"
        );
        assert!(warnings[1].starts_with("bytes in were not measured"));
        let json = json(&image, &plan, Some(50_000_000));
        assert_eq!(
            (json["moves"].as_u64(), json["seconds_at_least"].as_u64()),
            (Some(15), Some(600))
        );
        assert_eq!(json["brokers"][0]["after"]["replicas"], 9);
        assert_eq!(
            assignment(&image, &plan)["partitions"]
                .as_array()
                .map(Vec::len),
            Some(15)
        );
    }

    #[test]
    fn a_balanced_cluster_is_reported_unless_leaders_are_missing() {
        let (mut image, mut plan) = skewed();
        plan.changes.clear();
        plan.unmet.clear();
        let surroundings = Surroundings {
            throttle: None,
            sample_seconds: 10,
            written: None,
            cluster: "--bootstrap-server b:1",
        };
        let last = |image: &Image| {
            let mut sections = sections(image, &Options::default(), &plan, &surroundings);
            sections.pop().unwrap().remove(0)
        };
        assert!(last(&image).starts_with("Nothing to do: every goal is reached within "));
        let mut alone = image.clone();
        alone.brokers.truncate(1);
        assert_eq!(
            last(&alone),
            "Nothing to do: the cluster has no other broker."
        );
        image.partitions[3].leader = None;
        let text = last(&image);
        assert!(
            text.ends_with(", but 1 partition is without a leader."),
            "{text}"
        );
    }

    #[test]
    fn unreached_goals_are_listed() {
        let (image, _) = skewed();
        for (it, text) in [
            (
                Unmet::Racks {
                    partitions: 2,
                    first: 7,
                },
                "racks: 2 partitions with more replicas in one rack than needed, orders-7 first",
            ),
            (
                Unmet::Disk {
                    broker: 1,
                    percent: 91,
                },
                "disk: broker 1 stays 91 % full; --max-disk-used is the limit",
            ),
            (
                Unmet::Leaders {
                    broker: 1,
                    has: 9,
                    lower: 3,
                    upper: 5,
                },
                "leaders: broker 1 has 9; the goal is 3 to 5",
            ),
            (
                Unmet::BytesIn {
                    broker: 1,
                    has: 2_000,
                    lower: 0,
                    upper: 1_000,
                },
                "bytes in: broker 1 has 2.0 kB/s; the goal is 0 bytes to 1.0 kB/s",
            ),
        ] {
            assert_eq!(unmet(&image, &it), text);
        }
    }
}
