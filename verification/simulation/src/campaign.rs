//! Runs one seed after the other on several threads, until the time is over or a seed finds
//! something.
//!
//! A simulation has no state outside its thread, so several run in one process.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::ledger::Ledger;
use crate::outcome::Outcome;

/// Which seeds run, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    pub first: u64,
    /// The number of threads.
    pub jobs: usize,
    pub time: Duration,
    /// The campaign ends when the ledger has this much simulated time of the tree.
    pub simulated: Option<Duration>,
}

/// The results of a campaign.
#[derive(Debug, Default)]
pub struct Ran {
    pub seeds: u64,
    /// The sum of the counts; its finding is that of the first seed in `found`.
    pub total: Outcome,
    /// The seeds that find something. Seeds that run at the same time are completed.
    pub found: Vec<(u64, String)>,
    pub elapsed: Duration,
}

/// State shared by the threads.
struct Shared<'l> {
    ran: Ran,
    ledger: Option<&'l mut Ledger>,
    /// Why the ledger could not be written.
    failure: Option<anyhow::Error>,
}

impl Campaign {
    /// Runs seeds with `run`, without seeds that have passed according to the ledger.
    pub fn run(
        &self,
        ledger: Option<&mut Ledger>,
        run: impl Fn(u64) -> Outcome + Sync,
    ) -> Result<Ran> {
        let began = Instant::now();
        let (next, is_over) = (AtomicU64::new(self.first), AtomicBool::new(false));
        let shared = Mutex::new(Shared {
            ran: Ran::default(),
            ledger,
            failure: None,
        });
        let work = || {
            while !is_over.load(Ordering::Relaxed) && began.elapsed() < self.time {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                {
                    let shared = shared.lock().expect("no holder panics");
                    if shared.has_enough(self.simulated) {
                        break;
                    }
                    if shared.has_passed(seed) {
                        continue;
                    }
                }
                let outcome = run(seed);
                let mut shared = shared.lock().expect("no holder panics");
                shared.take(seed, &outcome);
                if shared.failure.is_some() || !shared.ran.found.is_empty() {
                    is_over.store(true, Ordering::Relaxed);
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 0..self.jobs {
                scope.spawn(work);
            }
        });
        let shared = shared.into_inner().expect("no holder panics");
        match shared.failure {
            Some(failure) => Err(failure),
            None => Ok(Ran {
                elapsed: began.elapsed(),
                ..shared.ran
            }),
        }
    }
}

impl Shared<'_> {
    fn has_enough(&self, wanted: Option<Duration>) -> bool {
        let ledger = self.ledger.as_ref();
        let simulated = ledger.map(|ledger| ledger.simulated());
        wanted.is_some_and(|wanted| simulated.is_some_and(|simulated| simulated >= wanted))
    }

    fn has_passed(&self, seed: u64) -> bool {
        let ledger = self.ledger.as_ref();
        ledger.is_some_and(|ledger| ledger.has_passed(seed))
    }

    fn take(&mut self, seed: u64, outcome: &Outcome) {
        self.ran.seeds += 1;
        self.ran.total.add(outcome);
        if let Some(finding) = &outcome.finding {
            self.ran
                .total
                .finding
                .get_or_insert_with(|| finding.clone());
            self.ran.found.push((seed, finding.clone()));
        }
        if let Some(ledger) = &mut self.ledger
            && let Err(error) = ledger.add(seed, outcome)
        {
            self.failure.get_or_insert(error);
        }
    }
}

/// Reads a time: `90s`, `20m`, `2h`, or a number of seconds.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3_600)];
    let with_unit = units
        .iter()
        .find_map(|(unit, seconds)| Some((text.strip_suffix(unit)?, *seconds)));
    let (number, seconds) = with_unit.unwrap_or((text, 1));
    let number: u64 = number.parse().map_err(|_| {
        format!("{text} is not a time; give seconds, minutes or hours: 90s, 20m or 2h")
    })?;
    Ok(Duration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A seed of ten simulated minutes. `found` finds something.
    fn run(seed: u64, found: Option<u64>) -> Outcome {
        Outcome {
            finding: (found == Some(seed)).then(|| format!("finding of {seed}")),
            simulated: Duration::from_secs(600),
            kills: 1,
            ..Outcome::default()
        }
    }

    fn campaign(first: u64) -> Campaign {
        Campaign {
            first,
            jobs: 2,
            time: Duration::from_secs(600),
            simulated: None,
        }
    }

    #[test]
    fn the_first_finding_ends_a_campaign() {
        let ran = campaign(1)
            .run(None, |seed| run(seed, Some(20)))
            .expect("no ledger");
        assert_eq!(ran.found, [(20, "finding of 20".to_owned())]);
        assert_eq!(ran.total.finding.as_deref(), Some("finding of 20"));
        assert!(ran.seeds >= 20 && ran.total.kills == ran.seeds);
    }

    #[test]
    fn a_campaign_continues_after_the_last_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let ran = Mutex::new(BTreeSet::new());
        for hours in [1, 3] {
            let mut ledger = Ledger::open(&path, "tree").unwrap();
            let campaign = Campaign {
                simulated: Some(Duration::from_secs(hours * 3_600)),
                ..campaign(100)
            };
            let count = |seed| {
                let is_new = ran.lock().unwrap().insert(seed);
                assert!(is_new, "seed {seed} runs again");
                run(seed, None)
            };
            campaign.run(Some(&mut ledger), count).unwrap();
            let simulated = ledger.simulated().as_secs();
            // Each thread may have begun one more seed.
            let enough = hours * 3_600..=hours * 3_600 + 600;
            assert!(enough.contains(&simulated), "{simulated}");
        }
        let seeds = ran.lock().unwrap().len() as u64;
        assert!((18..=19).contains(&seeds), "{seeds}");
    }

    #[test]
    fn a_campaign_without_time_runs_nothing() {
        let campaign = Campaign {
            time: Duration::ZERO,
            ..campaign(1)
        };
        let ran = campaign.run(None, |seed| run(seed, None)).unwrap();
        assert_eq!(ran.seeds, 0);
    }

    #[test]
    fn times_have_units() {
        let seconds = |text| parse_time(text).map(|time| time.as_secs());
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("20m"), Ok(1_200));
        assert_eq!(seconds("2h"), Ok(7_200));
        assert_eq!(seconds("15"), Ok(15));
        assert!(parse_time("soon").is_err_and(|error| error.starts_with("soon is not a time")));
        assert!(parse_time("m").is_err() && parse_time("").is_err());
    }
}
