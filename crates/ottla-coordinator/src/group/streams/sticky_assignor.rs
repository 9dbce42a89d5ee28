//! The assignor `sticky`: tasks stay with their owners as long as the members have about the same
//! number of tasks.
//!
//! Active tasks are first assigned to their previous owners, then to members that had them as
//! standby tasks or have reported offsets of them, and the rest to the process with the fewest tasks
//! per member. Standby tasks follow in the same way, but never to a process that has the task
//! already. The number of tasks that a member may keep is computed again whenever a member has
//! reached its share. Racks, client tags and warm-up tasks are not considered, as in Kafka 4.4.0.
//! The iteration order is that of Java's collections, so the assignment equals Kafka's task by task.
//! Source: `StickyTaskAssignor`.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};

use bytestring::ByteString;

use super::process_state::ProcessState;
use super::task_offsets::TaskOffsets;
use super::tasks::{self, TaskId, TasksTuple};
use crate::group::modern::AssignorError;
use crate::java_collections::{
    PriorityQueue, default_hash_map_order, hash_map_order, string_hash_code,
};

/// A subtopology whose tasks are assigned.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubtopologySpec<'a> {
    pub(super) id: &'a ByteString,
    pub(super) number_of_tasks: i32,
    pub(super) is_stateful: bool,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct MemberSpec<'a> {
    pub(super) member_id: &'a ByteString,
    pub(super) process_id: &'a ByteString,
    /// The member's previous target assignment.
    pub(super) target: Option<&'a TasksTuple>,
    /// The offsets that it has reported.
    pub(super) offsets: Option<&'a TaskOffsets>,
}

