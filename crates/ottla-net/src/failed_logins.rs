//! Log lines about TLS handshakes and logins that failed. Each address has its own limit, so that a
//! client in a loop hides neither another client's mistake nor another's guessing of passwords.
//!
//! Kafka logs every failure.

use ottla_metrics::line_limit::LimitedLines;

/// The maximum number of lines per minute about one address.
const LINES_OF_ONE: u64 = 10;
/// The maximum number of lines per minute in total.
const LINES_OF_ALL: u64 = 200;
/// The maximum number of characters of a reason: a client chooses a part of it.
const LONGEST_REASON: usize = 500;

#[derive(Debug)]
pub(crate) struct FailedLogins(LimitedLines);

impl Default for FailedLogins {
    fn default() -> FailedLogins {
        FailedLogins(LimitedLines::new(
            "failed logins",
            LINES_OF_ONE,
            LINES_OF_ALL,
        ))
    }
}

impl FailedLogins {
    /// Runs `line`, which logs a failure of a client at this address, unless the limit is reached.
    pub fn say(&self, host: &str, line: impl FnOnce()) {
        self.0.say(host, line);
    }
}

/// A reason in one line.
pub(crate) fn shown(reason: &str) -> String {
    let start: String = reason.chars().take(LONGEST_REASON).collect();
    start.escape_debug().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_of_each_address_are_logged_up_to_a_limit() {
        let failed = FailedLogins::default();
        let mut logged = 0;
        for host in ["10.0.0.1", "10.0.0.2"] {
            for _ in 0..1000 {
                failed.say(host, || logged += 1);
            }
        }
        assert_eq!(logged, 2 * LINES_OF_ONE);
    }

    #[test]
    fn a_reason_is_one_short_line() {
        let chosen = format!("Unsupported SASL mechanism a\n{}", "\u{1b}".repeat(30_000));
        let shown = shown(&chosen);
        assert!(shown.starts_with(r"Unsupported SASL mechanism a\n\u{1b}"));
        assert!(!shown.contains(char::is_control) && shown.len() < 10 * LONGEST_REASON);
    }
}
