//! Which crate may depend on which: the table of the design, compared with `cargo metadata`. And what
//! a registry needs to know of the crates that are published.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::Value;

use super::complaint::Complaint;

/// The crates in the order in which a request passes them, each with the workspace crates that it
/// may depend on, without the `ottla-` prefix.
#[rustfmt::skip]
const MAY_USE: &[(&str, &str)] = &[
    ("ottla-types", ""),
    ("ottla-sasl", ""),
    ("ottla-config", "types sasl"),
    ("ottla-sync", ""),
    ("ottla-records", "types"),
    ("ottla-protocol-codegen", ""),
    ("ottla-protocol", "types protocol-codegen"),
    ("ottla-log", "types config sync records"),
    ("ottla-replica", "types records"),
    ("ottla-tiered", "types protocol"),
    ("ottla-tiered-storage", "sync config tiered"),
    ("ottla-tls", "sync"),
    ("ottla-oauth", "sasl sync tls"),
    ("ottla-gssapi", "sasl sync"),
    ("ottla-security", "types sasl protocol"),
    ("ottla-metadata", "types protocol security"),
    ("ottla-raft", "types protocol"),
    ("ottla-controller", "types sasl config protocol security metadata"),
    ("ottla-coordinator", "types protocol metadata"),
    ("ottla-metrics", "types sync protocol"),
    ("ottla-context", "types sasl sync config tls oauth metadata metrics"),
    ("ottla-net", "types gssapi sasl sync config tls oauth protocol security metadata metrics context"),
    ("ottla-storage", "types sync config records protocol log metadata raft controller metrics context"),
    ("ottla-node", "types sync config records protocol log metadata raft controller metrics context net storage"),
    ("ottla-partition", "types sync config records protocol log replica tiered metadata coordinator metrics context net storage node"),
    ("ottla-coordination", "types sync config records protocol log replica metadata coordinator context net node partition"),
    ("ottla-rebalance", ""),
    ("ottla-remote", "types sync config records protocol log tiered tiered-storage metrics context net storage node partition"),
    ("ottla-broker", "types sasl sync config records protocol log replica security metadata raft controller coordinator metrics context net storage node partition coordination remote"),
    ("ottla-client", "types gssapi sasl sync records protocol tls oauth"),
    ("ottla-rebalance-apply", "types protocol rebalance client"),
    ("ottla-ports", ""),
    // config: Java's properties format.
    ("ottla-bench", "types config records protocol client ports"),
    ("ottla-console", "types sasl records protocol oauth security rebalance rebalance-apply client"),
    // controller: reassign-partitions --generate places replicas as the controller would.
    // coordinator: the partition of an internal topic that has a group or a share partition.
    // protocol-codegen: the decoders of dump-log parse the schemas themselves.
    // tls: the principal of a certificate.
    ("ottla", "types config records protocol log security metadata controller coordinator storage broker rebalance rebalance-apply client bench console protocol-codegen tiered tiered-storage tls ports"),
    ("ottla-testkit", "types sync config protocol net client ports"),
    // raft, controller, coordinator, replica: for the bugs planted in them.
    ("ottla-simulation", "types sync config records protocol replica metadata raft controller coordinator storage broker client testkit"),
    ("ottla-growth", "types config records protocol log replica sasl security tiered metadata raft controller coordinator storage partition coordination remote broker client"),
    ("ottla-workspace", ""),
    ("ottla-peers", "ports workspace"),
    // testkit: for networks and disks that fail on purpose, and for certificates.
    ("ottla-conformance", "types records protocol-codegen testkit workspace peers"),
    ("ottla-bench-peer", "types records testkit workspace peers"),
    ("ottla-packaging", "ports workspace"),
    ("xtask", "workspace"),
];

/// The crate that other projects use. The crates that it depends on are published with it.
pub const PUBLISHED: &str = "ottla-client";
/// What a registry requires, and shows to people who look for a crate.
const REQUIRED: [&str; 3] = ["description", "license", "repository"];

