//! A cache of schemas, and of failed reads for a limited time.
//!
//! Pure; the time is an argument. Schemas with an ID never change, so they stay until there is no
//! room.

use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;

use super::fetch::Failure;
use super::schema::Schema;
use super::wire::SchemaId;

const MOST_ENTRIES: usize = 2000;
const MOST_BYTES: usize = 64 << 20;
/// A failure with its reason.
const FAILURE_BYTES: usize = 1000;
/// Of a reason: it can quote an answer of the registry, and each record with the schema shows it.
const REASON_BYTES: usize = 500;
/// How long a missing schema is not requested again.
const MISSING: Duration = Duration::from_secs(60);
/// Schemas that may be found to be missing in that time. A topic whose records only look as if they
/// named schemas would otherwise cost a request for each of them.
const MOST_MISSING: usize = 500;
/// How long a schema is not requested again after a request without a response.
const UNANSWERED: Duration = Duration::from_secs(30);
/// Schemas in a row that a registry does not answer, after which it is taken for one that is away.
const MOST_UNANSWERED: usize = 3;
/// How long an unreachable registry gets no requests.
const AWAY: Duration = Duration::from_secs(30);

pub(super) type Outcome = Result<Arc<Schema>, Failure>;

pub(super) struct Cache {
    schemas: LruCache<SchemaId, Entry>,
    bytes: usize,
    /// Why the registry gets no requests, and until when.
    away: Option<(String, Instant)>,
    /// Schemas that were found to be missing since then.
    missing: Option<(Instant, usize)>,
    /// Schemas in a row that the registry has not answered.
    unanswered: usize,
}

struct Entry {
    outcome: Outcome,
    /// `None`: without limit.
    until: Option<Instant>,
}

impl Entry {
    fn size(&self) -> usize {
        match &self.outcome {
            Ok(schema) => schema.size(),
            Err(_) => FAILURE_BYTES,
        }
    }
}

impl Cache {
    pub(super) fn new() -> Cache {
        Cache {
            schemas: LruCache::unbounded(),
            bytes: 0,
            away: None,
            missing: None,
            unanswered: 0,
        }
    }

    /// The cached result for a schema.
    pub(super) fn find(&mut self, id: &SchemaId, now: Instant) -> Option<Outcome> {
        if let Some(entry) = self.schemas.get(id)
            && entry.until.is_none_or(|it| now < it)
        {
            return Some(entry.outcome.clone());
        }
        let (reason, until) = self.away.as_ref()?;
        (now < *until).then(|| Err(Failure::Registry(reason.clone())))
    }

    /// Keeps the answer of the registry, and returns it.
    pub(super) fn keep(
        &mut self,
        id: SchemaId,
        loaded: Result<Schema, Failure>,
        now: Instant,
    ) -> Outcome {
        self.unanswered = match loaded {
            Err(Failure::Registry(_)) => self.unanswered + 1,
            _ => 0,
        };
        let (outcome, until) = match loaded {
            Ok(schema) => (Ok(Arc::new(schema)), None),
            Err(Failure::Schema(reason)) => {
                self.count_missing(now);
                let failure = Failure::Schema(shortened(reason));
                (Err(failure), Some(now + MISSING))
            }
            Err(Failure::Registry(reason)) => {
                let reason = shortened(reason);
                if self.unanswered >= MOST_UNANSWERED {
                    self.away = Some((reason.clone(), now + AWAY));
                }
                (Err(Failure::Registry(reason)), Some(now + UNANSWERED))
            }
        };
        let entry = Entry {
            outcome: outcome.clone(),
            until,
        };
        self.bytes += entry.size();
        if let Some(before) = self.schemas.put(id, entry) {
            self.bytes -= before.size();
        }
        while self.schemas.len() > MOST_ENTRIES || self.bytes > MOST_BYTES {
            let Some((_, oldest)) = self.schemas.pop_lru() else {
                break;
            };
            self.bytes -= oldest.size();
        }
        outcome
    }

    fn count_missing(&mut self, now: Instant) {
        let (since, count) = match self.missing {
            Some((since, count)) if now < since + MISSING => (since, count + 1),
            _ => (now, 1),
        };
        self.missing = Some((since, count));
        if count > MOST_MISSING {
            let reason = format!(
                "more than {MOST_MISSING} schemas within a minute were missing in the schema registry; the topic's \
                 records may not name schemas"
            );
            self.away = Some((reason, now + AWAY));
        }
    }
}

