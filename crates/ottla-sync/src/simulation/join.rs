//! The end of a thread or task, and its waiters.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The thread or task was killed with its host, or aborted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Cancelled;

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cancelled")
    }
}

pub(crate) struct JoinState<T>(Mutex<Progress<T>>);

enum Progress<T> {
    Running(Option<Waker>),
    Ended(Result<T, Cancelled>),
    Taken,
}

impl<T> JoinState<T> {
    pub(crate) fn new() -> Arc<JoinState<T>> {
        Arc::new(JoinState(Mutex::new(Progress::Running(None))))
    }

    /// Held by the thread or task until it ends.
    pub(crate) fn completion(self: &Arc<Self>) -> Completion<T> {
        Completion(self.clone())
    }

    pub(crate) fn has_ended(&self) -> bool {
        !matches!(*self.0.lock(), Progress::Running(_))
    }

    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<T, Cancelled>> {
        let mut progress = self.0.lock();
        match std::mem::replace(&mut *progress, Progress::Taken) {
            Progress::Running(_) => {
                *progress = Progress::Running(Some(context.waker().clone()));
                Poll::Pending
            }
            Progress::Ended(result) => Poll::Ready(result),
            Progress::Taken => panic!("a result is taken once"),
        }
    }

    fn end(&self, result: Result<T, Cancelled>) {
        let mut progress = self.0.lock();
        if let Progress::Running(waker) = &mut *progress {
            let waker = waker.take();
            *progress = Progress::Ended(result);
            drop(progress);
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

/// Dropping it without [`Completion::complete`] reports a cancellation.
pub(crate) struct Completion<T>(Arc<JoinState<T>>);

impl<T> Completion<T> {
    pub(crate) fn complete(self, value: T) {
        self.0.end(Ok(value));
    }
}

impl<T> Drop for Completion<T> {
    fn drop(&mut self) {
        self.0.end(Err(Cancelled));
    }
}
