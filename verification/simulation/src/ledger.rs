//! The ledger of past runs: the seeds of each source tree, and the time that they simulated.
//!
//! A text file with one line per seed, appended when the seed has ended, so that little is lost when
//! the program is killed. Its columns are separated by tabs: the tree, the seed, the simulated
//! milliseconds, and `ok` or the finding.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::outcome::Outcome;

const NOTHING: &str = "ok";

/// The account of one file, to which seeds of one tree are added.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    file: File,
    tree: String,
    /// By tree and seed. A seed that ran twice counts once.
    entries: BTreeMap<(String, u64), Entry>,
    /// The simulated time of this tree.
    simulated_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    simulated_ms: u64,
    has_finding: bool,
}

impl Ledger {
    /// Reads the file, or creates it. `tree` names the source from which the program was built.
    pub fn open(path: &Path, tree: &str) -> Result<Ledger> {
        let name = path.display();
        let is_word = !tree.is_empty() && !tree.contains(char::is_whitespace);
        ensure!(is_word, "{tree:?} does not name a tree; give one word");
        let mut options = OpenOptions::new();
        let opened = options.create(true).read(true).append(true).open(path);
        let mut file = opened.with_context(|| format!("{name} cannot be opened"))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)
            .with_context(|| format!("{name} cannot be read"))?;
        // A program that was killed may have left an incomplete line.
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let whole = end.map_or(0, |end| end + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64)
                .with_context(|| format!("{name} cannot be truncated"))?;
        }
        let mut ledger = Ledger {
            path: path.to_owned(),
            file,
            tree: tree.to_owned(),
            entries: BTreeMap::new(),
            simulated_ms: 0,
        };
        let text = String::from_utf8_lossy(&bytes[..whole]);
        for (index, line) in text.lines().enumerate() {
            let (key, entry) = parse(line).with_context(|| {
                let line_number = index + 1;
                format!(
                    "{name} line {line_number}: {line:?} is not a line of a ledger; give the ledger of earlier runs, or a \
                     file that does not exist yet"
                )
            })?;
            ledger.enter(key, entry);
        }
        Ok(ledger)
    }

    /// Adds a seed that has run.
    pub fn add(&mut self, seed: u64, outcome: &Outcome) -> Result<()> {
        let simulated_ms = outcome.simulated.as_millis() as u64;
        let result = match &outcome.finding {
            Some(finding) => finding.split_whitespace().collect::<Vec<_>>().join(" "),
            None => NOTHING.to_owned(),
        };
        let line = format!("{}\t{seed}\t{simulated_ms}\t{result}\n", self.tree);
        self.file
            .write_all(line.as_bytes())
            .with_context(|| format!("{} cannot be written", self.path.display()))?;
        let entry = Entry {
            simulated_ms,
            has_finding: outcome.finding.is_some(),
        };
        self.enter((self.tree.clone(), seed), entry);
        Ok(())
    }

    fn enter(&mut self, key: (String, u64), entry: Entry) {
        let is_of_this_tree = key.0 == self.tree;
        let before = self.entries.insert(key, entry);
        if is_of_this_tree {
            self.simulated_ms += entry.simulated_ms;
            self.simulated_ms -= before.map_or(0, |before| before.simulated_ms);
        }
    }

    /// Whether the seed has run in this tree and found nothing.
    pub fn has_passed(&self, seed: u64) -> bool {
        let entry = self.entries.get(&(self.tree.clone(), seed));
        entry.is_some_and(|entry| !entry.has_finding)
    }

    /// The time that this tree has simulated.
    pub fn simulated(&self) -> Duration {
        Duration::from_millis(self.simulated_ms)
    }
}

/// One line for each tree.
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut trees: BTreeMap<&str, (u64, u64, u64)> = BTreeMap::new();
        for ((tree, _), entry) in &self.entries {
            let (seeds, simulated_ms, findings) = trees.entry(tree).or_default();
            *seeds += 1;
            *simulated_ms += entry.simulated_ms;
            *findings += u64::from(entry.has_finding);
        }
        write!(f, "{}:", self.path.display())?;
        for (tree, (seeds, simulated_ms, findings)) in trees {
            let hours = simulated_ms as f64 / 3_600_000.0;
            write!(
                f,
                "\n  {tree}: {seeds} seeds, {hours:.2} cluster-hours, {findings} with findings"
            )?;
        }
        Ok(())
    }
}

fn parse(line: &str) -> Option<((String, u64), Entry)> {
    let columns: Vec<&str> = line.splitn(4, '\t').collect();
    let [tree, seed, simulated_ms, result] = columns[..] else {
        return None;
    };
    let entry = Entry {
        simulated_ms: simulated_ms.parse().ok()?,
        has_finding: result != NOTHING,
    };
    Some(((tree.to_owned(), seed.parse().ok()?), entry))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(simulated_ms: u64, finding: Option<&str>) -> Outcome {
        Outcome {
            finding: finding.map(str::to_owned),
            simulated: Duration::from_millis(simulated_ms),
            ..Outcome::default()
        }
    }

    #[test]
    fn several_runs_and_trees_share_a_ledger() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        let mut ledger = Ledger::open(&path, "one").unwrap();
        ledger.add(1, &outcome(1_800_000, None)).unwrap();
        ledger
            .add(2, &outcome(500, Some("two\nlines\tof it")))
            .unwrap();
        let mut ledger = Ledger::open(&path, "two").unwrap();
        assert_eq!(ledger.simulated(), Duration::ZERO);
        ledger.add(1, &outcome(3_600_000, None)).unwrap();
        let mut ledger = Ledger::open(&path, "one").unwrap();
        assert_eq!(ledger.simulated(), Duration::from_millis(1_800_500));
        assert!(ledger.has_passed(1) && !ledger.has_passed(2) && !ledger.has_passed(3));
        // The second run of a seed replaces the first one.
        ledger.add(1, &outcome(1_800_000, None)).unwrap();
        assert_eq!(ledger.simulated(), Duration::from_millis(1_800_500));
        assert_eq!(
            ledger.to_string(),
            format!(
                "{}:\n  one: 2 seeds, 0.50 cluster-hours, 1 with findings\n  \
                 two: 1 seeds, 1.00 cluster-hours, 0 with findings",
                path.display()
            )
        );
    }

    #[test]
    fn an_incomplete_line_is_removed_and_a_wrong_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ledger");
        std::fs::write(&path, "one\t1\t10\tok\none\t2\t").unwrap();
        let mut ledger = Ledger::open(&path, "one").unwrap();
        ledger.add(3, &outcome(20, None)).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, "one\t1\t10\tok\none\t3\t20\tok\n");
        std::fs::write(&path, "one\t1\t10\tok\nsomething else\n").unwrap();
        let error = Ledger::open(&path, "one").unwrap_err().to_string();
        assert!(error.contains("line 2: \"something else\""), "{error}");
        assert!(Ledger::open(&path, "a b").is_err());
    }
}
