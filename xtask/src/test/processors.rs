//! How busy the processors are, from `/proc/stat`.

use std::time::Duration;

use anyhow::{Context, Result};

/// Time that the processors have spent since boot, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ticks {
    /// Idle, or used by processes of low priority, which yield to others.
    spare: u64,
    all: u64,
}

/// The share of the processors' time that is spare during `window`, measured now: idle, or used by
/// processes of low priority.
pub fn spare_share(window: Duration) -> Result<f64> {
    let before = now()?;
    std::thread::sleep(window);
    Ok(spare_between(before, now()?))
}

fn now() -> Result<Ticks> {
    let stat = std::fs::read_to_string("/proc/stat")?;
    ticks_in(&stat).context("the first line of /proc/stat")
}

/// The first line is `cpu user nice system idle iowait irq softirq steal guest guest_nice`; the
/// last two are contained in `user` and `nice`.
fn ticks_in(stat: &str) -> Option<Ticks> {
    let fields = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> = fields
        .split_whitespace()
        .map_while(|field| field.parse().ok())
        .take(8)
        .collect();
    Some(Ticks {
        spare: fields.get(1)? + fields.get(3)? + fields.get(4)?,
        all: fields.iter().sum(),
    })
}

fn spare_between(before: Ticks, after: Ticks) -> f64 {
    let all = after.all.saturating_sub(before.all);
    let spare = after.spare.saturating_sub(before.spare);
    if all == 0 {
        return 0.0;
    }
    spare as f64 / all as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_spare_share_covers_the_time_between_two_samples() {
        let before = ticks_in("cpu  10 5 10 65 10 0 0 0 5 0\ncpu0 1 1 1 1\n").expect("a line");
        let expected = Ticks {
            spare: 80,
            all: 100,
        };
        assert_eq!(before, expected);
        let after = Ticks {
            spare: 110,
            all: 200,
        };
        assert!((spare_between(before, after) - 0.3).abs() < 1e-9);
        assert!(spare_between(before, before) < f64::EPSILON);
        assert_eq!(ticks_in("intr 1 2 3"), None);
    }
}
