//! Settings from the command line.

use std::collections::BTreeMap;

use ottla_client::properties;
use ottla_config::{Properties, nearest_name};

use crate::config_providers;

/// Reads a properties file given on the command line.
pub fn load_properties(path: &str) -> anyhow::Result<BTreeMap<String, String>> {
    Ok(read_properties(path)?.into_map())
}

/// Like [`load_properties`], for the settings of a client: variables of `config.providers` are
/// replaced by their values, and the settings of the providers are left out, which the client does
/// not know.
pub(super) fn load_client_properties(path: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut properties = read_properties(path)?;
    config_providers::resolve(&mut properties).map_err(anyhow::Error::msg)?;
    let mut settings = properties.into_map();
    settings.retain(|key, _| !config_providers::is_of_providers(key));
    Ok(settings)
}

/// Like [`load_client_properties`]; empty without a file.
pub(super) fn load_client_properties_if_given(
    path: Option<&String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    path.map_or_else(|| Ok(BTreeMap::new()), |path| load_client_properties(path))
}

/// Like [`load_properties`], with the lines of the settings.
pub fn read_properties(path: &str) -> anyhow::Result<Properties> {
    let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    Ok(Properties::parse_bytes(&bytes, path)?)
}

/// Reads a text file given on the command line.
pub(super) fn read_text(path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &str, error: &std::io::Error) -> anyhow::Error {
    anyhow::anyhow!("{path} cannot be read: {error}; check the path")
}

/// Like [`load_properties`]; empty without a file.
pub(super) fn load_properties_if_given(
    path: Option<&String>,
) -> anyhow::Result<BTreeMap<String, String>> {
    path.map_or_else(|| Ok(BTreeMap::new()), |path| load_properties(path))
}

/// Parses `key=value` arguments; a missing value is empty, as in Kafka's tools.
pub(super) fn key_values(arguments: &[String]) -> BTreeMap<String, String> {
    let split = |argument: &String| match argument.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (argument.clone(), String::new()),
    };
    arguments.iter().map(split).collect()
}

/// Warns of unknown settings and continues, as Kafka's clients do. `unknown` lists the settings
/// that no part of the client knows.
pub(super) fn warn_of_unknown(settings: &BTreeMap<String, String>, unknown: &[Vec<String>]) {
    for key in properties::unknown_keys(settings, unknown) {
        eprintln!("WARN {}", unknown_key(key));
    }
}

fn unknown_key(key: &str) -> String {
    match nearest_name(key, properties::known_keys()) {
        Some(name) => format!("{key} is not a setting and is ignored; did you mean {name}?"),
        None => format!("{key} is not a setting and is ignored"),
    }
}

#[cfg(test)]
mod tests {
    use super::unknown_key;

    #[test]
    fn the_name_of_a_mistyped_setting_is_suggested() {
        assert_eq!(
            unknown_key("akcs"),
            "akcs is not a setting and is ignored; did you mean acks?"
        );
        assert_eq!(
            unknown_key("my.own"),
            "my.own is not a setting and is ignored"
        );
    }
}
