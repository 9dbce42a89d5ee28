//! `--describe`: offsets and lag, members, or state of groups.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::admin::{CommittedOffset, DescribedConsumerGroup, GroupMember, OffsetSpec};
use ottla_client::{Admin, BrokerNode};

use super::{ConsumerGroupsArgs, MISSING, Table, chosen_groups};

pub(super) async fn describe(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let mut groups = Vec::new();
    for group in chosen_groups(args, admin).await? {
        groups.push(admin.describe_consumer_group(&group).await?);
    }
    groups.sort_by(|left, right| left.group_id.cmp(&right.group_id));
    for group in &groups {
        if args.members {
            print_members(group, args.verbose);
        } else if args.state.is_some() {
            print_state(group, args.verbose);
        } else {
            print_offsets(admin, group, args.verbose).await?;
        }
    }
    Ok(())
}

/// Says what state keeps a group from being shown as usual; false where there is nothing to show.
fn announce(group: &DescribedConsumerGroup, rows: usize) -> bool {
    let id = &group.group_id;
    match group.state.as_str() {
        "Dead" => println!("\nError: Consumer group '{id}' does not exist."),
        "Empty" => eprintln!("\nConsumer group '{id}' has no active members."),
        "PreparingRebalance" | "CompletingRebalance" | "Assigning" | "Reconciling" => {
            eprintln!("\nWarning: Consumer group '{id}' is rebalancing.");
        }
        _ => {}
    }
    group.state != "Dead" && rows > 0
}

/// One line of the table of offsets.
struct Row<'a> {
    topic: String,
    partition: i32,
    member: Option<&'a GroupMember>,
}

async fn print_offsets(
    admin: &Admin,
    group: &DescribedConsumerGroup,
    verbose: bool,
) -> anyhow::Result<()> {
    let committed = admin.committed_offsets(&group.group_id).await?;
    let mut rows = Vec::new();
    let mut assigned = BTreeSet::new();
    let mut members: Vec<&GroupMember> = group
        .members
        .iter()
        .filter(|member| !member.assignment.is_empty())
        .collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.assignment.len()));
    for member in members {
        let partitions: BTreeSet<&(String, i32)> = member.assignment.iter().collect();
        for (topic, partition) in partitions {
            assigned.insert((topic.clone(), *partition));
            rows.push(Row {
                topic: topic.clone(),
                partition: *partition,
                member: Some(member),
            });
        }
    }
    for (topic, partition) in committed.keys() {
        if !assigned.contains(&(topic.clone(), *partition)) {
            rows.push(Row {
                topic: topic.clone(),
                partition: *partition,
                member: None,
            });
        }
    }
    if !announce(group, rows.len()) {
        return Ok(());
    }
    let ends = log_end_offsets(admin, &rows).await;
    let mut columns = vec![
        ("GROUP", 15, true),
        ("TOPIC", 15, true),
        ("PARTITION", 10, false),
    ];
    if verbose {
        columns.push(("LEADER-EPOCH", 15, false));
    }
    columns.extend([
        ("CURRENT-OFFSET", 15, false),
        ("LOG-END-OFFSET", 15, false),
        ("LAG", 15, false),
        ("CONSUMER-ID", 15, true),
        ("HOST", 15, true),
        ("CLIENT-ID", 0, false),
    ]);
    let mut table = Table::new(&columns);
    for row in &rows {
        let partition = (row.topic.clone(), row.partition);
        table.row(cells(
            group,
            row,
            committed.get(&partition),
            ends.get(&partition),
            verbose,
        ));
    }
    table.print_apart();
    Ok(())
}

fn cells(
    group: &DescribedConsumerGroup,
    row: &Row<'_>,
    committed: Option<&CommittedOffset>,
    end: Option<&i64>,
    verbose: bool,
) -> Vec<String> {
    let or_missing = |text: Option<String>| text.unwrap_or_else(|| MISSING.to_owned());
    let offset = committed.map(|committed| committed.offset);
    let lag = offset
        .filter(|offset| *offset != -1)
        .zip(end)
        .map(|(offset, end)| end - offset);
    let mut cells = vec![
        group.group_id.clone(),
        row.topic.clone(),
        row.partition.to_string(),
    ];
    if verbose {
        let epoch = committed
            .map(|it| it.leader_epoch)
            .filter(|epoch| *epoch >= 0);
        cells.push(or_missing(epoch.map(|epoch| epoch.to_string())));
    }
    cells.extend([
        or_missing(offset.map(|offset| offset.to_string())),
        or_missing(end.map(|end| end.to_string())),
        or_missing(lag.map(|lag| lag.to_string())),
        or_missing(row.member.map(|member| member.member_id.clone())),
        or_missing(row.member.map(|member| member.host.clone())),
        or_missing(row.member.map(|member| member.client_id.clone())),
    ]);
    cells
}

