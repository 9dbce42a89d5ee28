//! The threads, hosts and timers of a simulation, and their changes between two turns.
//!
//! Nothing here or in the modules below waits or switches: `world` does, using them.

pub(crate) mod connection;
pub(crate) mod disk;
pub(crate) mod executor;
pub(crate) mod host;
pub(crate) mod network;
pub(crate) mod timers;
pub(crate) mod wait;

use std::collections::VecDeque;
use std::panic::Location;
use std::task::Waker;

use corosensei::Yielder;
use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::failure::{Failure, Waiting};
use super::hot::{HOT, Hot, STEP_NANOS};
use super::policy::{Candidates, Chooser};
use super::trace::Entry;
use host::HostState;
use network::NetworkState;
use timers::Timers;
use wait::{Timer, Token, Wait};

pub(crate) struct State {
    pub(super) threads: Vec<Thread>,
    pub(super) free: Vec<u32>,
    pub(super) runnable: Vec<u32>,
    pub(super) hosts: Vec<HostState>,
    pub(super) timers: Timers,
    /// Wakers of the timers that have fired.
    pub(super) due: VecDeque<Waker>,
    pub(super) sequence: u64,
    /// Simulated nanoseconds, without the cost of the steps.
    pub(super) time_base: u64,
    pub(super) chooser: Chooser,
    pub(super) next: Option<u32>,
    pub(super) step_limit: u64,
    pub(super) kills: Vec<u32>,
    /// Hosts to be killed at a step.
    pub(super) timed_kills: Vec<(u64, u32)>,
    pub(super) failure: Option<Failure>,
    pub(super) is_over: bool,
    pub(super) switches: u64,
    pub(super) trace: Vec<Entry>,
    pub(super) network: NetworkState,
    /// The waiters of an object, by its number.
    pub(super) waiters: HashMap<u64, Vec<Token>, FixedState>,
}

/// A simulated thread.
pub(super) struct Thread {
    pub(super) name: String,
    /// The thread's number within the simulation; slots are reused.
    pub(super) number: u64,
    pub(super) host: u32,
    pub(super) priority: i64,
    /// Its index among the runnable threads.
    pub(super) runnable_at: Option<usize>,
    /// The epoch of its last prepared wait.
    pub(super) epoch: u64,
    pub(super) is_woken: bool,
    pub(super) is_timed_out: bool,
    pub(super) blocked: Option<(Wait, &'static Location<'static>)>,
    pub(super) has_ended: bool,
    pub(super) is_dying: bool,
    /// The panic that unwinds a dying thread has started.
    pub(super) is_unwinding: bool,
    pub(super) waits_while_dying: u32,
    pub(super) yielder: *const Yielder<(), ()>,
}

impl State {
    pub(super) fn now(&self, hot: &Hot) -> u64 {
        self.time_base + hot.steps.get() * STEP_NANOS
    }

