//! Which client may send requests when, and the last push of each. Pure: time is an argument.
//! Kafka: `ClientMetricsInstance`, `ClientMetricsManager.validateGetRequest` and
//! `validatePushRequest`.

use std::collections::BTreeMap;

use ottla_types::{ErrorCode, Uuid};

use super::otlp::ClientMetric;
use super::subscription::Request;

/// The maximum number of clients, as in Kafka. The client that was silent longest is dropped.
const MAX_CLIENTS: usize = 16_384;
/// The maximum number of values of all clients. Where it or the bound in bytes is reached, the
/// oldest pushes are dropped.
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
    kept: Option<ClientPush>,
}

/// The last push of a client.
#[derive(Debug)]
struct ClientPush {
    /// The place among all pushes.
    number: u64,
    bytes: usize,
    client_id: Box<str>,
    metrics: Vec<ClientMetric>,
}

impl ClientPush {
    fn new(number: u64, client_id: &str, mut metrics: Vec<ClientMetric>) -> ClientPush {
        metrics.shrink_to_fit();
        // The client ID and the name of the metric are exported with each value.
        let values = metrics
            .iter()
            .map(|metric| client_id.len() + metric.bytes());
        ClientPush {
            number,
            bytes: client_id.len() + values.sum::<usize>(),
            client_id: client_id.into(),
            metrics,
        }
    }
}

#[derive(Debug)]
pub(super) struct Clients {
    by_id: BTreeMap<Uuid, Client>,
    /// The clients whose last push is kept, the oldest push first.
    by_push: BTreeMap<u64, Uuid>,
    /// The number of pushes so far.
    pushes: u64,
    /// Of all kept pushes.
    values: usize,
    bytes: usize,
    max_bytes: usize,
}

impl Clients {
    /// Keeps at most `max_bytes` of metrics, of all clients together.
    pub(super) fn new(max_bytes: usize) -> Clients {
        Clients {
            by_id: BTreeMap::new(),
            by_push: BTreeMap::new(),
            pushes: 0,
            values: 0,
            bytes: 0,
            max_bytes,
        }
    }

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

    /// Replaces the last push of a client. The oldest pushes of other clients are dropped to make
    /// room. A push above the size limit is not kept.
    pub(super) fn on_metrics(
        &mut self,
        id: Uuid,
        client_id: &str,
        metrics: Vec<ClientMetric>,
        now_ms: u64,
    ) {
        let Some(client) = self.by_id.get_mut(&id) else {
            return;
        };
        client.last_seen_ms = now_ms;
        let replaced = client.kept.take();
        self.on_dropped(replaced);
        self.pushes += 1;
        let kept = ClientPush::new(self.pushes, client_id, metrics);
        if kept.metrics.len() > MAX_VALUES || kept.bytes > self.max_bytes {
            return;
        }
        while self.values + kept.metrics.len() > MAX_VALUES
            || self.bytes + kept.bytes > self.max_bytes
        {
            let Some((_, oldest)) = self.by_push.pop_first() else {
                break;
            };
            let oldest = self.by_id.get_mut(&oldest);
            let dropped = oldest.and_then(|client| client.kept.take());
            self.on_dropped(dropped);
        }
        self.values += kept.metrics.len();
        self.bytes += kept.bytes;
        self.by_push.insert(kept.number, id);
        if let Some(client) = self.by_id.get_mut(&id) {
            client.kept = Some(kept);
        }
    }

    /// Drops the clients that were silent for three of their intervals.
    pub(super) fn forget_silent(&mut self, now_ms: u64) {
        let silent = self.by_id.extract_if(.., |_, client| {
            let memory_ms = MIN_MEMORY_MS.max(3 * client.push_interval_ms);
            now_ms >= client.last_seen_ms + memory_ms
        });
        let dropped: Vec<_> = silent.map(|(_, client)| client.kept).collect();
        for kept in dropped {
            self.on_dropped(kept);
        }
    }

