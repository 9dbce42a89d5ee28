//! `--describe`: offsets and lag, members, or state of groups.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::admin::{DescribedConsumerGroup, GroupMember, OffsetSpec};
use ottla_client::{Admin, BrokerNode};

use super::table::{MISSING, Table, shown};
use super::{ConsumerGroupsArgs, chosen_groups};
use crate::tools::java_text::joined;
use crate::tools::offset_reset::Partition;

pub(super) async fn describe(args: &ConsumerGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let mut groups = Vec::new();
    for group in chosen_groups(args, admin).await? {
        groups.push(admin.describe_consumer_group(&group).await?);
    }
    groups.sort_by(|left, right| left.group_id.cmp(&right.group_id));
    for group in &groups {
        if args.common.members {
            print_members(group, args.common.verbose);
        } else if args.common.state.is_some() {
            print_state(group, args.common.verbose);
        } else {
            print_offsets(admin, group, args.common.verbose).await?;
        }
    }
    Ok(())
}

/// Prints a message about a state that affects the output; returns false if there is nothing to
/// print.
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

/// A row of the offsets table.
struct Row<'a> {
    partition: Partition,
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
    let members = group.members.iter();
    let mut members: Vec<&GroupMember> = members.filter(|it| !it.assignment.is_empty()).collect();
    members.sort_by_key(|member| std::cmp::Reverse(member.assignment.len()));
    for member in members {
        let partitions: BTreeSet<&Partition> = member.assignment.iter().collect();
        rows.extend(partitions.iter().map(|partition| Row {
            partition: (*partition).clone(),
            member: Some(member),
        }));
        assigned.extend(partitions);
    }
    let others = committed.keys().filter(|it| !assigned.contains(it));
    rows.extend(others.map(|partition| Row {
        partition: partition.clone(),
        member: None,
    }));
    if !announce(group, rows.len()) {
        return Ok(());
    }
    let ends = log_end_offsets(admin, &rows).await;
    let end = |row: &Row<'_>| ends.get(&row.partition).copied();
    let committed = |row: &Row<'_>| committed.get(&row.partition);
    let offset = |row: &Row<'_>| committed(row).map(|committed| committed.offset);
    let mut table = Table::<Row<'_>>::new();
    table.growing("GROUP", 15, |_| &group.group_id);
    table.growing("TOPIC", 15, |row| row.partition.0.clone());
    table.fixed("PARTITION", 10, |row| row.partition.1);
    if verbose {
        table.fixed("LEADER-EPOCH", 15, |row| {
            let epoch = committed(row).map(|it| it.leader_epoch);
            shown(epoch.filter(|epoch| *epoch >= 0))
        });
    }
    table.fixed("CURRENT-OFFSET", 15, |row| shown(offset(row)));
    table.fixed("LOG-END-OFFSET", 15, |row| shown(end(row)));
    table.fixed("LAG", 15, |row| {
        let offset = offset(row).filter(|offset| *offset != -1);
        shown(end(row).zip(offset).map(|(end, offset)| end - offset))
    });
    table.growing("CONSUMER-ID", 15, |row| {
        shown(row.member.map(|it| &it.member_id))
    });
    table.growing("HOST", 15, |row| shown(row.member.map(|it| &it.host)));
    table.fixed("CLIENT-ID", 0, |row| {
        shown(row.member.map(|it| &it.client_id))
    });
    table.print_apart(&rows);
    Ok(())
}

/// The log end offsets of the partitions with a leader.
async fn log_end_offsets(admin: &Admin, rows: &[Row<'_>]) -> BTreeMap<Partition, i64> {
    let partitions = rows.iter().map(|row| &row.partition);
    let mut names: Vec<String> = partitions.clone().map(|(topic, _)| topic.clone()).collect();
    names.sort_unstable();
    names.dedup();
    let Ok(metadata) = admin.client().refresh_metadata(Some(&names), false).await else {
        return BTreeMap::new();
    };
    let with_leader = partitions.filter(|it| metadata.leader(&it.0, it.1).is_some());
    let with_leader: Vec<Partition> = with_leader.cloned().collect();
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
    let mut table = Table::<GroupMember>::new();
    table.growing("GROUP", 15, |_| &group.group_id);
    table.growing("CONSUMER-ID", 15, |it| it.member_id.clone());
    if with_instances {
        table.growing("GROUP-INSTANCE-ID", 17, |it| {
            it.group_instance_id.clone().unwrap_or_default()
        });
    }
    table.growing("HOST", 15, |it| it.host.clone());
    table.growing("CLIENT-ID", 15, |it| it.client_id.clone());
    table.fixed("#PARTITIONS", 15, |it| it.assignment.len());
    if verbose {
        table.fixed("CURRENT-EPOCH", 15, |it| shown(it.member_epoch));
        table.growing("CURRENT-ASSIGNMENT", 20, |it| assignment(&it.assignment));
        table.fixed("TARGET-EPOCH", 15, |_| shown(group.target_assignment_epoch));
        table.growing("TARGET-ASSIGNMENT", 20, |it| {
            assignment(it.target_assignment.as_deref().unwrap_or_default())
        });
        if is_migrating {
            table.fixed("UPGRADED", 0, |it| shown(it.upgraded));
        } else {
            table.pad_last();
        }
    } else {
        // Kafka's format string ends with a blank here.
        table.fixed("", 0, |_| "");
    }
    table.print_apart(&group.members);
}

/// Formats `topic:0,1;other:2`.
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
        .map(|(topic, partitions)| format!("{topic}:{}", joined(&partitions)))
        .collect();
    topics.join(";")
}

/// Formats `host:port  (id)`.
pub(in crate::tools) fn shown_coordinator(node: &BrokerNode) -> String {
    format!("{}:{}  ({})", node.host, node.port, node.id)
}

fn print_state(group: &DescribedConsumerGroup, verbose: bool) {
    if !announce(group, 1) {
        return;
    }
    let strategy = Some(&group.assignor).filter(|assignor| !assignor.is_empty());
    let mut table = Table::<DescribedConsumerGroup>::new();
    table.growing("GROUP", 15, |it| it.group_id.clone());
    table.growing("COORDINATOR (ID)", 25, |it| {
        shown_coordinator(&it.coordinator)
    });
    table.fixed("ASSIGNMENT-STRATEGY", 20, |_| shown(strategy));
    table.fixed("STATE", 20, |it| it.state.clone());
    if verbose {
        table.fixed("GROUP-EPOCH", 15, |it| shown(it.group_epoch));
        table.fixed("TARGET-ASSIGNMENT-EPOCH", 25, |it| {
            shown(it.target_assignment_epoch)
        });
    }
    table.fixed("#MEMBERS", 0, |it| it.members.len());
    table.print_apart(std::slice::from_ref(group));
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
