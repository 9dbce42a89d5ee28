//! The state of a simulation and its switch points.
//!
//! Everything here runs on one thread of the system, in coroutines that take turns. A running
//! coroutine is never interrupted: it yields at a switch point or when it waits. So nothing in this
//! file needs a lock, and no borrow of [`State`] may be held across [`World::suspend`].

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::rc::Rc;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use super::failure::Failure;
use super::hot::{HOT, Hot, STEP_NANOS, UNDERTAKER};
pub(crate) use super::hot::{current, is_simulated};
use super::policy::Chooser;
use super::state::network::NetworkState;
use super::state::timers::{TimerKey, Timers};
pub(crate) use super::state::wait::{Holder, Timer, Token, Wait};
use super::state::{State, Thread};
use super::trace::{Entry, Op};

thread_local! {
    static WORLD: RefCell<Option<Rc<World>>> = const { RefCell::new(None) };
    /// Stacks of ended coroutines, for reuse.
    static STACKS: RefCell<Vec<DefaultStack>> = const { RefCell::new(Vec::new()) };
}

pub(crate) struct World {
    /// The number of the simulation within the process: a waker may outlive its simulation.
    pub(super) run: u64,
    pub(super) seed: u64,
    state: RefCell<State>,
    /// By slot; `None` while running.
    coroutines: RefCell<Vec<Option<Coroutine<(), (), ()>>>>,
}

/// The panic payload that unwinds a thread of a killed host.
struct Killed;

/// The caller's world; the caller must run in a simulation.
pub(crate) fn world() -> Rc<World> {
    WORLD.with_borrow(|world| world.clone().expect("a simulation runs"))
}

/// Calls `work` with the caller's world, without a counted reference. `work` must not wait.
#[inline]
pub(crate) fn with_world<R>(work: impl FnOnce(&World) -> R) -> R {
    WORLD.with_borrow(|world| work(world.as_deref().expect("a simulation runs")))
}

/// The world of run `run`, if it is the current one.
pub(super) fn world_of(run: u64) -> Option<Rc<World>> {
    WORLD.with_borrow(|world| world.clone().filter(|world| world.run == run))
}

/// Calls `work` with the state of run `run`, if it is the current one.
#[inline]
pub(super) fn with_state_of(run: u64, work: impl FnOnce(&mut State)) {
    WORLD.with_borrow(|world| {
        if let Some(world) = world.as_deref().filter(|world| world.run == run) {
            world.with(work);
        }
    });
}

/// Lets the seed choose the next thread. Costs almost nothing outside a simulation.
#[inline]
#[track_caller]
pub(crate) fn switch_point(op: Op) {
    switch_point_at(op, Location::caller());
}

#[inline]
pub(crate) fn switch_point_at(op: Op, at: &'static Location<'static>) {
    HOT.with(|hot| {
        let current = hot.current.get();
        if current < UNDERTAKER {
            note(hot, current, op, at);
            if hot.steps.get() >= hot.next_look.get() {
                look(hot, false);
            }
        }
    });
}

/// A switch point at which the caller prefers to yield.
#[track_caller]
pub(crate) fn yield_point() {
    let at = Location::caller();
    HOT.with(|hot| {
        let current = hot.current.get();
        if current < UNDERTAKER {
            note(hot, current, Op::Yield, at);
            look(hot, true);
        }
    });
}

#[inline]
fn note(hot: &Hot, current: u32, op: Op, at: &'static Location<'static>) {
    hot.steps.set(hot.steps.get() + 1);
    let what = (u64::from(current) << 40) | ((op as u64) << 32) | u64::from(at.line());
    mix(hot, what);
    if hot.is_recording.get() {
        record(hot, current, op, at);
    }
}

#[inline]
fn mix(hot: &Hot, what: u64) {
    let hash = (hot.hash.get() ^ what).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hot.hash.set(hash ^ (hash >> 29));
}

#[cold]
fn record(hot: &Hot, slot: u32, op: Op, at: &'static Location<'static>) {
    let world = world();
    let mut state = world.state.borrow_mut();
    let entry = Entry {
        nanos: state.now(hot),
        thread: state.threads[slot as usize].number,
        op,
        at,
    };
    state.trace.push(entry);
}

/// The scheduler's decision for the running thread.
enum Decision {
    GoOn,
    Suspend,
    Die,
}

#[inline(never)]
fn look(hot: &Hot, yields: bool) {
    match with_world(|world| world.look(hot, yields)) {
        Decision::GoOn => {}
        Decision::Suspend => world().suspend(),
        Decision::Die => world().die(hot.current.get()),
    }
}

