//! `--describe`: offsets and lag, members, or state of share groups.

use ottla_client::Admin;
use ottla_client::admin::DescribedShareGroup;

use super::{ShareGroupsArgs, Table, chosen_groups};
use crate::tools::consumer_groups::MISSING;
use crate::tools::consumer_groups::describe::{assignment, shown_coordinator};

pub(super) async fn describe(args: &ShareGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    let mut groups = Vec::new();
    for group in chosen_groups(args, admin).await? {
        groups.push(admin.describe_share_group(&group).await?);
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
fn announce(group: &DescribedShareGroup, rows: usize) -> bool {
    let id = &group.group_id;
    match group.state.as_str() {
        "Dead" => println!("\nError: Share group '{id}' does not exist."),
        "Empty" => eprintln!("\nShare group '{id}' has no active members."),
        _ => {}
    }
    group.state != "Dead" && rows > 0
}

async fn print_offsets(
    admin: &Admin,
    group: &DescribedShareGroup,
    verbose: bool,
) -> anyhow::Result<()> {
    let offsets = admin.share_group_offsets(&group.group_id).await?;
    if offsets.is_empty() {
        println!(
            "\nShare group '{}' has no offset information.",
            group.group_id
        );
        return Ok(());
    }
    let mut columns = vec![
        ("GROUP", 15, true),
        ("TOPIC", 15, true),
        ("PARTITION", 10, false),
    ];
    if verbose {
        columns.push(("LEADER-EPOCH", 13, false));
    }
    columns.extend([("START-OFFSET", 13, false), ("LAG", 0, false)]);
    let mut table = Table::new(&columns);
    for ((topic, partition), offset) in offsets {
        let shown = |value: Option<i64>| value.map_or(MISSING.to_owned(), |it| it.to_string());
        let mut cells = vec![group.group_id.clone(), topic, partition.to_string()];
        if verbose {
            let epoch = offset.and_then(|offset| offset.leader_epoch);
            cells.push(shown(epoch.map(i64::from)));
        }
        cells.push(shown(offset.map(|offset| offset.start_offset)));
        cells.push(shown(offset.and_then(|offset| offset.lag)));
        table.row(cells);
    }
    table.print_apart();
    Ok(())
}

fn print_members(group: &DescribedShareGroup, verbose: bool) {
    if !announce(group, group.members.len()) {
        return;
    }
    let mut columns = vec![
        ("GROUP", 15, true),
        ("CONSUMER-ID", 15, true),
        ("HOST", 15, true),
        ("CLIENT-ID", 15, true),
        ("#PARTITIONS", 12, false),
    ];
    if verbose {
        columns.push(("MEMBER-EPOCH", 13, false));
    }
    columns.push(("ASSIGNMENT", 0, false));
    let mut table = Table::new(&columns);
    let mut members: Vec<_> = group.members.iter().collect();
    members.sort_by(|left, right| left.member_id.cmp(&right.member_id));
    for member in members {
        let mut cells = vec![
            group.group_id.clone(),
            member.member_id.clone(),
            member.host.clone(),
            member.client_id.clone(),
            member.assignment.len().to_string(),
        ];
        if verbose {
            cells.push(member.member_epoch.to_string());
        }
        // A member without partitions has an empty one, where a consumer has a dash.
        cells.push(if member.assignment.is_empty() {
            String::new()
        } else {
            assignment(&member.assignment)
        });
        table.row(cells);
    }
    table.print_apart();
}

fn print_state(group: &DescribedShareGroup, verbose: bool) {
    announce(group, 1);
    let coordinator = shown_coordinator(&group.coordinator);
    let mut columns = vec![
        ("GROUP", 15, true),
        ("COORDINATOR (ID)", 25, true),
        ("STATE", 15, false),
    ];
    if verbose {
        columns.extend([("GROUP-EPOCH", 12, false), ("ASSIGNMENT-EPOCH", 17, false)]);
    }
    columns.push(("#MEMBERS", 0, false));
    let mut table = Table::new(&columns);
    let mut cells = vec![group.group_id.clone(), coordinator, group.state.clone()];
    if verbose {
        cells.push(group.group_epoch.to_string());
        cells.push(group.target_assignment_epoch.to_string());
    }
    cells.push(group.members.len().to_string());
    table.row(cells);
    table.print_apart();
}
