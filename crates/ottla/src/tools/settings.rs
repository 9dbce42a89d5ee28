//! Settings, as the command line gives them.

use std::collections::BTreeMap;

/// Reads a properties file given on the command line.
pub(super) fn load_properties(path: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let bytes = std::fs::read(path)
        .map_err(|error| anyhow::anyhow!("{path} cannot be read: {error}; check the path"))?;
    Ok(ottla_config::Properties::parse_bytes(&bytes, path)?.into_map())
}

/// As [`load_properties`]; without a file there are none.
pub(super) fn load_properties_if_given(
    path: Option<&String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    path.map_or_else(|| Ok(BTreeMap::new()), |path| load_properties(path))
}

/// `key=value` arguments; a missing value is an empty one, as in Kafka's tools.
pub(super) fn key_values(arguments: &[String]) -> BTreeMap<String, String> {
    let split = |argument: &String| match argument.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (argument.clone(), String::new()),
    };
    arguments.iter().map(split).collect()
}