    fn on_dropped(&mut self, kept: Option<ClientPush>) {
        if let Some(kept) = kept {
            self.by_push.remove(&kept.number);
            self.values -= kept.metrics.len();
            self.bytes -= kept.bytes;
        }
    }

    pub(super) fn for_each(&self, mut show: impl FnMut(Uuid, &str, &[ClientMetric])) {
        for (id, client) in &self.by_id {
            if let Some(kept) = &client.kept {
                show(*id, &kept.client_id, &kept.metrics);
            }
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
                self.on_dropped(forgotten.kept);
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

    const AMPLE: usize = 1 << 30;

    fn metrics(count: usize) -> Vec<ClientMetric> {
        let metric = ClientMetric {
            name: "a".into(),
            kind: ClientMetricKind::Gauge,
            labels: Box::default(),
            value: 1.0,
        };
        vec![metric; count]
    }

    #[test]
    fn a_client_may_ask_and_push_once_per_interval() {
        let mut clients = Clients::new(AMPLE);
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
        let mut clients = Clients::new(AMPLE);
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
    fn silent_clients_expire_and_their_number_is_bounded() {
        let mut clients = Clients::new(AMPLE);
        let request = request();
        for number in 0..=MAX_CLIENTS {
            let id = Uuid((number as u128).to_be_bytes());
            clients.on_get(id, &request, number as u64).expect("new");
            clients.on_metrics(id, "c", metrics(40), number as u64);
        }
        assert_eq!(clients.by_id.len(), MAX_CLIENTS);
        assert!(!clients.by_id.contains_key(&Uuid([0; 16])));
        assert_sums(&clients);
        let shown = clients.values;
        assert!(shown <= MAX_VALUES && shown > MAX_VALUES - 80, "{shown}");
        clients.forget_silent(MAX_CLIENTS as u64 + MIN_MEMORY_MS);
        assert_eq!((clients.by_id.len(), clients.values), (0, 0));
        assert_sums(&clients);
    }

    /// Checks that the sums match the kept pushes.
    fn assert_sums(clients: &Clients) {
        let (mut pushes, mut values, mut bytes) = (0, 0, 0);
        for kept in clients.by_id.values().filter_map(|it| it.kept.as_ref()) {
            pushes += 1;
            values += kept.metrics.len();
            bytes += kept.bytes;
            assert!(clients.by_push.contains_key(&kept.number));
        }
        let sums = (clients.by_push.len(), clients.values, clients.bytes);
        assert_eq!(sums, (pushes, values, bytes));
    }

    #[test]
    fn the_oldest_pushes_are_evicted_at_the_byte_limit() {
        let request = request();
        let push_bytes = ClientPush::new(0, "c", metrics(10)).bytes;
        let mut clients = Clients::new(3 * push_bytes);
        let ids = [1, 2, 3, 4].map(|number| Uuid([number; 16]));
        let push = |clients: &mut Clients, id: Uuid, client_id: &str, count| {
            // Refused if it is too early; the client is known then too.
            let _ = clients.on_get(id, &request, 0);
            clients.on_metrics(id, client_id, metrics(count), 0);
            assert_sums(clients);
            let mut shown = Vec::new();
            clients.for_each(|id, _, _| shown.push(id.0[0]));
            shown
        };
        for id in &ids[..3] {
            push(&mut clients, *id, "c", 10);
        }
        // A client that pushes again is no longer the oldest, and does not take room twice.
        assert_eq!(push(&mut clients, ids[0], "c", 10), [1, 2, 3]);
        assert_eq!(push(&mut clients, ids[3], "c", 10), [1, 3, 4]);
        assert_eq!(push(&mut clients, ids[1], "c", 20), [2, 4]);
        // Larger than the bound: dropped, and nothing makes room for it.
        assert_eq!(push(&mut clients, ids[2], "c", 100), [2, 4]);
        let long = "c".repeat(push_bytes);
        assert_eq!(push(&mut clients, ids[2], &long, 10), [2, 4]);
    }
}
