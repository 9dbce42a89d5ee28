//! CPU time of the whole machine except this process, from `/proc/stat`. Besides the process under
//! measurement, it contains what the kernel's threads do for it: above all, writing its files to the
//! disk. It also contains whatever else runs, so the machine must be idle otherwise.

use std::time::Duration;

use anyhow::Result;
use procfs::{CurrentSI, KernelStats};

use super::process_usage::ProcessUsage;

/// The CPU time at one moment.
#[derive(Clone, Copy, Debug)]
pub struct RestOfMachine {
    all: Duration,
    own: Duration,
}

impl RestOfMachine {
    /// First writes all files to the disks, so that earlier work does not count.
    pub fn now() -> Result<RestOfMachine> {
        rustix::fs::sync();
        Ok(RestOfMachine {
            all: busy_time()?,
            own: ProcessUsage::of_this_process()?.cpu,
        })
    }

    /// CPU seconds since then, until all files are on the disks.
    pub fn cpu_seconds_since(&self) -> Result<f64> {
        let own = ProcessUsage::of_this_process()?.cpu;
        rustix::fs::sync();
        let all = busy_time()?.saturating_sub(self.all);
        let rest = all.saturating_sub(own.saturating_sub(self.own));
        Ok(rest.as_secs_f64())
    }
}

/// Time that the processors have worked since the start of the machine, with the resolution of a clock
/// tick. Without time that a hypervisor took.
fn busy_time() -> Result<Duration> {
    let total = KernelStats::current()?.total;
    let interrupts = total.irq.unwrap_or(0) + total.softirq.unwrap_or(0);
    let ticks = total.user + total.nice + total.system + interrupts;
    let seconds = ticks as f64 / procfs::ticks_per_second() as f64;
    Ok(Duration::from_secs_f64(seconds))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn the_work_of_another_process_is_counted() {
        const WORK: Duration = Duration::from_millis(300);
        let before = RestOfMachine::now().unwrap();
        let mut other = Command::new("sh");
        let mut other = other.args(["-c", "while :; do :; done"]).spawn().unwrap();
        while ProcessUsage::of(other.id()).unwrap().cpu < WORK {
            std::thread::sleep(Duration::from_millis(10));
        }
        other.kill().unwrap();
        other.wait().unwrap();
        let counted = before.cpu_seconds_since().unwrap();
        // Both are counted in clock ticks.
        assert!(counted > WORK.as_secs_f64() / 2.0, "{counted} s");
    }
}
