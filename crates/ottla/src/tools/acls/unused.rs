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
use ottla_security::{Acl, PermissionType, ResourceType, flags_to_remove};
use serde_json::{Value, json};

use super::audit::{AuditArgs, MAX_DECISIONS, read_in_words};
use super::explain::failed;
use super::rules::{acl_in_words, acl_to_json, acls, filter};
use super::seen::Seen;
use super::{authorizer_settings, node_settings};
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
    let all = acls(&admin, &filter(None, None)).await?;
    let count = all.len();
    let unused: Vec<Acl> = all
        .into_iter()
        .filter(|acl| !seen.has_decided(acl))
        .collect();
    let known = Known {
        seen,
        may_allow_everyone: authorizer_settings::may_allow_everyone(&nodes),
    };
    let text = if args.json {
        format!("{:#}\n", to_json(&known, count, &unused, &notes))
    } else {
        notes.insert(0, read_in_words(&known.seen));
        let connection = args.bootstrap.flags(config);
        to_text(&known, count, &unused, &notes, &connection)
    };
    // The reader may have closed the pipe.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

/// What is known of the rules.
#[derive(Default)]
struct Known {
    seen: Seen,
    /// By `allow.everyone.if.no.acl.found`.
    may_allow_everyone: bool,
}

impl Known {
    /// Why no command that removes an unused rule is printed, if none is.
    fn reason_to_keep(&self, acl: &Acl) -> Option<String> {
        let seen = &self.seen;
        if acl.permission_type == PermissionType::Deny {
            let reason =
                "it denies: keep it if nobody was to try, because without it more may be allowed";
            Some(reason.to_owned())
        } else if seen.may_hide_uses_of(acl) {
            Some(format!(
                "it may be used: the topic {} does not show who reads and writes it itself",
                seen.topic().unwrap_or_default()
            ))
        } else if seen.lacks_controllers() && acl.pattern.resource_type == ResourceType::Cluster {
            let reason = "it may be used: nodes that are only controllers may need it, for each other or \
                          for the brokers";
            Some(reason.to_owned())
        } else if self.may_allow_everyone {
            let reason = "it may keep others out: if allow.everyone.if.no.acl.found is true, everybody may \
                          use a resource without ACLs";
            Some(reason.to_owned())
        } else {
            None
        }
    }
}

fn to_text(
    known: &Known,
    count: usize,
    unused: &[Acl],
    notes: &[String],
    connection: &str,
) -> String {
    let since = known.seen.since();
    let rules = counted(count, "rule");
    let mut text = match unused.is_empty() {
        true => format!("Of {rules}, each has decided a request since {since}.\n"),
        false => format!("Of {rules}, these have decided no request since {since}:\n"),
    };
    for acl in unused {
        let _ = writeln!(text, "  {}", acl_in_words(acl));
        let _ = match known.reason_to_keep(acl) {
            Some(reason) => writeln!(text, "    {reason}"),
            None => {
                let remove = flags_to_remove(acl);
                writeln!(text, "    to remove it  ottla acls {connection} {remove}")
            }
        };
    }
    for note in notes {
        let _ = writeln!(text, "note: {note}");
    }
    text
}

fn to_json(known: &Known, count: usize, unused: &[Acl], notes: &[String]) -> Value {
    let seen = &known.seen;
    let shown = unused.iter().map(|acl| {
        let mut shown = acl_to_json(acl);
        if known.reason_to_keep(acl).is_none() {
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
    use ottla_security::{CLUSTER_NAME, Operation, Rule};

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
        let known = Known {
            seen,
            may_allow_everyone: false,
        };
        assert_eq!(
            to_text(&known, 2, &unused, &notes, "--bootstrap-server x:1"),
            "Of 2 rules, these have decided no request since 2026-01-01T00:00:00.000Z:\n  \
               ALLOW Read on Topic idle to User:a from any address\n    \
                 to remove it  ottla acls --bootstrap-server x:1 --remove --allow-principal User:a \
             --operation Read --topic idle\n\
             note: 2 decisions read from the audit files, 2026-01-01T00:00:00.000Z to 2026-01-02T00:00:00.000Z\n"
        );
        let json = to_json(&known, 2, &unused, &[]);
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
        let text = to_text(&Known::default(), 1, std::slice::from_ref(&denial), &[], "");
        assert!(text.contains("  DENY Read on Topic secret"), "{text}");
        assert!(
            text.contains("it denies") && !text.contains("--remove"),
            "{text}"
        );
    }

    #[test]
    fn no_command_removes_a_right_that_the_topic_does_not_show() {
        let mut known = Known::default();
        known.seen.set_topic("audit");
        let of_brokers = acl("audit", "User:broker");
        let text = to_text(&known, 1, std::slice::from_ref(&of_brokers), &[], "");
        assert!(
            text.contains("it may be used: the topic audit") && !text.contains("--remove"),
            "{text}"
        );
        let json = to_json(&known, 1, &[of_brokers], &[]);
        assert_eq!(json["unused"][0]["toRemove"], Value::Null);
    }

    /// Without it, brokers or controllers may be refused by the others.
    #[test]
    fn no_command_removes_a_right_on_the_cluster_that_controllers_may_need() {
        let mut on_cluster = acl(CLUSTER_NAME, "User:node");
        on_cluster.pattern.resource_type = ResourceType::Cluster;
        on_cluster.operation = Operation::ClusterAction;
        let mut known = Known::default();
        assert_eq!(known.reason_to_keep(&on_cluster), None);
        known.seen.set_lacks_controllers();
        let reason = known.reason_to_keep(&on_cluster).unwrap_or_default();
        assert!(reason.contains("only controllers"), "{reason}");
        assert_eq!(known.reason_to_keep(&acl("idle", "User:a")), None);
    }

    /// Others may be kept out only because the resource has an ACL.
    #[test]
    fn no_command_opens_a_resource_to_everybody() {
        let known = Known {
            may_allow_everyone: true,
            ..Known::default()
        };
        let idle = acl("idle", "User:a");
        let text = to_text(&known, 1, std::slice::from_ref(&idle), &[], "");
        assert!(
            text.contains("it may keep others out") && !text.contains("--remove"),
            "{text}"
        );
        let json = to_json(&known, 1, &[idle], &[]);
        assert_eq!(json["unused"][0]["toRemove"], Value::Null);
    }
}
