//! The task of a connection, which can move to the threads of another runtime and back.
//!
//! A task of a runtime never leaves its threads. Here the task ends, and its future continues in a
//! new task on the other threads. So the whole connection is there while it sends an answer, with
//! its time limits and its end, and nothing of it has to be handed over or shared.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ottla_sync::atomic::{AtomicBool, Ordering};
use ottla_sync::task::Handle;
use ottla_sync::{BoxFuture, Mutex};

/// Where a task continues. Part of what the task works on.
#[derive(Debug, Default)]
pub struct Move {
    /// Tells that there is a destination without taking the lock.
    is_due: AtomicBool,
    destination: Mutex<Option<Handle>>,
}

impl Move {
    /// Continues the calling task on these threads. It must have been started by [`spawn`], and wait
    /// for nothing else at the same time.
    pub async fn to(&self, threads: Handle) {
        *self.destination.lock() = Some(threads);
        self.is_due.store(true, Ordering::Release);
        poll_fn(|_| match self.is_due.load(Ordering::Acquire) {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
    }

    fn take(&self) -> Option<Handle> {
        if !self.is_due.load(Ordering::Acquire) {
            return None;
        }
        self.is_due.store(false, Ordering::Release);
        self.destination.lock().take()
    }
}

/// Starts a task on the threads of the caller. It moves when its owner says so.
pub fn spawn<T>(owner: Arc<T>, work: impl Future<Output = ()> + Send + 'static)
where
    T: AsRef<Move> + Send + Sync + 'static,
{
    let work: BoxFuture<'static, ()> = Box::pin(work);
    let work = Some(work);
    Handle::current().spawn(MovableTask { owner, work });
}

struct MovableTask<T> {
    owner: Arc<T>,
    /// `None` after it has ended here.
    work: Option<BoxFuture<'static, ()>>,
}

impl<T: AsRef<Move> + Send + Sync + 'static> Future for MovableTask<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(mut work) = self.work.take() else {
            return Poll::Ready(());
        };
        if work.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let moved = (*self.owner).as_ref().take();
        let work = Some(work);
        match moved {
            // What the work waits for wakes the new task from its first poll on.
            Some(threads) => {
                let owner = Arc::clone(&self.owner);
                threads.spawn(MovableTask { owner, work });
                Poll::Ready(())
            }
            None => {
                self.work = work;
                Poll::Pending
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Owner(Move);

    impl AsRef<Move> for Owner {
        fn as_ref(&self) -> &Move {
            &self.0
        }
    }

    fn thread_name() -> Option<String> {
        std::thread::current().name().map(str::to_owned)
    }

    #[tokio::test]
    async fn a_task_moves_to_other_threads_and_back() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("others")
            .enable_all()
            .build()
            .unwrap();
        let others = {
            let _entered = runtime.enter();
            Handle::current()
        };
        let home = Handle::current();
        let owner = Arc::<Owner>::default();
        let moving = Arc::clone(&owner);
        let (send, names) = ottla_sync::oneshot::channel();
        spawn(owner, async move {
            let mut names = vec![thread_name()];
            moving.0.to(others).await;
            names.push(thread_name());
            // What it waits for there wakes it there.
            ottla_sync::time::sleep(std::time::Duration::from_millis(1)).await;
            names.push(thread_name());
            moving.0.to(home).await;
            names.push(thread_name());
            let _ = send.send(names);
        });
        let names = names.await.unwrap();
        let (here, there) = (thread_name(), Some("others".to_owned()));
        assert_eq!(names, [here.clone(), there.clone(), there, here]);
        runtime.shutdown_background();
    }
}