fn shortened(reason: String) -> String {
    match reason.len() <= REASON_BYTES {
        true => reason,
        false => format!("{}…", &reason[..reason.floor_char_boundary(REASON_BYTES)]),
    }
}

#[cfg(test)]
mod tests {
    use super::super::schema::Kind;
    use super::*;

    fn schema(size: usize) -> Schema {
        let text = " ".repeat(size);
        Schema::parse(Kind::Json, &text, &[], Vec::new()).unwrap()
    }

    #[test]
    fn schemas_stay_and_failures_do_not() {
        let mut cache = Cache::new();
        let now = Instant::now();
        let (one, two) = (SchemaId::Number(1), SchemaId::Number(2));
        assert!(cache.find(&one, now).is_none());
        cache.keep(one, Ok(schema(10)), now).unwrap();
        let missing = Err(Failure::Schema("missing".into()));
        let kept = cache.keep(two, missing, now).unwrap_err();
        assert_eq!(kept.reason(), "missing");
        assert!(cache.find(&two, now).unwrap().is_err());
        let later = now + MISSING;
        assert!(cache.find(&one, later).unwrap().is_ok());
        assert!(cache.find(&two, later).is_none());
    }

    #[test]
    fn a_reason_is_short_whatever_the_registry_has_answered() {
        let now = Instant::now();
        let long = || "é".repeat(1 << 20);
        for failure in [Failure::Schema(long()), Failure::Registry(long())] {
            let mut cache = Cache::new();
            let id = SchemaId::Number(1);
            let kept = cache.keep(id, Err(failure), now).unwrap_err();
            assert!(kept.reason().len() < FAILURE_BYTES);
            let found = cache.find(&id, now).unwrap().unwrap_err();
            assert_eq!(found.reason(), kept.reason());
        }
    }

    #[test]
    fn an_unreachable_registry_is_not_queried_for_a_time() {
        let mut cache = Cache::new();
        let now = Instant::now();
        cache
            .keep(SchemaId::Number(1), Ok(schema(10)), now)
            .unwrap();
        let other = SchemaId::Number(9);
        let fail = |cache: &mut Cache, number| {
            let away = Err(Failure::Registry("away".into()));
            let id = SchemaId::Number(number);
            cache.keep(id, away, now).unwrap_err();
            assert!(cache.find(&id, now).unwrap().is_err());
        };
        fail(&mut cache, 2);
        fail(&mut cache, 3);
        // One answer, and it is not away.
        cache
            .keep(SchemaId::Number(4), Ok(schema(10)), now)
            .unwrap();
        fail(&mut cache, 5);
        fail(&mut cache, 6);
        assert!(cache.find(&other, now).is_none());
        fail(&mut cache, 7);
        let found = cache.find(&other, now).unwrap().unwrap_err();
        assert!(matches!(found, Failure::Registry(reason) if reason == "away"));
        assert!(cache.find(&SchemaId::Number(1), now).unwrap().is_ok());
        assert!(cache.find(&other, now + AWAY).is_none());
    }

    #[test]
    fn the_number_of_lookups_of_missing_schemas_is_limited() {
        let mut cache = Cache::new();
        let now = Instant::now();
        let mut asked = 0;
        for number in 1..=2 * MOST_MISSING as u32 {
            let id = SchemaId::Number(number);
            if cache.find(&id, now).is_none() {
                asked += 1;
                let missing = Err(Failure::Schema("missing".into()));
                cache.keep(id, missing, now).unwrap_err();
            }
        }
        assert_eq!(asked, MOST_MISSING + 1);
        assert!(
            cache
                .find(&SchemaId::Number(u32::MAX), now + AWAY)
                .is_none()
        );
    }

    #[test]
    fn the_cache_is_bounded() {
        let mut cache = Cache::new();
        let now = Instant::now();
        for number in 0..2 * MOST_ENTRIES as u32 {
            let missing = Err(Failure::Schema("missing".into()));
            cache
                .keep(SchemaId::Number(number), missing, now)
                .unwrap_err();
        }
        assert_eq!(cache.schemas.len(), MOST_ENTRIES);
        for number in 0..100 {
            cache
                .keep(SchemaId::Number(number), Ok(schema(1 << 20)), now)
                .unwrap();
            assert!(cache.bytes <= MOST_BYTES);
        }
        assert!(cache.schemas.len() < 10);
        let later = now + AWAY;
        assert!(cache.find(&SchemaId::Number(99), later).is_some());
        assert!(cache.find(&SchemaId::Number(1), later).is_none());
    }
}
