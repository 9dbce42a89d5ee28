//! When records are due, and waiting for it.
//!
//! A run at a rate is an open loop: each record has a due time that does not depend on earlier
//! records, so that a stalled broker still gets, and is measured on, the records due during the
//! stall. Times are nanoseconds since the start of the run, on a monotonic clock.

use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// The clock of a run.
#[derive(Clone, Copy, Debug)]
pub struct RunClock {
    start: Instant,
}

impl RunClock {
    pub fn start() -> RunClock {
        RunClock {
            start: Instant::now(),
        }
    }

    #[inline]
    pub fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    pub fn instant(&self, nanoseconds: u64) -> Instant {
        self.start + Duration::from_nanos(nanoseconds)
    }
}

/// The due times of one of several threads' records; the threads take turns.
#[derive(Clone, Copy, Debug)]
pub struct Schedule {
    pace: Pace,
    threads: u64,
    thread: u64,
}

/// How the due time of a record follows from its number.
#[derive(Clone, Copy, Debug)]
enum Pace {
    Even {
        nanoseconds_per_record: f64,
    },
    /// The rate starts at `from` records per second and grows by `growth` per second.
    Rising {
        from: f64,
        growth: f64,
    },
}

impl Schedule {
    /// `records_per_second` must be positive, and is that of all threads together.
    pub fn new(records_per_second: f64, threads: u64, thread: u64) -> Schedule {
        Schedule {
            pace: Pace::Even {
                nanoseconds_per_record: 1e9 / records_per_second,
            },
            threads,
            thread,
        }
    }

    /// The rate changes linearly from one to the other, both above 0, over this many seconds, and
    /// continues like that.
    pub fn ramp(from: f64, to: f64, seconds: f64, threads: u64, thread: u64) -> Schedule {
        Schedule {
            pace: Pace::Rising {
                from,
                growth: (to - from) / seconds,
            },
            threads,
            thread,
        }
    }

    /// When this thread's record with this number is due.
    #[inline]
    pub fn due(&self, turn: u64) -> u64 {
        let place = turn * self.threads + self.thread;
        match self.pace {
            Pace::Even {
                nanoseconds_per_record,
            } => (place as f64 * nanoseconds_per_record) as u64,
            // The number of records until t is from·t + growth·t²/2, solved for t in a form that is
            // stable for a growth of 0. A rate that falls to zero has no due time for further
            // records.
            Pace::Rising { from, growth } => {
                let root = from * from + 2.0 * growth * place as f64;
                if root < 0.0 {
                    u64::MAX
                } else {
                    (2.0 * place as f64 / (from + root.sqrt()) * 1e9) as u64
                }
            }
        }
    }
}

/// When a record was due and when it was handed to the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moment {
    /// The same as `sent` without a rate.
    pub due: u64,
    pub sent: u64,
}

/// Without a rate the clock is read once per this many records. They take far less time than the
/// measured latencies.
const RECORDS_PER_READING: u32 = 16;

/// Delays each record of one thread until it is due.
#[derive(Clone, Debug)]
pub struct Pacer {
    clock: RunClock,
    schedule: Option<Schedule>,
    turn: u64,
    /// The last clock reading.
    now: u64,
    /// How many more records may use that reading.
    readings_left: u32,
}

impl Pacer {
    pub fn new(clock: RunClock, schedule: Option<Schedule>) -> Pacer {
        if schedule.is_some() {
            sleep_precisely();
        }
        Pacer {
            clock,
            schedule,
            turn: 0,
            now: clock.now(),
            readings_left: 0,
        }
    }

    pub fn clock(&self) -> RunClock {
        self.clock
    }

    /// Waits until the next record is due.
    #[inline]
    pub fn wait_for_turn(&mut self) -> Moment {
        if self.readings_left == 0 {
            self.now = self.clock.now();
            self.readings_left = RECORDS_PER_READING;
        }
        self.readings_left -= 1;
        let due = match self.schedule {
            None => self.now,
            Some(schedule) => {
                let due = schedule.due(self.turn);
                if due > self.now {
                    self.wait_until(due);
                }
                due
            }
        };
        self.turn += 1;
        Moment {
            due,
            sent: self.now,
        }
    }

    /// Forces a new clock reading, because passing on the previous record took long.
    #[inline]
    pub fn read_again(&mut self) {
        self.readings_left = 0;
    }

    #[cold]
    fn wait_until(&mut self, due: u64) {
        loop {
            self.now = self.clock.now();
            if self.now >= due {
                return;
            }
            std::thread::sleep(Duration::from_nanos(due - self.now));
        }
    }
}

/// Sets the timer slack so that this thread wakes on time: Linux otherwise adds up to 50 µs to
/// coalesce wake-ups. If this fails, records are sent later, and the latency includes the delay.
fn sleep_precisely() {
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threads_share_one_schedule() {
        let mut due: Vec<u64> = (0..3)
            .flat_map(|thread| (0..2).map(move |turn| Schedule::new(100.0, 3, thread).due(turn)))
            .collect();
        due.sort_unstable();
        assert_eq!(due, [0, 10, 20, 30, 40, 50].map(|ms| ms * 1_000_000));
    }

    #[test]
    fn late_due_times_do_not_drift() {
        let schedule = Schedule::new(3_000_000.0, 1, 0);
        let day = 86_400_u64;
        assert_eq!(schedule.due(day * 3_000_000), day * 1_000_000_000);
    }

    #[test]
    fn a_ramp_sends_as_much_as_its_mean_rate() {
        let up = Schedule::ramp(100.0, 300.0, 10.0, 1, 0);
        assert_eq!((up.due(0), up.due(2000)), (0, 10_000_000_000));
        // In the middle of the time a rate of 200 is reached, after 750 records.
        assert_eq!(up.due(750), 5_000_000_000);
        let down = Schedule::ramp(300.0, 100.0, 10.0, 1, 0);
        assert_eq!(down.due(2000), 10_000_000_000);
        assert_eq!(down.due(1_000_000), u64::MAX);
        assert_eq!(
            Schedule::ramp(50.0, 50.0, 1.0, 1, 0).due(100),
            2_000_000_000
        );
    }

    #[test]
    fn records_wait_until_due_and_late_records_are_sent_at_once() {
        let clock = RunClock::start();
        let mut pacer = Pacer::new(clock, Some(Schedule::new(1000.0, 1, 0)));
        for turn in 0..20 {
            let moment = pacer.wait_for_turn();
            assert_eq!(moment.due, turn * 1_000_000);
            assert!(moment.sent >= moment.due && clock.now() >= moment.due);
        }
        std::thread::sleep(Duration::from_millis(30));
        pacer.read_again();
        let before = clock.now();
        let late = pacer.wait_for_turn();
        assert_eq!(late.due, 20_000_000);
        assert!(late.sent >= before, "{late:?} {before}");
    }

    #[test]
    fn without_a_rate_the_clock_is_read_periodically() {
        let mut pacer = Pacer::new(RunClock::start(), None);
        let moments: Vec<Moment> = (0..=RECORDS_PER_READING)
            .map(|_| pacer.wait_for_turn())
            .collect();
        let last = RECORDS_PER_READING as usize;
        assert!(moments.iter().all(|moment| moment.due == moment.sent));
        assert!(moments[..last].iter().all(|moment| *moment == moments[0]));
        assert!(moments[last].sent > moments[0].sent);
        let before = pacer.clock.now();
        pacer.read_again();
        assert!(pacer.wait_for_turn().sent >= before);
    }
}
