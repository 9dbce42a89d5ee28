//! Decides how much of the page cache appends may occupy, if no setting does.
//!
//! There are two effects, and the dominant one depends on the machine and on the load. Where memory
//! is expensive to get, a log that grows into new memory pays for every page, and pages that were
//! just dropped are the cheapest: a host provides memory to a virtual machine page by page, and a
//! control group at its limit reclaims in the append. But a reader that returns to dropped pages
//! reads from disk. So nothing is dropped (`Growing`) until a trial has shown what it saves:
//!
//! 1. Appends have filled a third of the available memory ([`Policy::floor`]). That much is kept in
//!    every phase.
//! 2. The trial (`Trying`) alternates windows of growth and of recycling. In a window of recycling,
//!    as many of the oldest pages are dropped as are appended; the cache does not shrink. The
//!    processor time of appends and drops per byte is compared. Recycling starts if it was cheaper
//!    by a clear margin in each window than in each window of growth. Otherwise the next trial
//!    waits, each time twice as long.
//! 3. While recycling, a window of growth (`Checking`) is inserted from time to time. If the
//!    difference is gone, the load has become slow, or readers need the oldest pages, the kernel
//!    decides again.
//! 4. Dropped pages that are read again stop recycling, for longer each time.
//! 5. If tasks wait for memory, everything beyond the floor is given back (`Relieving`).
//!
//! Pure: time, costs, memory and reads are arguments. Which pages a reader needs is decided where
//! they are dropped.

/// The cost is measured and compared over this many consecutive bytes.
const WINDOW_BYTES: u64 = 256 * 1024 * 1024;
/// A window that lasts longer ends a trial: a log that grows this slowly has no use for one.
const LONGEST_WINDOW_MS: u64 = 10_000;
/// The same for recycling, which then ends.
const LONGEST_RECYCLING_WINDOW_MS: u64 = 60_000;
/// A window lasts until the cost of this many bytes was measured.
const LEAST_MEASURED_BYTES: u64 = 4 * 1024 * 1024;
/// The windows of a trial: growing, recycling, growing, recycling.
const TRIAL_WINDOWS: usize = 4;
/// Recycling starts if its cost is below this share of the cost of growing.
const STARTS_BELOW: f64 = 0.7;
/// Recycling ends if its cost is more than this share of the cost of growing.
const ENDS_ABOVE: f64 = 0.85;
/// The bytes recycled between two checks of the cost of growing.
const CHECK_BYTES: u64 = 64 * WINDOW_BYTES;

const FIRST_RETRY_MS: u64 = 60_000;
const LONGEST_RETRY_MS: u64 = 3_600_000;

/// A dropped byte that is read again counts as much as this many that are not: reading from disk
/// costs more than recycling saves, and makes the reader slower than the processor time tells.
const REREAD_WEIGHT: u64 = 4;
/// Recycling stops when bytes read again outweigh the dropped ones by this much.
const REREAD_BYTES: u64 = WINDOW_BYTES;
const FIRST_HOLD_MS: u64 = 600_000;
const LONGEST_HOLD_MS: u64 = 7_200_000;
/// After this time without another stop, the next one holds for the first time again.
const HOLD_FORGOTTEN_MS: u64 = 2 * LONGEST_HOLD_MS;

/// Tasks that wait for memory for this share of the time, in this many samples in a row, are short
/// of it.
const PRESSURE_SHARE: f64 = 0.1;
const PRESSURE_SAMPLES: u32 = 3;
/// Memory is given back until there was no pressure for this time.
const RELIEF_MS: u64 = 60_000;

/// The floor is this part of the available memory, and not less than `LEAST_FLOOR_BYTES`.
const FLOOR_DIVISOR: u64 = 3;
const LEAST_FLOOR_BYTES: u64 = 64 * 1024 * 1024;

/// What happened since the last sample, and the state now.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    pub(super) now_ms: u64,
    /// Since the last sample. Appends whose cost was measured, and that cost.
    pub(super) measured_bytes: u64,
    pub(super) measured_cpu_ns: u64,
    /// All appends whose pages can be dropped from now on.
    pub(super) appended_bytes: u64,
    pub(super) dropped_bytes: u64,
    pub(super) drop_cpu_ns: u64,
    /// Read from where pages had been dropped.
    pub(super) reread_bytes: u64,
    /// How long tasks have waited for memory since the last sample; 0 if unknown.
    pub(super) stalled_ms: u64,
    /// Now. Pages that appends left and that were not dropped.
    pub(super) held_bytes: u64,
    /// Unused memory and the page cache.
    pub(super) available_bytes: u64,
}

