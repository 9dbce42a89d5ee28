//! Measures the processor time of appends.
//!
//! Wall clock time would include the time in which another thread had the processor. The kernel's
//! work to get memory for the page cache is processor time, and so is, in a virtual machine, the
//! host's work to provide it.

use std::time::Duration;

use ottla_sync::thread;

/// One in this many appends of a partition is measured: reading the time is a system call.
const APPENDS_PER_MEASUREMENT: u8 = 16;

/// Chooses the appends of a partition that are measured.
#[derive(Default)]
pub(super) struct AppendMeter {
    appends: u8,
}

impl AppendMeter {
    /// The thread's processor time, if this append is to be measured.
    pub(super) fn begin(&mut self) -> Option<Duration> {
        self.appends = (self.appends + 1) % APPENDS_PER_MEASUREMENT;
        match self.appends {
            0 => thread::cpu_time(),
            _ => None,
        }
    }
}

/// This thread's processor time since it was `began`, in nanoseconds.
pub(super) fn cpu_ns_since(began: Duration) -> Option<u64> {
    let took = thread::cpu_time()?.checked_sub(began)?;
    u64::try_from(took.as_nanos()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_appends_are_measured() {
        let mut meter = AppendMeter::default();
        let appends = 4 * usize::from(APPENDS_PER_MEASUREMENT);
        let measured: Vec<Duration> = (0..appends).filter_map(|_| meter.begin()).collect();
        assert_eq!(measured.len(), 4);
        assert!(measured.is_sorted());
        assert!(cpu_ns_since(measured[0]).is_some());
        assert_eq!(cpu_ns_since(Duration::MAX), None);
    }
}
