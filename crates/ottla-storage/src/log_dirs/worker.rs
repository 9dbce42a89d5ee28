//! A thread that runs blocking tasks one after the other, each when it is due, urgent ones first.
//!
//! One worker limits the concurrency of its kind of work per disk. The queue needs no limit,
//! because a log never has more than a few tasks in it.
//!
//! tokio-util's `DelayQueue` does not fit: a runtime polls it, and the tasks here block, on a
//! thread of their own.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ottla_sync::thread::JoinHandle;
use ottla_sync::{Condvar, Mutex};

type Task = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
pub(super) struct Worker {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    changed: Condvar,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shared")
    }
}

#[derive(Default)]
struct Queue {
    /// An urgent task on top, then the earliest; among equal ones the first submitted.
    tasks: BinaryHeap<Reverse<Entry>>,
    next_number: u64,
    is_stopping: bool,
}

struct Entry {
    is_urgent: bool,
    due: Instant,
    number: u64,
    is_delayed: bool,
    task: Task,
}

impl Entry {
    fn key(&self) -> (bool, Instant, u64) {
        (!self.is_urgent, self.due, self.number)
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

impl Worker {
    pub(super) fn start(name: &str) -> Worker {
        let shared = Arc::new(Shared::default());
        let theirs = shared.clone();
        let thread = ottla_sync::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || theirs.run())
            .expect("the system gives a thread");
        Worker {
            shared,
            thread: Mutex::new(Some(thread)),
        }
    }

    /// Runs `task` after `delay`. Dropped without running if the worker is stopped; returns whether
    /// it is not.
    pub(super) fn submit(&self, delay: Duration, task: impl FnOnce() + Send + 'static) -> bool {
        self.shared.enqueue(false, delay, Box::new(task))
    }

    /// The same for a task that no waiting one may delay.
    pub(super) fn submit_first(&self, task: impl FnOnce() + Send + 'static) -> bool {
        self.shared.enqueue(true, Duration::ZERO, Box::new(task))
    }

    /// Runs `task` after `delay`, and again after every `pause` until it returns true. Other tasks run
    /// in between, and a stop does not wait for it.
    pub(super) fn submit_until_done(
        &self,
        delay: Duration,
        pause: Duration,
        task: impl FnMut() -> bool + Send + 'static,
    ) {
        submit_until_done(&self.shared, delay, pause, task);
    }

    /// Runs the tasks submitted without a delay, drops the delayed ones, and ends the thread.
    pub(super) fn stop(&self) {
        self.shared.queue.lock().is_stopping = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.lock().take() {
            // A panic of a task was reported where it happened.
            let _ = thread.join();
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.queue.lock().is_stopping = true;
        self.shared.changed.notify_one();
    }
}

fn submit_until_done(
    shared: &Arc<Shared>,
    delay: Duration,
    pause: Duration,
    mut task: impl FnMut() -> bool + Send + 'static,
) {
    let queue = Arc::downgrade(shared);
    let attempt = move || {
        if !task()
            && let Some(shared) = queue.upgrade()
        {
            submit_until_done(&shared, pause, pause, task);
        }
    };
    shared.enqueue(false, delay, Box::new(attempt));
}

impl Shared {
    /// Returns whether the worker is not stopped.
    fn enqueue(&self, is_urgent: bool, delay: Duration, task: Task) -> bool {
        let mut queue = self.queue.lock();
        if queue.is_stopping {
            return false;
        }
        let number = queue.next_number;
        queue.next_number += 1;
        queue.tasks.push(Reverse(Entry {
            is_urgent,
            due: ottla_sync::time::now() + delay,
            number,
            is_delayed: !delay.is_zero(),
            task,
        }));
        self.changed.notify_one();
        true
    }

    fn run(&self) {
        while let Some(task) = self.next() {
            task();
        }
    }

    fn next(&self) -> Option<Task> {
        let mut queue = self.queue.lock();
        loop {
            if queue.is_stopping {
                queue.tasks.retain(|Reverse(entry)| !entry.is_delayed);
                return queue.tasks.pop().map(|Reverse(entry)| entry.task);
            }
            match queue.tasks.peek().map(|Reverse(entry)| entry.due) {
                None => self.changed.wait(&mut queue),
                Some(due) if due <= ottla_sync::time::now() => {
                    return queue.tasks.pop().map(|Reverse(entry)| entry.task);
                }
                Some(due) => {
                    self.changed.wait_until(&mut queue, due);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::Worker;

    #[test]
    fn tasks_run_when_they_are_due() {
        let worker = Worker::start("test");
        let (sender, receiver) = mpsc::channel();
        // The first is due after the last also if submitting them takes long.
        for (delay_ms, name) in [(3_000, "late"), (0, "first"), (0, "second"), (10, "soon")] {
            let sender = sender.clone();
            worker.submit(Duration::from_millis(delay_ms), move || {
                sender.send(name).unwrap();
            });
        }
        let order: Vec<_> = receiver.iter().take(4).collect();
        assert_eq!(order, ["first", "second", "soon", "late"]);
    }

    #[test]
    fn an_urgent_task_overtakes_those_that_wait() {
        let worker = Worker::start("test");
        let (sender, receiver) = mpsc::channel();
        let (hung_until, hangs) = mpsc::channel::<()>();
        worker.submit(Duration::ZERO, move || {
            let _ = hangs.recv();
        });
        let send = |name: &'static str| {
            let sender = sender.clone();
            move || sender.send(name).unwrap()
        };
        worker.submit(Duration::ZERO, send("waiting"));
        worker.submit_first(send("urgent"));
        worker.submit_first(send("urgent, too"));
        drop(hung_until);
        worker.stop();
        let order: Vec<_> = receiver.try_iter().collect();
        assert_eq!(order, ["urgent", "urgent, too", "waiting"]);
    }

    #[test]
    fn a_stop_runs_due_tasks_and_drops_the_rest() {
        let worker = Worker::start("test");
        let (sender, receiver) = mpsc::channel();
        for (delay_s, name) in [(3600, "never"), (0, "now")] {
            let sender = sender.clone();
            worker.submit(Duration::from_secs(delay_s), move || {
                sender.send(name).unwrap();
            });
        }
        worker.stop();
        assert!(!worker.submit(Duration::ZERO, move || sender.send("after").unwrap()));
        assert_eq!(receiver.iter().collect::<Vec<_>>(), ["now"]);
    }
}
