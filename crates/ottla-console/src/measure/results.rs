//! The results of `ottla bench` in a directory: `NAME.json`, and its report, `NAME.html`.
//!
//! Names come from browsers. A name that could lead out of the directory is invalid, and a symbolic
//! link is no result.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::problem::Problem;

/// The newest results are listed.
const LISTED: usize = 500;
/// Larger files are not read.
const MOST_BYTES: u64 = 64 << 20;
const LONGEST_NAME: usize = 200;
/// `schema` of a result, and the newest version that is known.
const SCHEMA: &str = "ottla-bench-result";
const VERSION: u32 = 1;

/// A result in the list. `docs/bench-result.md` documents the fields.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ResultRow {
    pub(crate) name: String,
    /// Of the file, in milliseconds since 1970.
    modified: i64,
    has_report: bool,
    #[serde(flatten)]
    head: Head,
}

/// The part of a result that the list shows.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Head {
    #[serde(skip_serializing)]
    schema: String,
    #[serde(skip_serializing)]
    version: u32,
    started: String,
    seconds: f64,
    partial: Option<String>,
    scale: String,
    targets: Vec<Named>,
    scenarios: Vec<Titled>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Named {
    name: String,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
struct Titled {
    name: String,
    title: String,
}

/// A result without the rounds, which are most of it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Summary {
    #[serde(skip_serializing)]
    schema: String,
    #[serde(skip_serializing)]
    version: u32,
    ottla: String,
    command: String,
    started: String,
    seconds: f64,
    partial: Option<String>,
    scale: String,
    machine: Box<RawValue>,
    targets: Box<RawValue>,
    scenarios: Vec<ScenarioSummary>,
}

#[derive(Serialize, Deserialize)]
struct ScenarioSummary {
    name: String,
    title: String,
    question: String,
    differences: Vec<String>,
    notes: Vec<String>,
    points: Vec<PointSummary>,
}

#[derive(Serialize, Deserialize)]
struct PointSummary {
    label: String,
    published: Box<RawValue>,
    comparisons: Box<RawValue>,
    runs: Vec<TargetSummary>,
}

#[derive(Serialize, Deserialize)]
struct TargetSummary {
    target: String,
    summaries: Box<RawValue>,
    curves: Box<RawValue>,
}

pub(crate) struct Results {
    dir: PathBuf,
    /// The parsed head of each file, with the file's time and size. `None` is no result.
    known: Mutex<HashMap<String, (SystemTime, u64, Option<Head>)>>,
}

impl Results {
    pub(super) fn new(dir: PathBuf) -> Results {
        Results {
            dir,
            known: Mutex::default(),
        }
    }

    /// The newest results first. Reads files; not for a thread of the runtime.
    pub(crate) fn list(&self) -> Result<Vec<ResultRow>, Problem> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            // The first run creates it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(unreadable(&self.dir, &error)),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| unreadable(&self.dir, &error))?;
            let file_name = entry.file_name();
            let name = file_name.to_str().and_then(|it| it.strip_suffix(".json"));
            let Some(name) = name.filter(|it| is_name(it)) else {
                continue;
            };
            // Of a link, not of its target.
            let Ok(metadata) = entry.metadata() else {
                continue;
            };
            if metadata.is_file()
                && let Ok(modified) = metadata.modified()
            {
                files.push((modified, metadata.len(), name.to_owned()));
            }
        }
        files.sort();
        files.reverse();
        files.truncate(LISTED);
        let mut before = std::mem::take(&mut *self.known.lock());
        let mut known = HashMap::new();
        let mut rows = Vec::new();
        for (modified, size, name) in files {
            let unchanged = before
                .remove(&name)
                .filter(|(time, bytes, _)| (*time, *bytes) == (modified, size));
            let head = match unchanged {
                Some((_, _, head)) => head,
                None => self.head(&name),
            };
            if let Some(head) = &head {
                let since_1970 = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
                rows.push(ResultRow {
                    modified: since_1970.as_millis() as i64,
                    has_report: self.file("name", &name, "html").is_ok(),
                    name: name.clone(),
                    head: head.clone(),
                });
            }
            known.insert(name, (modified, size, head));
        }
        *self.known.lock() = known;
        Ok(rows)
    }

    fn head(&self, name: &str) -> Option<Head> {
        let bytes = self.read("name", name, "json").ok()?;
        let head: Head = serde_json::from_slice(&bytes).ok()?;
        is_known(&head.schema, head.version).then_some(head)
    }

    /// Reads a file; not for a thread of the runtime.
    pub(crate) fn summary(&self, name: &str) -> Result<Summary, Problem> {
        let bytes = self.read("name", name, "json")?;
        let summary: Summary = serde_json::from_slice(&bytes).map_err(|error| {
            Problem::conflict(format!("{name}.json is no result of ottla bench: {error}"))
        })?;
        match is_known(&summary.schema, summary.version) {
            true => Ok(summary),
            false => Err(Problem::conflict(format!(
                "{name}.json has schema {} and version {}; this console knows {SCHEMA} up to version {VERSION}",
                summary.schema, summary.version
            ))),
        }
    }

    /// The report of a result. Reads a file; not for a thread of the runtime.
    pub(crate) fn report(&self, name: &str) -> Result<Vec<u8>, Problem> {
        self.read("name", name, "html")
    }

    /// The path of a file of the directory.
    pub(super) fn file(
        &self,
        field: &'static str,
        name: &str,
        extension: &str,
    ) -> Result<PathBuf, Problem> {
        if !is_name(name) {
            return Err(Problem::invalid(
                field,
                "no name of a result; the list has the names",
            ));
        }
        let path = self.dir.join(format!("{name}.{extension}"));
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_file() && found.len() > MOST_BYTES => Err(too_large(&path)),
            Ok(found) if found.is_file() => Ok(path),
            _ => Err(Problem::not_found(format!(
                "there is no {name}.{extension} in {}",
                self.dir.display()
            ))),
        }
    }

    fn read(&self, field: &'static str, name: &str, extension: &str) -> Result<Vec<u8>, Problem> {
        let path = self.file(field, name, extension)?;
        let mut bytes = Vec::new();
        let file = fs::File::open(&path).map_err(|error| unreadable(&path, &error))?;
        file.take(MOST_BYTES + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| unreadable(&path, &error))?;
        match bytes.len() as u64 > MOST_BYTES {
            true => Err(too_large(&path)),
            false => Ok(bytes),
        }
    }
}

