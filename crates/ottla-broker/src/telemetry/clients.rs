//! Which client may send requests when, and the last push of each. Pure: time is an argument.
//! Kafka: `ClientMetricsInstance`, `ClientMetricsManager.validateGetRequest` and
//! `validatePushRequest`.

use std::collections::BTreeMap;

use bytestring::ByteString;
use ottla_types::{ErrorCode, Uuid};

use super::otlp::ClientMetric;
use super::subscription::Request;

/// The maximum number of clients, as in Kafka. The one that was silent longest is dropped.
const MAX_CLIENTS: usize = 16_384;
/// The maximum number of values of all clients. A push that does not fit is accepted but not
/// exported.
const MAX_VALUES: usize = 500_000;
/// The minimum time for which a client is remembered.
const MIN_MEMORY_MS: u64 = 60_000;

/// The properties of a push that are validated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushed {
    pub(super) subscription_id: i32,
    pub(super) is_terminating: bool,
    pub(super) is_codec_known: bool,
    pub(super) is_too_large: bool,
}

#[derive(Debug, Default)]
struct Client {
    last_get_ms: Option<u64>,
    last_push_ms: Option<u64>,
    last_seen_ms: u64,
    push_interval_ms: u64,
    is_terminating: bool,
    last_error: Option<ErrorCode>,
    client_id: ByteString,
    metrics: Vec<ClientMetric>,
}

#[derive(Debug, Default)]
pub(super) struct Clients {
    by_id: BTreeMap<Uuid, Client>,
    values: usize,
}

impl Clients {
    /// A client requests its subscription. It may do so before its interval has passed only if its
    /// last push had an outdated subscription or an unsupported compression.
    pub(super) fn on_get(
        &mut self,
        id: Uuid,
        request: &Request,
        now_ms: u64,
    ) -> Result<(), ErrorCode> {
        let client = self.client(id, request, now_ms);
        let last = client.last_get_ms.max(client.last_push_ms);
        let is_due = last.is_none_or(|last| now_ms >= last + client.push_interval_ms);
        let must_ask = matches!(
            client.last_error,
            Some(ErrorCode::UnknownSubscriptionId | ErrorCode::UnsupportedCompressionType)
        );
        if !is_due && !must_ask {
            return Err(ErrorCode::ThrottlingQuotaExceeded);
        }
        if is_due {
            client.last_get_ms = Some(now_ms);
        }
        client.last_error = None;
        Ok(())
    }

    /// A client pushes. The first push after a subscription request may come at once, because
    /// clients distribute their pushes over the interval.
    pub(super) fn on_push(
        &mut self,
        id: Uuid,
        request: &Request,
        pushed: Pushed,
        now_ms: u64,
    ) -> Result<(), ErrorCode> {
        let client = self.client(id, request, now_ms);
        let judged = client.judge(request, pushed, now_ms);
        client.last_error = judged.err();
        client.is_terminating = pushed.is_terminating;
        judged
    }

    pub(super) fn on_error(&mut self, id: Uuid, error: ErrorCode) {
        if let Some(client) = self.by_id.get_mut(&id) {
            client.last_error = Some(error);
        }
    }

    /// Replaces the last push of a client.
    pub(super) fn on_metrics(
        &mut self,
        id: Uuid,
        client_id: ByteString,
        metrics: Vec<ClientMetric>,
        now_ms: u64,
    ) {
        let Some(client) = self.by_id.get_mut(&id) else {
            return;
        };
        self.values -= client.metrics.len();
        client.metrics = match self.values + metrics.len() <= MAX_VALUES {
            true => metrics,
            false => Vec::new(),
        };
        self.values += client.metrics.len();
        client.client_id = client_id;
        client.last_seen_ms = now_ms;
    }

    /// Drops the clients that were silent for three of their intervals.
    pub(super) fn forget_silent(&mut self, now_ms: u64) {
        let values = &mut self.values;
        self.by_id.retain(|_, client| {
            let memory_ms = MIN_MEMORY_MS.max(3 * client.push_interval_ms);
            let stays = now_ms < client.last_seen_ms + memory_ms;
            if !stays {
                *values -= client.metrics.len();
            }
            stays
        });
    }

    pub(super) fn for_each(&self, mut show: impl FnMut(Uuid, &str, &[ClientMetric])) {
        for (id, client) in &self.by_id {
            show(*id, &client.client_id, &client.metrics);
        }
    }

    fn client(&mut self, id: Uuid, request: &Request, now_ms: u64) -> &mut Client {
        if self.by_id.len() >= MAX_CLIENTS && !self.by_id.contains_key(&id) {
            self.forget_silent(now_ms);
            let silent = self.by_id.iter().min_by_key(|(_, it)| it.last_seen_ms);
            if self.by_id.len() >= MAX_CLIENTS
                && let Some(id) = silent.map(|(id, _)| *id)
                && let Some(forgotten) = self.by_id.remove(&id)
            {
                self.values -= forgotten.metrics.len();
            }
        }
        let client = self.by_id.entry(id).or_default();
        client.last_seen_ms = now_ms;
        client.push_interval_ms = u64::try_from(request.push_interval_ms).unwrap_or(0);
        client
    }
}