    /// The host of a thread; that of the simulation itself if there is no such thread.
    pub(super) fn host_of(&self, slot: u32) -> u32 {
        let thread = self.threads.get(slot as usize);
        thread.map_or(0, |thread| thread.host)
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    pub(super) fn choose(&mut self, step: u64, running: Option<u32>, yields: bool) -> Option<u32> {
        let mut candidates = Runnable {
            slots: &self.runnable,
            threads: &mut self.threads,
        };
        self.chooser.choose(step, running, yields, &mut candidates)
    }

    /// Sets the next step with a slow path.
    pub(super) fn plan(&self, hot: &Hot) {
        let mut next = self.chooser.next_choice.min(self.step_limit);
        if !self.timers.is_empty() {
            let deadline = self.timers.first();
            let steps = deadline.saturating_sub(self.time_base).div_ceil(STEP_NANOS);
            next = next.min(steps);
        }
        let kills = self.timed_kills.iter().map(|(step, _)| *step);
        hot.next_look.set(kills.fold(next, u64::min));
    }

    pub(super) fn look_for_kills(&mut self, step: u64) {
        let kills = &mut self.kills;
        self.timed_kills.retain(|(at, host)| {
            let is_due = *at <= step;
            if is_due {
                kills.push(*host);
            }
            !is_due
        });
    }

    pub(super) fn fire_timers(&mut self, hot: &Hot) {
        let now = self.now(hot);
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Thread(token) => {
                    let thread = &mut self.threads[token.slot as usize];
                    if thread.epoch == token.epoch && !thread.is_woken {
                        thread.is_timed_out = true;
                        self.wake(token);
                    }
                }
                // Called later, because a waker borrows the state.
                Timer::Task(waker) => self.due.push_back(waker),
            }
        }
    }

    pub(super) fn wake(&mut self, token: Token) {
        let thread = &mut self.threads[token.slot as usize];
        if thread.epoch != token.epoch || thread.is_woken {
            return;
        }
        thread.is_woken = true;
        if thread.blocked.take().is_some() && !thread.has_ended {
            self.make_runnable(token.slot);
        }
    }

    pub(super) fn make_runnable(&mut self, slot: u32) {
        let thread = &mut self.threads[slot as usize];
        if thread.runnable_at.is_none() {
            thread.runnable_at = Some(self.runnable.len());
            self.runnable.push(slot);
        }
        if self.chooser.is_strict() {
            HOT.with(|hot| hot.next_look.set(0));
        }
    }

    pub(super) fn make_unrunnable(&mut self, slot: u32) {
        if let Some(at) = self.threads[slot as usize].runnable_at.take() {
            self.runnable.swap_remove(at);
            if let Some(moved) = self.runnable.get(at) {
                self.threads[*moved as usize].runnable_at = Some(at);
            }
        }
    }

    /// Ends the run. The first failure counts.
    pub(super) fn fail(&mut self, failure: Failure) {
        self.failure.get_or_insert(failure);
        HOT.with(|hot| hot.next_look.set(0));
    }

    pub(super) fn name_of(&self, slot: u32) -> String {
        match self.threads.get(slot as usize) {
            Some(thread) => {
                let host = &self.hosts[thread.host as usize];
                format!("{}/{}#{}", host.name, thread.name, thread.number)
            }
            None => "the simulation".to_owned(),
        }
    }

    pub(super) fn waiting(&self) -> Vec<Waiting> {
        let mut waiting = Vec::new();
        for (slot, thread) in self.threads.iter().enumerate() {
            let Some((wait, at)) = &thread.blocked else {
                continue;
            };
            let what = match wait {
                Wait::Lock { holder } => {
                    let holder_name = self.name_of(holder.slot);
                    format!("a lock that {holder_name} has held since {}", holder.since)
                }
                Wait::Condition => "a condition variable".to_owned(),
                Wait::Future => "a future".to_owned(),
                Wait::Task => continue,
                Wait::Sleep => "a time".to_owned(),
                Wait::Disk => "a call of the disk that hangs".to_owned(),
            };
            waiting.push(Waiting {
                thread: self.name_of(slot as u32),
                what,
                at,
            });
        }
        for host in &self.hosts {
            waiting.extend(host.executor.waiting(&host.name));
        }
        waiting
    }
}

struct Runnable<'a> {
    slots: &'a [u32],
    threads: &'a mut [Thread],
}

impl Candidates for Runnable<'_> {
    fn slot(&self, index: usize) -> u32 {
        self.slots[index]
    }
    fn len(&self) -> usize {
        self.slots.len()
    }
    fn number(&self, slot: u32) -> u64 {
        self.threads[slot as usize].number
    }
    fn priority(&self, slot: u32) -> i64 {
        self.threads[slot as usize].priority
    }
    fn set_priority(&mut self, slot: u32, priority: i64) {
        self.threads[slot as usize].priority = priority;
    }
}
