//! `--describe`: the lag, members or state of groups.

use ottla_client::Admin;
use ottla_client::admin::DescribedStreamsGroup;
use ottla_protocol::messages::streams_group_describe_response::Assignment;

use super::offsets::{OffsetsOfPartition, offsets};
use super::{STREAMS, StreamsGroupsArgs, chosen_groups, print_error};
use crate::tools::consumer_groups::table::shown;
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

fn width<'a>(least: usize, texts: impl Iterator<Item = &'a str>) -> usize {
    texts.map(str::len).max().unwrap_or(0).max(least)
}

fn print_members(group: &DescribedStreamsGroup, verbose: bool) {
    if !has_members(group) {
        return;
    }
    let topology_epoch = group.topology_epoch;
    let group = &group.group;
    let members = group.members.iter();
    let group_width = group.group_id.len().max(15);
    let member_width = width(15, members.clone().map(|member| &*member.member_id));
    let process_width = width(15, members.clone().map(|member| &*member.process_id));
    let client_width = width(15, members.clone().map(|member| &*member.client_id));
    if !verbose {
        let print = |group: &str, member: &str, process: &str, client: &str, tasks: &str| {
            println!(
                "{group:<group_width$} {member:<member_width$} {process:<process_width$} \
                 {client:<client_width$} {tasks}"
            );
        };
        print("GROUP", "MEMBER", "PROCESS", "CLIENT-ID", "ASSIGNMENTS");
        for member in members {
            let tasks = tasks(&member.assignment, "");
            let (id, process, client) = (&member.member_id, &member.process_id, &member.client_id);
            print(&group.group_id, id, process, client, &tasks);
        }
        return;
    }
    // Kafka's tool prints no blank after the topology epoch.
    let print = |cells: [&str; 9]| {
        let [
            group,
            target,
            topology,
            member,
            protocol,
            epoch,
            process,
            client,
            tasks,
        ] = cells;
        println!(
            "{group:<group_width$} {target:<25} {topology:<15}{member:<member_width$} \
             {protocol:<15} {epoch:<15} {process:<process_width$} {client:<client_width$} {tasks}"
        );
    };
    print([
        "GROUP",
        "TARGET-ASSIGNMENT-EPOCH",
        "TOPOLOGY-EPOCH",
        "MEMBER",
        "MEMBER-PROTOCOL",
        "MEMBER-EPOCH",
        "PROCESS",
        "CLIENT-ID",
        "ASSIGNMENTS",
    ]);
    for member in members {
        let current = tasks(&member.assignment, "");
        let target = tasks(&member.target_assignment, "TARGET-");
        print([
            &group.group_id,
            &group.assignment_epoch.to_string(),
            &topology_epoch.to_string(),
            &member.member_id,
            if member.is_classic {
                "classic"
            } else {
                STREAMS
            },
            &member.member_epoch.to_string(),
            &member.process_id,
            &member.client_id,
            &format!("{current}{target}"),
        ]);
    }
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
    let coordinator = format!("{}:{} ({})", node.host, node.port, node.id);
    let group_width = id.len().max(15);
    let coordinator_width = coordinator.len().max(25);
    let print = |group: &str, coordinator: &str, state: &str, epochs: [&str; 2], members: &str| {
        let [group_epoch, target_epoch] = epochs;
        print!("{group:<group_width$} {coordinator:<coordinator_width$} {state:<25} ");
        if verbose {
            println!("{group_epoch:<15} {target_epoch:<25} {members}")
        } else {
            println!("{members}")
        }
    };
    let epochs = ["GROUP-EPOCH", "TARGET-ASSIGNMENT-EPOCH"];
    print("GROUP", "COORDINATOR (ID)", "STATE", epochs, "#MEMBERS");
    print(
        id,
        &coordinator,
        &group.group_state,
        [
            &group.group_epoch.to_string(),
            &group.assignment_epoch.to_string(),
        ],
        &group.members.len().to_string(),
    );
}

fn print_offsets(group: &DescribedStreamsGroup, offsets: &[OffsetsOfPartition], verbose: bool) {
    let group_id = &*group.group.group_id;
    let group_width = group_id.len().max(15);
    let topic_width = width(15, offsets.iter().map(|offsets| offsets.topic.as_str()));
    print!("{:<group_width$} {:<topic_width$} ", "GROUP", "TOPIC");
    if verbose {
        println!(
            "{:<10} {:<15} {:<15} {:<15} {:<15}",
            "PARTITION", "CURRENT-OFFSET", "LEADER-EPOCH", "LOG-END-OFFSET", "OFFSET-LAG"
        )
    } else {
        println!("{:<10} OFFSET-LAG", "PARTITION")
    }
    for row in offsets {
        print!("{group_id:<group_width$} {:<topic_width$} ", row.topic);
        if !verbose {
            println!("{:<10} {}", row.partition, row.lag);
            continue;
        }
        println!(
            "{:<10} {:<15} {:<15} {:<15} {:<15}",
            row.partition,
            shown(row.current_offset),
            shown(row.leader_epoch),
            row.log_end_offset,
            row.lag
        );
    }
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
