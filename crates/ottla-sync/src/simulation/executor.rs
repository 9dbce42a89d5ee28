//! The tasks of a host, polled by its worker threads in the seed's order.

use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::failure::Waiting;
use super::policy::Chooser;
use super::trace::Op;
use super::world::{self, Token, Wait, World};

type BoxFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) struct Executor {
    tasks: Vec<Task>,
    free: Vec<u32>,
    /// Tasks to be polled, in no order.
    ready: Vec<u32>,
    idle: Vec<Token>,
    workers: usize,
    has_started: bool,
}

struct Task {
    /// Slots are used again; a waker of an earlier task does nothing.
    generation: u64,
    future: Option<BoxFuture>,
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
    /// Woken while it is being polled.
    RunningAndWoken,
}

/// Names a task of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskId {
    run: u64,
    host: u32,
    slot: u32,
    generation: u64,
}

struct Taken {
    slot: u32,
    generation: u64,
    future: BoxFuture,
}

impl Executor {
    pub(super) fn new(workers: usize) -> Executor {
        assert!(workers > 0, "somebody has to poll the tasks");
        Executor {
            tasks: Vec::new(),
            free: Vec::new(),
            ready: Vec::new(),
            idle: Vec::new(),
            workers,
            has_started: false,
        }
    }

    fn add(&mut self, generation: u64, future: BoxFuture, at: &'static Location<'static>) -> u32 {
        let task = Task {
            generation,
            future: Some(future),
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

    /// Notes that a task can go on. Returns a worker to be woken.
    fn wake(&mut self, slot: u32, generation: u64) -> Option<Token> {
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

    fn take(&mut self, chooser: &mut Chooser) -> Option<Taken> {
        if self.ready.is_empty() {
            return None;
        }
        let chosen = chooser.index(self.ready.len());
        let slot = self.ready.swap_remove(chosen);
        let task = &mut self.tasks[slot as usize];
        task.state = TaskState::Running;
        Some(Taken {
            slot,
            generation: task.generation,
            future: task.future.take().expect("a ready task has a future"),
        })
    }

    /// Takes back a task that was polled. Returns its future if it is to be dropped.
    fn put_back(&mut self, slot: u32, future: BoxFuture, has_ended: bool) -> Option<BoxFuture> {
        let task = &mut self.tasks[slot as usize];
        if has_ended || task.is_aborted {
            self.remove(slot);
            return Some(future);
        }
        task.future = Some(future);
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
        self.free.push(slot);
    }

    fn abort(&mut self, slot: u32, generation: u64) -> Option<BoxFuture> {
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

    /// The futures of a host that was killed.
    pub(super) fn clear(&mut self) -> Vec<BoxFuture> {
        self.ready.clear();
        self.idle.clear();
        self.free.clear();
        let tasks = std::mem::take(&mut self.tasks);
        tasks.into_iter().filter_map(|task| task.future).collect()
    }

    pub(super) fn waiting(&self, host: &str) -> Vec<Waiting> {
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

struct TaskWaker(TaskId);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let id = self.0;
        if let Some(world) = world::world_of(id.run) {
            let host = id.host as usize;
            let worker =
                world.with(|state| state.hosts[host].executor.wake(id.slot, id.generation));
            if let Some(worker) = worker {
                world.wake(worker);
            }
        }
    }
}

/// Adds a task to the host of the caller. It is dropped at once if the host has been killed.
pub(crate) fn spawn(future: BoxFuture, at: &'static Location<'static>) -> TaskId {
    let world = world::world();
    let host = world.host();
    let generation = world.with(|state| state.next_number());
    let mut id = TaskId {
        run: world.run,
        host,
        slot: 0,
        generation,
    };
    if world.is_dying() {
        return id;
    }
    let (slot, workers) = world.with(|state| {
        let executor = &mut state.hosts[host as usize].executor;
        let slot = executor.add(generation, future, at);
        let workers = match executor.has_started {
            true => 0,
            false => executor.workers,
        };
        executor.has_started = true;
        (slot, workers)
    });
    for number in 0..workers {
        world.spawn(
            host,
            &format!("worker-{number}"),
            Box::new(move || work(host)),
        );
    }
    id.slot = slot;
    Arc::new(TaskWaker(id)).wake();
    id
}

/// Drops a task, at once or as soon as it is not being polled.
pub(crate) fn abort(id: TaskId) {
    if let Some(world) = world::world_of(id.run) {
        let host = id.host as usize;
        let future = world.with(|state| state.hosts[host].executor.abort(id.slot, id.generation));
        drop(future);
    }
}

/// What a worker does until its host is killed.
fn work(host: u32) {
    let at = Location::caller();
    let world = world::world();
    loop {
        let taken = world.with(|state| {
            let executor = &mut state.hosts[host as usize].executor;
            executor.take(&mut state.chooser)
        });
        let Some(taken) = taken else {
            let token = world::prepare_wait();
            world.with(|state| state.hosts[host as usize].executor.idle.push(token));
            world::block(token, Wait::Task, at, None);
            continue;
        };
        poll(&world, host, taken);
        world::switch_point_at(Op::Poll, at);
    }
}

fn poll(world: &World, host: u32, taken: Taken) {
    let Taken {
        slot,
        generation,
        mut future,
    } = taken;
    let waker = Waker::from(Arc::new(TaskWaker(TaskId {
        run: world.run,
        host,
        slot,
        generation,
    })));
    let mut context = Context::from_waker(&waker);
    let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
    let has_ended = match polled {
        Ok(polled) => polled.is_ready(),
        Err(payload) if world::is_kill(&*payload) => resume_unwind(payload),
        Err(payload) => {
            world::on_panic(world, world::current(), &*payload);
            true
        }
    };
    let dropped = world.with(|state| {
        let executor = &mut state.hosts[host as usize].executor;
        executor.put_back(slot, future, has_ended)
    });
    drop(dropped);
}

struct ThreadWaker {
    run: u64,
    token: Token,
    is_woken: AtomicBool,
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.is_woken.store(true, Ordering::Relaxed);
        if let Some(world) = world::world_of(self.run) {
            world.wake(self.token);
        }
    }
}

/// Polls a future on the thread that calls, which waits while the future does.
pub(crate) fn block_on<F: Future>(future: F, at: &'static Location<'static>) -> F::Output {
    let mut future = std::pin::pin!(future);
    let run = world::world().run;
    loop {
        let token = world::prepare_wait();
        let thread_waker = Arc::new(ThreadWaker {
            run,
            token,
            is_woken: AtomicBool::new(false),
        });
        let waker = Waker::from(thread_waker.clone());
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        if !thread_waker.is_woken.load(Ordering::Relaxed) {
            // What was polled may have waited for a lock, and so prepared another wait.
            world::renew(token);
            world::block(token, Wait::Future, at, None);
        }
    }
}
