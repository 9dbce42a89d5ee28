//! What clients did, according to the audit files of the brokers: for `--dry-run`, which clients would
//! lose what they use.
//!
//! No request of Kafka lists the clients that are connected. The audit files show who was allowed
//! what, and when.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;

use anyhow::Context;
use ottla_security::{Action, Client, Operation, ResourceType, StandardAuthorizer, escaped};
use serde_json::Value;

/// The maximum number of different uses that are kept: clients choose the names in them.
const MAX_USES: usize = 1_000_000;

/// One line of an audit file.
#[derive(Debug)]
pub(super) enum AuditLine {
    Decision(Value),
    /// This many decisions are missing at this place.
    Lost(u64),
}

/// The lines of an audit file. A line that is not JSON counts as a lost decision: a full disk may
/// have cut it, also within a character.
pub(super) fn audit_lines(file: impl BufRead) -> impl Iterator<Item = std::io::Result<AuditLine>> {
    file.split(b'\n').map(|line| -> std::io::Result<AuditLine> {
        Ok(match serde_json::from_slice(&line?) {
            Ok(decision @ Value::Object(_)) => match decision.get("lost").and_then(Value::as_u64) {
                Some(lost) => AuditLine::Lost(lost),
                None => AuditLine::Decision(decision),
            },
            _ => AuditLine::Lost(1),
        })
    })
}

/// Opens audit files, and passes each line on.
pub(super) fn read_audit_files(
    paths: &[PathBuf],
    mut take: impl FnMut(AuditLine),
) -> anyhow::Result<()> {
    for path in paths {
        let read = File::open(path).and_then(|file| {
            audit_lines(BufReader::new(file)).try_for_each(|line| line.map(&mut take))
        });
        read.with_context(|| format!("{} cannot be read", path.display()))?;
    }
    Ok(())
}

/// An operation that was allowed to a client.
#[derive(PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Use {
    principal: String,
    host: String,
    resource_type: ResourceType,
    name: String,
    operation: Operation,
}

impl Use {
    /// `None` for a line that is no decision to allow something.
    fn read(line: &Value) -> Option<Use> {
        let text = |key: &str| line.get(key)?.as_str();
        if line.get("allowed") != Some(&Value::Bool(true)) {
            return None;
        }
        let (operation, resource_type) = (text("operation")?, text("resourceType")?);
        let mut operations = Operation::ALL.iter().copied();
        let mut resource_types = ResourceType::ALL.iter().copied();
        Some(Use {
            principal: text("principal")?.to_owned(),
            host: text("host")?.to_owned(),
            resource_type: resource_types.find(|it| it.name() == resource_type)?,
            name: text("resourceName")?.to_owned(),
            operation: operations.find(|it| it.name() == operation)?,
        })
    }

    fn is_allowed(&self, authorizer: &StandardAuthorizer) -> bool {
        let client = Client {
            principal: &self.principal,
            host: &self.host,
        };
        let action = Action {
            operation: self.operation,
            resource_type: self.resource_type,
            name: &self.name,
        };
        authorizer.is_allowed(client, action)
    }
}

/// What clients were allowed, and when last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    uses: BTreeMap<Use, String>,
    since: String,
    until: String,
    /// Decisions that are missing in the files, or were too many.
    lost: u64,
}

impl Seen {
    pub(super) fn read(paths: &[PathBuf]) -> anyhow::Result<Seen> {
        let mut seen = Seen::default();
        read_audit_files(paths, |line| seen.take(&line))?;
        Ok(seen)
    }

    fn take(&mut self, line: &AuditLine) {
        let line = match line {
            AuditLine::Decision(line) => line,
            AuditLine::Lost(lost) => {
                self.lost += lost;
                return;
            }
        };
        let time = line.get("time").and_then(Value::as_str).unwrap_or_default();
        if !time.is_empty() && (self.since.is_empty() || time < self.since.as_str()) {
            self.since = time.to_owned();
        }
        if time > self.until.as_str() {
            self.until = time.to_owned();
        }
        let Some(used) = Use::read(line) else {
            return;
        };
        let is_full = self.uses.len() >= MAX_USES;
        match self.uses.get_mut(&used) {
            Some(last) if last.as_str() < time => *last = time.to_owned(),
            Some(_) => {}
            None if is_full => self.lost += 1,
            None => {
                self.uses.insert(used, time.to_owned());
            }
        }
    }

