//! What clients did, according to the decisions that the brokers wrote as `ottla.audit.file` or
//! `ottla.audit.topic`: who was allowed what, by which rule, and when last.
//!
//! No request of Kafka lists the clients that are connected. A client that sends requests is seen in
//! these decisions.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};

use anyhow::Context;
use jiff::Timestamp;
use ottla_security::{
    Acl, Action, CLUSTER_NAME, Client, Operation, PatternType, ResourceType, Rule,
    StandardAuthorizer, WILDCARD, escaped,
};
use serde::Deserialize;

use super::rules::resource_in_words;
use crate::counted::counted;
use crate::tools::sizes;

/// The maximum number of different uses, and of rules, that are kept: clients choose the names in
/// them.
const MAX_USES: usize = 1_000_000;

/// One line of a file, or one record of a topic: a decision, or that some are missing at this place.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct AuditLine {
    time: String,
    principal: String,
    host: String,
    operation: String,
    resource_type: String,
    resource_name: String,
    allowed: bool,
    rule: String,
    /// How many decisions are missing; 0 for a decision.
    lost: u64,
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
    /// `None` if the types are unknown here.
    fn of(line: AuditLine) -> Option<Use> {
        let mut operations = Operation::ALL.iter().copied();
        let mut resource_types = ResourceType::ALL.iter().copied();
        Some(Use {
            resource_type: resource_types.find(|it| it.name() == line.resource_type)?,
            operation: operations.find(|it| it.name() == line.operation)?,
            principal: line.principal,
            host: line.host,
            name: line.resource_name,
        })
    }

    fn client(&self) -> Client<'_> {
        Client {
            principal: &self.principal,
            host: &self.host,
        }
    }

    fn action(&self) -> Action<'_> {
        Action {
            operation: self.operation,
            resource_type: self.resource_type,
            name: &self.name,
        }
    }
}

/// What clients were allowed, and when last.
#[derive(Debug, Default)]
pub(super) struct Seen {
    uses: BTreeMap<Use, Timestamp>,
    /// The rules that decided, as in the lines.
    rules: BTreeSet<String>,
    /// The times of the first and the last decision.
    times: Option<(Timestamp, Timestamp)>,
    /// The first decision in each file, with those that were rotated from it.
    files: BTreeMap<PathBuf, Timestamp>,
    /// Before this time, decisions are missing that the topic had, or still has.
    complete_since: Option<Timestamp>,
    decisions: u64,
    /// Decisions that are missing, or were too many.
    lost: u64,
    has_files: bool,
    topic: Option<String>,
    /// The decisions of nodes that are only controllers are not there.
    lacks_controllers: bool,
}

/// The path of a file before it was rotated to a name with a number or a date: `audit.log` for
/// `audit.log.1` and `audit.log-20260101`. But `audit-1` and `audit.node-2` are of two nodes.
fn before_rotation(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_of_rotation = |c: char| c.is_ascii_digit() || c == '.' || c == '-';
    let before = name.trim_end_matches(is_of_rotation);
    let added = &name[before.len()..];
    let is_date = added.starts_with('-') && added.len() > "20260101".len();
    if before.contains('.') && (added.starts_with('.') || is_date) {
        path.with_file_name(before)
    } else {
        path.to_path_buf()
    }
}

impl Seen {
    pub(super) fn read_file(&mut self, path: &Path) -> anyhow::Result<()> {
        self.has_files = true;
        let others = self.times.take();
        let file = File::open(path).map(BufReader::new);
        let read = file.and_then(|file| {
            // Not `lines`: a full disk may have cut a line within a character.
            file.split(b'\n')
                .try_for_each(|line| line.map(|line| self.take(&line)))
        });
        if let Some((first, _)) = self.times {
            let known = self.files.entry(before_rotation(path)).or_insert(first);
            *known = first.min(*known);
        }
        self.times = match (others, self.times) {
            (Some(others), Some(own)) => Some((others.0.min(own.0), others.1.max(own.1))),
            (others, own) => others.or(own),
        };
        read.with_context(|| format!("{} cannot be read", path.display()))
    }

    /// The decisions that follow are from this topic.
    pub(super) fn set_topic(&mut self, topic: &str) {
        self.topic = Some(topic.to_owned());
    }

    /// Nodes that are only controllers decide too, and write no topic.
    pub(super) fn set_lacks_controllers(&mut self) {
        self.lacks_controllers = true;
    }

