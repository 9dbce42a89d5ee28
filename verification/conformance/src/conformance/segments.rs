//! Reads each broker's segments with both brokers' tools, Kafka's `DumpLogSegments` and `ottla
//! dump-log`, whose output must agree, for every topic that the scripts left.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::Side;
use super::comparison::shortened;
use ottla_workspace::process;
use ottla_workspace::report::Tally;

/// A file type, and the options with which each tool dumps it.
struct Kind {
    name: &'static str,
    /// Whether a file with this name in this partition folder has this type.
    includes: fn(folder: &str, file: &str) -> bool,
    arguments: &'static [&'static str],
}

const KINDS: [Kind; 6] = [
    Kind {
        name: "records",
        includes: |folder, file| !folder.starts_with("__") && file.ends_with(".log"),
        arguments: &["--deep-iteration", "--print-data-log"],
    },
    Kind {
        name: "committed offsets and groups",
        includes: |folder, file| {
            folder.starts_with("__consumer_offsets-") && file.ends_with(".log")
        },
        arguments: &["--deep-iteration", "--offsets-decoder"],
    },
    Kind {
        name: "transactional ids",
        includes: |folder, file| {
            folder.starts_with("__transaction_state-") && file.ends_with(".log")
        },
        arguments: &["--deep-iteration", "--transaction-log-decoder"],
    },
    Kind {
        name: "cluster metadata",
        includes: |folder, file| {
            folder == "__cluster_metadata-0"
                && (file.ends_with(".log") || file.ends_with(".checkpoint"))
        },
        arguments: &["--deep-iteration", "--cluster-metadata-decoder"],
    },
    Kind {
        name: "indexes",
        includes: |_, file| {
            [".index", ".timeindex", ".txnindex"]
                .iter()
                .any(|ending| file.ends_with(ending))
        },
        arguments: &["--index-sanity-check"],
    },
    Kind {
        name: "producer snapshots",
        includes: |_, file| file.ends_with(".snapshot"),
        arguments: &[],
    },
];

pub fn cross_read(kafka: &Side, ottla: &Side, out: &Path) -> Result<Tally> {
    let mut tally = Tally::default();
    for side in [kafka, ottla] {
        for kind in &KINDS {
            let files = files_of(&side.node.data_dir(), kind)?;
            let what = format!(
                "{} written by {}: {} files",
                kind.name,
                side.label,
                files.len()
            );
            let is_read = match (files.is_empty(), dumps(kafka, ottla, kind, &files, out)) {
                (true, _) => Err("there are none to read".to_owned()),
                (_, Err(error)) => Err(format!("{error:#}")),
                (_, Ok((theirs, ours))) => judged(&theirs, &ours),
            };
            match &is_read {
                Ok(lines) => println!("ok   {what}, {lines} lines alike"),
                Err(why) => println!("FAIL {what}: {why}"),
            }
            tally.add(Tally::of(is_read.is_ok()));
        }
    }
    Ok(tally)
}

