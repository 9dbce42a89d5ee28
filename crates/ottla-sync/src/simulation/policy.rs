//! Scheduling policies: which runnable thread runs next.

use super::random::Random;

/// How the scheduler chooses at switch points.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Policy {
    /// A thread runs for about `mean` switch points; then every runnable thread is equally likely.
    Random { mean: u64 },
    /// As `Random`, but about every fourth thread runs only if no other can. The starved threads
    /// are redrawn after about `period` switch points.
    Starved { mean: u64, period: u64 },
    /// Probabilistic concurrency testing (Burckhardt et al., 2010): each thread has a random
    /// priority, and the runnable thread with the highest runs. At `depth - 1` of the first `steps`
    /// switch points the running thread gets the lowest priority. With n threads, a bug that needs
    /// `depth` ordering constraints is found in a run with a probability of at least 1 / (n ·
    /// steps^(depth − 1)).
    Pct { depth: u32, steps: u64 },
}

impl Policy {
    /// The policy of a seed: few switches, many switches, starved threads, or priorities.
    pub fn drawn(seed: u64) -> Policy {
        let mut random = Random::named(seed, "policy");
        let mean = 1 << random.below(7);
        match random.below(4) {
            0 | 1 => Policy::Random { mean },
            2 => Policy::Starved {
                mean,
                period: 1 << (6 + random.below(10)),
            },
            _ => Policy::Pct {
                depth: 2 + random.below(3) as u32,
                steps: 1 << (6 + random.below(12)),
            },
        }
    }
}

/// The state of a policy.
pub(super) struct Chooser {
    policy: Policy,
    random: Random,
    /// The step from which the running thread may be replaced.
    pub(super) next_choice: u64,
    /// Determines the starved threads; redrawn at `starved_until`.
    starved: u64,
    starved_until: u64,
    /// For PCT: the steps at which the running thread gets the lowest priority, descending.
    change_points: Vec<u64>,
    /// The lowest priority assigned so far.
    lowest: i64,
}

/// A runnable thread: its slot and its priority.
pub(super) trait Candidates {
    fn slot(&self, index: usize) -> u32;
    fn len(&self) -> usize;
    fn number(&self, slot: u32) -> u64;
    fn priority(&self, slot: u32) -> i64;
    fn set_priority(&mut self, slot: u32, priority: i64);
}

impl Chooser {
    pub(super) fn new(policy: Policy, seed: u64) -> Chooser {
        let mut random = Random::named(seed, "scheduler");
        let mut change_points = Vec::new();
        if let Policy::Pct { depth, steps } = policy {
            change_points.extend((1..depth).map(|_| 1 + random.below(steps)));
            change_points.sort_unstable_by(|a, b| b.cmp(a));
        }
        let mut chooser = Chooser {
            policy,
            random,
            next_choice: 0,
            starved: 0,
            starved_until: 0,
            change_points,
            lowest: 0,
        };
        chooser.plan(0);
        chooser
    }

    /// The priority of a new thread.
    pub(super) fn priority(&mut self) -> i64 {
        (self.random.u64() >> 2) as i64 + 1
    }

    /// Draws from the scheduler's stream, for scheduling choices: the notified waiter, the task to
    /// poll.
    pub(super) fn index(&mut self, len: usize) -> usize {
        match len {
            1 => 0,
            _ => self.random.index(len),
        }
    }

    fn plan(&mut self, step: u64) {
        self.next_choice = match self.policy {
            Policy::Random { mean } | Policy::Starved { mean, .. } => {
                step + 1 + self.random.below(2 * mean.max(1) - 1)
            }
            Policy::Pct { .. } => self.change_points.last().copied().unwrap_or(u64::MAX),
        };
    }

    /// Chooses at `step`. `running` can still run; with `yields` it prefers not to.
    pub(super) fn choose(
        &mut self,
        step: u64,
        running: Option<u32>,
        yields: bool,
        threads: &mut impl Candidates,
    ) -> Option<u32> {
        if threads.len() == 0 {
            return None;
        }
        if let Policy::Pct { .. } = self.policy {
            return Some(self.choose_first(step, running, yields, threads));
        }
        let chosen = match running {
            Some(running) if !yields && step < self.next_choice => running,
            _ => {
                self.plan(step);
                self.draw(step, running.filter(|_| yields), threads)
            }
        };
        Some(chosen)
    }

    /// Any thread; `not` and starved threads only if there is no other.
    fn draw(&mut self, step: u64, not: Option<u32>, threads: &impl Candidates) -> u32 {
        let mut starved = None;
        if let Policy::Starved { period, .. } = self.policy {
            if step >= self.starved_until {
                self.starved = self.random.u64();
                self.starved_until = step + 1 + self.random.below(2 * period.max(1));
            }
            starved = Some(self.starved);
        }
        let is_starved = |slot| starved.is_some_and(|salt| (threads.number(slot) ^ salt) % 4 == 0);
        let first = self.index(threads.len());
        let indices = (first..threads.len()).chain(0..first);
        let slots = indices.map(|index| threads.slot(index));
        let eager = slots
            .clone()
            .find(|slot| Some(*slot) != not && !is_starved(*slot));
        let other = || slots.clone().find(|slot| Some(*slot) != not);
        eager.or_else(other).unwrap_or_else(|| threads.slot(first))
    }

    fn choose_first(
        &mut self,
        step: u64,
        running: Option<u32>,
        yields: bool,
        threads: &mut impl Candidates,
    ) -> u32 {
        let mut is_last = yields;
        while self.change_points.last().is_some_and(|at| *at <= step) {
            self.change_points.pop();
            is_last = true;
        }
        if let Some(running) = running.filter(|_| is_last) {
            self.lowest -= 1;
            threads.set_priority(running, self.lowest);
        }
        self.plan(step);
        let slots = (0..threads.len()).map(|index| threads.slot(index));
        slots
            .max_by_key(|slot| threads.priority(*slot))
            .expect("a thread can run")
    }

    /// Whether a thread that becomes runnable may preempt the running one.
    pub(super) fn is_strict(&self) -> bool {
        matches!(self.policy, Policy::Pct { .. })
    }
}
