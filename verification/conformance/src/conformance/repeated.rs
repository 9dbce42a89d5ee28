//! Repeats comparisons that showed a difference, on newly started brokers.
//!
//! Scripts and clients have timeouts, so on a busy machine a step may differ by chance, also
//! between two runs of Apache Kafka (`--broker kafka`). A step that differs in both runs is a
//! difference. A step that differs in only one run is reported in a line that starts with `once`,
//! which the test command always repeats: it is either a time-dependent step or a race in a broker.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::clients::Client;
use super::comparison::{Difference, Outcome};
use ottla_workspace::report::Tally;

/// The result of one comparison.
pub struct Found {
    pub name: String,
    /// The client whose script was run, or whose script the compared tools depend on; `None` for
    /// tools that need no script.
    pub client: Option<Client>,
    /// An error is a script that did not complete.
    pub outcome: Result<Outcome>,
}

impl Found {
    /// The prefix of the line about one run. It is not final if there was a difference.
    pub fn verdict(&self) -> &'static str {
        if self.has_differed() { "?   " } else { "ok  " }
    }

    pub fn has_differed(&self) -> bool {
        !matches!(&self.outcome, Ok(outcome) if outcome.unknown.is_empty())
    }
}

/// Combines both runs into a tally and report lines. `second` holds the steps that differed in the
/// first run, and their dependencies.
pub fn judged(first: Vec<Found>, second: Vec<Found>) -> (Tally, Vec<String>) {
    let mut second: BTreeMap<String, Result<Outcome>> =
        second.into_iter().map(|it| (it.name, it.outcome)).collect();
    let (mut tally, mut said) = (Tally::default(), Vec::new());
    for found in first {
        let name = found.name;
        let again = second.remove(&name);
        let judgement = match (found.outcome, again) {
            (Ok(first), None) => Judgement::of(&first, &first),
            (Ok(first), Some(Ok(second))) => Judgement::of(&first, &second),
            (Err(error), Some(Ok(second))) => Judgement {
                by_chance: vec![format!("{error:#}")],
                ..Judgement::of(&second, &second)
            },
            (Ok(first), Some(Err(error))) => {
                let mut judgement = Judgement::of(&first, &first);
                if judgement.lasting.is_empty() {
                    judgement.by_chance.push(format!("{error:#}"))
                } else {
                    judgement.lasting.push(format!("{error:#}"))
                }
                judgement
            }
            (Err(first), second) => {
                let second = second.and_then(Result::err);
                Judgement {
                    lasting: vec![format!("{:#}", second.unwrap_or(first))],
                    ..Judgement::default()
                }
            }
        };
        tally.passed += judgement.passed;
        tally.failed += judgement.lasting.len();
        for (verdict, differences) in [("FAIL", judgement.lasting), ("once", judgement.by_chance)] {
            said.extend(
                differences
                    .iter()
                    .map(|it| format!("{verdict} {name}: {it}")),
            );
        }
    }
    (tally, said)
}

#[derive(Default)]
struct Judgement {
    passed: usize,
    lasting: Vec<String>,
    by_chance: Vec<String>,
}

impl Judgement {
    fn of(first: &Outcome, second: &Outcome) -> Judgement {
        let is_in = |outcome: &Outcome, it: &Difference| {
            outcome.unknown.iter().any(|other| other.step == it.step)
        };
        let (lasting, once): (Vec<&Difference>, Vec<&Difference>) =
            second.unknown.iter().partition(|it| is_in(first, it));
        let gone = first.unknown.iter().filter(|it| !is_in(second, it));
        let passed_before: BTreeSet<&str> = once.iter().map(|it| it.step.as_str()).collect();
        let passed = second.alike + second.known + passed_before.len();
        let by_chance: Vec<String> = once
            .into_iter()
            .chain(gone)
            .map(Difference::to_string)
            .collect();
        Judgement {
            passed,
            lasting: lasting.into_iter().map(Difference::to_string).collect(),
            by_chance,
        }
    }
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::super::comparison::{KnownDifferences, compare, parse};
    use super::*;

    /// Four steps; the steps in `differing` differ.
    fn found(differing: &[&str]) -> Found {
        let lines = |is_other: bool| {
            let line = |step: &&str| {
                let outcome = u8::from(is_other && differing.contains(step));
                format!("{{\"step\":\"{step}\",\"outcome\":{outcome}}}")
            };
            let lines: Vec<String> = ["a", "b", "c", "d"].iter().map(line).collect();
            parse(&lines.join("\n"), &[9092]).unwrap()
        };
        let known = KnownDifferences::default();
        Found {
            name: "perl".to_owned(),
            client: None,
            outcome: Ok(compare("perl", &lines(false), &lines(true), &known)),
        }
    }

    fn hung() -> Found {
        Found {
            outcome: Err(anyhow!("it hung")),
            ..found(&[])
        }
    }

    /// The numbers of passed, failed and once-differing steps.
    fn counts(first: Found, second: Option<Found>) -> (usize, usize, usize) {
        let (tally, said) = judged(vec![first], second.into_iter().collect());
        let once = said
            .iter()
            .filter(|line| line.starts_with("once perl: "))
            .count();
        let failed = said
            .iter()
            .filter(|line| line.starts_with("FAIL perl: "))
            .count();
        assert_eq!(failed, tally.failed, "{said:?}");
        (tally.passed, tally.failed, once)
    }

    #[test]
    fn only_steps_that_differ_in_both_runs_fail() {
        assert_eq!(counts(found(&[]), None), (4, 0, 0));
        assert_eq!(counts(found(&["a"]), Some(found(&["a"]))), (3, 1, 0));
        assert_eq!(counts(found(&["a"]), Some(found(&[]))), (4, 0, 1));
        assert_eq!(
            counts(found(&["a", "b"]), Some(found(&["b", "c"]))),
            (3, 1, 2)
        );
        // A step that was repeated only as a dependency and had not differed before.
        assert_eq!(counts(found(&[]), Some(found(&["d"]))), (4, 0, 1));
    }

    #[test]
    fn a_script_that_hangs_must_end_in_the_second_run() {
        assert_eq!(counts(hung(), Some(hung())), (0, 1, 0));
        assert_eq!(counts(hung(), Some(found(&[]))), (4, 0, 1));
        // The second run is the only complete one.
        assert_eq!(counts(hung(), Some(found(&["a"]))), (3, 1, 1));
        assert_eq!(counts(found(&["a"]), Some(hung())), (3, 2, 0));
        assert_eq!(counts(hung(), None), (0, 1, 0));
    }

    #[test]
    fn only_differing_steps_run_again() {
        assert!(!found(&[]).has_differed());
        assert!(found(&["a"]).has_differed());
        assert!(hung().has_differed());
    }
}
