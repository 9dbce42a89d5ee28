//! Statistics over the rounds of a figure, and whether two targets differ.
//!
//! Rates and times are compared as ratios, so the arithmetic is done on logarithms: twice as fast
//! and half as fast are the same distance. A difference is reported only if the 95 % confidence
//! interval of the ratio excludes 1 and the ratio is further from 1 than the machine's noise.

use serde::{Deserialize, Serialize};

use crate::figures::Better;

/// A figure over its rounds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Summary {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub rounds: usize,
}

impl Summary {
    /// `None` without values.
    pub fn of(values: &[f64]) -> Option<Summary> {
        let mut sorted: Vec<f64> = values.iter().copied().filter(|it| it.is_finite()).collect();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let middle = sorted.len() / 2;
        let median = match sorted.len() % 2 {
            1 => sorted[middle],
            _ => (sorted[middle - 1] + sorted[middle]) / 2.0,
        };
        Some(Summary {
            median,
            min,
            max,
            rounds: sorted.len(),
        })
    }

    /// The range of the rounds as a fraction of the median: 0.1 is 10 %.
    pub fn spread(&self) -> f64 {
        if self.median == 0.0 {
            0.0
        } else {
            (self.max - self.min) / self.median.abs()
        }
    }
}

/// The verdict of a comparison.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    Better,
    Worse,
    /// A difference in a figure without a better direction.
    Different,
    NoDifferenceBeyondNoise,
    /// A single round cannot distinguish a difference from noise.
    TooFewRounds,
}

impl Verdict {
    pub fn in_words(self) -> &'static str {
        match self {
            Verdict::Better => "better",
            Verdict::Worse => "worse",
            Verdict::Different => "different",
            Verdict::NoDifferenceBeyondNoise => "no difference beyond noise",
            Verdict::TooFewRounds => "too few rounds to decide",
        }
    }
}

/// The ratio of the second to the first.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Ratio {
    pub ratio: f64,
    /// The ends of the 95 % confidence interval; `None` with too few rounds.
    pub low: Option<f64>,
    pub high: Option<f64>,
}

impl Ratio {
    /// From rounds that were run in pairs, `(first, second)`.
    pub fn paired(pairs: &[(f64, f64)]) -> Option<Ratio> {
        let logs: Vec<f64> = pairs
            .iter()
            .filter(|(first, second)| *first > 0.0 && *second > 0.0)
            .map(|(first, second)| (second / first).ln())
            .collect();
        let (mean, variance) = moments(&logs)?;
        let error = (variance / logs.len() as f64).sqrt();
        Some(Ratio::around(mean, error, logs.len() as f64 - 1.0))
    }

    /// From rounds of two independent runs (Welch's interval).
    pub fn unpaired(first: &[f64], second: &[f64]) -> Option<Ratio> {
        let logs = |values: &[f64]| -> Vec<f64> {
            let positive = values.iter().filter(|value| **value > 0.0);
            positive.map(|value| value.ln()).collect()
        };
        let (first, second) = (logs(first), logs(second));
        let (first_mean, first_variance) = moments(&first)?;
        let (second_mean, second_variance) = moments(&second)?;
        let (a, b) = (
            first_variance / first.len() as f64,
            second_variance / second.len() as f64,
        );
        let smaller = first.len().min(second.len()) as f64 - 1.0;
        let freedom = if a + b > 0.0 && smaller > 0.0 {
            let of = |part: f64, count: usize| part * part / (count as f64 - 1.0);
            (a + b).powi(2) / (of(a, first.len()) + of(b, second.len()))
        } else {
            smaller
        };
        Some(Ratio::around(
            second_mean - first_mean,
            (a + b).sqrt(),
            freedom,
        ))
    }

    fn around(mean: f64, error: f64, freedom: f64) -> Ratio {
        let margin = (freedom >= 1.0).then(|| students_t(freedom) * error);
        Ratio {
            ratio: mean.exp(),
            low: margin.map(|margin| (mean - margin).exp()),
            high: margin.map(|margin| (mean + margin).exp()),
        }
    }

