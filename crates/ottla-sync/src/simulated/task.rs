//! Tasks, polled by the workers of the caller's host or by tokio's.

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

pub use tokio::runtime::TryCurrentError;

use super::thread;
use crate::BoxFuture;
use crate::simulation::executor::{self, TaskId};
use crate::simulation::join::JoinState;
use crate::simulation::world;

/// The task was aborted or has panicked.
#[derive(Debug)]
pub struct JoinError(Option<tokio::task::JoinError>);

impl JoinError {
    pub fn is_panic(&self) -> bool {
        self.0.as_ref().is_some_and(|error| error.is_panic())
    }

    pub fn into_panic(self) -> Box<dyn Any + Send> {
        let error = self.0.expect("a simulated task that panics ends the run");
        error.into_panic()
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(error) => error.fmt(f),
            None => f.write_str("task was cancelled"),
        }
    }
}

impl std::error::Error for JoinError {}

pub struct JoinHandle<T>(Kind<T>);

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinHandle { .. }")
    }
}

enum Kind<T> {
    Tokio(tokio::task::JoinHandle<T>),
    Simulated(Option<TaskId>, Arc<JoinState<T>>),
}

impl<T> JoinHandle<T> {
    pub fn abort(&self) {
        match &self.0 {
            Kind::Tokio(handle) => handle.abort(),
            Kind::Simulated(id, _) => id.iter().for_each(|id| executor::abort(*id)),
        }
    }

    pub fn abort_handle(&self) -> AbortHandle {
        AbortHandle(match &self.0 {
            Kind::Tokio(handle) => AbortKind::Tokio(handle.abort_handle()),
            Kind::Simulated(id, _) => AbortKind::Simulated(*id),
        })
    }

    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Tokio(handle) => handle.is_finished(),
            Kind::Simulated(_, state) => state.has_ended(),
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Kind::Tokio(handle) => {
                let polled = Pin::new(handle).poll(context);
                polled.map_err(|error| JoinError(Some(error)))
            }
            Kind::Simulated(_, state) => state.poll(context).map_err(|_| JoinError(None)),
        }
    }
}

#[derive(Clone, Debug)]
pub struct AbortHandle(AbortKind);

#[derive(Clone, Debug)]
enum AbortKind {
    Tokio(tokio::task::AbortHandle),
    Simulated(Option<TaskId>),
}

impl AbortHandle {
    pub fn abort(&self) {
        match &self.0 {
            AbortKind::Tokio(handle) => handle.abort(),
            AbortKind::Simulated(id) => id.iter().for_each(|id| executor::abort(*id)),
        }
    }
}

#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    let future: BoxFuture<'static, F::Output> = Box::pin(future);
    spawn_boxed(future, Location::caller())
}

/// Boxed, as in the product: the code of tasks is generated for each type of result, not for each task.
fn spawn_boxed<T: Send + 'static>(
    future: BoxFuture<'static, T>,
    at: &'static Location<'static>,
) -> JoinHandle<T> {
    match world::is_simulated() {
        true => spawn_simulated(future, at),
        false => JoinHandle(Kind::Tokio(tokio::spawn(future))),
    }
}

fn spawn_simulated<T: Send + 'static>(
    future: BoxFuture<'static, T>,
    at: &'static Location<'static>,
) -> JoinHandle<T> {
    let state = JoinState::new();
    let completion = state.completion();
    let task = async move { completion.complete(future.await) };
    let id = executor::spawn(Box::pin(task), at);
    JoinHandle(Kind::Simulated(Some(id), state))
}

type BoxedWork<T> = Box<dyn FnOnce() -> T + Send>;

/// In the simulation a new thread, because nothing depends on the size of the blocking pool.
pub fn spawn_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    let work: BoxedWork<T> = Box::new(work);
    spawn_boxed_work(work)
}

fn spawn_boxed_work<T: Send + 'static>(work: BoxedWork<T>) -> JoinHandle<T> {
    if !world::is_simulated() {
        return JoinHandle(Kind::Tokio(tokio::task::spawn_blocking(work)));
    }
    let state = JoinState::new();
    let completion = state.completion();
    thread::start("blocking", move || completion.complete(work()));
    JoinHandle(Kind::Simulated(None, state))
}

pub async fn yield_now() {
    if !world::is_simulated() {
        return tokio::task::yield_now().await;
    }
    let mut has_yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await
}

/// A handle for spawning tasks from threads outside the runtime.
#[derive(Clone, Debug)]
pub struct Handle(Option<tokio::runtime::Handle>);

impl Handle {
    /// For a simulated thread, its host.
    pub fn current() -> Handle {
        match world::is_simulated() {
            true => Handle(None),
            false => Handle(Some(tokio::runtime::Handle::current())),
        }
    }