impl Client {
    fn judge(&mut self, request: &Request, pushed: Pushed, now_ms: u64) -> Result<(), ErrorCode> {
        if self.is_terminating {
            return Err(ErrorCode::InvalidRequest);
        }
        let has_asked = self.last_get_ms > self.last_push_ms;
        let since = self.last_push_ms;
        let is_due = since.is_none_or(|last| now_ms >= last + self.push_interval_ms);
        if has_asked || is_due {
            self.last_push_ms = Some(now_ms);
        } else if !pushed.is_terminating {
            return Err(ErrorCode::ThrottlingQuotaExceeded);
        }
        if pushed.subscription_id != request.subscription_id {
            return Err(ErrorCode::UnknownSubscriptionId);
        }
        if !pushed.is_codec_known {
            return Err(ErrorCode::UnsupportedCompressionType);
        }
        match pushed.is_too_large {
            true => Err(ErrorCode::TelemetryTooLarge),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::telemetry::ClientMetricKind;

    const ID: Uuid = Uuid([1; 16]);
    const GOOD: Pushed = Pushed {
        subscription_id: 5,
        is_terminating: false,
        is_codec_known: true,
        is_too_large: false,
    };

    fn request() -> Request {
        Request {
            subscription_id: 5,
            metrics: vec!["*".to_owned()],
            push_interval_ms: 1000,
        }
    }

    fn metrics(count: usize) -> Vec<ClientMetric> {
        let metric = ClientMetric {
            name: "a".to_owned(),
            kind: ClientMetricKind::Gauge,
            labels: Vec::new(),
            value: 1.0,
        };
        vec![metric; count]
    }

    #[test]
    fn a_client_asks_and_pushes_once_an_interval() {
        let mut clients = Clients::default();
        let (request, throttled) = (request(), Err(ErrorCode::ThrottlingQuotaExceeded));
        assert_eq!(clients.on_get(ID, &request, 0), Ok(()));
        assert_eq!(clients.on_get(ID, &request, 999), throttled);
        assert_eq!(clients.on_push(ID, &request, GOOD, 10), Ok(()));
        assert_eq!(clients.on_push(ID, &request, GOOD, 900), throttled);
        assert_eq!(clients.on_push(ID, &request, GOOD, 1010), Ok(()));
        let last = Pushed {
            is_terminating: true,
            ..GOOD
        };
        assert_eq!(clients.on_push(ID, &request, last, 1020), Ok(()));
        let after = clients.on_push(ID, &request, GOOD, 9000);
        assert_eq!(after, Err(ErrorCode::InvalidRequest));
    }

    #[test]
    fn a_client_whose_subscription_changed_may_ask_at_once() {
        let mut clients = Clients::default();
        let request = request();
        clients.on_get(ID, &request, 0).expect("the first question");
        for (pushed, error) in [
            (
                Pushed {
                    subscription_id: 6,
                    ..GOOD
                },
                ErrorCode::UnknownSubscriptionId,
            ),
            (
                Pushed {
                    is_codec_known: false,
                    ..GOOD
                },
                ErrorCode::UnsupportedCompressionType,
            ),
        ] {
            let now_ms = clients.by_id[&ID].last_seen_ms + 1000;
            assert_eq!(clients.on_push(ID, &request, pushed, now_ms), Err(error));
            assert_eq!(clients.on_get(ID, &request, now_ms + 1), Ok(()));
        }
        let large = Pushed {
            is_too_large: true,
            ..GOOD
        };
        let result = clients.on_push(ID, &request, large, 5000);
        assert_eq!(result, Err(ErrorCode::TelemetryTooLarge));
    }

    #[test]
    fn the_silent_are_forgotten_and_what_is_kept_is_bounded() {
        let mut clients = Clients::default();
        let request = request();
        for number in 0..=MAX_CLIENTS {
            let id = Uuid((number as u128).to_be_bytes());
            clients.on_get(id, &request, number as u64).expect("new");
            clients.on_metrics(id, "c".into(), metrics(40), number as u64);
        }
        assert_eq!(clients.by_id.len(), MAX_CLIENTS);
        assert!(!clients.by_id.contains_key(&Uuid([0; 16])));
        let shown: usize = clients.by_id.values().map(|it| it.metrics.len()).sum();
        assert_eq!(shown, clients.values);
        assert!(shown <= MAX_VALUES && shown > MAX_VALUES - 80, "{shown}");
        clients.forget_silent(MAX_CLIENTS as u64 + MIN_MEMORY_MS);
        assert_eq!((clients.by_id.len(), clients.values), (0, 0));
    }
}
