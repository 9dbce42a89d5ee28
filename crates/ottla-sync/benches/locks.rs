//! The cost of this crate's wrappers: each operation with this crate's type and with the wrapped
//! type.
//!
//! `cargo bench -p ottla-sync` measures the product's build, where both are the same type; `cargo
//! bench -p ottla-sync --features simulation` measures the check whether the caller is simulated. It
//! prints the median and the spread of several rounds.

use std::hint::black_box;
use std::sync::atomic::Ordering::AcqRel;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const ROUND: Duration = Duration::from_millis(100);
/// Operations between two reads of the clock.
const AT_ONCE: u32 = 10_000;

fn main() {
    let (ours, plain) = (
        ottla_sync::Mutex::new(0_u64),
        parking_lot::Mutex::new(0_u64),
    );
    measure("mutex/seam", || *black_box(&ours).lock() += 1);
    measure("mutex/parking_lot", || *black_box(&plain).lock() += 1);
    let (ours, plain) = (
        ottla_sync::RwLock::new(0_u64),
        parking_lot::RwLock::new(0_u64),
    );
    measure("rw_lock_read/seam", || *black_box(&ours).read());
    measure("rw_lock_read/parking_lot", || *black_box(&plain).read());
    let ours = ottla_sync::atomic::AtomicUsize::new(0);
    let plain = std::sync::atomic::AtomicUsize::new(0);
    measure("fetch_add/seam", || black_box(&ours).fetch_add(1, AcqRel));
    measure("fetch_add/std", || black_box(&plain).fetch_add(1, AcqRel));
    let ours = ottla_sync::ArcSwap::from_pointee(0_u64);
    let plain = arc_swap::ArcSwap::from_pointee(0_u64);
    measure("arc_swap_load/seam", || **black_box(&ours).load());
    measure("arc_swap_load/arc_swap", || **black_box(&plain).load());
    measure("clock/seam", ottla_sync::time::now);
    measure("clock/std", Instant::now);
}

fn measure<R>(name: &str, operation: impl Fn() -> R) {
    let round = || {
        let (began, mut count) = (Instant::now(), 0);
        while began.elapsed() < ROUND {
            for _ in 0..AT_ONCE {
                black_box(operation());
            }
            count += AT_ONCE;
        }
        began.elapsed().as_secs_f64() * 1e9 / f64::from(count)
    };
    round();
    let mut costs: Vec<f64> = (0..ROUNDS).map(|_| round()).collect();
    costs.sort_by(f64::total_cmp);
    let (least, median, most) = (costs[0], costs[ROUNDS / 2], costs[ROUNDS - 1]);
    println!("{name:<26} {median:7.2} ns (from {least:.2} to {most:.2})");
}