/// Runs `work` without a switch. It must not wait.
pub(crate) fn undivided<R>(work: impl FnOnce() -> R) -> R {
    struct Leave;
    impl Drop for Leave {
        fn drop(&mut self) {
            HOT.with(|hot| hot.undivided.set(hot.undivided.get() - 1));
        }
    }
    HOT.with(|hot| hot.undivided.set(hot.undivided.get() + 1));
    let _leave = Leave;
    work()
}

impl World {
    /// Starts a simulation on this thread of the system, which must not run one already.
    pub(super) fn enter(seed: u64, chooser: Chooser, step_limit: u64, records: bool) -> Rc<World> {
        thread_local!(static RUNS: Cell<u64> = const { Cell::new(0) });
        assert!(!is_simulated(), "a simulation does not run in another");
        RUNS.set(RUNS.get() + 1);
        let world = Rc::new(World {
            run: RUNS.get(),
            seed,
            state: RefCell::new(State {
                threads: Vec::new(),
                free: Vec::new(),
                runnable: Vec::new(),
                hosts: Vec::new(),
                timers: Timers::new(),
                due: VecDeque::new(),
                sequence: 0,
                time_base: 0,
                chooser,
                next: None,
                step_limit,
                kills: Vec::new(),
                timed_kills: Vec::new(),
                failure: None,
                is_over: false,
                switches: 0,
                trace: Vec::new(),
                network: NetworkState::new(seed),
                waiters: Default::default(),
            }),
            coroutines: RefCell::new(Vec::new()),
        });
        HOT.with(|hot| {
            hot.steps.set(0);
            hot.next_look.set(0);
            hot.hash.set(seed);
            hot.is_recording.set(records);
            hot.undivided.set(0);
        });
        WORLD.set(Some(world.clone()));
        world
    }

    pub(super) fn leave(&self) {
        WORLD.set(None);
    }

    pub(super) fn steps_and_hash(&self) -> (u64, u64) {
        HOT.with(|hot| (hot.steps.get(), hot.hash.get()))
    }

