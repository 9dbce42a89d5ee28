//! `--describe`: offsets and lag, members, or state of share groups.

use ottla_client::admin::SharePartitionOffset;
use ottla_client::{Admin, BrokerNode};
use ottla_protocol::messages::share_group_describe_response::{DescribedGroup, Member};

use super::{ShareGroupsArgs, chosen_groups};
use crate::tools::consumer_groups::describe::{assignment, shown_coordinator};
use crate::tools::consumer_groups::table::{Table, shown};
use crate::tools::offset_reset::Partition;

pub(super) async fn describe(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let mut groups = Vec::new();
    for group in chosen_groups(args, admin).await? {
        groups.push(admin.describe_share_group(&group).await?);
    }
    groups.sort_by(|(left, _), (right, _)| left.group_id.cmp(&right.group_id));
    for (group, coordinator) in &groups {
        if args.common.members {
            print_members(group, args.common.verbose);
        } else if args.common.state.is_some() {
            print_state(group, coordinator, args.common.verbose);
        } else {
            print_offsets(admin, group, args.common.verbose).await?;
        }
    }
    Ok(())
}

/// Prints a message about a state that affects the output; returns false if there is nothing to
/// print.
fn announce(group: &DescribedGroup, rows: usize) -> bool {
    let id = &group.group_id;
    match &*group.group_state {
        "Dead" => println!("\nError: Share group '{id}' does not exist."),
        "Empty" => eprintln!("\nShare group '{id}' has no active members."),
        _ => {}
    }
    &*group.group_state != "Dead" && rows > 0
}

async fn print_offsets(admin: &Admin, group: &DescribedGroup, verbose: bool) -> anyhow::Result<()> {
    let offsets = admin.share_group_offsets(&group.group_id).await?;
    if offsets.is_empty() {
        println!(
            "\nShare group '{}' has no offset information.",
            group.group_id
        );
        return Ok(());
    }
    type Row = (Partition, Option<SharePartitionOffset>);
    let rows: Vec<Row> = offsets.into_iter().collect();
    let mut table = Table::<Row>::new();
    table.growing("GROUP", 15, |_| &*group.group_id);
    table.growing("TOPIC", 15, |((topic, _), _)| topic.clone());
    table.fixed("PARTITION", 10, |((_, partition), _)| *partition);
    if verbose {
        table.fixed("LEADER-EPOCH", 13, |(_, it)| {
            shown(it.and_then(|it| it.leader_epoch))
        });
    }
    table.fixed("START-OFFSET", 13, |(_, it)| {
        shown(it.map(|it| it.start_offset))
    });
    table.fixed("LAG", 0, |(_, it)| shown(it.and_then(|it| it.lag)));
    table.print_apart(&rows);
    Ok(())
}

fn print_members(group: &DescribedGroup, verbose: bool) {
    if !announce(group, group.members.len()) {
        return;
    }
    let mut members: Vec<(&Member, Vec<Partition>)> = Vec::new();
    for member in &group.members {
        let mut partitions = Vec::new();
        for topic in &member.assignment.topic_partitions {
            let numbers = topic.partitions.iter();
            partitions.extend(numbers.map(|number| (topic.topic_name.to_string(), *number)));
        }
        members.push((member, partitions));
    }
    members.sort_by(|(left, _), (right, _)| left.member_id.cmp(&right.member_id));
    let mut table = Table::<(&Member, Vec<Partition>)>::new();
    table.growing("GROUP", 15, |_| &*group.group_id);
    table.growing("CONSUMER-ID", 15, |(it, _)| it.member_id.clone());
    table.growing("HOST", 15, |(it, _)| it.client_host.clone());
    table.growing("CLIENT-ID", 15, |(it, _)| it.client_id.clone());
    table.fixed("#PARTITIONS", 12, |(_, partitions)| partitions.len());
    if verbose {
        table.fixed("MEMBER-EPOCH", 13, |(it, _)| it.member_epoch);
    }
    // A member without partitions has an empty assignment; the consumer groups tool prints a dash.
    table.fixed("ASSIGNMENT", 0, |(_, partitions)| {
        let partitions = Some(partitions).filter(|it| !it.is_empty());
        partitions.map_or_else(String::new, |it| assignment(it))
    });
    table.print_apart(&members);
}

fn print_state(group: &DescribedGroup, coordinator: &BrokerNode, verbose: bool) {
    announce(group, 1);
    let mut table = Table::<DescribedGroup>::new();
    table.growing("GROUP", 15, |it| it.group_id.clone());
    table.growing("COORDINATOR (ID)", 25, |_| shown_coordinator(coordinator));
    table.fixed("STATE", 15, |it| it.group_state.clone());
    if verbose {
        table.fixed("GROUP-EPOCH", 12, |it| it.group_epoch);
        table.fixed("ASSIGNMENT-EPOCH", 17, |it| it.assignment_epoch);
    }
    table.fixed("#MEMBERS", 0, |it| it.members.len());
    table.print_apart(std::slice::from_ref(group));
}