/// Computes the assignment of each member.
pub(super) fn assign(
    members: &[MemberSpec<'_>],
    subtopologies: &[SubtopologySpec<'_>],
    num_standby_replicas: usize,
) -> Result<BTreeMap<ByteString, TasksTuple>, AssignorError> {
    let mut assigning = Assigning::new(members, subtopologies, num_standby_replicas);
    let all = subtopologies.iter().copied();
    assigning.assign_active(all.flat_map(tasks_of).collect())?;
    if num_standby_replicas > 0 {
        let stateful = subtopologies.iter().copied().filter(|it| it.is_stateful);
        assigning.assign_standby(stateful.flat_map(tasks_of).collect());
    }
    let members = assigning.members.iter().map(|it| it.member_id.clone());
    Ok(members.zip(assigning.assigned).collect())
}

fn tasks_of(subtopology: SubtopologySpec<'_>) -> impl Iterator<Item = TaskId<'_>> {
    (0..subtopology.number_of_tasks).map(move |partition| TaskId(subtopology.id, partition))
}

/// The maximum number of tasks with which a member still gets back another task that it had. Grows
/// as members reach their share.
#[derive(Debug)]
struct Quota {
    tasks: i64,
    members: i64,
    per_member: i64,
}

impl Quota {
    fn new(tasks: i64, members: usize) -> Self {
        let mut quota = Quota {
            tasks,
            members: members as i64,
            per_member: 0,
        };
        quota.compute();
        quota
    }

    fn compute(&mut self) {
        self.per_member = match self.members {
            0 => 0,
            members => self.tasks / members + i64::from(self.tasks % members > 0),
        };
    }

    fn allows(&self, count: usize) -> bool {
        (count as i64) < self.per_member
    }

    /// A member now has `count` tasks. If that is its share, the others share the rest.
    fn on_added(&mut self, count: usize) {
        if count as i64 == self.per_member {
            self.members -= 1;
            self.tasks -= count as i64;
            self.compute();
        }
    }
}

/// A member that may have state of a task. Those that had it as a standby task come first, and among
/// equals those that have reported the highest offset.
type StandbyCandidate = ((bool, Reverse<i64>), usize);

struct Assigning<'a> {
    /// In Kafka's order. Members are referred to by their index here.
    members: Vec<MemberSpec<'a>>,
    /// The index of each member's process.
    process_of: Vec<usize>,
    /// In the order of their first occurrence.
    processes: Vec<ProcessState<'a>>,
    /// Indexes of processes in Kafka's order.
    process_order: Vec<usize>,
    num_standby_replicas: usize,
    active_quota: Quota,
    total_quota: Quota,
    former_active: HashMap<TaskId<'a>, usize>,
    former_standby: HashMap<TaskId<'a>, Vec<usize>>,
    /// By member.
    assigned: Vec<TasksTuple>,
}

impl<'a> Assigning<'a> {
    fn new(
        members: &[MemberSpec<'a>],
        subtopologies: &[SubtopologySpec<'a>],
        num_standby_replicas: usize,
    ) -> Self {
        let members =
            default_hash_map_order(members.iter().copied(), |it| string_hash_code(it.member_id));
        let mut process_ids: Vec<&'a ByteString> = Vec::new();
        let mut place_of: HashMap<&'a ByteString, usize> = HashMap::new();
        let mut members_of: Vec<Vec<usize>> = Vec::new();
        let mut process_of = Vec::with_capacity(members.len());
        for (member, spec) in members.iter().enumerate() {
            let place = *place_of.entry(spec.process_id).or_insert_with(|| {
                process_ids.push(spec.process_id);
                members_of.push(Vec::new());
                process_ids.len() - 1
            });
            members_of[place].push(member);
            process_of.push(place);
        }
        let processes = members_of.into_iter().map(|places| {
            ProcessState::new(default_hash_map_order(places, |place| {
                string_hash_code(members[*place].member_id)
            }))
        });
        let processes = processes.collect();
        let num_processes = process_ids.len();
        let process_order = hash_map_order(
            0..num_processes,
            |place| string_hash_code(process_ids[*place]),
            members.len(),
            num_processes,
        );

        let mut former_active = HashMap::new();
        let mut candidates: BTreeMap<TaskId<'a>, Vec<StandbyCandidate>> = BTreeMap::new();
        for (member, spec) in members.iter().enumerate() {
            let reported = spec.offsets.into_iter().flatten();
            let reported =
                reported.map(|((id, partition), offset)| (TaskId(id, *partition), *offset));
            let mut offset_of: BTreeMap<TaskId<'a>, i64> = reported.collect();
            let target = spec.target.into_iter();
            for (id, partition) in target
                .clone()
                .flat_map(|target| tasks::each(&target.active))
            {
                former_active.insert(TaskId(id, partition), member);
            }
            for (id, partition) in target.flat_map(|target| tasks::each(&target.standby)) {
                let task = TaskId(id, partition);
                let offset = offset_of.remove(&task).unwrap_or(0);
                let order = (false, Reverse(offset));
                candidates.entry(task).or_default().push((order, member));
            }
            for (task, offset) in offset_of {
                let order = (true, Reverse(offset));
                candidates.entry(task).or_default().push((order, member));
            }
        }
        let mut former_standby = HashMap::new();
        for (task, mut of_task) in candidates {
            of_task.sort_by_key(|(order, _)| *order);
            let members: Vec<usize> = of_task.into_iter().map(|(_, member)| member).collect();
            former_standby.insert(task, members);
        }

        let tasks = |it: &SubtopologySpec<'_>| i64::from(it.number_of_tasks);
        let num_active: i64 = subtopologies.iter().map(tasks).sum();
        let stateful = subtopologies.iter().filter(|it| it.is_stateful);
        let num_stateful: i64 = stateful.map(tasks).sum();
        let num_standby = num_stateful.saturating_mul(num_standby_replicas as i64);
        Assigning {
            active_quota: Quota::new(num_active, members.len()),
            total_quota: Quota::new(num_active.saturating_add(num_standby), members.len()),
            assigned: vec![TasksTuple::default(); members.len()],
            members,
            process_of,
            processes,
            process_order,
            num_standby_replicas,
            former_active,
            former_standby,
        }
    }

    fn assign_active(&mut self, mut tasks: Vec<TaskId<'a>>) -> Result<(), AssignorError> {
        tasks.sort_by_key(|task| (task.1, task.0));
        // To their previous owners.
        tasks.retain(|task| {
            let former = self.former_active.get(task).copied();
            !former.is_some_and(|member| self.keep_active(*task, member))
        });
        // To members that have state of them.
        tasks.retain(|task| {
            let former = self.former_standby.get(task);
            let former = former.and_then(|members| self.least_loaded(members, None));
            !former.is_some_and(|member| self.keep_active(*task, member))
        });
        // To the members with the fewest tasks.
        tasks.sort_unstable();
        let mut by_load = self.processes_by_load();
        for task in tasks {
            let Some(place) = by_load.pop() else {
                return Err(AssignorError(format!(
                    "No process available to assign active task {}_{}.",
                    task.0, task.1
                )));
            };
            if let Some((member, count)) =
                self.processes[place].add_task_to_least_loaded_member(task)
            {
                self.on_active_added(task, member, count);
            }
            by_load.push(self.processes[place].load(), place);
        }
        Ok(())
    }

    fn keep_active(&mut self, task: TaskId<'a>, member: usize) -> bool {
        let process = &mut self.processes[self.process_of[member]];
        if !self.active_quota.allows(process.count_of(member)) {
            return false;
        }
        let count = process.add_task(member, task);
        self.on_active_added(task, member, count);
        true
    }

    fn on_active_added(&mut self, task: TaskId<'a>, member: usize, count: usize) {
        tasks::insert(&mut self.assigned[member].active, task.0, task.1);
        self.active_quota.on_added(count);
        self.total_quota.on_added(count);
    }

    fn assign_standby(&mut self, mut tasks: Vec<TaskId<'a>>) {
        tasks.sort_by_key(|task| Reverse((task.1, task.0)));
        // To members that had them, as active or as standby tasks.
        let mut remaining: Vec<(TaskId<'a>, usize)> = Vec::new();
        for task in tasks {
            let kept = (0..self.num_standby_replicas)
                .take_while(|_| self.keep_standby(task))
                .count();
            if kept < self.num_standby_replicas {
                remaining.push((task, self.num_standby_replicas - kept));
            }
        }
        // To the members with the fewest tasks.
        remaining.sort_by_key(|(task, _)| Reverse(*task));
        let mut by_load = self.processes_by_load();
        for (task, replicas) in remaining {
            for _ in 0..replicas {
                if !self.add_standby_to_least_loaded(task, &mut by_load) {
                    // There are not enough processes.
                    break;
                }
            }
        }
    }

    fn keep_standby(&mut self, task: TaskId<'a>) -> bool {
        if let Some(member) = self.former_active.get(&task).copied() {
            let process = &self.processes[self.process_of[member]];
            if !process.has_task(task) && self.total_quota.allows(process.count_of(member)) {
                self.add_standby(task, member);
                return true;
            }
        }
        let former = self.former_standby.get(&task);
        let Some(member) = former.and_then(|members| self.least_loaded(members, Some(task))) else {
            return false;
        };
        let process = &self.processes[self.process_of[member]];
        if !self.total_quota.allows(process.count_of(member)) {
            return false;
        }
        self.add_standby(task, member);
        true
    }

    fn add_standby(&mut self, task: TaskId<'a>, member: usize) {
        let count = self.processes[self.process_of[member]].add_task(member, task);
        self.on_standby_added(task, member, count);
    }

    fn on_standby_added(&mut self, task: TaskId<'a>, member: usize, count: usize) {
        tasks::insert(&mut self.assigned[member].standby, task.0, task.1);
        self.total_quota.on_added(count);
    }

    /// Assigns the standby task to the least loaded process that does not have the task.
    fn add_standby_to_least_loaded(
        &mut self,
        task: TaskId<'a>,
        by_load: &mut PriorityQueue<f64>,
    ) -> bool {
        let mut passed = Vec::new();
        let mut is_added = false;
        while let Some(place) = by_load.pop() {
            passed.push(place);
            if self.processes[place].has_task(task) {
                continue;
            }
            let added = self.processes[place].add_task_to_least_loaded_member(task);
            if let Some((member, count)) = added {
                self.on_standby_added(task, member, count);
                is_added = true;
            }
            break;
        }
        for place in passed.into_iter().rev() {
            by_load.push(self.processes[place].load(), place);
        }
        is_added
    }

    fn processes_by_load(&self) -> PriorityQueue<f64> {
        let mut queue = PriorityQueue::new();
        for place in &self.process_order {
            queue.push(self.processes[*place].load(), *place);
        }
        queue
    }

    /// The least loaded of the members that had a task; the load of the process counts before that
    /// of the member. If `task` is given, processes that have it already are skipped, and `None` is
    /// returned if the first of `members` is in such a process.
    fn least_loaded(&self, members: &[usize], task: Option<TaskId<'a>>) -> Option<usize> {
        let first = *members.first()?;
        let process = |member: usize| &self.processes[self.process_of[member]];
        let has_task = |member: usize| task.is_some_and(|task| process(member).has_task(task));
        let mut candidate = first;
        for member in members.iter().copied().skip(1) {
            let is_less = process(member).load() < process(candidate).load()
                && !has_task(member)
                && process(member).count_of(member) < process(candidate).count_of(candidate);
            if is_less {
                candidate = member;
            }
        }
        (!has_task(first)).then_some(candidate)
    }
}

#[cfg(test)]
mod tests;