    pub(crate) fn with<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        work(&mut self.state.borrow_mut())
    }

    /// Simulated nanoseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        HOT.with(|hot| self.state.borrow().now(hot))
    }

    /// The host of the running thread.
    pub(crate) fn host(&self) -> u32 {
        self.state.borrow().host_of(current())
    }

    /// Creates a runnable thread of `host`. `body` is not called if the host is killed first.
    pub(crate) fn spawn(&self, host: u32, name: &str, body: Box<dyn FnOnce()>) -> u32 {
        let mut state = self.state.borrow_mut();
        let state = &mut *state;
        let thread = Thread {
            name: name.to_owned(),
            number: state.next_number(),
            host,
            priority: state.chooser.priority(),
            runnable_at: None,
            epoch: 0,
            is_woken: false,
            is_timed_out: false,
            blocked: None,
            has_ended: false,
            is_dying: false,
            is_unwinding: false,
            waits_while_dying: 0,
            yielder: std::ptr::null(),
        };
        let mut coroutines = self.coroutines.borrow_mut();
        let slot = match state.free.pop() {
            Some(slot) => {
                state.threads[slot as usize] = thread;
                slot
            }
            None => {
                state.threads.push(thread);
                coroutines.push(None);
                state.threads.len() as u32 - 1
            }
        };
        let stack = STACKS.with_borrow_mut(Vec::pop).unwrap_or_default();
        let entry = move |yielder: &Yielder<(), ()>, ()| run_thread(slot, yielder, body);
        coroutines[slot as usize] = Some(Coroutine::with_stack(stack, entry));
        state.make_runnable(slot);
        slot
    }

    /// Lets the chooser look at the running thread. It does not suspend it.
    fn look(&self, hot: &Hot, yields: bool) -> Decision {
        let current = hot.current.get();
        let mut state = self.state.borrow_mut();
        if state.threads[current as usize].is_dying {
            return Decision::Die;
        }
        // Two threads that unwind at the same time would share one panic count.
        if hot.undivided.get() > 0 || std::thread::panicking() {
            return Decision::GoOn;
        }
        state.fire_timers(hot);
        if !state.due.is_empty() {
            drop(state);
            self.wake_due_tasks();
            state = self.state.borrow_mut();
        }
        let step = hot.steps.get();
        state.look_for_kills(step);
        if step >= state.step_limit {
            state.fail(Failure::StepLimit { steps: step });
        }
        if state.failure.is_some() || !state.kills.is_empty() {
            return Decision::Suspend;
        }
        let next = state.choose(step, Some(current), yields);
        state.plan(hot);
        if next == Some(current) {
            state.next = None;
            return Decision::GoOn;
        }
        state.next = next;
        Decision::Suspend
    }

    /// Returns to the scheduler until this thread is chosen again.
    fn suspend(&self) {
        let current = current();
        let yielder = HOT.with(|hot| {
            assert_eq!(hot.undivided.get(), 0, "an undivided section does not wait");
            hot.yielder.get()
        });
        assert!(!yielder.is_null(), "only a simulated thread is suspended");
        // SAFETY: `resume` has stored the yielder of the coroutine whose stack this call is on. It lives on that
        // stack as long as the coroutine has not ended, and so longer than this frame.
        unsafe { &*yielder }.suspend(());
        if self.state.borrow().threads[current as usize].is_dying {
            self.die(current);
        }
    }

    /// Starts or continues to unwind the running thread.
    fn die(&self, slot: u32) {
        {
            let thread = &mut self.state.borrow_mut().threads[slot as usize];
            if thread.is_unwinding && std::thread::panicking() {
                return;
            }
            thread.is_unwinding = true;
        }
        resume_unwind(Box::new(Killed));
    }

    /// Runs a thread until it is suspended or ends.
    fn resume(&self, slot: u32) {
        let taken = self.coroutines.borrow_mut()[slot as usize].take();
        let mut coroutine = taken.expect("a thread that runs is not resumed");
        let yielder = self.state.borrow().threads[slot as usize].yielder;
        let before = HOT.with(|hot| (hot.current.replace(slot), hot.yielder.replace(yielder)));
        let result = coroutine.resume(());
        HOT.with(|hot| {
            hot.current.set(before.0);
            hot.yielder.set(before.1);
        });
        match result {
            CoroutineResult::Yield(()) => {
                self.coroutines.borrow_mut()[slot as usize] = Some(coroutine);
            }
            CoroutineResult::Return(()) => {
                STACKS.with_borrow_mut(|stacks| stacks.push(coroutine.into_stack()));
            }
        }
    }

    /// Runs until the first thread has ended or something has failed.
    pub(super) fn run(&self) {
        loop {
            if !self.state.borrow().due.is_empty() {
                self.wake_due_tasks();
            }
            let kills = std::mem::take(&mut self.state.borrow_mut().kills);
            kills.into_iter().for_each(|host| self.kill(host));
            let next = {
                let mut state = self.state.borrow_mut();
                let state = &mut *state;
                if state.is_over || state.failure.is_some() {
                    return;
                }
                HOT.with(|hot| {
                    let next = state.next.take();
                    let next =
                        next.filter(|slot| state.threads[*slot as usize].runnable_at.is_some());
                    let step = hot.steps.get();
                    let next = next.or_else(|| state.choose(step, None, false));
                    state.plan(hot);
                    if let Some(next) = next {
                        state.switches += 1;
                        mix(hot, u64::from(next) | 1 << 63);
                    }
                    next
                })
            };
            match next {
                Some(next) => self.resume(next),
                None => self.pass_time(),
            }
        }
    }

    /// No thread is runnable: advances to the next timer, or reports a deadlock.
    fn pass_time(&self) {
        HOT.with(|hot| {
            let mut state = self.state.borrow_mut();
            let now = state.now(hot);
            if state.timers.is_empty() {
                let waiting = state.waiting();
                return state.fail(Failure::Deadlock(waiting));
            }
            let deadline = state.timers.first();
            state.time_base += deadline.saturating_sub(now);
            mix(hot, deadline);
            state.fire_timers(hot);
        });
    }

    /// Calls the wakers of expired timers.
    fn wake_due_tasks(&self) {
        loop {
            let next = self.state.borrow_mut().due.pop_front();
            match next {
                Some(waker) => waker.wake(),
                None => return,
            }
        }
    }

    /// Ends all threads and tasks of a host where they are.
    ///
    /// The stack of each thread is unwound by a panic that starts where it was suspended, so that
    /// its values are dropped. A `Drop` during the unwinding has no effect outside the process:
    /// there are no switches, a lock held by another thread of the host is freed by unwinding that
    /// thread first, and disk and network refuse calls.
    pub(super) fn kill(&self, host: u32) {
        let victims: Vec<u32> = self.with(|state| {
            state.hosts[host as usize].is_alive = false;
            let threads = state.threads.iter().enumerate();
            let of_host = threads.filter(|(_, thread)| thread.host == host && !thread.has_ended);
            of_host.map(|(slot, _)| slot as u32).collect()
        });
        victims.into_iter().for_each(|slot| self.unwind(slot));
        let before = HOT.with(|hot| hot.current.replace(UNDERTAKER));
        let futures = self.with(|state| state.hosts[host as usize].executor.clear());
        drop(futures);
        HOT.with(|hot| hot.current.set(before));
        self.disconnect(host);
    }

    /// Unwinds a thread to its end, unless it is what runs.
    fn unwind(&self, slot: u32) {
        while self.unwind_further(slot) {}
    }

    /// Starts or continues to unwind a thread that does not run. Returns whether it has to go on: a
    /// `Drop` of the thread waits for another one.
    fn unwind_further(&self, slot: u32) -> bool {
        let is_started = match &self.coroutines.borrow()[slot as usize] {
            Some(coroutine) => coroutine.started(),
            None => return false,
        };
        {
            let mut state = self.state.borrow_mut();
            state.make_unrunnable(slot);
            let thread = &mut state.threads[slot as usize];
            thread.blocked = None;
            thread.is_dying = true;
        }
        if !is_started {
            let never_run = self.coroutines.borrow_mut()[slot as usize].take();
            drop(never_run);
            self.end(slot);
            return false;
        }
        HOT.with(|hot| hot.next_look.set(0));
        self.resume(slot);
        HOT.with(|hot| hot.next_look.set(0));
        !self.state.borrow().threads[slot as usize].has_ended
    }

    fn end(&self, slot: u32) {
        let mut state = self.state.borrow_mut();
        state.make_unrunnable(slot);
        let thread = &mut state.threads[slot as usize];
        thread.has_ended = true;
        thread.blocked = None;
        thread.epoch = 0;
        state.free.push(slot);
    }

    /// A dying thread waits in a `Drop` for another thread of its host, which is unwound first. If
    /// that one waits in turn for a thread that waits here further down the stack, it gives control
    /// back.
    fn wait_while_dying(&self, slot: u32, wait: Wait) {
        let host = {
            let thread = &mut self.state.borrow_mut().threads[slot as usize];
            thread.waits_while_dying += 1;
            // A panic here would abort the process without an explanation.
            if thread.waits_while_dying > 1_000 {
                eprintln!(
                    "a Drop of {} waits forever while its host is killed",
                    thread.name
                );
                std::process::abort();
            }
            thread.host
        };
        let others: Vec<u32> = match wait {
            Wait::Lock { holder } => vec![holder.slot],
            _ => self.with(|state| {
                let all = 0..state.threads.len() as u32;
                all.filter(|other| {
                    let thread = &state.threads[*other as usize];
                    thread.host == host && !thread.has_ended
                })
                .collect()
            }),
        };
        let ended = |other: &&u32| self.state.borrow().threads[**other as usize].has_ended;
        let ended_before = others.iter().filter(ended).count();
        for other in &others {
            self.unwind_further(*other);
        }
        if others.iter().filter(ended).count() == ended_before {
            self.suspend();
        }
    }

    pub(crate) fn add_timer(&self, deadline: u64, timer: Timer) -> TimerKey {
        let mut state = self.state.borrow_mut();
        let number = state.next_number();
        let key = state.timers.insert(deadline, number, timer);
        HOT.with(|hot| {
            let steps = deadline
                .saturating_sub(state.time_base)
                .div_ceil(STEP_NANOS);
            hot.next_look.set(hot.next_look.get().min(steps));
        });
        key
    }

    pub(crate) fn remove_timer(&self, key: TimerKey) -> Option<Timer> {
        self.state.borrow_mut().timers.remove(key)
    }

    /// Kills `host` at the switch point `steps` after this one.
    pub(super) fn kill_in(&self, host: u32, steps: u64) {
        HOT.with(|hot| {
            let mut state = self.state.borrow_mut();
            let at = hot.steps.get() + steps;
            state.timed_kills.push((at, host));
            hot.next_look.set(hot.next_look.get().min(at));
        });
    }

    /// Kills a host before anything else happens, even if the caller is one of its threads.
    pub(super) fn kill_now(&self, host: u32) {
        self.state.borrow_mut().kills.push(host);
        match current() < UNDERTAKER {
            true => self.suspend(),
            false => HOT.with(|hot| hot.next_look.set(0)),
        }
    }

    pub(super) fn is_dying(&self) -> bool {
        let state = self.state.borrow();
        match state.threads.get(current() as usize) {
            Some(thread) => thread.is_dying,
            None => true,
        }
    }
}

