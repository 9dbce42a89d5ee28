//! How threads are scheduled that leave the processors to others: those for work at remote storage.
//!
//! The share that such a thread gets of a busy processor is only one half. The other half is how
//! soon a thread of normal priority runs that wakes up while such a thread runs. Since Linux 6.6, a
//! running thread keeps the processor to the end of its slice, whatever its niceness: that is up to
//! the next tick of the timer, 4 ms with the common 250 ticks a second. Since Linux 6.12, a thread
//! that wakes up does not wait for one with a longer slice.

use std::io;
use std::time::Duration;

/// The niceness. A thread of normal priority gets 28 times as much of a contended processor as one
/// of these. They are never left without any: on a processor that producers keep busy, one gets a
/// slice about every 110 ms. A read takes a few of them, and `remote.fetch.max.wait.ms` is 500 by
/// default; with the highest niceness, 19, a slice comes every 270 ms.
const NICENESS: i32 = 15;
/// Longer than the slice of other threads, which is at most 3 ms unless the kernel is tuned. Shorter
/// ones would cost more switches; with longer ones, such a thread has to wait longer for the next.
const SLICE: Duration = Duration::from_millis(4);

/// Lowers the priority of the calling thread. The threads that it starts inherit it.
pub fn lower_priority() {
    // Less than the niceness of the process would need a privilege.
    let own = rustix::process::getpriority_process(None).unwrap_or(0);
    let niceness = own.max(NICENESS);
    if set_scheduling(niceness).is_err() {
        // A sandbox may allow only this. On Linux, it concerns the calling thread alone.
        let _ = rustix::process::setpriority_process(None, niceness);
    }
}

/// `SCHED_BATCH`: when the thread wakes up, it does not interrupt the one that runs.
fn set_scheduling(niceness: i32) -> io::Result<()> {
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_BATCH as u32,
        sched_flags: 0,
        sched_nice: niceness,
        sched_priority: 0,
        // With this policy, the slice. Kernels before 6.12 ignore it.
        sched_runtime: SLICE.as_nanos() as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    let (calling_thread, flags) = (0, 0);
    // SAFETY: `attributes` outlives the call, which only reads it.
    let result = unsafe {
        libc::syscall(
            libc::SYS_sched_setattr,
            calling_thread,
            &raw const attributes,
            flags,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Niceness and policy of the calling thread.
    fn scheduling() -> (i32, i32) {
        let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
        let (_, after_name) = stat.rsplit_once(')').unwrap();
        let fields: Vec<i64> = after_name
            .split_whitespace()
            .skip(1)
            .map(|field| field.parse().unwrap_or(i64::MAX))
            .collect();
        // Fields 19 and 41 of proc(5); the first one here is field 4.
        (fields[15] as i32, fields[37] as i32)
    }

    #[test]
    fn only_the_calling_thread_has_a_low_priority() {
        let before = scheduling();
        let lowered = || {
            lower_priority();
            // Again, as a thread that inherits it.
            lower_priority();
            scheduling()
        };
        let lowered = std::thread::spawn(lowered).join().unwrap();
        assert_eq!(lowered, (before.0.max(NICENESS), libc::SCHED_BATCH));
        assert_eq!(scheduling(), before);
    }
}
