//! One process of the application during an assignment: its members (stream threads) and the tasks
//! that they have so far.
//! Source: `ProcessState`.

use std::collections::HashSet;

use super::tasks::TaskId;
use crate::java_collections::PriorityQueue;

/// The member with this index in the list of all members has `count` tasks.
#[derive(Clone, Copy, Debug)]
struct MemberLoad {
    member: usize,
    count: usize,
}

#[derive(Debug)]
pub(super) struct ProcessState<'a> {
    /// In Kafka's order.
    members: Vec<MemberLoad>,
    tasks: HashSet<TaskId<'a>>,
    task_count: usize,
    /// Indexes of `members`. Rebuilt after a task was assigned to a member that was not the head.
    by_load: Option<PriorityQueue<usize>>,
}

impl<'a> ProcessState<'a> {
    /// `members` are the members of the process, in Kafka's order.
    pub(super) fn new(members: impl IntoIterator<Item = usize>) -> Self {
        let members = members.into_iter();
        ProcessState {
            members: members
                .map(|member| MemberLoad { member, count: 0 })
                .collect(),
            tasks: HashSet::new(),
            task_count: 0,
            by_load: None,
        }
    }

    /// Tasks per member.
    pub(super) fn load(&self) -> f64 {
        self.task_count as f64 / self.members.len() as f64
    }

    pub(super) fn has_task(&self, task: TaskId<'a>) -> bool {
        self.tasks.contains(&task)
    }

    /// The number of tasks of a member of this process.
    pub(super) fn count_of(&self, member: usize) -> usize {
        let load = self.members.iter().find(|it| it.member == member);
        load.map_or(0, |load| load.count)
    }

    /// Returns the member's new number of tasks.
    pub(super) fn add_task(&mut self, member: usize, task: TaskId<'a>) -> usize {
        self.by_load = None;
        match self.members.iter().position(|it| it.member == member) {
            Some(place) => self.add_task_at(place, task),
            None => 0,
        }
    }

    /// Returns the member that got the task, and its new number of tasks.
    pub(super) fn add_task_to_least_loaded_member(
        &mut self,
        task: TaskId<'a>,
    ) -> Option<(usize, usize)> {
        if self.members.len() == 1 {
            let count = self.add_task_at(0, task);
            return Some((self.members[0].member, count));
        }
        let mut queue = self.by_load.take().unwrap_or_else(|| {
            let mut queue = PriorityQueue::new();
            for (place, load) in self.members.iter().enumerate() {
                queue.push(load.count, place);
            }
            queue
        });
        let place = queue.pop()?;
        let count = self.add_task_at(place, task);
        queue.push(count, place);
        self.by_load = Some(queue);
        Some((self.members[place].member, count))
    }

    fn add_task_at(&mut self, place: usize, task: TaskId<'a>) -> usize {
        self.tasks.insert(task);
        self.task_count += 1;
        self.members[place].count += 1;
        self.members[place].count
    }
}
