//! The random numbers of a seeded run, and the report at its end.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use ottla_workspace::report::Tally;

/// A random seed, short enough to be typed.
pub fn chance() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap_or_default().as_micros() as u64 % 1_000_000
}

/// Reports the violations of a run, or why it broke off. Its folder is deleted if there are none,
/// unless `keep` is set.
pub fn conclude(outcome: Result<Vec<String>>, seed: u64, dir: &Path, keep: bool) -> Result<()> {
    let folder = dir.display();
    let wrong = outcome.with_context(|| format!("with --seed {seed}; outputs in {folder}"))?;
    for fault in &wrong {
        println!("wrong: {fault}");
    }
    println!("{}", Tally::of(wrong.is_empty()));
    ensure!(
        wrong.is_empty(),
        "{} faults with --seed {seed}; the folder is kept: {folder}",
        wrong.len()
    );
    if !keep {
        std::fs::remove_dir_all(dir)?;
    }
    Ok(())
}

/// The SplitMix64 generator.
#[derive(Debug, Clone)]
pub struct Seeded(u64);

impl Seeded {
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    pub fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}