/// Whether the process with this host number is alive.
pub(crate) fn is_alive(host: u32) -> bool {
    with_world(|world| world.with(|state| state.hosts[host as usize].is_alive))
}

pub(crate) fn is_dying() -> bool {
    with_world(World::is_dying)
}

/// A token for a wait that starts with [`block`], to be stored where its waker finds it.
pub(crate) fn prepare_wait() -> Token {
    let slot = current();
    with_world(|world| {
        let mut state = world.state.borrow_mut();
        let epoch = state.next_number();
        if let Some(thread) = state.threads.get_mut(slot as usize) {
            thread.epoch = epoch;
            thread.is_woken = false;
            thread.is_timed_out = false;
        }
        Token { slot, epoch }
    })
}

/// Makes a token that was not woken valid for its thread's wait again.
pub(crate) fn renew(token: Token) {
    world().with(|state| {
        let thread = &mut state.threads[token.slot as usize];
        thread.epoch = token.epoch;
        thread.is_woken = false;
        thread.is_timed_out = false;
    });
}

/// Waits until the token is woken or the deadline has passed. Returns whether it was woken.
pub(crate) fn block(
    token: Token,
    wait: Wait,
    at: &'static Location<'static>,
    deadline: Option<u64>,
) -> bool {
    let world = world();
    let slot = current();
    assert!(
        slot < UNDERTAKER,
        "a value dropped with its host does not wait"
    );
    if world.is_dying() {
        world.die(slot);
        world.wait_while_dying(slot, wait);
        return true;
    }
    let timer = {
        let mut state = world.state.borrow_mut();
        let thread = &mut state.threads[slot as usize];
        if thread.is_woken {
            return true;
        }
        thread.blocked = Some((wait, at));
        state.make_unrunnable(slot);
        deadline.map(|deadline| {
            let number = state.next_number();
            state.timers.insert(deadline, number, Timer::Thread(token))
        })
    };
    /// Removed also if the wait ends by a panic because the host was killed.
    struct Timed<'w>(&'w World, Option<TimerKey>);
    impl Drop for Timed<'_> {
        fn drop(&mut self) {
            if let Some(key) = self.1 {
                self.0.remove_timer(key);
            }
        }
    }
    let _timed = Timed(&world, timer);
    world.suspend();
    !world.state.borrow().threads[slot as usize].is_timed_out
}