/// The ends of the partitions that have a leader to ask.
async fn log_end_offsets(admin: &Admin, rows: &[Row<'_>]) -> BTreeMap<(String, i32), i64> {
    let mut names: Vec<String> = rows.iter().map(|row| row.topic.clone()).collect();
    names.sort_unstable();
    names.dedup();
    let Ok(metadata) = admin.client().refresh_metadata(Some(&names), false).await else {
        return BTreeMap::new();
    };
    let with_leader: Vec<(String, i32)> = rows
        .iter()
        .filter(|row| metadata.leader(&row.topic, row.partition).is_some())
        .map(|row| (row.topic.clone(), row.partition))
        .collect();
    let listed = admin
        .list_offsets(&with_leader, OffsetSpec::Latest, false)
        .await;
    listed
        .into_iter()
        .filter_map(|(key, listed)| Some((key, listed.ok()?.offset)))
        .collect()
}

fn print_members(group: &DescribedConsumerGroup, verbose: bool) {
    announce(group, group.members.len());
    let with_instances = group
        .members
        .iter()
        .any(|member| member.group_instance_id.is_some());
    let has = |upgraded: bool| group.members.iter().any(|it| it.upgraded == Some(upgraded));
    let is_migrating = has(true) && has(false);
    let mut columns = vec![("GROUP", 15, true), ("CONSUMER-ID", 15, true)];
    if with_instances {
        columns.push(("GROUP-INSTANCE-ID", 17, true));
    }
    columns.extend([
        ("HOST", 15, true),
        ("CLIENT-ID", 15, true),
        ("#PARTITIONS", 15, false),
    ]);
    if verbose {
        columns.extend([
            ("CURRENT-EPOCH", 15, false),
            ("CURRENT-ASSIGNMENT", 20, true),
            ("TARGET-EPOCH", 15, false),
            ("TARGET-ASSIGNMENT", 20, true),
        ]);
        if is_migrating {
            columns.push(("UPGRADED", 0, false));
        }
    } else {
        // Kafka's format ends with a blank here.
        columns.push(("", 0, false));
    }
    let mut table = Table::new(&columns);
    if verbose && !is_migrating {
        table = table.pad_last();
    }
    for member in &group.members {
        let mut cells = vec![group.group_id.clone(), member.member_id.clone()];
        if with_instances {
            cells.push(member.group_instance_id.clone().unwrap_or_default());
        }
        cells.extend([
            member.host.clone(),
            member.client_id.clone(),
            member.assignment.len().to_string(),
        ]);
        if verbose {
            let number =
                |number: Option<i32>| number.map_or(MISSING.to_owned(), |it| it.to_string());
            cells.extend([
                number(member.member_epoch),
                assignment(&member.assignment),
                number(group.target_assignment_epoch),
                assignment(member.target_assignment.as_deref().unwrap_or_default()),
            ]);
            if is_migrating {
                cells.push(
                    member
                        .upgraded
                        .map_or(MISSING.to_owned(), |it| it.to_string()),
                );
            }
        } else {
            cells.push(String::new());
        }
        table.row(cells);
    }
    table.print_apart();
}

/// `topic:0,1;other:2`
pub(in crate::tools) fn assignment(partitions: &[(String, i32)]) -> String {
    let mut by_topic: BTreeMap<&str, BTreeSet<i32>> = BTreeMap::new();
    for (topic, partition) in partitions {
        by_topic.entry(topic).or_default().insert(*partition);
    }
    if by_topic.is_empty() {
        return MISSING.to_owned();
    }
    let topics: Vec<String> = by_topic
        .into_iter()
        .map(|(topic, partitions)| {
            let numbers: Vec<String> = partitions.iter().map(ToString::to_string).collect();
            format!("{topic}:{}", numbers.join(","))
        })
        .collect();
    topics.join(";")
}

/// `host:port  (id)`
pub(in crate::tools) fn shown_coordinator(node: &BrokerNode) -> String {
    format!("{}:{}  ({})", node.host, node.port, node.id)
}

fn print_state(group: &DescribedConsumerGroup, verbose: bool) {
    if !announce(group, 1) {
        return;
    }
    let coordinator = shown_coordinator(&group.coordinator);
    let mut columns = vec![
        ("GROUP", 15, true),
        ("COORDINATOR (ID)", 25, true),
        ("ASSIGNMENT-STRATEGY", 20, false),
        ("STATE", 20, false),
    ];
    if verbose {
        columns.extend([
            ("GROUP-EPOCH", 15, false),
            ("TARGET-ASSIGNMENT-EPOCH", 25, false),
        ]);
    }
    columns.push(("#MEMBERS", 0, false));
    let mut table = Table::new(&columns);
    let strategy = if group.assignor.is_empty() {
        MISSING
    } else {
        &group.assignor
    };
    let mut cells = vec![
        group.group_id.clone(),
        coordinator,
        strategy.to_owned(),
        group.state.clone(),
    ];
    if verbose {
        let number = |number: Option<i32>| number.map_or(MISSING.to_owned(), |it| it.to_string());
        cells.extend([
            number(group.group_epoch),
            number(group.target_assignment_epoch),
        ]);
    }
    cells.push(group.members.len().to_string());
    table.row(cells);
    table.print_apart();
}

#[cfg(test)]
mod tests {
    use super::assignment;

    #[test]
    fn assignments_are_sorted() {
        let partitions = [
            ("b".to_owned(), 10),
            ("a".to_owned(), 1),
            ("b".to_owned(), 2),
            ("a".to_owned(), 0),
        ];
        assert_eq!(assignment(&partitions), "a:0,1;b:2,10");
        assert_eq!(assignment(&[]), "-");
    }
}