/// What happens to the oldest pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bound {
    /// Nothing is dropped. Older pages than these are not remembered: the kernel has reclaimed them.
    Remember(u64),
    /// Pages beyond these are dropped.
    Drop(u64),
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Phase {
    Growing,
    /// The costs of the windows that have ended.
    Trying {
        costs: [f64; TRIAL_WINDOWS],
        ended: usize,
    },
    /// The bytes appended since the last check.
    Recycling {
        appended_bytes: u64,
    },
    /// A window of growth; `cost` is that of recycling before it.
    Checking {
        cost: f64,
    },
    Relieving {
        until_ms: u64,
    },
}

/// The bytes appended since a moment, and their cost.
#[derive(Clone, Copy, Default, Debug)]
struct Window {
    began_ms: u64,
    appended_bytes: u64,
    measured_bytes: u64,
    measured_cpu_ns: u64,
    dropped_bytes: u64,
    drop_cpu_ns: u64,
}

enum WindowEnd {
    NotYet,
    TooSlow,
    /// In nanoseconds per byte.
    Cost(f64),
}

#[derive(Debug)]
pub(super) struct Policy {
    phase: Phase,
    window: Window,
    /// The cache size when recycling began, which stays the size from then on.
    target_bytes: u64,
    /// Of the last sample. No sample yet: 0.
    available_bytes: u64,
    sampled_ms: Option<u64>,
    /// No trial before this time, and the next pause.
    retry_at_ms: u64,
    retry_ms: u64,
    /// Weighted bytes read again, less the dropped ones.
    reread_balance: u64,
    /// No trial before this time, because too much was read again; how long the last such hold was.
    hold_until_ms: u64,
    hold_ms: u64,
    /// Consecutive samples with pressure.
    pressed_samples: u32,
}

impl Default for Policy {
    fn default() -> Policy {
        Policy {
            phase: Phase::Growing,
            window: Window::default(),
            target_bytes: 0,
            available_bytes: 0,
            sampled_ms: None,
            retry_at_ms: 0,
            retry_ms: FIRST_RETRY_MS,
            reread_balance: 0,
            hold_until_ms: 0,
            hold_ms: 0,
            pressed_samples: 0,
        }
    }
}

impl Policy {
    /// Takes a sample; about one a second while there are appends.
    pub(super) fn on_sample(&mut self, sample: &Sample) {
        self.available_bytes = sample.available_bytes;
        let Some(before_ms) = self.sampled_ms.replace(sample.now_ms) else {
            self.begin_window(sample);
            return;
        };
        let interval_ms = sample.now_ms.saturating_sub(before_ms).max(1);
        self.window.add(sample);
        self.note_pressure(sample, interval_ms);
        if self.note_rereads(sample) {
            return;
        }
        match self.phase {
            Phase::Growing => self.grow(sample, interval_ms),
            Phase::Trying { costs, ended } => self.go_on_trying(sample, costs, ended),
            Phase::Recycling { appended_bytes } => self.recycle(sample, appended_bytes),
            Phase::Checking { cost } => self.check(sample, cost),
            Phase::Relieving { until_ms } if sample.now_ms >= until_ms => {
                self.enter(Phase::Growing, sample);
            }
            Phase::Relieving { .. } => {}
        }
    }

    pub(super) fn bound(&self) -> Bound {
        match self.phase {
            Phase::Trying { ended, .. } if ended % 2 == 1 => Bound::Drop(self.target()),
            Phase::Recycling { .. } => Bound::Drop(self.target()),
            Phase::Relieving { .. } => Bound::Drop(self.floor()),
            Phase::Growing | Phase::Trying { .. } | Phase::Checking { .. } => {
                Bound::Remember(self.most())
            }
        }
    }

