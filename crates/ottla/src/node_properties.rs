//! Completes a properties file with values defined elsewhere: on the command line, in its variables,
//! and in the JAAS file.

use std::path::Path;

use ottla_config::Properties;

use crate::config_providers;

/// Java's system property that names the JAAS file, as set in `KAFKA_OPTS`.
const JAVA_OPTION: &str = "-Djava.security.auth.login.config=";

/// The place of the setting that a message begins with, such as `server.properties line 12`; the name
/// of the file if the message begins with none of it.
pub fn place_of(properties: &Properties, message: &str) -> String {
    let setting = message.split(['=', ':', ',']).next().unwrap_or_default();
    properties.place(setting.trim())
}

/// Sets the settings of `--override key=value` arguments.
pub fn override_with(properties: &mut Properties, overrides: &[String]) -> Result<(), String> {
    for given in overrides {
        let (key, value) = given.split_once('=').ok_or_else(|| {
            format!(
                "--override {given}: give it as key=value, for example --override num.partitions=6"
            )
        })?;
        properties.set(key.trim(), value.trim());
    }
    Ok(())
}

/// Like [`complete`], for programs that maintain a node's files without authenticating anyone. The
/// JAAS file is ignored, because it is often named in an environment that only the node has.
pub fn complete_without_logins(properties: &mut Properties) -> Result<(), String> {
    config_providers::resolve(properties)?;
    properties.ignore_logins();
    Ok(())
}

/// Resolves all external values. The error message contains no secret.
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

/// The JAAS file, and where it is named: in the setting, or in the Java options of a Kafka on this
/// machine.
fn jaas_file(properties: &Properties, options: &str) -> Option<(String, String)> {
    let setting = "ottla.jaas.file";
    if let Some(path) = properties.value(setting) {
        return Some((path.trim().to_owned(), setting.to_owned()));
    }
    let option = options
        .split_whitespace()
        .find_map(|option| option.strip_prefix(JAVA_OPTION))?;
    // A second equals sign means that the file replaces other JAAS files; there are none here.
    let path = option.trim_start_matches('=').trim_matches('"');
    let path = path.strip_prefix("file:").unwrap_or(path);
    let named_by = format!("KAFKA_OPTS: {}", JAVA_OPTION.trim_end_matches('='));
    Some((path.to_owned(), named_by))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_takes_precedence_over_the_options_of_kafka() {
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
    fn overrides_replace_the_settings_of_the_file() {
        let mut properties = Properties::parse("a=1\nb=2\n", "x.properties").unwrap();
        let overrides = ["b = x=y".to_owned(), "c=".to_owned()];
        assert_eq!(override_with(&mut properties, &overrides), Ok(()));
        assert_eq!(properties.value("a"), Some("1"));
        assert_eq!(properties.value("b"), Some("x=y"));
        assert_eq!(properties.value("c"), Some(""));
        let error = override_with(&mut properties, &["d".to_owned()]).unwrap_err();
        assert!(
            error.starts_with("--override d: give it as key=value"),
            "{error}"
        );
    }

    #[test]
    fn a_message_has_the_line_of_its_setting() {
        let properties = Properties::parse("a=1\nb.c=2\n", "x.properties").unwrap();
        let place = |message| place_of(&properties, message);
        assert_eq!(place("b.c: is missing"), "x.properties line 2");
        assert_eq!(place("a=1: is wrong"), "x.properties line 1");
        assert_eq!(place("a, b.c: are wrong"), "x.properties line 1");
        assert_eq!(place("d is missing"), "x.properties");
    }

    #[test]
    fn programs_without_logins_do_not_read_the_jaas_file() {
        let mut properties = Properties::new("test");
        properties.set("ottla.jaas.file", "/nowhere/jaas.conf");
        assert_eq!(complete_without_logins(&mut properties), Ok(()));
    }

    #[test]
    fn the_error_names_a_missing_file() {
        let mut properties = Properties::new("test");
        properties.set("ottla.jaas.file", "/nowhere/jaas.conf");
        let error = complete(&mut properties).unwrap_err();
        assert!(
            error.starts_with("ottla.jaas.file=/nowhere/jaas.conf: cannot be read"),
            "{error}"
        );
    }
}
