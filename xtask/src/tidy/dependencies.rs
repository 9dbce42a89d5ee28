//! Which crate may use which: the table of the design, compared with `cargo metadata`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::complaint::Complaint;

/// The crates in the order in which a request meets them, each with the crates of this workspace that it may use.
const MAY_USE: &[(&str, &[&str])] = &[
    ("ottla-types", &[]),
    ("ottla-config", &["ottla-types"]),
    ("ottla-sync", &[]),
    ("ottla-records", &["ottla-types"]),
    ("ottla-protocol-codegen", &[]),
    ("ottla-protocol", &["ottla-types", "ottla-protocol-codegen"]),
    (
        "ottla-log",
        &["ottla-types", "ottla-config", "ottla-sync", "ottla-records"],
    ),
    ("ottla-replica", &["ottla-types", "ottla-records"]),
    ("ottla-metadata", &["ottla-types", "ottla-protocol"]),
    ("ottla-raft", &["ottla-types", "ottla-protocol"]),
    (
        "ottla-controller",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-protocol",
            "ottla-metadata",
        ],
    ),
    (
        "ottla-coordinator",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-protocol",
            "ottla-metadata",
        ],
    ),
    ("ottla-metrics", &["ottla-types", "ottla-protocol"]),
    (
        "ottla-context",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-metadata",
            "ottla-metrics",
        ],
    ),
    (
        "ottla-net",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-protocol",
            "ottla-metadata",
            "ottla-metrics",
            "ottla-context",
        ],
    ),
    (
        "ottla-storage",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-records",
            "ottla-protocol",
            "ottla-log",
            "ottla-metadata",
            "ottla-raft",
            "ottla-controller",
            "ottla-metrics",
            "ottla-context",
        ],
    ),
    (
        "ottla-node",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-records",
            "ottla-protocol",
            "ottla-log",
            "ottla-metadata",
            "ottla-raft",
            "ottla-controller",
            "ottla-metrics",
            "ottla-context",
            "ottla-net",
            "ottla-storage",
        ],
    ),
    (
        "ottla-partition",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-records",
            "ottla-protocol",
            "ottla-log",
            "ottla-replica",
            "ottla-metadata",
            "ottla-coordinator",
            "ottla-metrics",
            "ottla-context",
            "ottla-net",
            "ottla-storage",
            "ottla-node",
        ],
    ),
    (
        "ottla-coordination",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-records",
            "ottla-protocol",
            "ottla-log",
            "ottla-replica",
            "ottla-metadata",
            "ottla-coordinator",
            "ottla-metrics",
            "ottla-context",
            "ottla-net",
            "ottla-node",
            "ottla-partition",
        ],
    ),
    (
        "ottla-broker",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-records",
            "ottla-protocol",
            "ottla-log",
            "ottla-replica",
            "ottla-metadata",
            "ottla-raft",
            "ottla-controller",
            "ottla-coordinator",
            "ottla-metrics",
            "ottla-context",
            "ottla-net",
            "ottla-storage",
            "ottla-node",
            "ottla-partition",
            "ottla-coordination",
        ],
    ),
    (
        "ottla-client",
        &["ottla-types", "ottla-records", "ottla-protocol"],
    ),
    (
        "ottla-bench",
        &[
            "ottla-types",
            // Java's properties format.
            "ottla-config",
            "ottla-records",
            "ottla-protocol",
            "ottla-client",
        ],
    ),
    (
        "ottla",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-records",
            "ottla-protocol",
            "ottla-log",
            "ottla-metadata",
            // reassign-partitions --generate places replicas as the controller would.
            "ottla-controller",
            "ottla-storage",
            "ottla-broker",
            "ottla-client",
            "ottla-bench",
            // The decoders of dump-log read the schemas themselves.
            "ottla-protocol-codegen",
        ],
    ),
    (
        "ottla-testkit",
        &[
            "ottla-types",
            "ottla-config",
            "ottla-records",
            "ottla-protocol",
            "ottla-log",
            "ottla-replica",
            "ottla-metadata",
            "ottla-raft",
            "ottla-controller",
            "ottla-coordinator",
            "ottla-net",
            "ottla-client",
        ],
    ),
    ("ottla-workspace", &[]),
    ("ottla-peers", &["ottla-workspace"]),
    (
        "ottla-conformance",
        &[
            "ottla-types",
            "ottla-records",
            "ottla-protocol-codegen",
            // Networks and disks that fail on purpose.
            "ottla-testkit",
            "ottla-workspace",
            "ottla-peers",
        ],
    ),
    (
        "ottla-bench-peer",
        &[
            "ottla-types",
            "ottla-records",
            "ottla-workspace",
            "ottla-peers",
        ],
    ),
    ("xtask", &["ottla-workspace"]),
];

pub fn check(metadata: &str) -> Result<Vec<Complaint>> {
    Ok(complaints(&used(metadata)?))
}

/// Package to the workspace's packages that it uses; what only its tests use does not count.
fn used(metadata: &str) -> Result<BTreeMap<String, Vec<String>>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata without packages")?;
    let mut used = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default().to_owned();
        let dependencies = package["dependencies"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        let own = dependencies
            .iter()
            .filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev")
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect();
        used.insert(name, own);
    }
    Ok(used)
}

fn complaints(used: &BTreeMap<String, Vec<String>>) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (package, dependencies) in used {
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| name == package) else {
            complaints.push(Complaint::new(
                package,
                "is not in the table of crates; give it a row that says what it may use",
            ));
            continue;
        };
        for dependency in dependencies {
            if !allowed.contains(&dependency.as_str()) {
                complaints.push(Complaint::new(package, format!("may not use {dependency}")));
            }
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metadata(package: &str, dependency: &str, kind: &str) -> String {
        format!(
            r#"{{"packages":[{{"name":"{package}","dependencies":[
                {{"name":"{dependency}","path":"/x","kind":{kind}}}]}}]}}"#
        )
    }

    #[test]
    fn a_dependency_that_the_table_does_not_have_is_refused() {
        let found = check(&metadata("ottla-types", "ottla-broker", "null")).unwrap();
        assert_eq!(
            found,
            [Complaint::new("ottla-types", "may not use ottla-broker")]
        );
        assert_eq!(
            check(&metadata("ottla-log", "ottla-types", "null")).unwrap(),
            []
        );
    }

    #[test]
    fn tests_may_use_more() {
        assert_eq!(
            check(&metadata("ottla-types", "ottla-testkit", "\"dev\"")).unwrap(),
            []
        );
    }

    #[test]
    fn a_crate_without_a_row_is_refused() {
        assert_eq!(
            check(&metadata("ottla-more", "ottla-types", "null"))
                .unwrap()
                .len(),
            1
        );
    }

    #[test]
    fn the_table_has_no_circle() {
        for (name, allowed) in MAY_USE {
            for other in *allowed {
                let row = MAY_USE
                    .iter()
                    .find(|(found, _)| found == other)
                    .expect("a row");
                assert!(!row.1.contains(name), "{name} and {other}");
            }
        }
    }
}