    /// The topic has no earlier decisions, or they were not read.
    pub(super) fn set_complete_since(&mut self, time: Timestamp) {
        self.complete_since = self.complete_since.max(Some(time));
    }

    /// Takes one line. What no broker wrote counts as a missing decision: a full disk may have cut
    /// a line.
    pub(super) fn take(&mut self, line: &[u8]) {
        let line = serde_json::from_slice::<AuditLine>(line).ok();
        let line = line.and_then(|line| {
            let time: Timestamp = line.time.parse().ok()?;
            Some((line, time))
        });
        let Some((mut line, time)) = line else {
            self.lost += 1;
            return;
        };
        let (first, last) = self.times.unwrap_or((time, time));
        self.times = Some((first.min(time), last.max(time)));
        if line.lost > 0 {
            self.lost = self.lost.saturating_add(line.lost);
            return;
        }
        self.decisions += 1;
        let rule = std::mem::take(&mut line.rule);
        if !self.rules.contains(&rule) {
            if self.rules.len() < MAX_USES {
                self.rules.insert(rule);
            } else {
                self.lost += 1;
            }
        }
        if !line.allowed {
            return;
        }
        let Some(used) = Use::of(line) else {
            return;
        };
        let is_full = self.uses.len() >= MAX_USES;
        match self.uses.get_mut(&used) {
            Some(last) => *last = time.max(*last),
            None if is_full => self.lost += 1,
            None => {
                self.uses.insert(used, time);
            }
        }
    }

    /// Whether there is a request that was allowed. Without one, nothing is known about clients.
    pub(super) fn has_uses(&self) -> bool {
        !self.uses.is_empty()
    }

    pub(super) fn has_files(&self) -> bool {
        self.has_files
    }

    pub(super) fn lacks_controllers(&self) -> bool {
        self.lacks_controllers
    }

    pub(super) fn topic(&self) -> Option<&str> {
        self.topic.as_deref()
    }

    pub(super) fn decisions(&self) -> u64 {
        self.decisions
    }

    pub(super) fn lost(&self) -> u64 {
        self.lost
    }

    /// Where the decisions are from.
    pub(super) fn source(&self) -> String {
        let topic = self.topic.as_deref().map(|it| format!("the topic {it}"));
        let files = self.has_files.then(|| "the audit files".to_owned());
        let sources: Vec<String> = files.into_iter().chain(topic).collect();
        sources.join(" and ")
    }

    /// Since when the decisions of all nodes are known, as text. Each node writes a file of its own.
    pub(super) fn since(&self) -> String {
        let last_file = self.files.values().max().copied();
        let first = last_file.or(self.times.map(|(first, _)| first));
        first
            .max(self.complete_since)
            .map_or_else(String::new, shown)
    }

    /// The time of the last decision, as text.
    pub(super) fn until(&self) -> String {
        let last = self.times.map(|(_, last)| last);
        last.map_or_else(String::new, shown)
    }

    /// Whether the rule has decided a request.
    pub(super) fn has_decided(&self, acl: &Acl) -> bool {
        self.rules.contains(&Rule::Acl(acl.clone()).to_string())
    }

    /// Whether the rule may have decided about reads and writes of the topic itself: those that are
    /// allowed are not in it.
    pub(super) fn may_hide_uses_of(&self, acl: &Acl) -> bool {
        let Some(topic) = &self.topic else {
            return false;
        };
        let pattern = &acl.pattern;
        let matches = match pattern.pattern_type {
            PatternType::Literal => pattern.name == topic.as_str() || pattern.name == WILDCARD,
            _ => topic.starts_with(&*pattern.name),
        };
        matches && is_hidden(pattern.resource_type, acl.operation)
    }

    /// When the client was last allowed the action; from any address if it has none.
    pub(super) fn last_use(&self, client: Client<'_>, action: Action<'_>) -> LastUse {
        let used = self.newest(client, action);
        // Whoever may do this on the cluster is asked about no topic.
        let is_of_cluster = action.resource_type == ResourceType::Topic
            && matches!(action.operation, Operation::Create | Operation::Delete);
        let on_cluster = Action {
            resource_type: ResourceType::Cluster,
            name: CLUSTER_NAME,
            ..action
        };
        let on_cluster = is_of_cluster.then(|| self.newest(client, on_cluster));
        match (used, on_cluster.flatten()) {
            (used, Some(time)) if used.is_none_or(|used| used < time) => LastUse::OnCluster(time),
            (Some(time), _) => LastUse::At(time),
            (None, _)
                if self.topic.as_deref() == Some(action.name)
                    && is_hidden(action.resource_type, action.operation) =>
            {
                LastUse::Unknown
            }
            (None, _) => LastUse::Never,
        }
    }