    /// Whether the costs in the next samples are compared.
    pub(super) fn needs_costs(&self) -> bool {
        match self.phase {
            Phase::Trying { .. } | Phase::Recycling { .. } | Phase::Checking { .. } => true,
            Phase::Growing | Phase::Relieving { .. } => false,
        }
    }

    /// The name of the phase, as in [`PHASES`].
    pub(super) fn phase(&self) -> &'static str {
        match self.phase {
            Phase::Growing => "growing",
            Phase::Trying { .. } => "trying",
            Phase::Recycling { .. } | Phase::Checking { .. } => "recycling",
            Phase::Relieving { .. } => "relieving",
        }
    }

    /// How many of the bytes appended last are never dropped: as many as a reader can expect to
    /// find in memory despite other uses.
    fn floor(&self) -> u64 {
        (self.available_bytes / FLOOR_DIVISOR).max(LEAST_FLOOR_BYTES)
    }

    /// How many bytes can still be cached, besides a few of other files.
    fn most(&self) -> u64 {
        self.available_bytes - self.available_bytes / 16
    }

    /// What recycling holds: less than at its begin if there is less memory now.
    fn target(&self) -> u64 {
        self.target_bytes.min(self.most()).max(self.floor())
    }

    fn enter(&mut self, phase: Phase, sample: &Sample) {
        self.phase = phase;
        self.begin_window(sample);
    }

    fn begin_window(&mut self, sample: &Sample) {
        self.window = Window {
            began_ms: sample.now_ms,
            ..Window::default()
        };
    }

    fn note_pressure(&mut self, sample: &Sample, interval_ms: u64) {
        let is_pressed = sample.stalled_ms as f64 >= PRESSURE_SHARE * interval_ms as f64;
        self.pressed_samples = match is_pressed {
            true => self.pressed_samples.saturating_add(1),
            false => 0,
        };
        let is_relieving = matches!(self.phase, Phase::Relieving { .. });
        let is_short = match is_relieving {
            true => is_pressed,
            false => {
                self.pressed_samples >= PRESSURE_SAMPLES
                    && sample.held_bytes > self.floor()
                    && sample.now_ms >= self.hold_until_ms
            }
        };
        if is_short {
            let until_ms = sample.now_ms + RELIEF_MS;
            self.enter(Phase::Relieving { until_ms }, sample);
        }
    }

    /// Returns whether too much was read again, which ends the current phase.
    fn note_rereads(&mut self, sample: &Sample) -> bool {
        let reread_bytes = sample.reread_bytes.saturating_mul(REREAD_WEIGHT);
        let balance = self.reread_balance.saturating_add(reread_bytes);
        self.reread_balance = balance.saturating_sub(sample.dropped_bytes);
        if self.reread_balance <= REREAD_BYTES {
            return false;
        }
        self.reread_balance = 0;
        if sample.now_ms >= self.hold_until_ms.saturating_add(HOLD_FORGOTTEN_MS) {
            self.hold_ms = 0;
        }
        // Reads during a hold prolong it, but say nothing about the next one.
        if sample.now_ms >= self.hold_until_ms {
            self.hold_ms = (2 * self.hold_ms).clamp(FIRST_HOLD_MS, LONGEST_HOLD_MS);
        }
        self.hold_until_ms = sample.now_ms + self.hold_ms;
        self.enter(Phase::Growing, sample);
        true
    }

    fn grow(&mut self, sample: &Sample, interval_ms: u64) {
        let is_fast = sample.appended_bytes.saturating_mul(LONGEST_WINDOW_MS)
            >= WINDOW_BYTES.saturating_mul(interval_ms);
        if is_fast
            && sample.held_bytes >= self.floor()
            && sample.now_ms >= self.retry_at_ms
            && sample.now_ms >= self.hold_until_ms
        {
            let costs = [0.0; TRIAL_WINDOWS];
            self.enter(Phase::Trying { costs, ended: 0 }, sample);
        }
    }

    fn go_on_trying(&mut self, sample: &Sample, mut costs: [f64; TRIAL_WINDOWS], ended: usize) {
        match self.window.end(sample.now_ms, LONGEST_WINDOW_MS) {
            WindowEnd::NotYet => {}
            WindowEnd::TooSlow => self.wait(sample),
            WindowEnd::Cost(_) if ended % 2 == 1 && !self.window.has_recycled() => {
                self.wait(sample);
            }
            WindowEnd::Cost(cost) => {
                costs[ended] = cost;
                let ended = ended + 1;
                if ended < TRIAL_WINDOWS {
                    self.target_bytes = sample.held_bytes;
                    self.enter(Phase::Trying { costs, ended }, sample);
                } else if has_paid(&costs) {
                    self.retry_ms = FIRST_RETRY_MS;
                    self.start_recycling(sample);
                } else {
                    self.stop_recycling(sample);
                }
            }
        }
    }

    fn start_recycling(&mut self, sample: &Sample) {
        self.enter(Phase::Recycling { appended_bytes: 0 }, sample);
    }

    /// Nothing can be compared now: the load is too slow, or readers need the oldest pages.
    fn wait(&mut self, sample: &Sample) {
        self.retry_at_ms = sample.now_ms + FIRST_RETRY_MS;
        self.enter(Phase::Growing, sample);
    }

    /// It does not save enough.
    fn stop_recycling(&mut self, sample: &Sample) {
        self.retry_at_ms = sample.now_ms + self.retry_ms;
        self.retry_ms = (2 * self.retry_ms).min(LONGEST_RETRY_MS);
        self.enter(Phase::Growing, sample);
    }

    fn recycle(&mut self, sample: &Sample, appended_bytes: u64) {
        let appended_bytes = appended_bytes + sample.appended_bytes;
        let end = self.window.end(sample.now_ms, LONGEST_RECYCLING_WINDOW_MS);
        match end {
            WindowEnd::NotYet => self.phase = Phase::Recycling { appended_bytes },
            // There is no hurry, and the kernel knows better which pages are in use.
            WindowEnd::TooSlow => self.enter(Phase::Growing, sample),
            WindowEnd::Cost(_) if !self.window.has_recycled() => self.wait(sample),
            WindowEnd::Cost(cost) if appended_bytes >= CHECK_BYTES => {
                self.enter(Phase::Checking { cost }, sample);
            }
            WindowEnd::Cost(_) => self.enter(Phase::Recycling { appended_bytes }, sample),
        }
    }

    fn check(&mut self, sample: &Sample, recycling: f64) {
        match self.window.end(sample.now_ms, LONGEST_WINDOW_MS) {
            WindowEnd::NotYet => {}
            WindowEnd::TooSlow => self.start_recycling(sample),
            WindowEnd::Cost(growing) if recycling > ENDS_ABOVE * growing => {
                self.stop_recycling(sample);
            }
            WindowEnd::Cost(_) => self.start_recycling(sample),
        }
    }
}

