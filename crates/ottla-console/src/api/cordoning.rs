//! Cordoning of log directories (KIP-1066). A cordoned directory gets no new replicas and keeps its existing ones.
//! Brokers have the setting `cordoned.log.dirs` since Kafka 4.3.

use std::collections::BTreeMap;

use axum::Json;
use ottla_client::admin::{ConfigOperation, ConfigResourceType};
use ottla_protocol::messages::describe_log_dirs_response::DescribeLogDirsResult;
use serde::{Deserialize, Serialize};

use crate::console::Visitor;
use crate::extract::{Body, Path};
use crate::problem::Problem;

const SETTING: &str = "cordoned.log.dirs";
/// In the setting: all directories.
const ALL: &str = "*";
/// Kafka: `DescribeConfigsResponse.ConfigSource`, of a setting that the controller has for one broker.
const DYNAMIC_BROKER_CONFIG: i8 = 2;

#[derive(Deserialize)]
pub(super) struct Cordon {
    /// As the broker describes it.
    path: String,
    is_cordoned: bool,
    #[serde(default)]
    preview: bool,
}

#[derive(Serialize)]
pub(super) struct Cordoned {
    /// In the directory. They stay there.
    replicas: usize,
    bytes: i64,
    /// Directories of the broker that get new replicas, after the change.
    open_dirs: usize,
    /// The setting after the change.
    cordoned: Vec<String>,
}

pub(super) async fn cordon(
    visitor: Visitor,
    Path(id): Path<i32>,
    Body(wanted): Body<Cordon>,
) -> Result<Json<Cordoned>, Problem> {
    let verb = match wanted.is_cordoned {
        true => "cordon",
        false => "uncordon",
    };
    visitor.note.names(format!("{verb} {}", wanted.path));
    if wanted.preview {
        visitor.note.is_preview();
    }
    let snapshot = visitor.view.snapshot().await?;
    let broker = snapshot.brokers.iter().find(|it| it.id == id);
    let broker = broker.ok_or_else(|| {
        Problem::not_found(format!(
            "broker {id} is not registered; the overview lists the brokers"
        ))
    })?;
    let dirs = broker.log_dirs.as_deref().unwrap_or_default();
    let dir = dirs.iter().find(|it| *it.log_dir == *wanted.path);
    let dir = dir.ok_or_else(|| {
        let paths: Vec<&str> = dirs.iter().map(|it| &*it.log_dir).collect();
        Problem::invalid(
            "path",
            format!(
                "broker {id} has no log directory {}; it has {}",
                wanted.path,
                paths.join(", ")
            ),
        )
    })?;
    let name = id.to_string();
    let described = visitor
        .admin
        .describe_configs(ConfigResourceType::Broker, &name, false)
        .await?;
    let find = |name: &str| described.iter().find(|it| &*it.name == name);
    let value = |name: &str| {
        let found = find(name)?;
        Some(entries(found.value.as_deref().unwrap_or_default()))
    };
    let is_dynamic = find(SETTING).is_some_and(|it| it.config_source == DYNAMIC_BROKER_CONFIG);
    let now = value(SETTING).ok_or_else(|| {
        Problem::conflict(format!(
            "broker {id} has no setting {SETTING}; Kafka has it since 4.3: upgrade the broker first"
        ))
    })?;
    let configured = value("log.dirs").filter(|it| !it.is_empty());
    let configured = configured.or_else(|| value("log.dir")).unwrap_or_default();
    let all: Vec<String> = dirs
        .iter()
        .map(|it| entry_of(&it.log_dir, &configured))
        .collect();
    let entry = entry_of(&wanted.path, &configured);
    let operation = operation(&now, &all, &entry, wanted.is_cordoned, is_dynamic);
    let cordoned = changed(now, &all, entry, wanted.is_cordoned);
    let is_open = |(dir, entry): &(&DescribeLogDirsResult, &String)| {
        dir.error_code == 0 && !cordoned.contains(entry)
    };
    let partitions = dir.topics.iter().flat_map(|it| &it.partitions);
    let result = Cordoned {
        replicas: partitions.clone().count(),
        bytes: partitions.map(|it| it.partition_size).sum(),
        open_dirs: dirs.iter().zip(&all).filter(is_open).count(),
        cordoned,
    };
    let operations = BTreeMap::from([(SETTING.to_owned(), operation)]);
    visitor
        .admin
        .alter_configs(
            ConfigResourceType::Broker,
            &name,
            &operations,
            wanted.preview,
        )
        .await?;
    if !wanted.preview {
        visitor.view.outdate();
    }
    Ok(Json(result))
}

