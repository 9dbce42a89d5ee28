//! Switch points and switches per second of the simulation.
//!
//! `cargo run --release -p ottla-sync --features simulation --example speed`

use std::sync::Arc;
use std::time::Instant;

use ottla_sync::simulation::{Config, Policy, run};
use ottla_sync::{Mutex, thread};

fn main() {
    for mean in [1, 16, 1_024] {
        let config = Config::new(1).with_policy(Policy::Random { mean });
        let started = Instant::now();
        let report = run(config, || {
            let lock = Arc::new(Mutex::new(0_u64));
            let threads = [(); 4].map(|()| {
                let lock = lock.clone();
                thread::spawn(move || (0..1_000_000).for_each(|_| *lock.lock() += 1))
            });
            threads
                .into_iter()
                .for_each(|thread| thread.join().expect("no thread panics"));
        });
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "a choice at one in {mean} switch points: {:.1} M switch points/s, {:.1} M switches/s",
            report.steps as f64 / seconds / 1e6,
            report.switches as f64 / seconds / 1e6,
        );
        report.unwrap();
    }
}
