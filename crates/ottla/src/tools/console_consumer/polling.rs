//! When a console consumer stops: on a signal, on an error, after its timeout, and when its output
//! is closed.

use std::future::Future;
use std::time::{Duration, Instant};

use ottla_client::ClientError;
use rustix::event::{PollFd, PollFlags, poll};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

pub(in crate::tools) struct Polling {
    /// Maximum time without a record; `None` means no limit.
    timeout: Option<Duration>,
    last_record: Instant,
    interrupt: Signal,
    terminate: Signal,
    /// Completes when standard output is closed at the other end.
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

    /// The next records, if any; `None` when it is time to stop, after the reason was printed.
    pub(in crate::tools) async fn next<R>(
        &mut self,
        records: impl Future<Output = Result<Vec<R>, ClientError>>,
    ) -> Option<Vec<R>> {
        let records = tokio::select! {
            records = records => match records {
                Ok(records) => records,
                // No broker has answered for a long time, which the connection watch reports; one
                // may return.
                Err(ClientError::GaveUp { last, .. }) if last.is_retriable() => Vec::new(),
                Err(error) => {
                    // As in Kafka's tool, the error is printed and the exit status is 0.
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
                "No record arrived for {} ms (--timeout-ms); stopping.",
                timeout.as_millis()
            );
            return None;
        }
        Some(records)
    }
}

/// Detects that standard output is closed at the other end, as after `console-consumer | head -2`.
/// Otherwise this would be noticed only at the next record, which may never come. Uses a thread
/// that waits until the process exits; a file is never closed at the other end.
fn watch_output() -> oneshot::Receiver<()> {
    let (closed, output_closed) = oneshot::channel();
    std::thread::spawn(move || {
        let stdout = std::io::stdout();
        loop {
            // Errors and hang-ups are always reported.
            let mut watched = [PollFd::new(&stdout, PollFlags::empty())];
            match poll(&mut watched, None) {
                Ok(_) => break,
                Err(rustix::io::Errno::INTR) => {}
                // The sender is dropped, and the receiver never completes successfully.
                Err(_) => return,
            }
        }
        // The consumer may have ended for another reason.
        let _ = closed.send(());
    });
    output_closed
}
