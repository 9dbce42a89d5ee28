//! Every setting that is marked as supported is read by the code. `COMPATIBILITY.md` makes a claim
//! about the broker, and this test checks it.
//!
//! A setting counts as read if the field with its value is accessed outside this crate and outside
//! tests. The field is named like the key with underscores, unless [`READ_AS`] contains another
//! name.

// The test reads source files; the crate itself reads no file.
#![allow(clippy::disallowed_methods)]

use std::fs;
use std::path::{Path, PathBuf};

use ottla_config::{ConfigDef, Support, TOPIC_CONFIGS, broker_configs};

/// Settings that are read through a field or method with another name.
const READ_AS: &[(&str, &str)] = &[
    ("broker.id", "node_id"),
    ("compression.gzip.level", "compression_gzip_level"),
    // As the variables of dynamic settings.
    ("config.providers", "ignore_variables"),
    ("connections.max.reauth.ms", "sasl"),
    ("internal.segment.bytes", "effective_segment_bytes"),
    ("listener.security.protocol.map", "listeners"),
    ("log.cleaner.delete.retention.ms", "delete_retention_ms"),
    ("log.cleaner.max.compaction.lag.ms", "max_compaction_lag_ms"),
    (
        "log.cleaner.min.cleanable.ratio",
        "min_cleanable_dirty_ratio",
    ),
    ("log.cleaner.min.compaction.lag.ms", "min_compaction_lag_ms"),
    ("log.cleanup.policy", "cleanup_policy"),
    ("log.dir", "log_dirs"),
    ("log.flush.interval.messages", "flush_messages"),
    ("log.flush.interval.ms", "flush_ms"),
    ("log.index.interval.bytes", "index_interval_bytes"),
    ("log.index.size.max.bytes", "segment_index_bytes"),
    (
        "log.message.timestamp.after.max.ms",
        "message_timestamp_after_max_ms",
    ),
    (
        "log.message.timestamp.before.max.ms",
        "message_timestamp_before_max_ms",
    ),
    ("log.local.retention.bytes", "local_retention_bytes"),
    ("log.local.retention.ms", "local_retention_ms"),
    ("log.message.timestamp.type", "message_timestamp_type"),
    ("log.preallocate", "preallocate"),
    ("log.remote.copy.lag.bytes", "remote_copy_lag_bytes"),
    ("log.remote.copy.lag.ms", "remote_copy_lag_ms"),
    ("log.retention.bytes", "retention_bytes"),
    ("log.retention.hours", "retention_ms"),
    ("log.retention.minutes", "retention_ms"),
    ("log.retention.ms", "retention_ms"),
    ("log.roll.hours", "max_segment_ms"),
    ("log.roll.jitter.hours", "segment_jitter"),
    ("log.roll.jitter.ms", "segment_jitter"),
    ("log.roll.ms", "max_segment_ms"),
    ("log.segment.bytes", "effective_segment_bytes"),
    ("log.segment.delete.delay.ms", "file_delete_delay_ms"),
    (
        "max.decompressed.message.bytes",
        "max_decompressed_record_bytes",
    ),
    ("message.max.bytes", "max_message_bytes"),
    ("ottla.accept.unserved", "accepts_unserved"),
    ("ottla.jaas.file", "sasl"),
    ("sasl.enabled.mechanisms", "sasl"),
    ("sasl.jaas.config", "sasl"),
    ("sasl.kerberos.principal.to.local.rules", "sasl"),
    ("sasl.kerberos.service.name", "sasl"),
    ("sasl.login.connect.timeout.ms", "sasl"),
    ("sasl.login.read.timeout.ms", "sasl"),
    ("sasl.login.refresh.buffer.seconds", "sasl"),
    ("sasl.login.refresh.min.period.seconds", "sasl"),
    ("sasl.login.refresh.window.factor", "sasl"),
    ("sasl.login.refresh.window.jitter", "sasl"),
    ("sasl.login.retry.backoff.max.ms", "sasl"),
    ("sasl.login.retry.backoff.ms", "sasl"),
    ("sasl.mechanism.controller.protocol", "sasl"),
    ("sasl.mechanism.inter.broker.protocol", "sasl"),
    // Through the resolved SASL settings of the listeners.
    ("sasl.oauthbearer.assertion.algorithm", "sasl"),
    ("sasl.oauthbearer.assertion.claim.aud", "sasl"),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", "sasl"),
    ("sasl.oauthbearer.assertion.claim.iss", "sasl"),
    ("sasl.oauthbearer.assertion.claim.jti.include", "sasl"),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", "sasl"),
    ("sasl.oauthbearer.assertion.claim.sub", "sasl"),
    ("sasl.oauthbearer.assertion.file", "sasl"),
    ("sasl.oauthbearer.assertion.private.key.file", "sasl"),
    ("sasl.oauthbearer.assertion.private.key.passphrase", "sasl"),
    ("sasl.oauthbearer.assertion.template.file", "sasl"),
    ("sasl.oauthbearer.client.credentials.client.id", "sasl"),
    ("sasl.oauthbearer.client.credentials.client.secret", "sasl"),
    ("sasl.oauthbearer.scope", "sasl"),
    ("sasl.oauthbearer.token.endpoint.url", "sasl"),
    ("sasl.oauthbearer.clock.skew.seconds", "sasl"),
    ("sasl.oauthbearer.expected.audience", "sasl"),
    ("sasl.oauthbearer.expected.issuer", "sasl"),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl"),
    (
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl",
    ),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "sasl"),
    ("sasl.oauthbearer.jwks.endpoint.url", "sasl"),
    ("sasl.oauthbearer.scope.claim.name", "sasl"),
    ("sasl.oauthbearer.sub.claim.name", "sasl"),
    (
        "security.inter.broker.protocol",
        "inter_broker_listener_name",
    ),
    ("segment.bytes", "effective_segment_bytes"),
    ("segment.jitter.ms", "segment_jitter"),
    ("segment.ms", "max_segment_ms"),
];

