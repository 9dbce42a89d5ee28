//! When a console consumer stops waiting for records: on a signal, on an error, and after its timeout.

use std::future::Future;
use std::time::{Duration, Instant};

use ottla_client::ClientError;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub(in crate::tools) struct Polling {
    /// How long nothing may come; nothing stands for ever.
    timeout: Option<Duration>,
    last_record: Instant,
    interrupt: Signal,
    terminate: Signal,
}

impl Polling {
    pub(in crate::tools) fn new(timeout: Option<Duration>) -> std::io::Result<Self> {
        Ok(Polling {
            timeout,
            last_record: Instant::now(),
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
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
                Err(error) => {
                    // As Kafka's tool does: what went wrong is said, the end is an ordinary one.
                    eprintln!("Error processing message, terminating consumer process: {error}");
                    return None;
                }
            },
            _ = self.interrupt.recv() => return None,
            _ = self.terminate.recv() => return None,
        };
        let timeout = self.timeout;
        if !records.is_empty() {
            self.last_record = Instant::now();
        } else if let Some(timeout) = timeout.filter(|it| self.last_record.elapsed() > *it) {
            eprintln!(
                "Error processing message, terminating consumer process: no record came for {} ms",
                timeout.as_millis()
            );
            return None;
        }
        Some(records)
    }
}