fn files_of(data_dir: &Path, kind: &Kind) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for folder in std::fs::read_dir(data_dir).with_context(|| data_dir.display().to_string())? {
        let folder = folder?.path();
        let folder_name = folder
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if !folder.is_dir() || folder_name.ends_with("-delete") {
            continue;
        }
        for file in std::fs::read_dir(&folder)? {
            let file = file?.path();
            let name = file
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if (kind.includes)(&folder_name, &name) && !is_open_index(&file)? {
                files.push(file);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether an index still has the size that is reserved for it. Apache Kafka 4.4 does not close the
/// indexes of its metadata log, and its own tool takes the empty rest for damage.
fn is_open_index(file: &Path) -> Result<bool> {
    const RESERVED: u64 = 10 << 20;
    let entry = match file.extension().and_then(|it| it.to_str()) {
        Some("index") => 8,
        Some("timeindex") => 12,
        _ => return Ok(false),
    };
    Ok(file.metadata()?.len() == RESERVED / entry * entry)
}

/// The output of Kafka's tool and of Ottla's for the files.
fn dumps(
    kafka: &Side,
    ottla: &Side,
    kind: &Kind,
    files: &[PathBuf],
    out: &Path,
) -> Result<(String, String)> {
    let list: Vec<String> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    let list = list.join(",");
    let dump = |mut command: Command, name: &str| -> Result<String> {
        command
            .args(kind.arguments)
            .args(["--files", &list])
            .current_dir(out);
        let printed = process::output_of(&mut command)?;
        let file = format!("dump-{}-{name}.txt", kind.name.replace(' ', "-"));
        std::fs::write(out.join(file), &printed)?;
        Ok(printed)
    };
    let theirs = dump(
        kafka.peer.tool("org.apache.kafka.tools.DumpLogSegments"),
        "kafka",
    )?;
    let ours = dump(ottla.peer.tool("dump-log"), "ottla")?;
    if theirs.trim().is_empty() {
        bail!("Kafka's tool printed nothing");
    }
    Ok((with_state_numbers(&theirs), ours))
}

/// Kafka 4.4 prints the name of a transaction's state, 4.3.1 and Ottla its number.
fn with_state_numbers(printed: &str) -> String {
    const STATES: [&str; 8] = [
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "Dead",
        "PrepareEpochFence",
    ];
    let mut printed = printed.to_owned();
    for (number, name) in STATES.iter().enumerate() {
        let named = format!("\"transactionStatus\":\"{name}\"");
        printed = printed.replace(&named, &format!("\"transactionStatus\":{number}"));
    }
    printed
}

/// The number of lines, if all agree and none reports corruption.
fn judged(theirs: &str, ours: &str) -> Result<usize, String> {
    for complaint in [
        "Mismatches in",
        "Non-consecutive offsets",
        "is invalid",
        "Found timestamp mismatch",
        "corrupt",
    ] {
        if let Some(line) = theirs.lines().find(|line| line.contains(complaint)) {
            return Err(format!("Kafka's tool says: {}", shortened(line)));
        }
    }
    let (theirs, ours) = (by_file(theirs), by_file(ours));
    for (file, lines) in &theirs {
        let other = ours
            .get(file)
            .ok_or(format!("our tool says nothing of {file}"))?;
        for (number, line) in lines.iter().enumerate() {
            if other.get(number) != Some(line) {
                let other = other.get(number).map_or("nothing", |line| *line);
                return Err(format!(
                    "{file}:\n        - {}\n        + {}",
                    shortened(line),
                    shortened(other)
                ));
            }
        }
        if other.len() > lines.len() {
            return Err(format!(
                "{file}: our tool adds {}",
                shortened(other[lines.len()])
            ));
        }
    }
    Ok(theirs.values().map(Vec::len).sum())
}

/// The dump's lines by the file that they describe.
fn by_file(dump: &str) -> BTreeMap<&str, Vec<&str>> {
    let mut files: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    let mut file = "";
    for line in dump.lines() {
        if let Some(name) = line.strip_prefix("Dumping ") {
            file = name;
        }
        files.entry(file).or_default().push(line);
    }
    files
}

#[cfg(test)]
mod tests {
    use super::*;

    const DUMP: &str = "Dumping a/0.log\nLog starting offset: 0\nbaseOffset: 0\nDumping b/0.log\nx";

    #[test]
    fn equal_dumps_match_in_any_order_of_files() {
        let other = "Dumping b/0.log\nx\nDumping a/0.log\nLog starting offset: 0\nbaseOffset: 0";
        assert_eq!(judged(DUMP, other), Ok(5));
    }

    #[test]
    fn different_missing_and_extra_lines_are_reported_with_their_file() {
        for other in [
            DUMP.replace("baseOffset: 0", "baseOffset: 1"),
            DUMP.replace("\nbaseOffset: 0", ""),
            DUMP.replace("\nDumping b", "\nmore\nDumping b"),
        ] {
            let why = judged(DUMP, &other).unwrap_err();
            assert!(why.contains("a/0.log"), "{why}");
        }
        assert!(judged(DUMP, "Dumping a/0.log").is_err());
    }

    #[test]
    fn a_state_of_a_transaction_is_compared_by_its_number() {
        let of_4_4 = r#"{"transactionStatus":"CompleteCommit","a":"Dead"}"#;
        let expected = r#"{"transactionStatus":4,"a":"Dead"}"#;
        assert_eq!(with_state_numbers(of_4_4), expected);
        assert_eq!(with_state_numbers(expected), expected);
    }

    #[test]
    fn damage_that_both_tools_report_is_a_failure() {
        let dump = "Dumping a/0.index\nMismatches in :a/0.index\n  Index offset: 3, log offset: 2";
        assert!(judged(dump, dump).is_err());
    }
}
