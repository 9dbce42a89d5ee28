//! When a console consumer stops waiting for records: on a signal, on an error, after its timeout, and when nobody reads
//! what it prints any more.

use std::future::Future;
use std::time::{Duration, Instant};

use ottla_client::ClientError;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

pub(in crate::tools) struct Polling {
    /// How long nothing may come; nothing stands for ever.
    timeout: Option<Duration>,
    last_record: Instant,
    interrupt: Signal,
    terminate: Signal,
    /// Answers when nobody can read standard output any more.
    output_closed: oneshot::Receiver<()>,
}

impl Polling {
    pub(in crate::tools) fn new(timeout: Option<Duration>) -> std::io::Result<Self> {
        Ok(Polling {
            timeout,
            last_record: Instant::now(),
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            output_closed: watch_output(),
        })
    }

    /// How long to wait for the next records.
    pub(in crate::tools) fn pause(&self) -> Duration {
        let second = Duration::from_secs(1);
        self.timeout.map_or(second, |timeout| {
            timeout
                .saturating_sub(self.last_record.elapsed())
                .min(second)
        })
    }

    /// The records that come, if any; `None` when it is time to stop, of which the reason is printed.
    pub(in crate::tools) async fn next<R>(
        &mut self,
        records: impl Future<Output = Result<Vec<R>, ClientError>>,
    ) -> Option<Vec<R>> {
        let records = tokio::select! {
            records = records => match records {
                Ok(records) => records,
                // No broker has answered for long, which the watch over the connections tells: one may come back.
                Err(ClientError::GaveUp { last, .. }) if last.is_retriable() => Vec::new(),
                Err(error) => {
                    // As Kafka's tool does: what went wrong is said, the end is an ordinary one.
                    eprintln!("Error processing message, terminating consumer process: {error}");
                    return None;
                }
            },
            _ = self.interrupt.recv() => return None,
            _ = self.terminate.recv() => return None,
            Ok(()) = &mut self.output_closed => {
                eprintln!("Unable to write to standard out, closing consumer.");
                return None;
            }
        };
        let timeout = self.timeout;
        if !records.is_empty() {
            self.last_record = Instant::now();
        } else if let Some(timeout) = timeout.filter(|it| self.last_record.elapsed() > *it) {
            eprintln!(
                "No record came for {} ms (--timeout-ms); stopping.",
                timeout.as_millis()
            );
            return None;
        }
        Some(records)
    }
}

/// Finds out that nobody can read standard output any more, as after `console-consumer | head -2`: without it, that would
/// show with the next record, which may never come. On a thread that waits as long as the process lives; a file is never
/// closed at the other end.
fn watch_output() -> oneshot::Receiver<()> {
    let (closed, output_closed) = oneshot::channel();
    std::thread::spawn(move || {
        let stdout = std::io::stdout();
        loop {
            // Errors and hang-ups are reported without being asked for.
            let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
            match poll(&mut watched, None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                // The sender is dropped, and the answer never comes.
                Err(_) => return,
            }
        }
        // The consumer may have ended for another reason.
        let _ = closed.send(());
    });
    output_closed
}
