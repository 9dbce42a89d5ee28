//! Environment variables that Kafka's scripts read for the JVM.
//!
//! They are accepted, because existing scripts and units set them, and have no effect. A note is
//! printed where a user may rely on one.

/// A variable and why it has no effect.
#[rustfmt::skip]
const IGNORED: &[(&str, &str)] = &[
    ("KAFKA_HEAP_OPTS", "there is no Java heap; the broker allocates memory as needed"),
    ("KAFKA_OPTS", "there is no JVM: agents and -D properties are not loaded"),
    ("KAFKA_LOG4J_OPTS", "there is no log4j; use OTTLA_LOG=info or debug for more detailed logs"),
    ("KAFKA_JMX_OPTS", "there is no JMX; use ottla.http.listener for metrics"),
    ("JMX_PORT", "there is no JMX; use ottla.http.listener for metrics"),
    ("KAFKA_DEBUG", "there is no JVM to attach a debugger to"),
    ("CLASSPATH", "no Java classes are loaded"),
];

/// One line for each variable that is set and that a server ignores. `KAFKA_JVM_PERFORMANCE_OPTS`,
/// `KAFKA_GC_LOG_OPTS` and `JAVA_HOME` are ignored silently, because they only tune the JVM.
pub fn notes_for_server(value_of: impl Fn(&str) -> Option<String>) -> Vec<String> {
    IGNORED
        .iter()
        .filter(|(name, _)| value_of(name).is_some_and(|value| !value.trim().is_empty()))
        .map(|(name, reason)| format!("{name} is set and has no effect: {reason}"))
        .collect()
}

/// A tool's note about `KAFKA_OPTS`, which may contain login settings.
pub fn note_for_tool(value_of: impl Fn(&str) -> Option<String>) -> Option<String> {
    let options = value_of("KAFKA_OPTS")?;
    options
        .contains("java.security.auth.login.config")
        .then(|| {
            "KAFKA_OPTS sets java.security.auth.login.config, which has no effect: the tools connect \
             without authentication"
                .to_owned()
        })
}

/// The value of a variable of this process.
pub fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_variables_are_named() {
        let set = |name: &str| match name {
            "KAFKA_HEAP_OPTS" => Some("-Xmx1G".to_owned()),
            "KAFKA_OPTS" => Some(" ".to_owned()),
            _ => None,
        };
        let notes = notes_for_server(set);
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].starts_with("KAFKA_HEAP_OPTS is set and has no effect"));
        assert_eq!(note_for_tool(set), None);
        let login = |_: &str| Some("-Djava.security.auth.login.config=/etc/jaas.conf".to_owned());
        assert!(note_for_tool(login).is_some());
    }
}
