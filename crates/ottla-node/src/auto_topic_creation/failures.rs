//! A bounded cache of topics whose creation has failed, kept until the creation may be retried.
//! When the cache is full, the entries that expire first are removed.
//!
//! Kafka: `ExpiringErrorCache`.

use std::collections::BTreeMap;

use bytestring::ByteString;

const MAX_FAILURES: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct Failures(BTreeMap<ByteString, Failure>);

#[derive(Debug)]
struct Failure {
    reason: ByteString,
    /// Exclusive.
    until_ms: u64,
}

impl Failures {
    /// Adds topics whose creation has just failed, each with the error message.
    pub(super) fn put(
        &mut self,
        failed: impl IntoIterator<Item = (ByteString, ByteString)>,
        now_ms: u64,
        until_ms: u64,
    ) {
        self.0.retain(|_, failure| failure.until_ms > now_ms);
        for (topic, reason) in failed {
            self.0.insert(topic, Failure { reason, until_ms });
        }
        let excess = self.0.len().saturating_sub(MAX_FAILURES);
        if excess == 0 {
            return;
        }
        let untils = self.0.iter();
        let untils = untils.map(|(topic, failure)| (failure.until_ms, topic.clone()));
        let mut untils: Vec<(u64, ByteString)> = untils.collect();
        untils.select_nth_unstable(excess - 1);
        for (_, topic) in &untils[..excess] {
            self.0.remove(topic);
        }
    }

    /// The error message for the topic, unless it has expired.
    pub(super) fn of(&self, topic: &str, now_ms: u64) -> Option<&ByteString> {
        let failure = self.0.get(topic);
        failure
            .filter(|failure| failure.until_ms > now_ms)
            .map(|failure| &failure.reason)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_expires() {
        let mut failures = Failures::default();
        failures.put([("t".into(), "no".into())], 10, 20);
        assert_eq!(failures.of("t", 19).map(|it| &**it), Some("no"));
        assert_eq!(failures.of("t", 20), None);
        failures.put([("t".into(), "never".into())], 19, 30);
        assert_eq!(failures.of("t", 29).map(|it| &**it), Some("never"));
        failures.put([("u".into(), "no".into())], 31, 40);
        assert_eq!(failures.0.len(), 1);
    }

    #[test]
    fn the_failures_that_expire_first_are_evicted() {
        let mut failures = Failures::default();
        for index in 0..5 {
            failures.put([(format!("t{index}").into(), "no".into())], 0, 100 + index);
        }
        let many = (5..MAX_FAILURES + 4).map(|index| (format!("t{index}").into(), "no".into()));
        failures.put(many, 0, 200);
        assert_eq!(failures.0.len(), MAX_FAILURES);
        assert_eq!(failures.of("t3", 0), None);
        assert!(failures.of("t4", 0).is_some());
        assert!(failures.of("t5", 0).is_some());
    }
}
