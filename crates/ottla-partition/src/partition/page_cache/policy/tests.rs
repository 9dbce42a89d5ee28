//! Situations, each played second by second on a modelled machine.

use super::*;

const MIB: u64 = 1024 * 1024;
const GIB: u64 = 1024 * MIB;

/// A machine with a log that grows, whose memory is as large and as expensive as the test says.
struct Machine {
    policy: Policy,
    now_ms: u64,
    /// Bytes appended per second.
    rate: u64,
    /// Nanoseconds per byte that is appended to new memory, and to memory that was just dropped.
    new_cost: f64,
    recycled_cost: f64,
    is_cost_known: bool,
    available_bytes: u64,
    held_bytes: u64,
    /// Readers are about to need the oldest pages, so none of them is dropped.
    is_read: bool,
    /// Per second.
    reread_bytes: u64,
    stalled_ms: u64,
    /// In total.
    dropped_bytes: u64,
    appended_bytes: u64,
}

impl Machine {
    /// 24 GiB. A host provides each page when it is first used.
    fn of_a_host() -> Machine {
        Machine {
            policy: Policy::default(),
            now_ms: 5_000,
            rate: 160 * MIB,
            new_cost: 2.5,
            recycled_cost: 0.8,
            is_cost_known: true,
            available_bytes: 23 * GIB,
            held_bytes: 0,
            is_read: false,
            reread_bytes: 0,
            stalled_ms: 0,
            dropped_bytes: 0,
            appended_bytes: 0,
        }
    }

    fn recycling() -> Machine {
        let mut machine = Machine::of_a_host();
        machine.run(120);
        assert_eq!(machine.policy.phase(), "recycling");
        machine
    }

    fn run(&mut self, seconds: u64) -> &'static str {
        for _ in 0..seconds {
            self.run_second();
        }
        self.policy.phase()
    }

    fn run_second(&mut self) {
        let needs_costs = self.policy.needs_costs();
        self.now_ms += 1_000;
        self.appended_bytes += self.rate;
        self.held_bytes += self.rate;
        let (Bound::Drop(most) | Bound::Remember(most)) = self.policy.bound();
        let surplus = self.held_bytes.saturating_sub(most);
        self.held_bytes -= surplus;
        let is_dropped = matches!(self.policy.bound(), Bound::Drop(_)) && !self.is_read;
        let dropped_bytes = if is_dropped { surplus } else { 0 };
        self.dropped_bytes += dropped_bytes;
        let recycled = dropped_bytes.min(self.rate);
        let cpu_ns =
            recycled as f64 * self.recycled_cost + (self.rate - recycled) as f64 * self.new_cost;
        // One of 16 appends is measured, while the policy needs it.
        let (measured_bytes, measured_cpu_ns) = match self.is_cost_known && needs_costs {
            true => (self.rate / 16, (cpu_ns / 16.0) as u64),
            false => (0, 0),
        };
        self.policy.on_sample(&Sample {
            now_ms: self.now_ms,
            measured_bytes,
            measured_cpu_ns,
            appended_bytes: self.rate,
            dropped_bytes,
            drop_cpu_ns: dropped_bytes / 10,
            reread_bytes: self.reread_bytes,
            stalled_ms: self.stalled_ms,
            held_bytes: self.held_bytes,
            available_bytes: self.available_bytes,
        });
        assert!(PHASES.contains(&self.policy.phase()));
    }
}

#[test]
fn where_new_memory_is_expensive_the_oldest_pages_are_recycled() {
    let mut machine = Machine::of_a_host();
    machine.run(45);
    assert_eq!(
        machine.policy.phase(),
        "growing",
        "a third is never dropped"
    );
    assert_eq!(machine.dropped_bytes, 0);
    machine.run(75);
    assert_eq!(machine.policy.phase(), "recycling");
    let third = machine.available_bytes / 3;
    for _ in 0..600 {
        machine.run(1);
        assert_eq!(machine.policy.phase(), "recycling");
        assert!((third..third + 2 * GIB).contains(&machine.held_bytes));
    }
    // All except the windows that check the cost of growing.
    assert!(machine.dropped_bytes > (machine.appended_bytes - machine.held_bytes) / 10 * 9);
}

#[test]
fn where_memory_is_cheap_only_trials_drop_and_they_become_rare() {
    let mut machine = Machine {
        new_cost: 0.8,
        available_bytes: 250 * GIB,
        ..Machine::of_a_host()
    };
    assert_eq!(machine.run(3_600), "growing");
    assert!(machine.dropped_bytes > 0, "it was tried");
    assert!(machine.dropped_bytes < machine.appended_bytes / 50);
    let dropped = machine.dropped_bytes;
    machine.run(7_200);
    assert!(machine.dropped_bytes - dropped < 5 * GIB, "once an hour");
}

#[test]
fn a_difference_that_is_not_clear_changes_nothing() {
    let mut machine = Machine {
        new_cost: 1.1,
        ..Machine::of_a_host()
    };
    machine.run(120);
    assert_eq!(machine.run(30), "growing");
}

