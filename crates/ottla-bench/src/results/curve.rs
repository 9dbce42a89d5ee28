//! Distributions as stored in results: a few quantiles, and the whole curve.

use serde::{Deserialize, Serialize};

use crate::figures::Figures;
use crate::workload::latencies::Latencies;

/// Quantiles and latencies in microseconds, both ascending.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Curve {
    pub count: u64,
    pub mean_us: f64,
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// `None` if there are no records.
    pub fn of(latencies: &Latencies) -> Option<Curve> {
        if latencies.count() == 0 {
            return None;
        }
        let us = |nanoseconds: u64| nanoseconds as f64 / 1000.0;
        let at = |quantile: f64| us(latencies.at_quantile_ns(quantile).min(latencies.max_ns()));
        let mut points = Vec::new();
        // Each step halves the remainder, with five points per step, until it is less than one
        // record.
        let mut left = 1.0;
        while left * latencies.count() as f64 >= 1.0 && points.len() < 200 {
            for step in 0..5 {
                let quantile = 1.0 - left * (1.0 - f64::from(step) / 10.0);
                points.push((quantile, at(quantile)));
            }
            left /= 2.0;
        }
        points.push((1.0, us(latencies.max_ns())));
        Some(Curve {
            count: latencies.count(),
            mean_us: latencies.mean_ns() / 1000.0,
            points,
        })
    }

    /// Quantiles without a point are interpolated linearly between their neighbours.
    pub fn quantiles(&self) -> Quantiles {
        Quantiles::from(self.mean_us, |quantile| self.at(quantile))
    }

    fn at(&self, quantile: f64) -> f64 {
        let next = self.points.partition_point(|(point, _)| *point < quantile);
        let Some(&(above, value_above)) = self.points.get(next) else {
            return self.points.last().map_or(0.0, |(_, value)| *value);
        };
        let Some(&(below, value_below)) = next.checked_sub(1).and_then(|it| self.points.get(it))
        else {
            return value_above;
        };
        value_below + (value_above - value_below) * (quantile - below) / (above - below)
    }
}

/// A distribution as a few numbers, in microseconds; all 0 if there are no records.
#[derive(Clone, Copy, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct Quantiles {
    pub mean_us: f64,
    pub p50_us: f64,
    pub p75_us: f64,
    pub p95_us: f64,
    pub p99_us: f64,
    pub p99_9_us: f64,
    pub p99_99_us: f64,
    pub p99_999_us: f64,
    pub max_us: f64,
}

impl Quantiles {
    pub fn of(latencies: &Latencies) -> Quantiles {
        Curve::of(latencies).map_or_else(Quantiles::default, |curve| {
            let us = |quantile| quantile_ms(latencies, quantile) * 1000.0;
            Quantiles::from(curve.mean_us, us)
        })
    }

    fn from(mean_us: f64, us: impl Fn(f64) -> f64) -> Quantiles {
        Quantiles {
            mean_us,
            p50_us: us(0.5),
            p75_us: us(0.75),
            p95_us: us(0.95),
            p99_us: us(0.99),
            p99_9_us: us(0.999),
            p99_99_us: us(0.9999),
            p99_999_us: us(0.99999),
            max_us: us(1.0),
        }
    }

    /// The mean, the quantiles in ascending order, and the maximum.
    pub fn all(&self) -> [f64; 9] {
        [
            self.mean_us,
            self.p50_us,
            self.p75_us,
            self.p95_us,
            self.p99_us,
            self.p99_9_us,
            self.p99_99_us,
            self.p99_999_us,
            self.max_us,
        ]
    }
}

pub fn quantile_ms(latencies: &Latencies, quantile: f64) -> f64 {
    latencies.at_quantile_ns(quantile).min(latencies.max_ns()) as f64 / 1e6
}

pub fn max_ms(latencies: &Latencies) -> f64 {
    latencies.max_ns() as f64 / 1e6
}

/// Adds the figures of a distribution under its name, such as `ack.p99_ms`.
pub fn add_figures(latencies: &Latencies, name: &str, figures: &mut Figures) {
    if latencies.count() == 0 {
        return;
    }
    let mut put = |what: &str, value: f64| {
        figures.insert(format!("{name}.{what}_ms"), value);
    };
    put("mean", latencies.mean_ns() / 1e6);
    put("p50", quantile_ms(latencies, 0.5));
    put("p95", quantile_ms(latencies, 0.95));
    put("p99", quantile_ms(latencies, 0.99));
    put("p99_9", quantile_ms(latencies, 0.999));
    put("max", max_ms(latencies));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stall of S seconds within T seconds of steady load, counted from the due times: the
    /// latency at quantile q, counted from the top, is S - q·T, and the maximum is S.
    #[test]
    fn a_stall_shows_as_the_analytic_curve() {
        let (stall, length, rate) = (2.0, 10.0, 10_000.0);
        let mut latencies = Latencies::default();
        for record in 0..(length * rate) as u64 {
            let due = record as f64 / rate;
            // The stall starts at second 3; records due during it complete when it ends.
            let done = if (3.0..5.0).contains(&due) { 5.0 } else { due };
            latencies.record_ns(((done - due) * 1e9) as u64);
        }
        for above in [0.001, 0.01, 0.05, 0.1, 0.15] {
            let expected = (stall - above * length) * 1000.0;
            let found = quantile_ms(&latencies, 1.0 - above);
            let is_near = (found - expected).abs() <= 0.02 * expected;
            assert!(is_near, "{above}: {found} {expected}");
        }
        assert!((max_ms(&latencies) - 2000.0).abs() < 40.0);
        assert!(quantile_ms(&latencies, 0.79) < 0.001);
    }

    #[test]
    fn quantiles_of_a_curve_match_its_records() {
        let mut latencies = Latencies::default();
        for microseconds in 1..=100_000 {
            latencies.record_ns(microseconds * 1000);
        }
        let exact = Quantiles::of(&latencies);
        assert!((exact.p95_us - 95_000.0).abs() < 100.0, "{exact:?}");
        let of_curve = Curve::of(&latencies).unwrap().quantiles();
        for (exact, found) in exact.all().into_iter().zip(of_curve.all()) {
            assert!((exact - found).abs() < 0.002 * exact, "{exact} {found}");
        }
        assert_eq!(Quantiles::of(&Latencies::default()), Quantiles::default());
    }

    #[test]
    fn the_curve_rises_to_the_maximum() {
        let mut latencies = Latencies::default();
        for microseconds in 1..=1000 {
            latencies.record_ns(microseconds * 1000);
        }
        let curve = Curve::of(&latencies).unwrap();
        let rises = curve.points.is_sorted_by(|a, b| a.0 < b.0 && a.1 <= b.1);
        assert!(rises, "{curve:?}");
        let last = curve.points.last().unwrap();
        assert!(last.0 == 1.0 && (last.1 - 1000.0).abs() < 2.0, "{last:?}");
        assert_eq!(curve.count, 1000);
        assert!(Curve::of(&Latencies::default()).is_none());
        let mut figures = Figures::new();
        add_figures(&latencies, "ack", &mut figures);
        assert!((figures["ack.p99_ms"] - 0.99).abs() < 0.002);
    }
}
