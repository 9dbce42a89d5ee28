//! Rows of the table, and the times in them.

use std::time::{Duration, Instant};

const RUNS: usize = 5;

/// A row of the table.
pub struct Row {
    pub name: &'static str,
    /// The measured operation.
    pub operation: &'static str,
    /// The quantity that is N, 10 N and 100 N.
    pub counted: &'static str,
    pub smallest: u64,
    /// The time of one operation at a size.
    pub measure: fn(u64) -> Duration,
}

/// The time of one of `operations`, which `run` does, in the best of five runs. Work that is not part
/// of them belongs before `run`.
pub fn best_of(operations: u32, mut run: impl FnMut()) -> Duration {
    best_time(|| {
        let began = Instant::now();
        run();
        began.elapsed() / operations
    })
}

/// The best of the times that `run` measures itself in five runs.
pub fn best_time(run: impl FnMut() -> Duration) -> Duration {
    let times = std::iter::repeat_with(run).take(RUNS);
    times.min().unwrap_or_default()
}

/// The exponent of the growth from a size to the hundredfold.
pub fn slope(at_n: Duration, at_100_n: Duration) -> f64 {
    let at_least = |time: Duration| time.as_nanos().max(1) as f64;
    (at_least(at_100_n) / at_least(at_n)).log10() / 2.0
}

/// A time in its unit, with three digits.
pub fn written(time: Duration) -> String {
    let nanos = time.as_nanos();
    if nanos < 1_000 {
        return format!("{nanos} ns");
    }
    let (unit_nanos, unit) = match nanos {
        0..1_000_000 => (1e3, "µs"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    let number = nanos as f64 / unit_nanos;
    let decimals = if number < 10.0 {
        2
    } else if number < 100.0 {
        1
    } else {
        0
    };
    format!("{number:.decimals$} {unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slope_is_the_exponent() {
        let micros = Duration::from_micros;
        for (at_100_n, expected) in [(3, 0.0), (30, 0.5), (300, 1.0), (30_000, 2.0)] {
            let found = slope(micros(3), micros(at_100_n));
            assert!((found - expected).abs() < 1e-9, "{at_100_n}: {found}");
        }
    }

    #[test]
    fn times_have_their_unit() {
        let nanos = [7, 999, 1_500, 12_340, 123_400, 1_234_000, 2_500_000_000];
        let texts = nanos.map(|nanos| written(Duration::from_nanos(nanos)));
        let expected = [
            "7 ns", "999 ns", "1.50 µs", "12.3 µs", "123 µs", "1.23 ms", "2.50 s",
        ];
        assert_eq!(texts, expected);
    }
}
