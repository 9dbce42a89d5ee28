//! The log on standard error, of the server and of `ottla console`.

use std::env::VarError;
use std::io::IsTerminal;

use ottla_config::nearest_name;
use tracing_subscriber::EnvFilter;

use crate::colours;

/// Logs to standard error: plain lines on a terminal, one JSON object per line otherwise. `OTTLA_LOG_FORMAT`
/// (`text` or `json`) overrides the format, `OTTLA_LOG` (a level, or levels by module) the level.
pub fn start_logging() -> Result<(), String> {
    // Kafka's default log configuration also has the authorizer's logger at info, because
    // administrators look for denials there.
    let default = || "warn,kafka.authorizer.logger=info,ottla.console.audit=info".to_owned();
    let level = setting_from_env("OTTLA_LOG")?.unwrap_or_else(default);
    check_levels(&level)?;
    let filter = EnvFilter::try_new(&level).map_err(|error| {
        format!("OTTLA_LOG={level}: {error}; give a level, for example OTTLA_LOG=info")
    })?;
    // It would log requests for OAuth tokens with the secrets in them, at trace.
    let quiet = "ureq_proto=warn"
        .parse()
        .map_err(|error: tracing_subscriber::filter::ParseError| error.to_string())?;
    let filter = filter.add_directive(quiet);
    let is_terminal = std::io::stderr().is_terminal();
    let is_json = match setting_from_env("OTTLA_LOG_FORMAT")?.as_deref() {
        Some("json") => true,
        Some("text") => false,
        Some(other) => {
            return Err(format!(
                "OTTLA_LOG_FORMAT={other}: unknown format; give text or json"
            ));
        }
        None => !is_terminal,
    };
    let logging = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // Otherwise a line that cannot be written would be reported with `eprintln!`, which panics.
        .log_internal_errors(false)
        .with_ansi(is_terminal && colours::are_allowed())
        .with_writer(std::io::stderr);
    if is_json {
        logging.json().flatten_event(true).init()
    } else {
        logging.with_target(false).compact().init()
    }
    Ok(())
}

/// Rejects a word that is neither a level nor the name of a logger. The filter would accept any
/// word as a logger name and log nothing.
fn check_levels(given: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    let words = given.split(',').map(str::trim);
    for word in words.filter(|word| !word.contains(['=', '[', '.', ':']) && !word.is_empty()) {
        let is_level = LEVELS.iter().any(|level| level.eq_ignore_ascii_case(word));
        let is_number = word.parse::<u8>().is_ok_and(|number| number <= 5);
        if is_level || is_number || word.starts_with("ottla") {
            continue;
        }
        let meant = nearest_name(word, LEVELS);
        let meant = meant.map_or(String::new(), |level| format!("; did you mean {level}?"));
        return Err(format!(
            "OTTLA_LOG={given}: {word} is not a level{meant}{} Give off, error, warn, info, debug or trace, \
             for all or by module: OTTLA_LOG=warn,ottla_partition=debug",
            if meant.is_empty() { "." } else { "" }
        ));
    }
    Ok(())
}

/// `None` if it is unset or empty.
fn setting_from_env(name: &str) -> Result<Option<String>, String> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value).filter(|value| !value.is_empty())),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(value)) => Err(format!("{name}={}: not a text", value.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_that_is_no_level_is_refused() {
        for accepted in [
            "info",
            "WARN",
            "warn,ottla_partition=debug",
            "warn,kafka.authorizer.logger=info",
            "ottla_log",
            "3",
        ] {
            assert_eq!(check_levels(accepted), Ok(()), "{accepted}");
        }
        let refused = check_levels("banana").unwrap_err();
        assert!(
            refused.starts_with("OTTLA_LOG=banana: banana is not a level. Give off"),
            "{refused}"
        );
        let refused = check_levels("warn,inof").unwrap_err();
        assert!(refused.contains("did you mean info?"), "{refused}");
    }
}
