//! The cost of this crate's wrappers: each operation with this crate's type and with the wrapped
//! type.
//!
//! `cargo bench -p ottla-sync` measures the product's build, where both are the same type; `cargo
//! bench -p ottla-sync --features simulation` measures the check whether the caller is simulated.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};

fn locks(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uncontended");
    let (ours, plain) = (
        ottla_sync::Mutex::new(0_u64),
        parking_lot::Mutex::new(0_u64),
    );
    group.bench_function("mutex/seam", |b| b.iter(|| *black_box(&ours).lock() += 1));
    group.bench_function("mutex/parking_lot", |b| {
        b.iter(|| *black_box(&plain).lock() += 1)
    });
    let (ours, plain) = (
        ottla_sync::RwLock::new(0_u64),
        parking_lot::RwLock::new(0_u64),
    );
    group.bench_function("rw_lock_read/seam", |b| b.iter(|| *black_box(&ours).read()));
    group.bench_function("rw_lock_read/parking_lot", |b| {
        b.iter(|| *black_box(&plain).read())
    });
    use std::sync::atomic::Ordering::AcqRel;
    let ours = ottla_sync::atomic::AtomicUsize::new(0);
    let plain = std::sync::atomic::AtomicUsize::new(0);
    group.bench_function("fetch_add/seam", |b| {
        b.iter(|| black_box(&ours).fetch_add(1, AcqRel))
    });
    group.bench_function("fetch_add/std", |b| {
        b.iter(|| black_box(&plain).fetch_add(1, AcqRel))
    });
    let ours = ottla_sync::ArcSwap::from_pointee(0_u64);
    let plain = arc_swap::ArcSwap::from_pointee(0_u64);
    group.bench_function("arc_swap_load/seam", |b| {
        b.iter(|| **black_box(&ours).load())
    });
    group.bench_function("arc_swap_load/arc_swap", |b| {
        b.iter(|| **black_box(&plain).load())
    });
    group.bench_function("clock/seam", |b| b.iter(ottla_sync::time::now));
    group.bench_function("clock/std", |b| b.iter(std::time::Instant::now));
    group.finish();
}

criterion_group!(benches, locks);
criterion_main!(benches);