    /// `noise` is a fraction: with 0.02, ratios between 0.98 and 1.02 count as no difference.
    pub fn verdict(&self, better: Better, noise: f64) -> Verdict {
        let (Some(low), Some(high)) = (self.low, self.high) else {
            return Verdict::TooFewRounds;
        };
        let is_within_noise = self.ratio.ln().abs() <= (1.0 + noise).ln();
        if (low <= 1.0 && high >= 1.0) || is_within_noise {
            return Verdict::NoDifferenceBeyondNoise;
        }
        match (better, self.ratio > 1.0) {
            (Better::Neither, _) => Verdict::Different,
            (Better::Higher, true) | (Better::Lower, false) => Verdict::Better,
            (Better::Higher, false) | (Better::Lower, true) => Verdict::Worse,
        }
    }
}

/// Mean and variance; the variance of a single value is 0.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    match values.len() {
        0 => None,
        1 => Some((mean, 0.0)),
        _ => Some((mean, squares / (count - 1.0))),
    }
}

/// The 97.5 % quantile of Student's distribution for 1 to 30 degrees of freedom, and the normal
/// one's beyond. Between whole degrees, the larger (conservative) value.
fn students_t(freedom: f64) -> f64 {
    const QUANTILES: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    let index = freedom.floor().max(1.0) as usize;
    QUANTILES.get(index - 1).copied().unwrap_or(1.96)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        let summary = Summary::of(&[3.0, 1.0, 2.0, 10.0]).unwrap();
        assert_eq!((summary.median, summary.min, summary.max), (2.5, 1.0, 10.0));
        assert_eq!(summary.spread(), 3.6);
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[f64::NAN]), None);
    }

    #[test]
    fn paired_rounds_show_a_difference_despite_noise() {
        // The level differs from round to round; the second is always a tenth above the first.
        let pairs = [(100.0, 110.0), (300.0, 331.0), (50.0, 54.8), (200.0, 221.0)];
        let ratio = Ratio::paired(&pairs).unwrap();
        assert!((ratio.ratio - 1.1).abs() < 0.01);
        assert_eq!(ratio.verdict(Better::Higher, 0.02), Verdict::Better);
        assert_eq!(ratio.verdict(Better::Lower, 0.02), Verdict::Worse);
        assert_eq!(ratio.verdict(Better::Neither, 0.02), Verdict::Different);
        // With this much noise, a difference of a tenth is not significant.
        assert_eq!(
            ratio.verdict(Better::Higher, 0.15),
            Verdict::NoDifferenceBeyondNoise
        );
        let firsts: Vec<f64> = pairs.iter().map(|it| it.0).collect();
        let seconds: Vec<f64> = pairs.iter().map(|it| it.1).collect();
        let unpaired = Ratio::unpaired(&firsts, &seconds).unwrap();
        assert_eq!(
            unpaired.verdict(Better::Higher, 0.0),
            Verdict::NoDifferenceBeyondNoise
        );
    }

    #[test]
    fn the_interval_uses_the_t_distribution() {
        // Logarithms 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, margin 4.303 * 0.1 / sqrt(3).
        let pairs = [0.1f64, 0.2, 0.3].map(|log| (1.0, log.exp()));
        let ratio = Ratio::paired(&pairs).unwrap();
        let margin = 4.303 * 0.1 / 3f64.sqrt();
        assert!((ratio.low.unwrap() - (0.2 - margin).exp()).abs() < 1e-9);
        assert!((ratio.high.unwrap() - (0.2 + margin).exp()).abs() < 1e-9);
    }

    #[test]
    fn one_round_gives_a_ratio_and_no_verdict() {
        let ratio = Ratio::paired(&[(1.0, 2.0)]).unwrap();
        assert_eq!((ratio.ratio, ratio.low), (2.0, None));
        assert_eq!(ratio.verdict(Better::Higher, 0.0), Verdict::TooFewRounds);
        assert_eq!(Ratio::paired(&[(0.0, 2.0)]), None);
        assert_eq!(Ratio::unpaired(&[], &[1.0]), None);
    }

    #[test]
    fn two_steady_runs_with_different_means_differ() {
        let ratio = Ratio::unpaired(&[100.0, 101.0, 99.0], &[80.0, 81.0, 79.0]).unwrap();
        assert_eq!(ratio.verdict(Better::Higher, 0.02), Verdict::Worse);
    }
}
