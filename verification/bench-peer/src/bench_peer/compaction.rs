//! Compaction: Kafka's cleaner and Ottla's on the same log of 1 KB records; 10 % of them are live.
//!
//! Both run as processes on one partition's directory, without a broker. In a broker, the start of
//! a cleaning cannot be controlled, the cleaner sleeps between scans, and it shares the process
//! with everything else, so its time and CPU cannot be separated. Kafka's cleaner runs in a JVM
//! with the broker's flags, and JVM start-up is not counted. Both have a 128 MiB key buffer and 256
//! KiB I/O buffers, without a throttle.

use std::path::Path;

use anyhow::{Context, Result};

use super::disk::{self, Scratch};
use super::setting::Setting;
use super::table::Results;
use crate::compare_cleaning::{self, DAY_MS, START_MS};
use ottla_peers::java;
use ottla_workspace::process;

const SEGMENT_BYTES: u64 = 256 * 1024 * 1024;
const VALUE_BYTES: u64 = 1000;

pub fn measure(setting: &Setting<'_>, results: &mut Results) -> Result<()> {
    let bytes = (setting.options.gigabytes_or(5.0) * 1e9) as u64;
    // Space for the log, which exists once, and for the output of one cleaning.
    let scratch = Scratch::new("compaction", bytes + bytes / 5)?;
    let ottla = compare_cleaning::example(compare_cleaning::Build::ToMeasure)?
        .display()
        .to_string();
    let cleaners = [
        with_flags_of_a_broker(java::program(setting.kafka, "cleaner", "CleanLog")?),
        vec![ottla.clone(), "run".to_owned()],
    ];
    let filled = scratch.path().join("filled").join("compacted-0");
    let records = bytes / 1024;
    let sizes = [records, VALUE_BYTES, records / 10, SEGMENT_BYTES];
    println!("compaction: a log of {records} records is made");
    let mut fill = compare_cleaning::command(&[ottla, "fill".to_owned()]);
    process::output_of(fill.arg(&filled).args(sizes.map(|size| size.to_string())))?;
    let cleaned = scratch.path().join("measured").join("compacted-0");
    let clean = |side: usize| -> Result<Took> {
        link(&filled, &cleaned)?;
        disk::settle(&filled)?;
        let time = [START_MS + 31 * DAY_MS];
        let output = compare_cleaning::clean(&cleaners[side], &[], &cleaned, SEGMENT_BYTES, &time)?;
        std::fs::remove_dir_all(&cleaned)?;
        took(&output).with_context(|| format!("not understood: {output}"))
    };
    // A warm-up that touches the memory used by the measured cleanings; not counted.
    clean(0)?;
    setting.alternate(results, |side, round, results| {
        let took = clean(side)?;
        for (measure, value) in [
            ("compaction: CPU s", took.cpu_ms / 1e3),
            ("compaction: time, s", took.elapsed_ms / 1e3),
            ("compaction: written, MB", took.written / 1e6),
        ] {
            results.add(side, round, measure.to_owned(), value);
        }
        Ok(())
    })
}

/// A tool's JVM flags favour fast compilation over fast code, unlike a broker's flags.
fn with_flags_of_a_broker(tool: Vec<String>) -> Vec<String> {
    let mut command = Vec::new();
    for word in tool {
        match word.as_str() {
            "-XX:TieredStopAtLevel=1" => {}
            "-XX:+UseSerialGC" => command.push("-XX:+UseG1GC".to_owned()),
            "-Xmx256M" => command.extend(["-Xmx1G".to_owned(), "-Xms1G".to_owned()]),
            _ => command.push(word),
        }
    }
    command
}

/// Hard-links the log under another name. A cleaner replaces segments and never changes them, so
/// they can be shared. The last segment, which is not cleaned, and the indexes are copied.
fn link(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir_all(to)?;
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(from)? {
        let path = entry?.path();
        let name = path.file_name().context("a file has a name")?.to_owned();
        if path.extension().is_some_and(|extension| extension == "log") {
            segments.push((path, to.join(name)));
        } else {
            std::fs::copy(&path, to.join(name))?;
        }
    }
    segments.sort();
    let last = segments.pop().context("a log has a segment")?;
    std::fs::copy(last.0, last.1)?;
    for (path, link) in segments {
        std::fs::hard_link(path, link)?;
    }
    Ok(())
}

/// The time, CPU time and written bytes of one cleaning.
#[derive(Debug, PartialEq)]
struct Took {
    elapsed_ms: f64,
    cpu_ms: f64,
    written: f64,
}

fn took(output: &str) -> Option<Took> {
    let line = output.lines().find(|line| line.starts_with("to="))?;
    let field = |name: &str| -> Option<f64> {
        let mut fields = line.split(' ').filter_map(|field| field.split_once('='));
        fields.find(|(key, _)| *key == name)?.1.parse().ok()
    };
    Some(Took {
        elapsed_ms: field("elapsed_ms")?,
        cpu_ms: field("cpu_ms")?,
        written: field("written")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_names() {
        let found = took("starting\nto=5 elapsed_ms=12 cpu_ms=34 read=9 written=8\n").unwrap();
        let expected = Took {
            elapsed_ms: 12.0,
            cpu_ms: 34.0,
            written: 8.0,
        };
        assert_eq!(found, expected);
        assert_eq!(took("to=5 elapsed_ms=12"), None);
    }

    #[test]
    fn segments_are_linked_and_the_active_one_is_copied() {
        use std::os::unix::fs::MetadataExt;
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        std::fs::create_dir(&from).unwrap();
        for name in ["1.log", "2.log", "1.index"] {
            std::fs::write(from.join(name), name).unwrap();
        }
        link(&from, &to).unwrap();
        let links = |name: &str| std::fs::metadata(to.join(name)).unwrap().nlink();
        assert_eq!(
            (links("1.log"), links("2.log"), links("1.index")),
            (2, 1, 1)
        );
    }
}