fn too_large(path: &Path) -> Problem {
    Problem::conflict(format!(
        "{} is larger than {} MiB, and is not read; open it yourself",
        path.display(),
        MOST_BYTES >> 20
    ))
}

fn is_known(schema: &str, version: u32) -> bool {
    schema == SCHEMA && version <= VERSION
}

/// A single component of a path that is neither hidden nor an option.
fn is_name(name: &str) -> bool {
    let is_plain = |it: char| it.is_alphanumeric() || matches!(it, '-' | '_' | '.' | ' ');
    let begins = name.starts_with(char::is_alphanumeric);
    begins && name.len() <= LONGEST_NAME && name.chars().all(is_plain)
}

fn unreadable(path: &Path, error: &io::Error) -> Problem {
    Problem::internal(format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESULT: &str = r#"{"schema": "ottla-bench-result", "version": 1, "ottla": "0.1.0",
        "command": "ottla bench run a", "started": "2026-11-21T20:45:04Z", "seconds": 3.5,
        "scale": "small", "machine": {"cores": 2}, "targets": [{"name": "ottla"}],
        "scenarios": [{"name": "a", "title": "A", "question": "?", "published_on": "x",
        "differences": [], "notes": [], "plots": [], "text": "",
        "points": [{"at": {}, "label": "", "published": [], "comparisons": [], "runs": [
        {"target": "ottla", "summaries": {"ack.p99_ms": {"median": 1.5}}, "curves": {},
        "rounds": [{"figures": {}}]}]}]}]}"#;

    fn dir() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a-1.json"), RESULT).unwrap();
        fs::write(dir.path().join("a-1.html"), "<html>").unwrap();
        fs::write(dir.path().join("other.json"), "{}").unwrap();
        fs::write(
            dir.path().join("newer.json"),
            RESULT.replace("\"version\": 1", "\"version\": 2"),
        )
        .unwrap();
        dir
    }

    #[test]
    fn results_are_listed_and_other_files_are_not() {
        let dir = dir();
        let results = Results::new(dir.path().to_path_buf());
        for _ in 0..2 {
            let rows = results.list().unwrap();
            let names: Vec<&str> = rows.iter().map(|it| &*it.name).collect();
            assert_eq!(names, ["a-1"]);
            assert!(rows[0].has_report);
            assert_eq!(rows[0].head.scenarios[0].title, "A");
        }
        fs::write(dir.path().join("a-1.json"), "{ }").unwrap();
        assert!(results.list().unwrap().is_empty(), "it has changed");
        let missing = Results::new(dir.path().join("missing"));
        assert!(missing.list().unwrap().is_empty());
    }

    #[test]
    fn a_summary_has_no_rounds() {
        let dir = dir();
        let results = Results::new(dir.path().to_path_buf());
        let summary = serde_json::to_value(results.summary("a-1").unwrap()).unwrap();
        let run = &summary["scenarios"][0]["points"][0]["runs"][0];
        assert_eq!(run["summaries"]["ack.p99_ms"]["median"], 1.5);
        assert!(run.get("rounds").is_none());
        assert_eq!(summary["machine"]["cores"], 2);
        assert_eq!(results.report("a-1").unwrap(), b"<html>");
        let newer = results.summary("newer").err().unwrap();
        assert!(newer.detail().contains("version 2"), "{}", newer.detail());
        assert_eq!(results.summary("other").err().unwrap().status(), 409);
    }

    #[test]
    fn a_file_that_is_too_large_is_given_to_nobody() {
        let dir = dir();
        let large = fs::File::create(dir.path().join("large.json")).unwrap();
        large.set_len(MOST_BYTES + 1).unwrap();
        let results = Results::new(dir.path().to_path_buf());
        let refused = results.file("first", "large", "json").err().unwrap();
        assert_eq!(refused.status(), 409);
        assert!(results.file("first", "a-1", "json").is_ok());
    }

    #[test]
    fn no_name_leads_out_of_the_directory() {
        let dir = dir();
        let inner = dir.path().join("inner");
        fs::create_dir(&inner).unwrap();
        std::os::unix::fs::symlink(dir.path().join("a-1.json"), inner.join("link.json")).unwrap();
        let results = Results::new(inner);
        for name in [
            "",
            ".",
            "..",
            "../a-1",
            "..\\a-1",
            "/etc/passwd",
            "a/b",
            "-x",
            "a\0",
            "a\n",
        ] {
            let refused = results.summary(name).err().unwrap();
            assert_eq!(refused.status(), 422, "{name:?}");
        }
        assert_eq!(results.summary("link").err().unwrap().status(), 404);
        assert_eq!(results.summary("a-1").err().unwrap().status(), 404);
        assert!(results.list().unwrap().is_empty());
    }
}
