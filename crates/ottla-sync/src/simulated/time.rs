//! Clocks and timers of a simulated host, or of the system and tokio.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant, SystemTime};

pub use tokio::time::MissedTickBehavior;

use crate::simulation::state::timers::TimerKey;
use crate::simulation::trace::Op;
use crate::simulation::world::{self, Timer, World};

/// Replaces `Instant::now`.
#[track_caller]
pub fn now() -> Instant {
    if world::is_simulated() {
        world::switch_point(Op::Clock);
        world::with_world(World::monotonic)
    } else {
        Instant::now()
    }
}

/// Replaces `Instant::elapsed`.
#[track_caller]
pub fn elapsed(since: Instant) -> Duration {
    now().saturating_duration_since(since)
}

/// Replaces `SystemTime::now`.
#[track_caller]
pub fn wall_clock() -> SystemTime {
    if world::is_simulated() {
        world::switch_point(Op::Clock);
        world::with_world(World::wall)
    } else {
        SystemTime::now()
    }
}

/// A simulated host has no time stamp counter.
pub fn processor_ticks() -> Option<u64> {
    match world::is_simulated() {
        true => None,
        false => crate::kernel::processor_ticks(),
    }
}

pub fn sleep(duration: Duration) -> Sleep {
    Sleep(match world::is_simulated() {
        true => Kind::Simulated(Alarm {
            deadline: world::world().deadline_in(duration),
            timer: None,
        }),
        false => Kind::Tokio(Box::pin(tokio::time::sleep(duration))),
    })
}

pub fn sleep_until(deadline: Instant) -> Sleep {
    match world::is_simulated() {
        true => sleep(deadline.saturating_duration_since(world::world().monotonic())),
        false => Sleep(Kind::Tokio(Box::pin(tokio::time::sleep_until(
            deadline.into(),
        )))),
    }
}

#[derive(Debug)]
pub struct Sleep(Kind);

#[derive(Debug)]
enum Kind {
    Tokio(Pin<Box<tokio::time::Sleep>>),
    Simulated(Alarm),
}

#[derive(Debug)]
struct Alarm {
    /// In simulated nanoseconds.
    deadline: u64,
    /// The key of its timer, and the waker of the timer.
    timer: Option<(TimerKey, Waker)>,
}

impl Alarm {
    fn cancel(&mut self) {
        if let Some((key, _)) = self.timer.take()
            && world::is_simulated()
        {
            world::world().remove_timer(key);
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Kind::Tokio(sleep) => sleep.as_mut().poll(context),
            Kind::Simulated(alarm) => {
                let world = world::world();
                if world.now() >= alarm.deadline {
                    alarm.cancel();
                    return Poll::Ready(());
                }
                // It has not fired yet.
                let is_set = |(_, waker): &(_, Waker)| waker.will_wake(context.waker());
                if !alarm.timer.as_ref().is_some_and(is_set) {
                    alarm.cancel();
                    let waker = context.waker().clone();
                    let key = world.add_timer(alarm.deadline, Timer::Task(waker.clone()));
                    alarm.timer = Some((key, waker));
                }
                Poll::Pending
            }
        }
    }
}

/// Ticks at once and then every `period`.
pub fn interval(period: Duration) -> Interval {
    Interval(match world::is_simulated() {
        true => Ticks::Simulated {
            period,
            next: world::world().monotonic(),
        },
        false => Ticks::Tokio(tokio::time::interval(period)),
    })
}

/// On a simulated host, missed ticks are skipped.
#[derive(Debug)]
pub struct Interval(Ticks);

#[derive(Debug)]
enum Ticks {
    Tokio(tokio::time::Interval),
    Simulated { period: Duration, next: Instant },
}

impl Interval {
    pub async fn tick(&mut self) -> Instant {
        match &mut self.0 {
            Ticks::Tokio(interval) => interval.tick().await.into_std(),
            Ticks::Simulated { period, next } => {
                sleep_until(*next).await;
                let ticked = *next;
                let now = world::world().monotonic();
                while *next <= now {
                    *next += *period;
                }
                ticked
            }
        }
    }

    pub fn set_missed_tick_behavior(&mut self, behavior: MissedTickBehavior) {
        match &mut self.0 {
            Ticks::Tokio(interval) => interval.set_missed_tick_behavior(behavior),
            Ticks::Simulated { .. } => {}
        }
    }
}

/// The timeout elapsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed(());

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("deadline has elapsed")
    }
}

impl std::error::Error for Elapsed {}

pub fn timeout<F: IntoFuture>(duration: Duration, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: Box::pin(future.into_future()),
        sleep: sleep(duration),
    }
}

pub fn timeout_at<F: IntoFuture>(deadline: Instant, future: F) -> Timeout<F::IntoFuture> {
    Timeout {
        future: Box::pin(future.into_future()),
        sleep: sleep_until(deadline),
    }
}

pub struct Timeout<F> {
    future: Pin<Box<F>>,
    sleep: Sleep,
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if let Poll::Ready(output) = self.future.as_mut().poll(context) {
            return Poll::Ready(Ok(output));
        }
        let slept = Pin::new(&mut self.sleep).poll(context);
        slept.map(|()| Err(Elapsed(())))
    }
}
