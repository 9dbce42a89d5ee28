//! The keys of token issuers, as last read from where a listener's settings say, and which of them are missed.
//!
//! Kafka: `RefreshingHttpsJwks`.

use std::sync::Arc;

use ottla_sasl::KeySource;
use ottla_sasl::oauth_token::KeySet;
use ottla_sync::{ArcSwap, Mutex};

/// IDs of keys that are remembered as missed, and how long one may be (Kafka's bounds).
const MOST_MISSED: usize = 16;
const LONGEST_ID: usize = 1000;
/// How long nobody asks for a key again that was missed.
const MISSED_MS: u64 = 60_000;

/// The keys of the issuers.
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
    /// Whether somebody has gone to read it since.
    is_taken: bool,
}

impl TokenKeys {
    /// Those of a source; nothing where it was never read.
    pub fn of(&self, source: &KeySource) -> Option<Arc<KeySet>> {
        let by_source = self.by_source.load();
        let found = by_source.iter().find(|(known, _)| known == source);
        found.map(|(_, keys)| Arc::clone(keys))
    }

    /// Puts what was read in force.
    pub fn set(&self, source: &KeySource, keys: KeySet) {
        let mut by_source = Vec::clone(&self.by_source.load());
        by_source.retain(|(known, _)| known != source);
        by_source.push((source.clone(), Arc::new(keys)));
        self.by_source.store(Arc::new(by_source));
    }

    /// A token names a key that the source does not have: it may have it by now. Whoever sends such tokens cannot make
    /// this node ask more than once a minute for each of a few IDs.
    pub fn on_missing(&self, source: &KeySource, id: &str, now_ms: u64) {
        if id.len() > LONGEST_ID {
            return;
        }
        let mut missed = self.missed.lock();
        missed.retain(|it| now_ms.saturating_sub(it.at_ms) < MISSED_MS);
        let is_known = missed.iter().any(|it| it.source == *source && it.id == id);
        if !is_known && missed.len() < MOST_MISSED {
            missed.push(Missed {
                source: source.clone(),
                id: id.to_owned(),
                at_ms: now_ms,
                is_taken: false,
            });
        }
    }

    /// Whether a source is to be read out of turn; it is then taken to be.
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
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_missed_key_is_asked_for_once_a_minute() {
        let source = |url: &str| KeySource {
            url: url.to_owned(),
            refresh: Duration::from_secs(3600),
            retry_backoff: Duration::ZERO,
            retry_backoff_max: Duration::ZERO,
            ssl: BTreeMap::new(),
        };
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
        // Neither long IDs nor many of them.
        keys.on_missing(&other, &"k".repeat(LONGEST_ID + 1), MISSED_MS);
        assert!(!keys.take_missing(&other));
        for id in 0..100 {
            keys.on_missing(&one, &id.to_string(), MISSED_MS);
        }
        assert_eq!(keys.missed.lock().len(), MOST_MISSED);
    }
}