    /// Fails on a thread without a runtime; a simulated thread always has its host's.
    pub fn try_current() -> Result<Handle, TryCurrentError> {
        match world::is_simulated() {
            true => Ok(Handle(None)),
            false => Ok(Handle(Some(tokio::runtime::Handle::try_current()?))),
        }
    }

    /// Until the guard is dropped, this thread spawns on the runtime. A simulated thread always
    /// spawns on its host.
    pub fn enter(&self) -> EnterGuard<'_> {
        EnterGuard {
            _guard: self.0.as_ref().map(tokio::runtime::Handle::enter),
        }
    }

    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let future: BoxFuture<'static, F::Output> = Box::pin(future);
        match &self.0 {
            Some(handle) => JoinHandle(Kind::Tokio(handle.spawn(future))),
            None => spawn_simulated(future, Location::caller()),
        }
    }

    pub fn spawn_blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let work: BoxedWork<T> = Box::new(work);
        match &self.0 {
            Some(handle) => JoinHandle(Kind::Tokio(handle.spawn_blocking(work))),
            None => spawn_boxed_work(work),
        }
    }

    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        match &self.0 {
            Some(handle) => handle.block_on(future),
            None => executor::block_on(future, Location::caller()),
        }
    }
}

/// The number of worker threads of the caller's runtime and their total busy time; unknown on a
/// simulated host.
pub fn worker_busy_time() -> Option<(usize, std::time::Duration)> {
    if world::is_simulated() {
        return None;
    }
    let metrics = tokio::runtime::Handle::current().metrics();
    let workers = 0..metrics.num_workers();
    let busy = workers
        .clone()
        .map(|n| metrics.worker_total_busy_duration(n));
    Some((workers.len(), busy.sum()))
}

/// See [`Handle::enter`].
#[derive(Debug)]
pub struct EnterGuard<'a> {
    _guard: Option<tokio::runtime::EnterGuard<'a>>,
}

/// A set of tasks whose results are taken as they end. Dropping it aborts the others.
pub struct JoinSet<T>(SetKind<T>);

enum SetKind<T> {
    Tokio(tokio::task::JoinSet<T>),
    Simulated(Vec<JoinHandle<T>>),
}

impl<T: Send + 'static> Default for JoinSet<T> {
    fn default() -> Self {
        JoinSet::new()
    }
}

impl<T: Send + 'static> JoinSet<T> {
    pub fn new() -> JoinSet<T> {
        JoinSet(match world::is_simulated() {
            true => SetKind::Simulated(Vec::new()),
            false => SetKind::Tokio(tokio::task::JoinSet::new()),
        })
    }

    #[track_caller]
    pub fn spawn(&mut self, future: impl Future<Output = T> + Send + 'static) -> AbortHandle {
        let future: BoxFuture<'static, T> = Box::pin(future);
        match &mut self.0 {
            SetKind::Tokio(set) => AbortHandle(AbortKind::Tokio(set.spawn(future))),
            SetKind::Simulated(tasks) => {
                let task = spawn_simulated(future, Location::caller());
                let handle = task.abort_handle();
                tasks.push(task);
                handle
            }
        }
    }

    pub fn len(&self) -> usize {
        match &self.0 {
            SetKind::Tokio(set) => set.len(),
            SetKind::Simulated(tasks) => tasks.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        std::future::poll_fn(|context| self.poll_join_next(context)).await
    }

    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        match self.poll_join_next(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending => None,
        }
    }

    pub async fn join_all(mut self) -> Vec<T> {
        let mut results = Vec::new();
        while let Some(result) = self.join_next().await {
            results.push(result.expect("no task of the set panics or is aborted"));
        }
        results
    }

    pub async fn shutdown(&mut self) {
        match &mut self.0 {
            SetKind::Tokio(set) => set.abort_all(),
            SetKind::Simulated(tasks) => tasks.iter().for_each(JoinHandle::abort),
        }
        while self.join_next().await.is_some() {}
    }

    fn poll_join_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        let tasks = match &mut self.0 {
            SetKind::Tokio(set) => {
                let polled = set.poll_join_next(context);
                return polled.map(|next| next.map(|r| r.map_err(|error| JoinError(Some(error)))));
            }
            SetKind::Simulated(tasks) => tasks,
        };
        for index in 0..tasks.len() {
            if let Poll::Ready(result) = Pin::new(&mut tasks[index]).poll(context) {
                tasks.swap_remove(index);
                return Poll::Ready(Some(result));
            }
        }
        match tasks.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        if let SetKind::Simulated(tasks) = &mut self.0 {
            tasks.iter().for_each(JoinHandle::abort);
        }
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinSet { .. }")
    }
}