fn field_of(def: &ConfigDef) -> String {
    match READ_AS.iter().find(|(key, _)| *key == def.name) {
        Some((_, field)) => (*field).to_owned(),
        None => def.name.replace('.', "_"),
    }
}

/// Settings that listeners can override, and those of tiered storage. They are looked up by key.
fn is_looked_up(code: &str, def: &ConfigDef) -> bool {
    let by_key = ["ssl.", "remote.log."];
    by_key.iter().any(|prefix| def.name.starts_with(prefix))
        && code.contains(&format!("\"{}\"", def.name))
}

/// The code of all other crates except the client and development tools, without tests and white
/// space, so that an access that spans two lines is found.
fn code() -> String {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let do_not_count = [
        "ottla-bench",
        "ottla-client",
        "ottla-config",
        "ottla-testkit",
    ];
    let mut files = Vec::new();
    for entry in fs::read_dir(&crates).expect("the folder of the crates") {
        let reader = entry.expect("an entry");
        let sources = reader.path().join("src");
        let counts = !do_not_count.contains(&reader.file_name().to_string_lossy().as_ref());
        if counts && sources.is_dir() {
            find_sources(&sources, &mut files);
        }
    }
    assert!(files.len() > 100, "the sources are where they were");
    let mut all = String::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("a source file");
        let code = text
            .split("#[cfg(test)]\nmod tests {")
            .next()
            .unwrap_or_default();
        let lines = code
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"));
        all.extend(lines.flat_map(|line| line.chars().filter(|c| !c.is_whitespace())));
        all.push('\n');
    }
    all
}

fn find_sources(dir: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).expect("a folder of sources") {
        let path = entry.expect("an entry").path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if path.is_dir() {
            if name != "tests" && name != "tools" {
                find_sources(&path, files);
            }
        } else if name.ends_with(".rs") && name != "tests.rs" {
            files.push(path);
        }
    }
}

/// Whether a configuration's field is accessed: `config.field`, `self.config().field`, `defaults.field`.
fn is_read(code: &str, field: &str) -> bool {
    let access = format!(".{field}");
    code.match_indices(&access).any(|(at, _)| {
        let before = code[..at].trim_end_matches("()");
        let holder = [
            "config",
            "defaults",
            "settings",
            "topic_config",
            "file_config",
        ];
        let ends_there = code[at + access.len()..]
            .chars()
            .next()
            .is_none_or(|next| !next.is_alphanumeric() && next != '_');
        ends_there && holder.iter().any(|holder| before.ends_with(holder))
    })
}

#[test]
fn every_supported_setting_is_read_by_the_code() {
    let code = code();
    let supported = broker_configs()
        .chain(TOPIC_CONFIGS)
        .filter(|def| def.support == Support::Supported);
    let unread: Vec<String> = supported
        .filter(|def| !is_read(&code, &field_of(def)) && !is_looked_up(&code, def))
        .map(|def| format!("{} ({})", def.name, field_of(def)))
        .collect();
    assert!(
        unread.is_empty(),
        "these settings are marked SUPPORTED in crates/ottla-config/src/tables, and no code reads them: {}. Read them, \
         or mark them with what becomes of them",
        unread.join(", ")
    );
}

#[test]
fn names_that_differ_are_those_of_settings() {
    for (key, _) in READ_AS {
        let known = broker_configs()
            .chain(TOPIC_CONFIGS)
            .any(|def| def.name == *key);
        assert!(known, "{key}");
    }
}

#[test]
fn only_an_access_to_a_configuration_counts() {
    assert!(is_read(
        "broker.config().fetch_max_bytes;",
        "fetch_max_bytes"
    ));
    assert!(is_read("config.fetch_max_bytes.max(1)", "fetch_max_bytes"));
    assert!(!is_read("request.fetch_max_bytes;", "fetch_max_bytes"));
    assert!(!is_read(
        "config.fetch_max_bytes_in_all;",
        "fetch_max_bytes"
    ));
}
