//! Threads: coroutines of the caller's host, or the system's threads.

use std::any::Any;
use std::io;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use crate::simulation::executor;
use crate::simulation::join::JoinState;
use crate::simulation::trace::Op;
use crate::simulation::world::{self, Wait};

pub struct JoinHandle<T>(Kind<T>);

enum Kind<T> {
    System(std::thread::JoinHandle<T>),
    Simulated(Arc<JoinState<T>>),
}

impl<T> JoinHandle<T> {
    pub(crate) fn simulated(state: Arc<JoinState<T>>) -> JoinHandle<T> {
        JoinHandle(Kind::Simulated(state))
    }

    /// Waits for the end of the thread. An error if it panicked or was killed.
    #[track_caller]
    pub fn join(self) -> Result<T, Box<dyn Any + Send>> {
        match self.0 {
            Kind::System(handle) => handle.join(),
            Kind::Simulated(state) => join(&state, Location::caller()),
        }
    }

    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::System(handle) => handle.is_finished(),
            Kind::Simulated(state) => state.has_ended(),
        }
    }
}

impl<T> std::fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JoinHandle { .. }")
    }
}

fn join<T>(state: &JoinState<T>, at: &'static Location<'static>) -> Result<T, Box<dyn Any + Send>> {
    let ended = std::future::poll_fn(|context| state.poll(context));
    executor::block_on(ended, at).map_err(|cancelled| Box::new(cancelled.to_string()) as _)
}

#[track_caller]
pub fn spawn<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    match world::is_simulated() {
        true => start("thread", body),
        false => JoinHandle(Kind::System(std::thread::spawn(body))),
    }
}

/// Starts a thread on the caller's host. A dying host starts none.
pub(super) fn start<T: 'static>(name: &str, body: impl FnOnce() -> T + 'static) -> JoinHandle<T> {
    let state = JoinState::new();
    let completion = state.completion();
    if world::is_dying() {
        return JoinHandle::simulated(state);
    }
    let world = world::world();
    let body = Box::new(move || completion.complete(body()));
    world.spawn(world.host(), name, body);
    world::switch_point(Op::Spawn);
    JoinHandle::simulated(state)
}

#[derive(Default, Debug)]
pub struct Builder {
    name: Option<String>,
    stack_size: Option<usize>,
}

impl Builder {
    pub fn new() -> Builder {
        Builder::default()
    }

    pub fn name(mut self, name: String) -> Builder {
        self.name = Some(name);
        self
    }

    /// Ignored for simulated threads.
    pub fn stack_size(mut self, bytes: usize) -> Builder {
        self.stack_size = Some(bytes);
        self
    }

    pub fn spawn<T: Send + 'static>(
        self,
        body: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<JoinHandle<T>> {
        if world::is_simulated() {
            Ok(start(self.name.as_deref().unwrap_or("thread"), body))
        } else {
            let handle = self.of_the_system().spawn(body)?;
            Ok(JoinHandle(Kind::System(handle)))
        }
    }

    fn of_the_system(self) -> std::thread::Builder {
        let mut builder = std::thread::Builder::new();
        if let Some(name) = self.name {
            builder = builder.name(name);
        }
        if let Some(bytes) = self.stack_size {
            builder = builder.stack_size(bytes);
        }
        builder
    }
}

#[track_caller]
pub fn sleep(duration: Duration) {
    if !world::is_simulated() {
        std::thread::sleep(duration);
        return;
    }
    let deadline = world::world().deadline_in(duration);
    let token = world::prepare_wait();
    world::block(token, Wait::Sleep, Location::caller(), Some(deadline));
}

#[track_caller]
pub fn yield_now() {
    match world::is_simulated() {
        true => world::yield_point(),
        false => std::thread::yield_now(),
    }
}

/// Increases whenever this thread waits; `None` if that is not counted. Simulated time passes for a
/// thread only while it waits.
pub fn waits() -> Option<i64> {
    match world::is_simulated() {
        true => Some(world::world().now() as i64),
        false => crate::kernel::thread_waits(),
    }
}

