//! The tasks of a host: runnable and waiting tasks, and idle workers.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::Waker;

use super::wait::Token;
use crate::simulation::failure::Waiting;
use crate::simulation::policy::Chooser;

pub(crate) type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(crate) struct Executor {
    tasks: Vec<Task>,
    free: Vec<u32>,
    /// Tasks to be polled, unordered.
    ready: Vec<u32>,
    pub(crate) idle: Vec<Token>,
    pub(crate) workers: usize,
    pub(crate) has_started: bool,
}

struct Task {
    /// Slots are reused; a waker of an earlier task has no effect.
    generation: u64,
    future: Option<BoxFuture>,
    /// The task's waker, reused for every poll, which takes it.
    waker: Option<Waker>,
    state: TaskState,
    is_aborted: bool,
    spawned_at: &'static Location<'static>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum TaskState {
    Free,
    Waiting,
    Ready,
    Running,
    /// Woken during its poll.
    RunningAndWoken,
}

pub(crate) struct Taken {
    pub(crate) slot: u32,
    pub(crate) waker: Waker,
    pub(crate) future: BoxFuture,
}

impl Executor {
    pub(crate) fn new(workers: usize) -> Executor {
        assert!(workers > 0, "an executor needs a worker");
        Executor {
            tasks: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            idle: Vec::new(),
            workers,
            has_started: false,
        }
    }

    pub(crate) fn add(
        &mut self,
        generation: u64,
        future: BoxFuture,
        at: &'static Location<'static>,
    ) -> u32 {
        let task = Task {
            generation,
            future: Some(future),
            waker: None,
            state: TaskState::Waiting,
            is_aborted: false,
            spawned_at: at,
        };
        match self.free.pop() {
            Some(slot) => {
                self.tasks[slot as usize] = task;
                slot
            }
            None => {
                self.tasks.push(task);
                self.tasks.len() as u32 - 1
            }
        }
    }

    /// Sets the waker of a new task.
    pub(crate) fn set_waker(&mut self, slot: u32, waker: Waker) {
        self.tasks[slot as usize].waker = Some(waker);
    }

    /// Marks a task as runnable. Returns a worker to wake.
    pub(crate) fn wake(&mut self, slot: u32, generation: u64) -> Option<Token> {
        let task = self.tasks.get_mut(slot as usize)?;
        if task.generation != generation {
            return None;
        }
        match task.state {
            TaskState::Waiting => {
                task.state = TaskState::Ready;
                self.ready.push(slot);
                self.idle.pop()
            }
            TaskState::Running => {
                task.state = TaskState::RunningAndWoken;
                None
            }
            TaskState::Free | TaskState::Ready | TaskState::RunningAndWoken => None,
        }
    }

    pub(in crate::simulation) fn take(&mut self, chooser: &mut Chooser) -> Option<Taken> {
        if self.ready.is_empty() {
            return None;
        }
        let chosen = chooser.index(self.ready.len());
        let slot = self.ready.swap_remove(chosen);
        let task = &mut self.tasks[slot as usize];
        task.state = TaskState::Running;
        Some(Taken {
            slot,
            waker: task.waker.take().expect("a ready task has a waker"),
            future: task.future.take().expect("a ready task has a future"),
        })
    }

    /// Takes a polled task back. Returns it if it must be dropped.
    pub(crate) fn put_back(&mut self, taken: Taken, has_ended: bool) -> Option<Taken> {
        let slot = taken.slot;
        let task = &mut self.tasks[slot as usize];
        if has_ended || task.is_aborted {
            self.remove(slot);
            return Some(taken);
        }
        task.future = Some(taken.future);
        task.waker = Some(taken.waker);
        if task.state == TaskState::RunningAndWoken {
            task.state = TaskState::Ready;
            self.ready.push(slot);
        } else {
            task.state = TaskState::Waiting;
        }
        None
    }

    fn remove(&mut self, slot: u32) {
        let task = &mut self.tasks[slot as usize];
        task.state = TaskState::Free;
        task.generation = 0;
        task.waker = None;
        self.free.push(slot);
    }

    pub(crate) fn abort(&mut self, slot: u32, generation: u64) -> Option<BoxFuture> {
        let task = self.tasks.get_mut(slot as usize)?;
        if task.generation != generation {
            return None;
        }
        task.is_aborted = true;
        let future = task.future.take()?;
        self.ready.retain(|ready| *ready != slot);
        self.remove(slot);
        Some(future)
    }

    /// Removes the futures of a killed host.
    pub(crate) fn clear(&mut self) -> Vec<BoxFuture> {
        self.ready.clear();
        self.idle.clear();
        self.free.clear();
        let tasks = std::mem::take(&mut self.tasks);
        tasks.into_iter().filter_map(|task| task.future).collect()
    }

    pub(crate) fn waiting(&self, host: &str) -> Vec<Waiting> {
        let waiting = |task: &&Task| task.state == TaskState::Waiting;
        let tasks = self.tasks.iter().filter(waiting);
        tasks
            .map(|task| Waiting {
                thread: format!("{host}/a task"),
                what: "a waker".to_owned(),
                at: task.spawned_at,
            })
            .collect()
    }
}
