//! Ctrl-C: the first one stops the run cleanly, the second kills it.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::target::local_cluster;

/// Whether the run should stop.
#[derive(Clone, Default, Debug)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// Set by SIGINT, SIGTERM and SIGHUP.
    pub fn by_signals() -> std::io::Result<Interruption> {
        use tokio::signal::unix::{SignalKind, signal};
        let interruption = Interruption::default();
        let set = interruption.clone();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hang_up = signal(SignalKind::hangup())?;
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hang_up.recv() => {}
                }
                if set.is_set() {
                    local_cluster::end_all_at_once();
                    eprintln!("\nkilled; topics of the run may remain on a running cluster");
                    std::process::exit(130);
                }
                set.set();
                // The program that has started this one may have ended, and with it the reader.
                let _ = writeln!(
                    std::io::stderr(),
                    "\nstopping the run and saving its results (Ctrl-C again to kill it)"
                );
            }
        });
        Ok(interruption)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[inline]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
