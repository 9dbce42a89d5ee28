//! `--describe`: the lag, members or state of groups.

use ottla_client::Admin;
use ottla_client::admin::DescribedStreamsGroup;
use ottla_protocol::messages::streams_group_describe_response::{
    Assignment, DescribedGroup, Member,
};

use super::offsets::{OffsetsOfPartition, offsets};
use super::{STREAMS, StreamsGroupsArgs, chosen_groups, print_error};
use crate::tools::consumer_groups::table::{Table, shown};
use crate::tools::java_text::joined;

pub(super) async fn describe(args: &StreamsGroupsArgs, admin: &Admin) -> anyhow::Result<()> {
    for group in chosen_groups(args, admin).await? {
        let group = admin.describe_streams_group(&group).await?;
        if args.common.members {
            print_members(&group, args.common.verbose);
        } else if args.common.state.is_some() {
            print_state(&group, args.common.verbose);
        } else {
            let offsets = offsets(admin, &group).await?;
            if has_members(&group) {
                print_offsets(&group, &offsets, args.common.verbose);
            }
        }
    }
    Ok(())
}

/// Whether the group has members; of an empty one only the state is printed.
fn has_members(group: &DescribedStreamsGroup) -> bool {
    &*group.group.group_state != "Dead" && !group.group.members.is_empty()
}

fn print_members(group: &DescribedStreamsGroup, verbose: bool) {
    if !has_members(group) {
        return;
    }
    let topology_epoch = group.topology_epoch;
    let group = &group.group;
    let mut table = Table::<Member>::new();
    table.growing("GROUP", 15, |_| &*group.group_id);
    if verbose {
        table.fixed("TARGET-ASSIGNMENT-EPOCH", 25, |_| group.assignment_epoch);
        // Kafka's tool prints no blank after its column of 15.
        table.fixed("TOPOLOGY-EPOCH", 14, |_| topology_epoch);
    }
    table.growing("MEMBER", 15, |it| it.member_id.clone());
    if verbose {
        table.fixed("MEMBER-PROTOCOL", 15, |it| {
            if it.is_classic { "classic" } else { STREAMS }
        });
        table.fixed("MEMBER-EPOCH", 15, |it| it.member_epoch);
    }
    table.growing("PROCESS", 15, |it| it.process_id.clone());
    table.growing("CLIENT-ID", 15, |it| it.client_id.clone());
    table.fixed("ASSIGNMENTS", 0, |it| {
        let current = tasks(&it.assignment, "");
        if verbose {
            current + &tasks(&it.target_assignment, "TARGET-")
        } else {
            current
        }
    });
    table.print(&group.members);
}

/// Formats `ACTIVE: 0:[0,1]; 1:[2]; STANDBY: 0:[3]; `, with `prefix` before each kind.
fn tasks(assignment: &Assignment, prefix: &str) -> String {
    let mut shown = String::new();
    for (kind, tasks) in [
        ("ACTIVE", &assignment.active_tasks),
        ("STANDBY", &assignment.standby_tasks),
        ("WARMUP", &assignment.warmup_tasks),
    ] {
        if !tasks.is_empty() {
            shown += &format!("{prefix}{kind}: ");
        }
        for tasks in tasks {
            let numbers = joined(&tasks.partitions);
            shown += &format!("{}:[{numbers}]; ", &*tasks.subtopology_id);
        }
    }
    shown
}

fn print_state(group: &DescribedStreamsGroup, verbose: bool) {
    let node = &group.coordinator;
    let group = &group.group;
    let id = &*group.group_id;
    match &*group.group_state {
        "Dead" => print_error(&format!("Streams group '{id}' does not exist.")),
        "Empty" => print_error(&format!("Streams group '{id}' has no active members.")),
        _ => {}
    }
    let mut table = Table::<DescribedGroup>::new();
    table.growing("GROUP", 15, |it| it.group_id.clone());
    table.growing("COORDINATOR (ID)", 25, |_| {
        format!("{}:{} ({})", node.host, node.port, node.id)
    });
    table.fixed("STATE", 25, |it| it.group_state.clone());
    if verbose {
        table.fixed("GROUP-EPOCH", 15, |it| it.group_epoch);
        table.fixed("TARGET-ASSIGNMENT-EPOCH", 25, |it| it.assignment_epoch);
    }
    table.fixed("#MEMBERS", 0, |it| it.members.len());
    table.print(std::slice::from_ref(group));
}

fn print_offsets(group: &DescribedStreamsGroup, offsets: &[OffsetsOfPartition], verbose: bool) {
    let group_id = &*group.group.group_id;
    let mut table = Table::<OffsetsOfPartition>::new();
    // Also without rows, Kafka's tool pads the title for the group's name.
    let width = group_id.chars().count().max(15);
    table.fixed("GROUP", width, |_| group_id);
    table.growing("TOPIC", 15, |it| it.topic.clone());
    table.fixed("PARTITION", 10, |it| it.partition);
    if verbose {
        table.fixed("CURRENT-OFFSET", 15, |it| shown(it.current_offset));
        table.fixed("LEADER-EPOCH", 15, |it| shown(it.leader_epoch));
        table.fixed("LOG-END-OFFSET", 15, |it| it.log_end_offset);
        table.pad_last();
    }
    table.fixed("OFFSET-LAG", 15, |it| it.lag);
    table.print(offsets);
}

#[cfg(test)]
mod tests {
    use ottla_protocol::messages::streams_group_describe_response::TaskIds;

    use super::*;

    #[test]
    fn tasks_are_listed_by_kind() {
        let tasks_of = |subtopology: &str, partitions: &[i32]| TaskIds {
            subtopology_id: subtopology.to_owned().into(),
            partitions: partitions.to_vec(),
            ..Default::default()
        };
        let assignment = Assignment {
            active_tasks: vec![tasks_of("0", &[0, 2]), tasks_of("1", &[1])],
            standby_tasks: vec![tasks_of("1", &[0])],
            ..Default::default()
        };
        assert_eq!(
            tasks(&assignment, ""),
            "ACTIVE: 0:[0,2]; 1:[1]; STANDBY: 1:[0]; "
        );
        assert_eq!(
            tasks(&assignment, "TARGET-"),
            "TARGET-ACTIVE: 0:[0,2]; 1:[1]; TARGET-STANDBY: 1:[0]; "
        );
    }
}