/// A group at its limit reclaims in the append.
#[test]
fn a_small_machine_recycles_before_the_kernel_must_reclaim() {
    let mut machine = Machine {
        rate: 100 * MIB,
        new_cost: 2.0,
        available_bytes: 600 * MIB,
        ..Machine::of_a_host()
    };
    assert_eq!(machine.run(60), "recycling");
    assert!((200 * MIB..=563 * MIB).contains(&machine.held_bytes));
}

#[test]
fn while_a_reader_needs_the_oldest_pages_there_is_nothing_to_recycle() {
    let mut machine = Machine {
        is_read: true,
        ..Machine::of_a_host()
    };
    machine.run(300);
    assert_eq!(machine.dropped_bytes, 0);
    // Then it has caught up. That there was nothing to compare does not delay the next trial.
    machine.is_read = false;
    assert_eq!(machine.run(75), "recycling");
}

#[test]
fn a_reader_that_comes_from_the_start_ends_recycling_while_it_reads() {
    let mut machine = Machine::recycling();
    machine.is_read = true;
    assert_eq!(machine.run(10), "growing");
    for _ in 0..120 {
        assert_ne!(machine.run(1), "recycling");
    }
    machine.is_read = false;
    assert_eq!(machine.run(75), "recycling");
}

#[test]
fn dropped_pages_that_are_read_again_stop_recycling_for_longer_each_time() {
    let mut machine = Machine::recycling();
    machine.reread_bytes = 10 * MIB;
    assert_eq!(machine.run(120), "recycling", "one byte in sixteen");
    for hold_s in [600, 1_200] {
        machine.reread_bytes = 100 * MIB;
        assert_eq!(machine.run(10), "growing");
        machine.reread_bytes = 0;
        assert_eq!(machine.run(hold_s - 20), "growing");
        assert_eq!(machine.run(60), "recycling");
    }
}

#[test]
fn memory_that_a_neighbour_takes_is_given_up_and_held_again_when_it_is_back() {
    let mut machine = Machine::recycling();
    let before = machine.policy.bound();
    for available_bytes in [8 * GIB, 3 * GIB] {
        machine.available_bytes = available_bytes;
        machine.run(2);
        let rest = available_bytes / 16 * 15;
        assert_eq!(machine.policy.bound(), Bound::Drop(rest));
    }
    assert!(machine.held_bytes <= 3 * GIB);
    machine.available_bytes = 23 * GIB;
    machine.run(1);
    assert_eq!(machine.policy.bound(), before);
}

#[test]
fn when_new_memory_has_become_cheap_the_kernel_decides_again() {
    let mut machine = Machine::recycling();
    machine.new_cost = machine.recycled_cost;
    assert_eq!(machine.run(200), "growing");
    assert_eq!(
        machine.policy.bound(),
        Bound::Remember(machine.available_bytes / 16 * 15)
    );
}

#[test]
fn when_tasks_wait_for_memory_all_but_a_third_is_given_back() {
    let mut machine = Machine {
        new_cost: 0.8,
        available_bytes: 6 * GIB,
        rate: 20 * MIB,
        ..Machine::of_a_host()
    };
    machine.run(1);
    machine.held_bytes = 5 * GIB;
    machine.stalled_ms = 200;
    assert_eq!(machine.run(2), "growing", "a moment says nothing");
    assert_eq!(machine.run(2), "relieving");
    machine.run(1);
    assert_eq!(machine.held_bytes, 2 * GIB);
    machine.stalled_ms = 20;
    assert_eq!(machine.run(58), "relieving");
    assert_eq!(machine.run(3), "growing");
}

#[test]
fn a_log_that_grows_slowly_is_left_to_the_kernel() {
    let mut machine = Machine {
        rate: 10 * MIB,
        ..Machine::of_a_host()
    };
    machine.run(1);
    machine.held_bytes = 10 * GIB;
    assert_eq!(machine.run(600), "growing");
    assert_eq!(machine.dropped_bytes, 0);
    let mut machine = Machine::recycling();
    machine.rate = 2 * MIB;
    assert_eq!(machine.run(130), "growing");
}

#[test]
fn a_trial_ends_when_the_load_does() {
    let mut machine = Machine::of_a_host();
    while machine.policy.phase() != "trying" {
        machine.run(1);
    }
    machine.rate = MIB;
    assert_eq!(machine.run(30), "growing");
    assert!(machine.dropped_bytes < WINDOW_BYTES);
    machine.rate = 160 * MIB;
    assert_eq!(machine.run(90), "recycling");
}

#[test]
fn without_known_costs_nothing_is_dropped() {
    let mut machine = Machine {
        is_cost_known: false,
        ..Machine::of_a_host()
    };
    machine.run(600);
    assert!(machine.held_bytes > machine.available_bytes / 3);
    assert_eq!(machine.dropped_bytes, 0);
}
