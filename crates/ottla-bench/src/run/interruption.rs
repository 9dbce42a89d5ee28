//! Ctrl-C: the first ends the run in order, the second at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::target::local_cluster;

/// Whether somebody wants the run to end.
#[derive(Clone, Default, Debug)]
pub struct Interruption(Arc<AtomicBool>);

impl Interruption {
    /// One that SIGINT, SIGTERM and the end of the terminal set.
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
                    eprintln!(
                        "\nended at once; topics of the run may be left on a cluster that runs"
                    );
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
