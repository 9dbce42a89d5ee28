//! Polls the tasks of a host on its worker threads, in the seed's order.

use std::future::Future;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use super::state::executor::{BoxFuture, Taken};
use super::trace::Op;
use super::world::{self, Token, Wait, World};

/// Identifies a task of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskId {
    run: u64,
    host: u32,
    slot: u32,
    generation: u64,
}

struct TaskWaker(TaskId);

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let id = self.0;
        world::with_state_of(id.run, |state| {
            let executor = &mut state.hosts[id.host as usize].executor;
            if let Some(worker) = executor.wake(id.slot, id.generation) {
                state.wake(worker);
            }
        });
    }
}

/// Adds a task to the caller's host. It is dropped at once if the host was killed.
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
    let waker = Waker::from(Arc::new(TaskWaker(id)));
    world.with(|state| {
        let executor = &mut state.hosts[host as usize].executor;
        executor.set_waker(slot, waker.clone());
    });
    waker.wake();
    id
}

/// Drops a task at once, or after the current poll.
pub(crate) fn abort(id: TaskId) {
    if let Some(world) = world::world_of(id.run) {
        let host = id.host as usize;
        let future = world.with(|state| state.hosts[host].executor.abort(id.slot, id.generation));
        drop(future);
    }
}

/// The loop of a worker, until its host is killed.
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

fn poll(world: &World, host: u32, mut taken: Taken) {
    let polled = catch_unwind(AssertUnwindSafe(|| {
        let mut context = Context::from_waker(&taken.waker);
        taken.future.as_mut().poll(&mut context)
    }));
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
        executor.put_back(taken, has_ended)
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
        world::with_state_of(self.run, |state| state.wake(self.token));
    }
}

/// Polls a future on the calling thread, which waits while the future is pending.
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
            // The poll may have waited for a lock, which prepared another wait.
            world::renew(token);
            world::block(token, Wait::Future, at, None);
        }
    }
}
