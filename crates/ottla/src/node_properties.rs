//! What belongs to a properties file and stands elsewhere: what its variables stand for, and the JAAS file.

use std::path::Path;

use ottla_config::Properties;

use crate::config_providers;

/// Java's system property that names the JAAS file, as `KAFKA_OPTS` sets it.
const JAVA_OPTION: &str = "-Djava.security.auth.login.config=";

/// As [`complete`], for programs that look after the files of a node and log nobody in: the JAAS file is often named by
/// an environment that only the node has, and is left alone.
pub fn complete_without_logins(properties: &mut Properties) -> Result<(), String> {
    config_providers::resolve(properties)?;
    properties.ignore_logins();
    Ok(())
}

/// Puts in what stands elsewhere. The error is for people and shows no secret.
pub fn complete(properties: &mut Properties) -> Result<(), String> {
    config_providers::resolve(properties)?;
    let options = std::env::var("KAFKA_OPTS").unwrap_or_default();
    if let Some((path, named_by)) = jaas_file(properties, &options) {
        let text = std::fs::read_to_string(Path::new(&path)).map_err(|error| {
            format!("{named_by}={path}: cannot be read: {error}; give the path of a JAAS file")
        })?;
        properties.set_jaas_file(&path, &text);
    }
    Ok(())
}

/// The JAAS file, and what names it: the setting, or else the options of Java that a Kafka on this machine has.
fn jaas_file(properties: &Properties, options: &str) -> Option<(String, String)> {
    let setting = "ottla.jaas.file";
    if let Some(path) = properties.value(setting) {
        return Some((path.trim().to_owned(), setting.to_owned()));
    }
    let option = options
        .split_whitespace()
        .find_map(|option| option.strip_prefix(JAVA_OPTION))?;
    // Two equals signs make it the only one, which it is anyway.
    let path = option.trim_start_matches('=').trim_matches('"');
    let path = path.strip_prefix("file:").unwrap_or(path);
    let named_by = format!("KAFKA_OPTS: {}", JAVA_OPTION.trim_end_matches('='));
    Some((path.to_owned(), named_by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_goes_before_kafkas_options() {
        let options = "-Xmx1g -Djava.security.auth.login.config=/etc/jaas.conf -Dx=y";
        let path = |properties: &Properties, options| jaas_file(properties, options).map(|it| it.0);
        let mut properties = Properties::new("test");
        assert_eq!(path(&properties, ""), None);
        assert_eq!(
            path(&properties, options),
            Some("/etc/jaas.conf".to_owned())
        );
        let only = "-Djava.security.auth.login.config==file:/etc/jaas.conf";
        assert_eq!(path(&properties, only), Some("/etc/jaas.conf".to_owned()));
        properties.set("ottla.jaas.file", "/own.conf");
        assert_eq!(path(&properties, options), Some("/own.conf".to_owned()));
    }

    #[test]
    fn programs_that_log_nobody_in_do_not_look_for_the_file() {
        let mut properties = Properties::new("test");
        properties.set("ottla.jaas.file", "/nowhere/jaas.conf");
        assert_eq!(complete_without_logins(&mut properties), Ok(()));
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let mut properties = Properties::new("test");
        properties.set("ottla.jaas.file", "/nowhere/jaas.conf");
        let error = complete(&mut properties).unwrap_err();
        assert!(
            error.starts_with("ottla.jaas.file=/nowhere/jaas.conf: cannot be read"),
            "{error}"
        );
    }
}
