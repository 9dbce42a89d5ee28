//! The keys of token issuers as they were last read, and the IDs of unknown keys that tokens have
//! named.
//!
//! Kafka: `RefreshingHttpsJwks`.

use std::sync::Arc;

use ottla_sasl::KeySource;
use ottla_sasl::oauth_token::KeySet;
use ottla_sync::{ArcSwap, Mutex};

/// How many unknown key IDs of one source are remembered, and the maximum length of one (Kafka's
/// bounds).
const MOST_MISSED: usize = 16;
const LONGEST_ID: usize = 1000;
/// How long an unknown key ID does not cause another read.
const MISSED_MS: u64 = 60_000;

#[derive(Debug, Default)]
pub struct TokenKeys {
    by_source: ArcSwap<Vec<(KeySource, Arc<KeySet>)>>,
    missed: Mutex<Vec<Missed>>,
}

#[derive(Debug)]
struct Missed {
    source: KeySource,
    id: String,
    at_ms: u64,
    /// Whether the source has been read, or is being read, since then.
    is_taken: bool,
}

impl TokenKeys {
    /// The keys of a source; `None` if it has not been read yet.
    pub fn of(&self, source: &KeySource) -> Option<Arc<KeySet>> {
        let by_source = self.by_source.load();
        let found = by_source.iter().find(|(known, _)| known == source);
        found.map(|(_, keys)| Arc::clone(keys))
    }

    /// Replaces the keys of a source. Sources are read in parallel.
    pub fn set(&self, source: &KeySource, keys: KeySet) {
        let keys = Arc::new(keys);
        self.by_source.rcu(|before| {
            let mut by_source = Vec::clone(before);
            by_source.retain(|(known, _)| known != source);
            by_source.push((source.clone(), Arc::clone(&keys)));
            by_source
        });
    }

    /// Records that a token names a key that the source did not have, because the source may have
    /// it by now. A client that sends such tokens causes at most one read a minute for each of at
    /// most 16 key IDs.
    pub fn on_missing(&self, source: &KeySource, id: &str, now_ms: u64) {
        if id.len() > LONGEST_ID {
            return;
        }
        let mut missed = self.missed.lock();
        missed.retain(|it| now_ms.saturating_sub(it.at_ms) < MISSED_MS);
        let of_source = missed.iter().filter(|it| it.source == *source);
        let is_known = of_source.clone().any(|it| it.id == id);
        if !is_known && of_source.count() < MOST_MISSED {
            missed.push(Missed {
                source: source.clone(),
                id: id.to_owned(),
                at_ms: now_ms,
                is_taken: false,
            });
        }
    }

    /// Returns whether a source must be read before its next regular time, and clears that mark.
    pub fn take_missing(&self, source: &KeySource) -> bool {
        let mut missed = self.missed.lock();
        let mut of_source = missed
            .iter_mut()
            .filter(|it| it.source == *source && !it.is_taken)
            .peekable();
        let is_missing = of_source.peek().is_some();
        of_source.for_each(|it| it.is_taken = true);
        is_missing
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Barrier;
    use std::time::Duration;

    use super::*;

    fn source(url: &str) -> KeySource {
        KeySource {
            url: url.to_owned(),
            refresh: Duration::from_secs(3600),
            retry_backoff: Duration::ZERO,
            retry_backoff_max: Duration::ZERO,
            ssl: BTreeMap::new(),
        }
    }

    #[test]
    fn keys_that_are_set_at_the_same_time_are_all_kept() {
        let (keys, begin) = (TokenKeys::default(), Barrier::new(4));
        let sources: Vec<_> = (0..400)
            .map(|it| source(&format!("https://{it}")))
            .collect();
        ottla_sync::thread::scope(|scope| {
            for sources in sources.chunks(100) {
                let (keys, begin) = (&keys, &begin);
                scope.spawn(move || {
                    begin.wait();
                    sources
                        .iter()
                        .for_each(|it| keys.set(it, KeySet::default()));
                });
            }
        });
        assert!(sources.iter().all(|it| keys.of(it).is_some()));
    }

    #[test]
    fn a_missed_key_is_asked_for_once_a_minute() {
        let (one, other) = (source("https://one"), source("https://other"));
        let keys = TokenKeys::default();
        assert!(!keys.take_missing(&one));
        keys.on_missing(&one, "k", 0);
        assert!(!keys.take_missing(&other));
        assert!(keys.take_missing(&one));
        keys.on_missing(&one, "k", MISSED_MS - 1);
        assert!(!keys.take_missing(&one));
        keys.on_missing(&one, "k", MISSED_MS);
        assert!(keys.take_missing(&one));
        // Neither IDs that are too long nor too many of them cause a read.
        keys.on_missing(&other, &"k".repeat(LONGEST_ID + 1), MISSED_MS);
        assert!(!keys.take_missing(&other));
        for id in 0..100 {
            keys.on_missing(&one, &id.to_string(), MISSED_MS);
        }
        assert_eq!(keys.missed.lock().len(), MOST_MISSED);
        // Tokens with unknown keys of one issuer do not delay the new key of another issuer.
        keys.on_missing(&other, "new", MISSED_MS);
        assert!(keys.take_missing(&other));
    }
}