fn entries(list: &str) -> Vec<String> {
    let entries = list.split(',').map(str::trim);
    let entries = entries.filter(|it| !it.is_empty());
    entries.map(str::to_owned).collect()
}

/// A directory as `log.dirs` has it, which may be a relative path. The broker describes absolute
/// ones. Of several relative ones that fit, it is the longest: `/srv/a/b` is `a/b` and not `b`.
fn entry_of(path: &str, configured: &[String]) -> String {
    let exact = configured.iter().find(|entry| **entry == path);
    let is_relative = |entry: &&String| {
        let relative = entry.trim_start_matches("./");
        let before = path.strip_suffix(relative);
        !entry.starts_with('/') && before.is_some_and(|it| it.ends_with('/'))
    };
    let relative = || {
        let fitting = configured.iter().filter(is_relative);
        fitting.max_by_key(|entry| entry.trim_start_matches("./").len())
    };
    let found = exact.or_else(relative);
    found.map_or_else(|| path.to_owned(), Clone::clone)
}

/// The change of the setting. Another one at the same time, of another directory, stays: the controller adds to its list and
/// takes from it. Only a list that the controller does not have, in the broker's file or as `*`, is replaced.
fn operation(
    now: &[String],
    all: &[String],
    entry: &str,
    is_cordoned: bool,
    is_dynamic: bool,
) -> ConfigOperation {
    let is_of_controller = is_dynamic || now.is_empty();
    if !is_of_controller || now.iter().any(|it| it == ALL) {
        let list = changed(now.to_vec(), all, entry.to_owned(), is_cordoned);
        return ConfigOperation::Set(list.join(","));
    }
    match is_cordoned {
        true => ConfigOperation::Append(entry.to_owned()),
        false => ConfigOperation::Subtract(entry.to_owned()),
    }
}

fn changed(now: Vec<String>, all: &[String], entry: String, is_cordoned: bool) -> Vec<String> {
    let mut cordoned = match now.iter().any(|it| it == ALL) {
        true => all.to_vec(),
        false => now,
    };
    cordoned.retain(|it| *it != entry);
    if is_cordoned {
        cordoned.push(entry);
    }
    cordoned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|it| (*it).to_owned()).collect()
    }

    #[test]
    fn one_directory_is_changed_and_the_others_stay() {
        let all = owned(&["/a", "/b", "/c"]);
        for (now, entry, is_cordoned, expected) in [
            ("", "/a", true, "/a"),
            ("/b", "/a", true, "/b,/a"),
            ("/a, /b", "/a", true, "/b,/a"),
            ("/a,/b", "/a", false, "/b"),
            ("/a", "/a", false, ""),
            ("*", "/b", false, "/a,/c"),
            ("*", "/b", true, "/a,/c,/b"),
        ] {
            let changed = changed(entries(now), &all, entry.to_owned(), is_cordoned);
            assert_eq!(changed.join(","), expected, "{now} {entry} {is_cordoned}");
        }
    }

    #[test]
    fn a_change_keeps_concurrent_changes() {
        let all = owned(&["/a", "/b"]);
        let of = |now: &str, is_cordoned, is_dynamic| {
            operation(&entries(now), &all, "/a", is_cordoned, is_dynamic)
        };
        let (append, subtract) = (
            ConfigOperation::Append("/a".into()),
            ConfigOperation::Subtract("/a".into()),
        );
        assert_eq!(of("", true, false), append);
        assert_eq!(of("/b", true, true), append);
        assert_eq!(of("/a,/b", false, true), subtract);
        // The broker's file contains it, or `*` covers it.
        assert_eq!(of("/b", true, false), ConfigOperation::Set("/b,/a".into()));
        assert_eq!(of("*", false, true), ConfigOperation::Set("/b".into()));
    }

    #[test]
    fn a_directory_is_named_as_the_broker_is_configured() {
        let configured = owned(&["/data/a", "./data-b", "c"]);
        for (path, entry) in [
            ("/data/a", "/data/a"),
            ("/srv/data-b", "./data-b"),
            ("/srv/c", "c"),
            ("/srv/other-c", "/srv/other-c"),
            ("/elsewhere", "/elsewhere"),
        ] {
            assert_eq!(entry_of(path, &configured), entry);
        }
    }

    #[test]
    fn a_directory_is_not_taken_for_another_with_a_shorter_name() {
        let configured = owned(&["b", "a/b", "/data/b"]);
        for (path, entry) in [("/srv/b", "b"), ("/srv/a/b", "a/b"), ("/data/b", "/data/b")] {
            assert_eq!(entry_of(path, &configured), entry);
        }
    }
}