    /// The newest use of exactly this.
    fn newest(&self, client: Client<'_>, action: Action<'_>) -> Option<Timestamp> {
        let uses = self.uses.iter().filter(|(used, _)| {
            used.principal == client.principal
                && (client.host == WILDCARD || used.host == client.host)
                && used.operation == action.operation
                && used.resource_type == action.resource_type
                && used.name == action.name
        });
        uses.map(|(_, time)| *time).max()
    }

    /// Which clients lose what they were allowed by `before`; those seen last come first.
    pub(super) fn losses_in_words(
        &self,
        before: &StandardAuthorizer,
        after: &StandardAuthorizer,
        now: Timestamp,
    ) -> String {
        /// When a client was seen, and what it loses.
        struct Losing<'a> {
            seen: Timestamp,
            losses: Vec<(&'a Use, Timestamp)>,
        }
        let mut clients: BTreeMap<(&str, &str), Losing<'_>> = BTreeMap::new();
        for (used, time) in &self.uses {
            let client = used.client();
            let losing = clients
                .entry((client.principal, client.host))
                .or_insert_with(|| Losing {
                    seen: *time,
                    losses: Vec::new(),
                });
            losing.seen = losing.seen.max(*time);
            let action = used.action();
            if before.is_allowed(client, action) && !after.is_allowed(client, action) {
                losing.losses.push((used, *time));
            }
        }
        let count = clients.len();
        clients.retain(|_, losing| !losing.losses.is_empty());
        let mut clients: Vec<_> = clients.into_iter().collect();
        clients.sort_by_key(|(client, losing)| (Reverse(losing.seen), *client));

        let (source, since, until) = (self.source(), self.since(), self.until());
        let from = format!(
            "in {source} ({since} to {until}, {} decisions)",
            self.decisions
        );
        if clients.is_empty() {
            let seen = counted(count, "client");
            return format!("No client {from} would lose anything ({seen} seen).\n");
        }
        let mut text = format!("Clients {from} that would lose something:\n");
        for ((principal, host), losing) in clients {
            let _ = writeln!(
                text,
                "  {} from {}, last seen {}",
                escaped(principal),
                escaped(host),
                ago(losing.seen, now)
            );
            for (used, time) in losing.losses {
                let resource = resource_in_words(used.resource_type, &used.name);
                let _ = writeln!(
                    text,
                    "    loses {} on {}, last used {}",
                    used.operation.title(),
                    escaped(&resource),
                    shown_with_age(time, now)
                );
            }
        }
        text
    }
}

/// When an action was last allowed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum LastUse {
    At(Timestamp),
    /// On the cluster, for some topic.
    OnCluster(Timestamp),
    /// Never since [`Seen::since`].
    Never,
    /// The topic does not show it.
    Unknown,
}

fn is_hidden(resource_type: ResourceType, operation: Operation) -> bool {
    use Operation::{All, Describe, Read, Write};
    resource_type == ResourceType::Topic && matches!(operation, All | Describe | Read | Write)
}

/// A time as in the decisions.
pub(super) fn shown(time: Timestamp) -> String {
    format!("{time:.3}")
}

pub(super) fn shown_with_age(time: Timestamp, now: Timestamp) -> String {
    format!("{} ({})", shown(time), ago(time, now))
}

fn ago(time: Timestamp, now: Timestamp) -> String {
    let age_ms = now.as_millisecond() - time.as_millisecond();
    format!("{} ago", sizes::age_ms(age_ms))
}

#[cfg(test)]
pub(super) mod tests {
    use ottla_security::{Pattern, PermissionType};

    use super::*;

    pub fn acl(name: &str, principal: &str) -> Acl {
        Acl {
            pattern: Pattern {
                resource_type: ResourceType::Topic,
                name: name.to_owned().into(),
                pattern_type: PatternType::Literal,
            },
            principal: principal.to_owned().into(),
            host: WILDCARD.into(),
            operation: Operation::Read,
            permission_type: PermissionType::Allow,
        }
    }

