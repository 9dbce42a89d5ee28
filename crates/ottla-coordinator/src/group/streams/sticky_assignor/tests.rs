//! Groups, with the assignments of Kafka 4.3.1's `StickyTaskAssignor` (`cases.txt`).
//!
//! `member a p1 0:0,2+1:1 0:1` is a member of process `p1` whose previous target has three active
//! tasks and one standby task. Its new target follows after an arrow in the same format. The random
//! groups come from a few rounds in which members join and leave, so their previous targets are
//! results of the assignor.

use std::collections::BTreeMap;

use bytestring::ByteString;

use super::{MemberSpec, SubtopologySpec, assign};
use crate::group::streams::task_offsets::TaskOffsets;
use crate::group::streams::tasks::{self, Tasks, TasksTuple};

fn parse(text: &str) -> Tasks {
    let mut parsed = Tasks::new();
    for (id, partitions) in text.split('+').filter_map(|it| it.split_once(':')) {
        for partition in partitions.split(',') {
            tasks::insert(
                &mut parsed,
                &id.to_owned().into(),
                partition.parse().unwrap(),
            );
        }
    }
    parsed
}

fn show(tasks: &Tasks) -> String {
    if tasks.is_empty() {
        return "-".to_owned();
    }
    let of_subtopologies: Vec<String> = tasks
        .iter()
        .map(|(id, partitions)| {
            let partitions: Vec<String> = partitions.iter().map(i32::to_string).collect();
            format!("{id}:{}", partitions.join(","))
        })
        .collect();
    of_subtopologies.join("+")
}

struct Group {
    standbys: usize,
    subtopologies: Vec<(ByteString, i32, bool)>,
    /// Id, process, and previous target.
    members: Vec<(ByteString, ByteString, TasksTuple)>,
}

impl Group {
    fn of(case: &str) -> Self {
        let mut group = Group {
            standbys: 0,
            subtopologies: Vec::new(),
            members: Vec::new(),
        };
        let text = |word: &str| ByteString::from(word.to_owned());
        for line in case.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match *words {
                ["standbys", number] => group.standbys = number.parse().unwrap(),
                ["sub", id, tasks, ref state @ ..] => {
                    group
                        .subtopologies
                        .push((text(id), tasks.parse().unwrap(), !state.is_empty()))
                }
                ["member", id, process, active, standby] => {
                    let target = TasksTuple {
                        active: parse(active),
                        standby: parse(standby),
                        ..Default::default()
                    };
                    group.members.push((text(id), text(process), target));
                }
                ["case", ..] | ["->", ..] => {}
                ref other => panic!("{other:?}"),
            }
        }
        group
    }

    fn assign(&self) -> Result<BTreeMap<ByteString, TasksTuple>, super::AssignorError> {
        let members: Vec<MemberSpec<'_>> = self
            .members
            .iter()
            .map(|(member_id, process_id, target)| MemberSpec {
                member_id,
                process_id,
                target: Some(target),
                offsets: None,
            })
            .collect();
        let subtopologies: Vec<SubtopologySpec<'_>> = self
            .subtopologies
            .iter()
            .map(|(id, number_of_tasks, is_stateful)| SubtopologySpec {
                id,
                number_of_tasks: *number_of_tasks,
                is_stateful: *is_stateful,
            })
            .collect();
        assign(&members, &subtopologies, self.standbys)
    }
}

#[test]
fn tasks_are_given_out_as_kafka_gives_them_out() {
    let mut num_cases = 0;
    for case in include_str!("cases.txt").split("\n\n") {
        let expected: Vec<&str> = case.lines().filter(|it| it.starts_with("->")).collect();
        assert!(!expected.is_empty(), "{case}");
        let actual: Vec<String> = match Group::of(case).assign() {
            Ok(assigned) => assigned
                .iter()
                .map(|(id, it)| format!("-> {id} {} {}", show(&it.active), show(&it.standby)))
                .collect(),
            Err(error) => vec![format!("-> error {error}")],
        };
        assert_eq!(actual, expected, "\n{case}");
        num_cases += 1;
    }
    assert_eq!(num_cases, 80);
}

/// For any order of collections: each active task is assigned once, and no process has a task
/// twice.
#[test]
fn each_task_is_active_once_and_at_most_once_in_a_process() {
    for case in include_str!("cases.txt").split("\n\n") {
        let group = Group::of(case);
        let Ok(assigned) = group.assign() else {
            continue;
        };
        let mut active: Vec<(ByteString, i32)> = Vec::new();
        let mut of_processes: Vec<(&ByteString, ByteString, i32)> = Vec::new();
        for (member_id, process_id, _) in &group.members {
            let given = &assigned[member_id];
            let each = tasks::each(&given.active).map(|(id, index)| (id.clone(), index));
            active.extend(each);
            let each = tasks::each(&given.active).chain(tasks::each(&given.standby));
            of_processes.extend(each.map(|(id, index)| (process_id, id.clone(), index)));
        }
        active.sort();
        let all = group
            .subtopologies
            .iter()
            .flat_map(|(id, number, _)| (0..*number).map(|index| (id.clone(), index)));
        assert_eq!(active, all.collect::<Vec<_>>(), "{case}");
        let number = of_processes.len();
        of_processes.sort();
        of_processes.dedup();
        assert_eq!(of_processes.len(), number, "{case}");
    }
}

/// The member that gets a task without an owner. Of each member: whether it had the task as a standby
/// task, and the offset that it has reported.
fn successor(members: &[(&'static str, bool, Option<i64>)]) -> ByteString {
    let members = members.iter().map(|&(id, is_standby, offset)| {
        let standby = if is_standby { "0:0" } else { "-" };
        let target = TasksTuple {
            standby: parse(standby),
            ..Default::default()
        };
        let offset = offset.map(|offset| ((ByteString::from_static("0"), 0), offset));
        let offsets: TaskOffsets = offset.into_iter().collect();
        (ByteString::from_static(id), target, offsets)
    });
    let members: Vec<_> = members.collect();
    let specs = members.iter().map(|(id, target, offsets)| MemberSpec {
        member_id: id,
        process_id: id,
        target: Some(target),
        offsets: Some(offsets),
    });
    let specs: Vec<MemberSpec<'_>> = specs.collect();
    let id = ByteString::from_static("0");
    let subtopology = SubtopologySpec {
        id: &id,
        number_of_tasks: 1,
        is_stateful: true,
    };
    let Ok(assigned) = assign(&specs, &[subtopology], 0) else {
        panic!("not assigned");
    };
    let mut owners = assigned.iter().filter(|(_, it)| !it.active.is_empty());
    owners.next().expect("one has it").0.clone()
}

#[test]
fn the_member_with_most_state_of_a_task_becomes_its_owner() {
    let with_state = [("a", true, Some(5)), ("b", true, Some(900))];
    assert_eq!(successor(&with_state), "b");
    let left = [
        ("a", false, None),
        ("b", false, Some(5)),
        ("c", false, Some(900)),
    ];
    assert_eq!(successor(&left), "c");
    // Its state may be old.
    let one_standby = [("a", true, None), ("b", false, Some(900))];
    assert_eq!(successor(&one_standby), "a");
}
