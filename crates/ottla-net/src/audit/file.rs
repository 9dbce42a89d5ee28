//! `ottla.audit.file`: authorisation decisions as lines of JSON.
//!
//! The file is opened for each batch of lines, so it can be renamed or deleted at any time.

use std::io::{self, ErrorKind, Write as _};
use std::path::Path;
use std::sync::Arc;

use ottla_context::NodeContext;
use ottla_sync::fs::{self, OpenOptions};

use super::queue::{AuditQueue, AuditReports, lost_line};

const WAY_OUT: &str =
    "give a file in a directory that is there and that this process may write, or remove the line";

/// Whether the file can be written. Makes none. The error is for people.
pub(super) fn check(path: &str) -> Result<(), String> {
    let file = Path::new(path);
    let checked = match fs::metadata(file) {
        Ok(found) if found.is_dir() => Err(io::Error::from(ErrorKind::IsADirectory)),
        // To open a pipe is to wait for its reader.
        Ok(found) if !found.is_file() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(file).map(drop),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            let parent = file.parent().filter(|it| !it.as_os_str().is_empty());
            fs::check_dir_access(parent.unwrap_or(Path::new(".")))
        }
        Err(error) => Err(error),
    };
    checked.map_err(|error| failure(path, &error))
}

fn failure(path: &str, error: &io::Error) -> String {
    format!("ottla.audit.file={path}: cannot be written: {error}; {WAY_OUT}")
}

/// Writes lines until the node stops, and then the remaining ones.
pub(super) async fn write(queue: Arc<AuditQueue>, context: Arc<NodeContext>, path: String) {
    let mut reports = AuditReports::begin();
    loop {
        let is_last = ottla_sync::select! {
            () = queue.filled() => false,
            () = context.stopping() => true,
        };
        let writing = (Arc::clone(&queue), path.clone());
        // The write may block on the disk. Lines that arrive during the write are written together.
        let written = ottla_sync::task::spawn_blocking(move || {
            let (queue, path) = writing;
            write_lines(&queue, &path, &mut reports, is_last);
            reports
        });
        match written.await {
            Ok(after) if !is_last => reports = after,
            // A panic has already been reported.
            _ => return,
        }
    }
}

fn write_lines(queue: &AuditQueue, path: &str, reports: &mut AuditReports, is_last: bool) {
    let lines = queue.first(usize::MAX, usize::MAX);
    let mut text = String::new();
    for line in &lines {
        text.push_str(line);
        text.push('\n');
    }
    let lost = reports.lost_lines(queue, is_last);
    if lost > 0 {
        tracing::warn!("{lost} decisions are missing in the file of ottla.audit.file");
        text.push_str(&lost_line(lost));
        text.push('\n');
    }
    if text.is_empty() {
        return;
    }
    match append(Path::new(path), &text) {
        Ok(()) => reports.on_written(lost),
        Err(error) => {
            if reports.is_failure_due() {
                tracing::error!("decisions are lost: {}", failure(path, &error));
            }
            queue.lose(lines.len());
        }
    }
    queue.remove(lines.len());
}

fn append(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use ottla_protocol::ApiKey;
    use ottla_security::{Action, Client, Operation, ResourceType, Rule};
    use serde_json::Value;

    use super::*;
    use crate::audit::queue::{MAX_LINES, line};

    fn written(path: &Path) -> Vec<Value> {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
        lines.collect()
    }

    fn a_line(name: &str) -> Arc<str> {
        let client = Client {
            principal: "User:a\n\"b\"",
            host: "127.0.0.1",
        };
        let action = Action {
            operation: Operation::DescribeConfigs,
            resource_type: ResourceType::TransactionalId,
            name,
        };
        let (rule, way_out) = (&Rule::DefaultDeny, Some("do"));
        let line = line(client, action, ApiKey::Fetch, rule, way_out);
        line.to_string().into()
    }

    #[test]
    fn a_renamed_file_is_created_again() {
        let directory = tempfile::tempdir().unwrap();
        let (path, old) = (directory.path().join("audit"), directory.path().join("old"));
        let queue = AuditQueue::default();
        let mut reports = AuditReports::begin();
        queue.push(a_line("1"));
        queue.push(a_line("2"));
        write_lines(&queue, path.to_str().unwrap(), &mut reports, false);
        std::fs::rename(&path, &old).unwrap();
        queue.push(a_line("3"));
        write_lines(&queue, path.to_str().unwrap(), &mut reports, false);
        let names = |path| {
            let lines = written(path).into_iter();
            lines
                .map(|line| line["resourceName"].as_str().unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(names(&old), ["1", "2"]);
        assert_eq!(names(&path), ["3"]);
        let line = &written(&path)[0];
        assert_eq!(line["principal"], "User:a\n\"b\"");
        assert_eq!(line["operation"], "DESCRIBE_CONFIGS");
        assert_eq!(line["resourceType"], "TRANSACTIONAL_ID");
        assert_eq!(line["allowed"], false);
        assert_eq!(line["rule"], "DefaultDeny");
        assert_eq!(line["toAllow"], "do");
        let time = line["time"].as_str().unwrap();
        assert!(time.len() == 24 && time.ends_with('Z'), "{time}");
    }

    #[test]
    fn lost_lines_are_counted_and_reported() {
        let directory = tempfile::tempdir().unwrap();
        let queue = AuditQueue::default();
        for _ in 0..MAX_LINES + 3 {
            queue.push("{}".into());
        }
        let mut reports = AuditReports::begin();
        // A directory cannot be written as a file.
        let wrong = directory.path().to_str().unwrap();
        write_lines(&queue, wrong, &mut reports, false);
        assert!(reports.is_failing() && !reports.is_failure_due());
        let path = directory.path().join("audit");
        queue.push(r#"{"last":true}"#.into());
        write_lines(&queue, path.to_str().unwrap(), &mut reports, true);
        assert!(!reports.is_failing() && reports.is_failure_due());
        let lines = written(&path);
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[0]["last"], true);
        assert_eq!(lines[1]["lost"], MAX_LINES + 3);
    }

    #[test]
    fn the_error_names_a_file_that_cannot_be_written() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
        assert_eq!(check(&path("audit")), Ok(()));
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        std::fs::write(path("there"), "{}").unwrap();
        assert_eq!(check(&path("there")), Ok(()));
        for wrong in [path("none/audit"), path("")] {
            let error = check(&wrong).unwrap_err();
            let begin = format!("ottla.audit.file={wrong}: cannot be written: ");
            assert!(error.starts_with(&begin), "{error}");
            assert!(error.ends_with("or remove the line"), "{error}");
        }
    }
}