    fn authorizer(principals: &[&str]) -> StandardAuthorizer {
        let mut authorizer = StandardAuthorizer::default();
        for principal in principals {
            authorizer.acls.insert(acl("orders", principal));
        }
        authorizer
    }

    pub fn seen(lines: impl AsRef<[u8]>) -> Seen {
        let mut seen = Seen {
            has_files: true,
            ..Seen::default()
        };
        for line in lines.as_ref().split_inclusive(|byte| *byte == b'\n') {
            seen.take(line);
        }
        seen
    }

    /// On a day of January 2026, about the topic `orders`.
    pub fn line(day: u8, principal: &str, operation: &str, rule: &Rule) -> String {
        let line = serde_json::json!({
            "time": format!("2026-01-{day:02}T00:00:00.000Z"),
            "principal": principal,
            "host": "10.0.0.1",
            "operation": operation,
            "resourceType": "TOPIC",
            "resourceName": "orders",
            "allowed": rule.is_allowed(),
            "rule": rule.to_string(),
        });
        format!("{line}\n")
    }

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_client_that_loses_what_it_used_is_named() {
        let allowed = Rule::DefaultAllow;
        let lines = [
            line(1, "User:a", "READ", &allowed),
            line(3, "User:a", "READ", &allowed),
            line(2, "User:b", "READ", &allowed),
            line(4, "User:c", "READ", &Rule::DefaultDeny),
            line(5, "User:d", "WRITE", &allowed),
            line(4, "User:e", "READ", &allowed),
            line(5, "User:a", "DESCRIBE", &allowed),
        ];
        let seen = seen(lines.concat());
        let before = authorizer(&["User:a", "User:b", "User:e"]);
        let after = authorizer(&["User:b"]);
        let now = time("2026-01-05T00:02:00Z");
        assert_eq!(
            seen.losses_in_words(&before, &after, now),
            "Clients in the audit files (2026-01-01T00:00:00.000Z to 2026-01-05T00:00:00.000Z, 7 decisions) \
             that would lose something:\n  \
               User:a from 10.0.0.1, last seen 2 min ago\n    \
                 loses Read on Topic orders, last used 2026-01-03T00:00:00.000Z (2 d 0 h ago)\n    \
                 loses Describe on Topic orders, last used 2026-01-05T00:00:00.000Z (2 min ago)\n  \
               User:e from 10.0.0.1, last seen 1 d 0 h ago\n    \
                 loses Read on Topic orders, last used 2026-01-04T00:00:00.000Z (1 d 0 h ago)\n"
        );
        assert_eq!(
            seen.losses_in_words(&before, &before, now),
            "No client in the audit files (2026-01-01T00:00:00.000Z to 2026-01-05T00:00:00.000Z, 7 decisions) \
             would lose anything (4 clients seen).\n"
        );
    }

    #[test]
    fn missing_decisions_are_counted() {
        let lost = "{\"time\":\"2026-01-01T00:00:00.000Z\",\"lost\":3}\n{\"time\":\"2026\n";
        let mut lines = lost.to_owned().into_bytes();
        // The first byte of a character.
        lines.extend(b"{\"principal\":\"User:\xc3\n");
        lines.extend(line(1, "User:a", "READ", &Rule::DefaultDeny).into_bytes());
        // No broker writes it.
        lines.extend(b"{}\n");
        let seen = seen(lines);
        assert_eq!((seen.lost(), seen.decisions()), (6, 1));
        assert!(!seen.has_uses());
    }

    #[test]
    fn decisions_are_known_since_no_older_one_was_left_out() {
        let allowed = Rule::DefaultAllow;
        let lines = [
            line(1, "User:a", "READ", &allowed),
            line(9, "User:a", "READ", &allowed),
        ];
        let mut seen = seen(lines.concat());
        assert_eq!(seen.since(), "2026-01-01T00:00:00.000Z");
        seen.set_complete_since(time("2026-01-05T00:00:00Z"));
        seen.set_complete_since(time("2026-01-03T00:00:00Z"));
        assert_eq!(seen.since(), "2026-01-05T00:00:00.000Z");
        assert_eq!(seen.until(), "2026-01-09T00:00:00.000Z");
    }

