//! Stop signals from an operator, a service manager or a closing terminal.
//!
//! SIGINT, SIGTERM and SIGHUP, as in Kafka's JVM. If SIGHUP was ignored when the process started,
//! as under `nohup`, it stays ignored, because the server is meant to outlive the terminal.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct StopSignals {
    interrupted: Signal,
    terminated: Signal,
    /// `None` if SIGHUP is ignored.
    hung_up: Option<Signal>,
}

impl StopSignals {
    /// Installs the handlers; from now on the signals no longer kill the process.
    pub fn listen() -> io::Result<StopSignals> {
        let hung_up = if is_hangup_ignored() {
            None
        } else {
            Some(signal(SignalKind::hangup())?)
        };
        Ok(StopSignals {
            interrupted: signal(SignalKind::interrupt())?,
            terminated: signal(SignalKind::terminate())?,
            hung_up,
        })
    }

    /// Waits for the next signal.
    pub async fn next(&mut self) {
        let hung_up = async {
            match &mut self.hung_up {
                Some(signal) => signal.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.interrupted.recv() => {}
            _ = self.terminated.recv() => {}
            _ = hung_up => {}
        }
    }
}

/// Whether this process ignores SIGHUP, read from `/proc`, because the alternatives need `unsafe`.
fn is_hangup_ignored() -> bool {
    std::fs::read_to_string("/proc/self/status").is_ok_and(|status| ignores_hangup(&status))
}

/// `SigIgn` is a hexadecimal bit set; SIGHUP, number 1, is the lowest bit.
fn ignores_hangup(status: &str) -> bool {
    let set = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))
        .and_then(|set| u64::from_str_radix(set.trim(), 16).ok());
    set.is_some_and(|set| set & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::ignores_hangup;

    #[test]
    fn the_lowest_bit_is_sighup() {
        assert!(ignores_hangup("SigBlk:\t0\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigBlk:\t1\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup("Name:\tottla\n"));
    }
}