/// All values that [`Policy::phase`] returns.
pub(super) const PHASES: [&str; 4] = ["growing", "trying", "recycling", "relieving"];

/// Whether each window of recycling was clearly cheaper than each window of growth.
fn has_paid(costs: &[f64; TRIAL_WINDOWS]) -> bool {
    let [
        first_growing,
        first_recycling,
        second_growing,
        second_recycling,
    ] = *costs;
    first_recycling.max(second_recycling) < STARTS_BELOW * first_growing.min(second_growing)
}

impl Window {
    fn add(&mut self, sample: &Sample) {
        self.appended_bytes += sample.appended_bytes;
        self.measured_bytes += sample.measured_bytes;
        self.measured_cpu_ns += sample.measured_cpu_ns;
        self.dropped_bytes += sample.dropped_bytes;
        self.drop_cpu_ns += sample.drop_cpu_ns;
    }

    /// Whether most of the appends could have used dropped pages.
    fn has_recycled(&self) -> bool {
        self.dropped_bytes >= self.appended_bytes / 2
    }

    fn end(&self, now_ms: u64, longest_ms: u64) -> WindowEnd {
        if self.appended_bytes >= WINDOW_BYTES && self.measured_bytes >= LEAST_MEASURED_BYTES {
            let append = self.measured_cpu_ns as f64 / self.measured_bytes as f64;
            let drop = self.drop_cpu_ns as f64 / self.appended_bytes as f64;
            WindowEnd::Cost(append + drop)
        } else if now_ms.saturating_sub(self.began_ms) > longest_ms {
            WindowEnd::TooSlow
        } else {
            WindowEnd::NotYet
        }
    }
}

#[cfg(test)]
mod tests;