    /// Which clients lose what they were allowed by `before`, and what the files cannot show.
    pub(super) fn in_words(
        &self,
        before: &StandardAuthorizer,
        after: &StandardAuthorizer,
    ) -> String {
        if self.uses.is_empty() {
            let nothing = "The audit files have no request that was allowed, so they show no client; set \
                           ottla.audit.events=allowed,denied on the brokers.\n";
            return nothing.to_owned();
        }
        let (since, until) = (&self.since, &self.until);
        let mut text = String::new();
        let is_lost = |used: &&Use| used.is_allowed(before) && !used.is_allowed(after);
        let lost: Vec<&Use> = self.uses.keys().filter(is_lost).collect();
        let _ = match lost.is_empty() {
            true => writeln!(
                text,
                "No client in the audit files ({since} to {until}) would lose anything."
            ),
            false => writeln!(
                text,
                "Clients in the audit files ({since} to {until}) that would lose something:"
            ),
        };
        for used in lost {
            let _ = writeln!(
                text,
                "  {} from {} loses {} on {} {}, last used {}",
                escaped(&used.principal),
                escaped(&used.host),
                used.operation.title(),
                used.resource_type.title(),
                escaped(&used.name),
                self.uses[used],
            );
        }
        text.push_str(
            "note: the files do not show who is connected now, and nothing of nodes whose files are not given\n",
        );
        if self.lost > 0 {
            let _ = writeln!(
                text,
                "note: {} decisions are missing in the files",
                self.lost
            );
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use ottla_security::{Acl, Pattern, PatternType, PermissionType, WILDCARD};

    use super::*;

    fn authorizer(principals: &[&str]) -> StandardAuthorizer {
        let mut authorizer = StandardAuthorizer::default();
        for principal in principals {
            authorizer.acls.insert(Acl {
                pattern: Pattern {
                    resource_type: ResourceType::Topic,
                    name: "orders".into(),
                    pattern_type: PatternType::Literal,
                },
                principal: (*principal).into(),
                host: WILDCARD.into(),
                operation: Operation::Read,
                permission_type: PermissionType::Allow,
            });
        }
        authorizer
    }

    fn seen(lines: impl AsRef<[u8]>) -> Seen {
        let mut seen = Seen::default();
        for line in audit_lines(lines.as_ref()) {
            seen.take(&line.unwrap());
        }
        seen
    }

    fn line(time: &str, principal: &str, operation: &str, allowed: bool) -> String {
        format!(
            r#"{{"time":"{time}","principal":"{principal}","host":"10.0.0.1","operation":"{operation}","resourceType":"TOPIC","resourceName":"orders","allowed":{allowed}}}"#
        ) + "\n"
    }

    #[test]
    fn a_client_that_loses_what_it_used_is_named() {
        let lines = [
            line("2026-01-01", "User:a", "READ", true),
            line("2026-01-03", "User:a", "READ", true),
            line("2026-01-02", "User:b", "READ", true),
            line("2026-01-04", "User:c", "READ", false),
            line("2026-01-05", "User:d", "WRITE", true),
        ];
        let seen = seen(lines.concat());
        let (before, after) = (authorizer(&["User:a", "User:b"]), authorizer(&["User:b"]));
        assert_eq!(
            seen.in_words(&before, &after),
            "Clients in the audit files (2026-01-01 to 2026-01-05) that would lose something:\n  \
             User:a from 10.0.0.1 loses Read on Topic orders, last used 2026-01-03\n\
             note: the files do not show who is connected now, and nothing of nodes whose files are not given\n"
        );
        assert!(
            seen.in_words(&before, &before)
                .starts_with("No client in the audit files (2026-01-01 to 2026-01-05)")
        );
    }

    #[test]
    fn what_the_files_do_not_show_is_said() {
        let lost = "{\"time\":\"2026-01-01\",\"lost\":3}\n{\"time\":\"2026\n";
        let mut lines = lost.to_owned().into_bytes();
        // The first byte of a character.
        lines.extend(b"{\"principal\":\"User:\xc3\n");
        lines.extend(line("2026-01-01", "User:a", "READ", true).into_bytes());
        let text = seen(lines).in_words(&authorizer(&[]), &authorizer(&[]));
        assert!(
            text.ends_with("note: 5 decisions are missing in the files\n"),
            "{text}"
        );
        let denied = seen(line("2026-01-01", "User:a", "READ", false));
        let text = denied.in_words(&authorizer(&[]), &authorizer(&[]));
        assert!(text.contains("ottla.audit.events=allowed,denied"), "{text}");
    }
}
