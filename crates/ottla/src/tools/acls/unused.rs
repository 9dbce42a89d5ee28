//! `acls unused`: the ACLs that decided no request in the audit files of the brokers.
//!
//! A broker writes each decision with its rule to `ottla.audit.file`, if `ottla.audit.events` has
//! `allowed` and `denied`. If several ACLs match, the rule is the one that decides; an ACL that only
//! repeats another one is therefore unused.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::bail;
use clap::Args;
use ottla_security::{Acl, PermissionType, Rule, flags_to_remove};
use serde_json::{Value, json};

use super::explain::{connection_flags, failed};
use super::rules::{acl_in_words, acl_to_json, acls, filter};
use super::seen::{AuditLine, read_audit_files};
use crate::counted::counted;
use crate::tools::admin_client;

#[derive(Args, Debug)]
pub(super) struct UnusedArgs {
    #[command(flatten)]
    bootstrap: admin_client::Bootstrap,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    /// A file that a broker wrote as ottla.audit.file; give those of all brokers. Repeatable.
    #[arg(long, value_name = "FILE", required = true)]
    audit_file: Vec<PathBuf>,
    /// Print one JSON object instead of text.
    #[arg(long)]
    json: bool,
}

pub(super) async fn run(args: &UnusedArgs) -> ExitCode {
    match unused(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

async fn unused(args: &UnusedArgs) -> anyhow::Result<()> {
    let mut decisions = Decisions::default();
    read_audit_files(&args.audit_file, |line| decisions.take(&line))?;
    if !decisions.has_allowed {
        bail!(
            "the files have no request that was allowed; set ottla.audit.events=allowed,denied on the brokers, and \
             give their files of ottla.audit.file after some time"
        );
    }
    let config = args.command_config.as_deref();
    let admin = args.bootstrap.connect(config, "ottla-acls").await?;
    let all = acls(&admin, &filter(None, None)).await?;
    let count = all.len();
    let unused: Vec<Acl> = all.into_iter().filter(|acl| !decisions.has(acl)).collect();
    let text = match args.json {
        true => format!("{:#}\n", to_json(&decisions, count, &unused)),
        false => {
            let connection = connection_flags(&args.bootstrap, config);
            to_text(&decisions, count, &unused, &connection)
        }
    };
    // The reader may have closed the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// The decisions in the files.
#[derive(Debug, Default)]
struct Decisions {
    /// The rules that decided, as in the lines.
    rules: BTreeSet<String>,
    /// The time of the earliest line.
    since: String,
    has_allowed: bool,
    /// Decisions that are missing in the files.
    lost: u64,
}

impl Decisions {
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
        self.has_allowed |= line.get("allowed") == Some(&Value::Bool(true));
        if let Some(rule) = line.get("rule").and_then(Value::as_str)
            && !self.rules.contains(rule)
        {
            self.rules.insert(rule.to_owned());
        }
    }

    fn has(&self, acl: &Acl) -> bool {
        self.rules.contains(&Rule::Acl(acl.clone()).to_string())
    }
}

fn to_text(decisions: &Decisions, count: usize, unused: &[Acl], connection: &str) -> String {
    let since = &decisions.since;
    let rules = counted(count, "rule");
    let mut text = match unused.is_empty() {
        true => format!("Of {rules}, each has decided a request since {since}.\n"),
        false => format!("Of {rules}, these have decided no request since {since}:\n"),
    };
    for acl in unused {
        let _ = writeln!(text, "  {}", acl_in_words(acl));
        let _ = if acl.permission_type == PermissionType::Deny {
            writeln!(
                text,
                "    it denies: keep it if nobody was to try, because without it more may be allowed"
            )
        } else {
            let remove = flags_to_remove(acl);
            writeln!(text, "    to remove it  ottla acls {connection} {remove}")
        };
    }
    if decisions.lost > 0 {
        let _ = writeln!(
            text,
            "note: decisions are missing in the files ({}); a rule may have decided one of them",
            decisions.lost
        );
    }
    text
}

fn to_json(decisions: &Decisions, count: usize, unused: &[Acl]) -> Value {
    let shown = unused.iter().map(|acl| {
        let mut shown = acl_to_json(acl);
        if acl.permission_type != PermissionType::Deny {
            shown["toRemove"] = format!("ottla acls {}", flags_to_remove(acl)).into();
        }
        shown
    });
    json!({
        "since": decisions.since,
        "rules": count,
        "lost": decisions.lost,
        "unused": shown.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use ottla_security::{Operation, Pattern, PatternType, ResourceType, WILDCARD};

    use super::*;
    use crate::tools::acls::seen::audit_lines;

    fn read(decisions: &mut Decisions, text: &str) {
        for line in audit_lines(text.as_bytes()) {
            decisions.take(&line.unwrap());
        }
    }

    fn acl(name: &str) -> Acl {
        Acl {
            pattern: Pattern {
                resource_type: ResourceType::Topic,
                name: name.to_owned().into(),
                pattern_type: PatternType::Literal,
            },
            principal: "User:a".into(),
            host: WILDCARD.into(),
            operation: Operation::Read,
            permission_type: PermissionType::Allow,
        }
    }

    fn line(time: &str, allowed: bool, rule: &Rule) -> String {
        let line = json!({ "time": time, "allowed": allowed, "rule": rule.to_string() });
        format!("{line}\n")
    }

    #[test]
    fn rules_that_occur_in_no_file_are_unused() {
        let mut decisions = Decisions::default();
        let one = line("2026-02-01T00:00:00.000Z", true, &Rule::Acl(acl("used")));
        read(&mut decisions, &one);
        let other = line("2026-01-01T00:00:00.000Z", false, &Rule::DefaultDeny);
        read(&mut decisions, &other);
        assert!(decisions.has_allowed && decisions.has(&acl("used")));
        let unused = [acl("idle")];
        assert!(!decisions.has(&unused[0]));
        assert_eq!(
            to_text(&decisions, 2, &unused, "--bootstrap-server x:1"),
            "Of 2 rules, these have decided no request since 2026-01-01T00:00:00.000Z:\n  \
               ALLOW Read on Topic idle to User:a from any address\n    \
                 to remove it  ottla acls --bootstrap-server x:1 --remove --allow-principal User:a \
             --operation Read --topic idle\n"
        );
        let json = to_json(&decisions, 2, &unused);
        assert_eq!(json["unused"][0]["resourceName"], "idle");
        assert_eq!(json["lost"], 0);
    }

    /// Somebody may be kept out by it who has not tried.
    #[test]
    fn no_command_removes_an_unused_denial() {
        let denial = Acl {
            permission_type: PermissionType::Deny,
            ..acl("secret")
        };
        let text = to_text(&Decisions::default(), 1, std::slice::from_ref(&denial), "");
        assert!(text.contains("  DENY Read on Topic secret"), "{text}");
        assert!(
            text.contains("it denies") && !text.contains("--remove"),
            "{text}"
        );
    }

    #[test]
    fn missing_decisions_are_counted() {
        let mut decisions = Decisions::default();
        let text = "{\"time\":\"2026-01-01T00:00:00.000Z\",\"lost\":3}\n{\"time\":\"2026\n";
        read(&mut decisions, text);
        assert_eq!(decisions.lost, 4);
        assert!(!decisions.has_allowed);
        let text = to_text(&decisions, 1, &[], "");
        assert!(
            text.ends_with("are missing in the files (4); a rule may have decided one of them\n")
        );
    }
}