    #[test]
    fn decisions_of_several_nodes_are_known_since_the_last_one_wrote_them() {
        let dir = tempfile::tempdir().unwrap();
        let mut seen = Seen::default();
        for (name, day) in [("a.log", 2), ("b.log.1", 4), ("b.log", 7), ("a.log.1", 1)] {
            let path = dir.path().join(name);
            let line = line(day, "User:a", "READ", &Rule::DefaultAllow);
            std::fs::write(&path, line).unwrap();
            seen.read_file(&path).unwrap();
        }
        assert_eq!(seen.since(), "2026-01-04T00:00:00.000Z");
        assert_eq!(seen.until(), "2026-01-07T00:00:00.000Z");
    }

    #[test]
    fn files_of_two_nodes_are_not_taken_for_one_that_was_rotated() {
        for (name, before) in [
            ("audit.log", "audit.log"),
            ("audit.log.1", "audit.log"),
            ("audit.log-20260101", "audit.log"),
            ("audit.log.2026-01-01-05", "audit.log"),
            ("audit-1", "audit-1"),
            ("audit.node-2", "audit.node-2"),
            ("broker.2", "broker.2"),
            ("2", "2"),
        ] {
            assert_eq!(before_rotation(Path::new(name)), Path::new(before));
        }
    }

    /// The brokers ask about the cluster first, and then about no topic.
    #[test]
    fn a_topic_may_have_been_created_by_the_right_on_the_cluster() {
        let line = |day: u8, resource_type: &str, name: &str| {
            format!(
                r#"{{"time":"2026-01-0{day}T00:00:00Z","principal":"User:a","host":"10.0.0.1","operation":"CREATE","resourceType":"{resource_type}","resourceName":"{name}","allowed":true,"rule":"SuperUser"}}
"#
            )
        };
        let create = |resource_type, name| Action {
            operation: Operation::Create,
            resource_type,
            name,
        };
        let client = Client {
            principal: "User:a",
            host: WILDCARD,
        };
        let seen = seen(
            line(1, "TOPIC", "old") + &line(2, "CLUSTER", CLUSTER_NAME) + &line(3, "TOPIC", "new"),
        );
        let second = time("2026-01-02T00:00:00Z");
        let last_use = |resource_type, name| seen.last_use(client, create(resource_type, name));
        for topic in ["old", "other"] {
            let used = last_use(ResourceType::Topic, topic);
            assert_eq!(used, LastUse::OnCluster(second), "{topic}");
        }
        let third = LastUse::At(time("2026-01-03T00:00:00Z"));
        assert_eq!(last_use(ResourceType::Topic, "new"), third);
        let on_cluster = last_use(ResourceType::Cluster, CLUSTER_NAME);
        assert_eq!(on_cluster, LastUse::At(second));
        let alter = Action {
            operation: Operation::Alter,
            ..create(ResourceType::Topic, "old")
        };
        assert_eq!(seen.last_use(client, alter), LastUse::Never);
    }

    #[test]
    fn the_topic_does_not_show_reads_of_itself() {
        let mut seen = seen(line(1, "User:a", "READ", &Rule::DefaultAllow));
        let read = |name| Action {
            operation: Operation::Read,
            resource_type: ResourceType::Topic,
            name,
        };
        let client = Client {
            principal: "User:a",
            host: WILDCARD,
        };
        let used = LastUse::At(time("2026-01-01T00:00:00Z"));
        assert_eq!(seen.last_use(client, read("orders")), used);
        let elsewhere = Client {
            host: "10.0.0.2",
            ..client
        };
        assert_eq!(seen.last_use(elsewhere, read("orders")), LastUse::Never);
        assert_eq!(seen.last_use(client, read("audit")), LastUse::Never);
        assert!(!seen.may_hide_uses_of(&acl("audit", "User:a")));
        seen.set_topic("audit");
        assert_eq!(seen.source(), "the audit files and the topic audit");
        assert_eq!(seen.last_use(client, read("audit")), LastUse::Unknown);
        assert!(seen.may_hide_uses_of(&acl("audit", "User:a")));
        assert!(seen.may_hide_uses_of(&acl(WILDCARD, "User:a")));
        assert!(!seen.may_hide_uses_of(&acl("orders", "User:a")));
        let mut prefixed = acl("au", "User:a");
        prefixed.pattern.pattern_type = PatternType::Prefixed;
        assert!(seen.may_hide_uses_of(&prefixed));
        prefixed.operation = Operation::Alter;
        assert!(!seen.may_hide_uses_of(&prefixed));
    }
}
