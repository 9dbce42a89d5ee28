//! `acls unused`: the ACLs that decided no request that the brokers wrote to a topic or to files.
//!
//! A broker writes each decision with its rule to `ottla.audit.topic` and `ottla.audit.file`, if
//! `ottla.audit.events` has `allowed` and `denied`. If several ACLs match, the rule is the one that
//! decides; an ACL that only repeats another one is therefore unused.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Args;
use ottla_client::Admin;
use ottla_security::{Acl, PermissionType, flags_to_remove};
use serde_json::{Value, json};

use super::audit::{AuditArgs, MAX_DECISIONS, read_in_words};
use super::explain::{connection_flags, failed};
use super::node_settings::{self, NodeSettings};
use super::rules::{acl_in_words, acl_to_json, acls, filter};
use super::seen::Seen;
use crate::counted::counted;
use crate::tools::admin_client;

#[derive(Args, Debug)]
pub(super) struct UnusedArgs {
    #[command(flatten)]
    bootstrap: admin_client::Bootstrap,
    /// Properties file with settings of the client.
    #[arg(long, value_name = "FILE")]
    command_config: Option<String>,
    #[command(flatten)]
    audit: AuditArgs,
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
    let config = args.command_config.as_deref();
    let admin = args.bootstrap.connect(config, "ottla-acls").await?;
    let endpoint_type = args.bootstrap.endpoint_type();
    let nodes = node_settings::read(&admin, endpoint_type).await?;
    let audit = args
        .audit
        .read(&admin, endpoint_type, &nodes, MAX_DECISIONS);
    let audit = audit.await?;
    let mut notes = nodes.notes.clone();
    notes.extend(audit.notes);
    let seen = match audit.seen {
        Ok(seen) => seen,
        Err(reason) => return Err(anyhow!("which rules are unused is unknown: {reason}")),
    };
    if seen.topic().is_some()
        && !seen.has_files()
        && may_have_other_controllers(&admin, &nodes).await
    {
        let note = "nodes that are only controllers write no decisions to a topic; give their files with \
                    --audit-file too, because a rule may have decided there";
        notes.push(note.to_owned());
    }
    let all = acls(&admin, &filter(None, None)).await?;
    let count = all.len();
    let unused: Vec<Acl> = all
        .into_iter()
        .filter(|acl| !seen.has_decided(acl))
        .collect();
    let text = match args.json {
        true => format!("{:#}\n", to_json(&seen, count, &unused, &notes)),
        false => {
            notes.insert(0, read_in_words(&seen));
            let connection = connection_flags(&args.bootstrap, config);
            to_text(&seen, count, &unused, &notes, &connection)
        }
    };
    // The reader may have closed the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// Whether there are nodes that are only controllers, as far as this is known.
async fn may_have_other_controllers(admin: &Admin, nodes: &NodeSettings) -> bool {
    let is_broker = |id: i32| nodes.reported.iter().any(|(broker, _)| *broker == id);
    let Ok(quorum) = admin.describe_quorum().await else {
        return true;
    };
    let mut voters = quorum.state.current_voters.iter();
    voters.any(|voter| !is_broker(voter.replica_id))
}

/// Whether a command that removes the rule is printed.
fn is_removable(seen: &Seen, acl: &Acl) -> bool {
    acl.permission_type != PermissionType::Deny && !seen.may_hide_uses_of(acl)
}

fn to_text(
    seen: &Seen,
    count: usize,
    unused: &[Acl],
    notes: &[String],
    connection: &str,
) -> String {
    let since = seen.since();
    let rules = counted(count, "rule");
    let mut text = match unused.is_empty() {
        true => format!("Of {rules}, each has decided a request since {since}.\n"),
        false => format!("Of {rules}, these have decided no request since {since}:\n"),
    };
    for acl in unused {
        let _ = writeln!(text, "  {}", acl_in_words(acl));
        let _ = if is_removable(seen, acl) {
            let remove = flags_to_remove(acl);
            writeln!(text, "    to remove it  ottla acls {connection} {remove}")
        } else if acl.permission_type == PermissionType::Deny {
            writeln!(
                text,
                "    it denies: keep it if nobody was to try, because without it more may be allowed"
            )
        } else {
            writeln!(
                text,
                "    it may be used: the topic {} does not show who reads and writes it itself",
                seen.topic().unwrap_or_default()
            )
        };
    }
    for note in notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn to_json(seen: &Seen, count: usize, unused: &[Acl], notes: &[String]) -> Value {
    let shown = unused.iter().map(|acl| {
        let mut shown = acl_to_json(acl);
        if is_removable(seen, acl) {
            shown["toRemove"] = format!("ottla acls {}", flags_to_remove(acl)).into();
        }
        shown
    });
    json!({
        "since": seen.since(),
        "until": seen.until(),
        "decisions": seen.decisions(),
        "rules": count,
        "lost": seen.lost(),
        "unused": shown.collect::<Vec<_>>(),
        "notes": notes,
    })
}

#[cfg(test)]
mod tests {
    use ottla_security::Rule;

    use super::super::seen::tests::{acl, line, seen};
    use super::*;

    #[test]
    fn rules_that_occur_in_no_line_are_unused() {
        let used = Rule::Acl(acl("used", "User:a"));
        let lines =
            line(2, "User:a", "READ", &used) + &line(1, "User:b", "READ", &Rule::DefaultDeny);
        let seen = seen(lines);
        assert!(seen.has_decided(&acl("used", "User:a")));
        let unused = [acl("idle", "User:a")];
        assert!(!seen.has_decided(&unused[0]));
        let notes = [read_in_words(&seen)];
        assert_eq!(
            to_text(&seen, 2, &unused, &notes, "--bootstrap-server x:1"),
            "Of 2 rules, these have decided no request since 2026-01-01T00:00:00.000Z:\n  \
               ALLOW Read on Topic idle to User:a from any address\n    \
                 to remove it  ottla acls --bootstrap-server x:1 --remove --allow-principal User:a \
             --operation Read --topic idle\n\
             note: 2 decisions read from the audit files, 2026-01-01T00:00:00.000Z to 2026-01-02T00:00:00.000Z\n"
        );
        let json = to_json(&seen, 2, &unused, &[]);
        assert_eq!(json["unused"][0]["resourceName"], "idle");
        assert_eq!((&json["lost"], &json["decisions"]), (&json!(0), &json!(2)));
    }

    /// Somebody may be kept out by it who has not tried.
    #[test]
    fn no_command_removes_an_unused_denial() {
        let denial = Acl {
            permission_type: PermissionType::Deny,
            ..acl("secret", "User:a")
        };
        let text = to_text(&Seen::default(), 1, std::slice::from_ref(&denial), &[], "");
        assert!(text.contains("  DENY Read on Topic secret"), "{text}");
        assert!(
            text.contains("it denies") && !text.contains("--remove"),
            "{text}"
        );
    }

    #[test]
    fn no_command_removes_a_right_that_the_topic_does_not_show() {
        let mut seen = Seen::default();
        seen.set_topic("audit");
        let of_brokers = acl("audit", "User:broker");
        let text = to_text(&seen, 1, std::slice::from_ref(&of_brokers), &[], "");
        assert!(
            text.contains("it may be used: the topic audit") && !text.contains("--remove"),
            "{text}"
        );
        let json = to_json(&seen, 1, &[of_brokers], &[]);
        assert_eq!(json["unused"][0]["toRemove"], Value::Null);
    }
}
