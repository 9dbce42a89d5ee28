//! What a test program was doing when it died or was ended.
//!
//! The test harness (libtest) keeps what a test prints until the test ends, so the output of a
//! program that died says nothing about the tests that were running. But libtest starts tests in
//! the order in which it lists them, as many at once as it has threads, and prints a line for each
//! that has ended. Simulations write their seeds into a journal
//! (`crates/ottla-sync/src/simulation/journal.rs`).

use std::collections::BTreeMap;

/// The variable with the path of the journal of seeds.
pub const SEED_JOURNAL: &str = "OTTLA_SEED_JOURNAL";

/// The last lines of the output that are repeated, at most.
const LAST_LINES: usize = 6;

/// Whether libtest has begun to run tests. Other programs do not know `--list`.
pub fn has_harness(printed: &str) -> bool {
    let mut lines = printed.lines();
    lines.any(|line| line.starts_with("running ") && line.contains(" test"))
}

/// Indented lines: the tests that were running, the seeds of open simulations, and the end of the
/// output.
pub fn description(listed: &str, printed: &str, journal: &str, threads: usize) -> String {
    let running = running_tests(listed, printed, threads);
    let running = running.iter().map(|name| format!("running: {name}"));
    let simulated = open_runs(journal);
    let simulated = simulated.iter().map(|run| format!("simulated: {run}"));
    let last = last_lines(printed);
    let last = last.iter().map(|line| format!("printed: {line}"));
    let lines = running.chain(simulated).chain(last);
    lines.map(|line| format!("    {line}\n")).collect()
}

/// The tests that have been started and have not ended.
fn running_tests<'a>(listed: &'a str, printed: &str, threads: usize) -> Vec<&'a str> {
    let ended: Vec<&str> = printed.lines().filter_map(ended_test).collect();
    let names = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    let names = names.filter(|name| !ended.contains(name));
    names.take(threads).collect()
}

/// `test NAME ... OUTCOME`. With one thread, libtest prints the name before the test starts, so that
/// the last words of a process may follow it on the line.
fn ended_test(line: &str) -> Option<&str> {
    const OUTCOMES: [&str; 3] = ["ok", "FAILED", "ignored"];
    let (name, outcome) = line.strip_prefix("test ")?.split_once(" ... ")?;
    let has_ended = OUTCOMES.iter().any(|known| outcome.starts_with(known));
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    has_ended.then_some(name)
}

/// The runs that a journal begins and does not end.
fn open_runs(journal: &str) -> Vec<String> {
    let mut open: BTreeMap<&str, String> = BTreeMap::new();
    for line in journal.lines() {
        if let Some(thread) = line.strip_prefix("end ") {
            open.remove(thread);
        } else if let Some((thread, seed, name)) = begun(line) {
            open.insert(thread, format!("seed {seed} in {name}"));
        }
    }
    open.into_values().collect()
}

/// `begin THREAD SEED NAME`.
fn begun(line: &str) -> Option<(&str, &str, &str)> {
    let (thread, rest) = line.strip_prefix("begin ")?.split_once(' ')?;
    let (seed, name) = rest.split_once(' ')?;
    Some((thread, seed, name))
}

/// The last lines without those about tests that have ended.
fn last_lines(printed: &str) -> Vec<&str> {
    let is_other = |line: &&str| !line.trim().is_empty() && ended_test(line).is_none();
    let lines: Vec<&str> = printed.lines().filter(is_other).collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTED: &str = "a::one: test\na::two: test\nb::three: test\nb::four: test\nc::five: test\n\n\
                          5 tests, 0 benchmarks\n";

    #[test]
    fn tests_that_started_and_did_not_end_were_running() {
        let printed = "\nrunning 5 tests\ntest a::one ... ok\ntest b::three - should panic ... ok\n\
                       test a::two has been running for over 60 seconds\n";
        assert!(has_harness(printed));
        assert_eq!(running_tests(LISTED, printed, 2), ["a::two", "b::four"]);
        let one_thread =
            "running 5 tests\ntest a::one ... ignored, needs a server\ntest a::two ... ";
        assert_eq!(running_tests(LISTED, one_thread, 1), ["a::two"]);
        let last_words = "running 5 tests\ntest a::one ... ok\ntest a::two ... memory is used up\n";
        assert_eq!(running_tests(LISTED, last_words, 1), ["a::two"]);
        let last = last_lines(last_words);
        assert_eq!(
            last,
            ["running 5 tests", "test a::two ... memory is used up"]
        );
        assert!(!has_harness("listening\n"));
    }

    #[test]
    fn runs_without_an_end_are_open() {
        let journal = "begin ThreadId(2) 17 a::one\nbegin ThreadId(3) 4 b::three\nend ThreadId(2)\n\
                       begin ThreadId(2) 18 a::one\nend ThreadId(3)\n";
        assert_eq!(open_runs(journal), ["seed 18 in a::one"]);
    }

    #[test]
    fn the_description_is_indented_and_ends_with_what_was_printed_last() {
        let printed = "running 5 tests\ntest a::one ... ok\n\na thread overflowed its stack\n";
        let journal = "begin ThreadId(2) 17 a::two\n";
        let expected = "    running: a::two\n    simulated: seed 17 in a::two\n    \
                        printed: running 5 tests\n    printed: a thread overflowed its stack\n";
        assert_eq!(description(LISTED, printed, journal, 1), expected);
    }
}