/// Unwinds other threads of the running thread's host, which is dying.
pub(crate) fn wait_while_dying() {
    world().wait_while_dying(current(), Wait::Future);
}

/// Adds a token to the waiters of an object.
pub(crate) fn wait_for(object: u64, token: Token) {
    with_world(|world| {
        let mut state = world.state.borrow_mut();
        state.waiters.entry(object).or_default().push(token);
    });
}

pub(crate) fn wake_all(object: u64) {
    with_world(|world| {
        let mut state = world.state.borrow_mut();
        for token in state.waiters.remove(&object).unwrap_or_default() {
            state.wake(token);
        }
    });
}

/// Wakes one waiter that has not been woken yet, if there is one.
pub(crate) fn wake_one(object: u64) -> bool {
    let world = world();
    let mut state = world.state.borrow_mut();
    let state = &mut *state;
    let Some(tokens) = state.waiters.get_mut(&object) else {
        return false;
    };
    let threads = &state.threads;
    tokens.retain(|token| {
        let thread = &threads[token.slot as usize];
        thread.epoch == token.epoch && !thread.is_woken
    });
    if tokens.is_empty() {
        state.waiters.remove(&object);
        return false;
    }
    let chosen = state.chooser.index(tokens.len());
    let token = tokens.swap_remove(chosen);
    state.wake(token);
    true
}

fn run_thread(slot: u32, yielder: &Yielder<(), ()>, body: Box<dyn FnOnce()>) {
    let world = world();
    HOT.with(|hot| hot.yielder.set(yielder));
    world.state.borrow_mut().threads[slot as usize].yielder = yielder;
    let result = catch_unwind(AssertUnwindSafe(body));
    if let Err(payload) = result {
        on_panic(&world, slot, &*payload);
    }
    world.end(slot);
}

/// A panic of the product ends the run; that of a killed thread is expected.
pub(super) fn on_panic(world: &World, slot: u32, payload: &(dyn Any + Send)) {
    if !payload.is::<Killed>() {
        let message = super::failure::take_panic_message();
        let thread = world.state.borrow().name_of(slot);
        world
            .state
            .borrow_mut()
            .fail(Failure::Panic { thread, message });
    }
}

/// Whether a panic is that of a killed thread and must continue.
pub(super) fn is_kill(payload: &(dyn Any + Send)) -> bool {
    payload.is::<Killed>()
}
