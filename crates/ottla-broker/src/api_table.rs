//! The API table of COMPATIBILITY.md, generated from the broker's own tables.

use std::ops::RangeInclusive;

use ottla_protocol::ApiKey;

use crate::dispatch::served_versions;
use crate::endpoint::Endpoint;
use crate::telemetry::is_telemetry_api;

/// Differences of Apache Kafka 4.3.1 from 4.4.0: API key and newest version; `None` if 4.3.1 does
/// not have the API.
const NEWEST_OF_4_3: &[(ApiKey, Option<i16>)] = &[
    (ApiKey::ApiVersions, Some(4)),
    (ApiKey::TxnOffsetCommit, Some(5)),
    (ApiKey::DeleteGroups, Some(2)),
    (ApiKey::StreamsGroupHeartbeat, Some(0)),
    (ApiKey::StreamsGroupDescribe, Some(0)),
    (ApiKey::StreamsGroupTopologyDescriptionUpdate, None),
    (ApiKey::UnregisterController, None),
];

/// A row for each API that Apache Kafka serves on a broker listener: its versions in Kafka 4.3.1, in
/// 4.4.0 and in Ottla, and a remark if it is not served.
pub fn api_table_markdown() -> String {
    let mut table = String::from(
        "| key | API | Apache Kafka 4.3.1 | 4.4.0 | Ottla | remarks |\n| ---: | --- | --- | --- | --- | --- |\n",
    );
    for key in ApiKey::ALL.iter().copied().filter(|key| key.on_broker()) {
        let theirs = key.stable_versions();
        let ours = served_versions(key, Endpoint::Broker);
        if theirs.is_empty() {
            continue;
        }
        let lowest = key.lowest_advertised_version();
        let before = NEWEST_OF_4_3.iter().find(|(other, _)| *other == key);
        let theirs_before = match before {
            Some((_, Some(newest))) => *theirs.start()..=*newest,
            Some((_, None)) => RangeInclusive::new(0, -1),
            None => theirs.clone(),
        };
        let note = match ours.is_empty() {
            true => "not yet",
            false if is_telemetry_api(key) => {
                "advertised only if metrics are exported, by `ottla.http.listener` or `ottla.metrics.reporter.dir`"
            }
            false => "",
        };
        table.push_str(&format!(
            "| {} | {} | {} | {} | {} | {note} |\n",
            key.code(),
            key.name(),
            shown(&theirs_before, lowest),
            shown(&theirs, lowest),
            shown(&ours, lowest),
        ));
    }
    table
}

fn shown(versions: &RangeInclusive<i16>, lowest: i16) -> String {
    let (first, last) = (lowest.min(*versions.start()), *versions.end());
    match (versions.is_empty(), first == last) {
        (true, _) => "–".to_owned(),
        (false, true) => format!("{first}"),
        (false, false) => format!("{first}–{last}"),
    }
}