/// Processor time of this thread; `None` if that is not counted, as in a simulation.
pub fn cpu_time() -> Option<Duration> {
    match world::is_simulated() {
        true => None,
        false => crate::kernel::thread_cpu_time(),
    }
}

/// Threads that may borrow from the starting thread's stack: all have ended when `scope` returns.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(&Scope<'scope, 'env>) -> T) -> T {
    if !world::is_simulated() {
        return std::thread::scope(|scope| body(&Scope(ScopeKind::System(scope))));
    }
    let threads = Threads::default();
    let scope = Scope(ScopeKind::Simulated(&threads, PhantomData));
    body(&scope)
}

pub struct Scope<'scope, 'env: 'scope>(ScopeKind<'scope, 'env>);

enum ScopeKind<'scope, 'env: 'scope> {
    System(&'scope std::thread::Scope<'scope, 'env>),
    Simulated(
        *const Threads,
        PhantomData<(&'scope mut &'scope (), &'env mut &'env ())>,
    ),
}

/// The simulated threads of a scope. Dropping it waits for them, also when the scope unwinds
/// because of a panic or a killed host.
#[derive(Default)]
struct Threads(parking_lot::Mutex<Vec<Arc<JoinState<()>>>>);

impl Drop for Threads {
    fn drop(&mut self) {
        let mut killed = None;
        for thread in std::mem::take(&mut *self.0.lock()) {
            while !thread.has_ended() {
                let waited = catch_unwind(AssertUnwindSafe(|| match killed {
                    None => wait_for_end(&thread),
                    Some(_) => world::wait_while_dying(),
                }));
                killed = waited.err().or(killed.take());
            }
        }
        // Killed here, and not in the body of the scope: the threads had to end first.
        if let Some(killed) = killed {
            resume_unwind(killed);
        }
    }
}

fn wait_for_end(thread: &JoinState<()>) {
    let ended = std::future::poll_fn(|context| match thread.has_ended() {
        true => Poll::Ready(()),
        false => thread.poll(context).map(drop),
    });
    executor::block_on(ended, Location::caller());
}

pub struct ScopedJoinHandle<'scope, T>(ScopedKind<'scope, T>);

enum ScopedKind<'scope, T> {
    System(std::thread::ScopedJoinHandle<'scope, T>),
    Simulated(Arc<JoinState<T>>),
}

impl<'scope> Scope<'scope, '_> {
    #[track_caller]
    pub fn spawn<T: Send + 'scope>(
        &self,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let threads = match &self.0 {
            ScopeKind::System(scope) => {
                return ScopedJoinHandle(ScopedKind::System(scope.spawn(body)));
            }
            ScopeKind::Simulated(threads, _) => *threads,
        };
        let state = JoinState::new();
        let completion = state.completion();
        let body: Box<dyn FnOnce() + 'scope> = Box::new(move || completion.complete(body()));
        // SAFETY: the transmuted closure is called and dropped before `'scope` ends: the thread owns it, and `Threads`,
        // which `scope` drops on every exit, waits until the thread has ended.
        let body: Box<dyn FnOnce()> = unsafe { std::mem::transmute(body) };
        let JoinHandle(Kind::Simulated(ended)) = start("scoped thread", body) else {
            unreachable!("a simulated thread was started");
        };
        // SAFETY: `scope` has `Threads` on its stack as long as there is a `Scope` that points to it.
        unsafe { &*threads }.0.lock().push(ended);
        ScopedJoinHandle(ScopedKind::Simulated(state))
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    #[track_caller]
    pub fn join(self) -> Result<T, Box<dyn Any + Send>> {
        match self.0 {
            ScopedKind::System(handle) => handle.join(),
            ScopedKind::Simulated(state) => join(&state, Location::caller()),
        }
    }
}
