//! The search for the highest sustainable rate, as a state machine without a clock: it returns a
//! rate, takes the outcome, and returns the next rate.
//!
//! 1. The rate rises by one step until it is not held, as in the published searches.
//! 2. The interval between the last held and the first missed rate is bisected until it is a tenth
//!    of a step, so that the result does not depend on the start of the ladder.
//!
//! If the first rate is not held, it is halved first.

/// The fraction of the offered rate that must be achieved.
pub const HELD: f64 = 0.99;

/// The outcome of an attempt.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Attempt {
    pub offered: f64,
    pub reached: f64,
    /// The measured end-to-end p99, in milliseconds, if any.
    pub p99_ms: Option<f64>,
}

/// A search in progress.
#[derive(Clone, PartialEq, Debug)]
pub struct Search {
    from: f64,
    step: f64,
    p99_limit_ms: Option<f64>,
    best: Option<Attempt>,
    /// The lowest rate that was not held.
    refused: Option<f64>,
    attempts: Vec<(Attempt, bool)>,
}

/// A search ends after this many attempts.
const MOST_ATTEMPTS: usize = 200;

impl Search {
    pub fn new(from: f64, step: f64, p99_limit_ms: Option<f64>) -> Search {
        Search {
            from,
            step,
            p99_limit_ms,
            best: None,
            refused: None,
            attempts: Vec::new(),
        }
    }

    /// The rate to try next; `None` when the search is over.
    pub fn next(&self) -> Option<f64> {
        if self.attempts.len() >= MOST_ATTEMPTS {
            return None;
        }
        match (&self.best, self.refused) {
            (None, None) => Some(self.from),
            (None, Some(refused)) => Some(refused / 2.0).filter(|rate| *rate >= self.step / 10.0),
            (Some(best), None) => Some(best.offered + self.step),
            (Some(best), Some(refused)) => {
                let gap = refused - best.offered;
                (gap > self.step / 10.0).then_some(best.offered + gap / 2.0)
            }
        }
    }

    /// Records an attempt; returns whether its rate was held.
    pub fn report(&mut self, attempt: Attempt) -> bool {
        let is_reached = attempt.reached >= attempt.offered * HELD;
        let is_quick = match (self.p99_limit_ms, attempt.p99_ms) {
            (None, _) => true,
            (Some(limit), Some(p99)) => p99 <= limit,
            (Some(_), None) => false,
        };
        let is_held = is_reached && is_quick;
        if is_held {
            self.best = Some(attempt)
        } else {
            self.refused = Some(attempt.offered)
        }
        self.attempts.push((attempt, is_held));
        is_held
    }

    /// The attempt with the highest rate that was held.
    pub fn best(&self) -> Option<Attempt> {
        self.best
    }

    pub fn attempts(&self) -> &[(Attempt, bool)] {
        &self.attempts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches a system with this capacity, whose latency rises towards it.
    fn search(mut search: Search, capacity: f64) -> Search {
        while let Some(offered) = search.next() {
            let reached = offered.min(capacity);
            let p99_ms = Some(1.0 / (1.0 - (offered / capacity).min(0.9999)));
            search.report(Attempt {
                offered,
                reached,
                p99_ms,
            });
        }
        search
    }

    #[test]
    fn the_rate_is_raised_until_it_fails_and_then_bisected() {
        let found = search(Search::new(5000.0, 5000.0, None), 107_805.0);
        let best = found.best().unwrap().offered;
        // 99 % of the offered rate counts as held.
        assert!((107_300.0..=108_900.0).contains(&best), "{best}");
        let offered: Vec<f64> = found.attempts().iter().map(|it| it.0.offered).collect();
        assert_eq!(offered[..3], [5000.0, 10_000.0, 15_000.0]);
        assert!(offered.len() < 30, "{offered:?}");
    }

    #[test]
    fn a_latency_limit_is_kept() {
        let found = search(Search::new(5000.0, 5000.0, Some(10.0)), 100_000.0);
        // 1 / (1 - load) is 10 at nine tenths of the capacity.
        let best = found.best().unwrap();
        assert!((89_000.0..=90_000.0).contains(&best.offered), "{best:?}");
        assert!(best.p99_ms.unwrap() <= 10.0);
    }

    #[test]
    fn a_first_rate_that_is_too_high_is_halved() {
        let found = search(Search::new(50_000.0, 5000.0, None), 3000.0);
        let best = found.best().unwrap().offered;
        assert!((2500.0..=3100.0).contains(&best), "{best}");
        let dead = search(Search::new(5000.0, 5000.0, None), 0.0);
        assert_eq!(dead.best(), None);
    }
}