pub fn check(metadata: &str) -> Result<Vec<Complaint>> {
    let metadata: Value = serde_json::from_str(metadata).context("cargo metadata")?;
    let packages = metadata["packages"]
        .as_array()
        .context("cargo metadata without packages")?;
    let mut found = complaints(&used(packages));
    found.extend(unpublishable(packages));
    Ok(found)
}

/// The dependencies on packages of the workspace, without development dependencies.
fn own_dependencies(package: &Value) -> impl Iterator<Item = &Value> {
    let all = package["dependencies"].as_array().into_iter().flatten();
    all.filter(|dependency| dependency["path"].is_string() && dependency["kind"] != "dev")
}

/// Package to the workspace packages that it depends on, without development dependencies.
fn used(packages: &[Value]) -> BTreeMap<String, Vec<String>> {
    let mut used = BTreeMap::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default().to_owned();
        let own = own_dependencies(package)
            .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
            .collect();
        used.insert(name, own);
    }
    used
}

/// The published crate and the crates of the workspace that it depends on.
pub fn published(packages: &[Value]) -> Vec<&Value> {
    let mut found: Vec<&Value> = Vec::new();
    let mut open = vec![PUBLISHED];
    while let Some(name) = open.pop() {
        let is_new = found.iter().all(|package| package["name"] != name);
        let package = packages.iter().find(|package| package["name"] == name);
        if let Some(package) = package.filter(|_| is_new) {
            found.push(package);
            open.extend(own_dependencies(package).filter_map(|it| it["name"].as_str()));
        }
    }
    found
}

/// What a registry would refuse in the published crate, and in those that it depends on.
fn unpublishable(packages: &[Value]) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for package in published(packages) {
        let name = package["name"].as_str().unwrap_or_default();
        for field in REQUIRED {
            if !package[field].is_string() {
                let text = format!("is published with {PUBLISHED}; give it a {field}");
                complaints.push(Complaint::new(name, text));
            }
        }
        for dependency in own_dependencies(package) {
            let used = dependency["name"].as_str().unwrap_or_default();
            if dependency["req"] == "*" {
                let text = format!(
                    "is published with {PUBLISHED}; give {used} a version in the workspace's Cargo.toml"
                );
                complaints.push(Complaint::new(name, text));
            }
        }
    }
    complaints
}

fn complaints(used: &BTreeMap<String, Vec<String>>) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (package, dependencies) in used {
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| name == package) else {
            complaints.push(Complaint::new(
                package,
                "is not in the table of crates; add a row with the crates that it may use",
            ));
            continue;
        };
        for dependency in dependencies {
            let name = dependency.strip_prefix("ottla-").unwrap_or(dependency);
            if !allowed.split_whitespace().any(|allowed| allowed == name) {
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
    fn what_a_published_crate_depends_on_must_be_publishable() {
        let described = r#""description":"d","license":"l","repository":"r""#;
        let metadata = |of_types: &str, req: &str| {
            format!(
                r#"{{"packages":[{{"name":"ottla-types","dependencies":[]{of_types}}},
                {{"name":"ottla-log","dependencies":[]}},
                {{"name":"ottla-client",{described},"dependencies":[
                    {{"name":"ottla-types","path":"/x","kind":null,"req":"{req}"}},
                    {{"name":"ottla-log","path":"/x","kind":"dev","req":"*"}}]}}]}}"#
            )
        };
        let good = check(&metadata(&format!(",{described}"), "^0.1.0")).unwrap();
        assert_eq!(good, []);
        let found = check(&metadata(r#","license":"l","repository":"r""#, "*")).unwrap();
        let places: Vec<&str> = found.iter().map(|it| it.place.as_str()).collect();
        assert_eq!(places, ["ottla-client", "ottla-types"]);
        assert!(found[0].text.contains("give ottla-types a version"));
        assert!(found[1].text.contains("description"));
    }

    #[test]
    fn the_table_has_no_circle() {
        for (index, (name, allowed)) in MAY_USE.iter().enumerate() {
            for other in allowed.split_whitespace() {
                let is_before = MAY_USE[..index]
                    .iter()
                    .any(|(found, _)| *found == format!("ottla-{other}"));
                assert!(is_before, "{name} stands before {other}");
            }
        }
    }
}
