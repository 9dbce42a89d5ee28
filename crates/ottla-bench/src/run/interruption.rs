//! Ctrl-C: the first ends the run in order, the second at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether somebody wants the run to end.
#[derive(Clone, Default, Debug)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// One that SIGINT and SIGTERM set.
    pub fn by_signals() -> std::io::Result<Interruption> {
        use tokio::signal::unix::{SignalKind, signal};
        let interruption = Interruption::default();
        let set = interruption.clone();
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                if set.is_set() {
                    eprintln!("\nended at once; brokers and topics of the run may be left");
                    std::process::exit(130);
                }
                eprintln!("\nending the run; what was measured is kept (again to end at once)");
                set.set();
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
