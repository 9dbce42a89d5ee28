//! Client quotas: counts what clients use, and slows down those that use too much.
//!
//! The answer to a client over its quota is sent at once with `throttle_time_ms`, and its connection is not read for that
//! time (KIP-219). A kind of quota that nobody has costs one load of a flag for each request.
//!
//! Whose quota applies, and how much was used of it, is `ottla-security`'s. Owned here: the locks around it, and which
//! requests count to what.
//!
//! Kafka: `QuotaFactory`, `ClientQuotaManager`, `ClientRequestQuotaManager`, `ControllerMutationQuotaManager`,
//! `RequestHandlerHelper`.

mod client_quota;
mod mutations;
mod request_time;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ottla_config::BrokerConfig;
use ottla_metadata::{ClientQuotasImage, QuotaEntity};
use ottla_net::{AddressRates, RequestContext};
use ottla_security::quota::{ClientLimits, QuotaPart, Rate, Windows};
use ottla_sync::Mutex;

use crate::Broker;

pub(crate) use client_quota::ClientQuota;
use mutations::Mutations;
pub(crate) use mutations::{MutationUsage, SHOWN};
pub(crate) use request_time::throttled;

/// The quotas of clients by what they limit.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// `producer_byte_rate`.
    pub(crate) produce: ClientQuota<Rate>,
    /// `consumer_byte_rate`.
    pub(crate) fetch: ClientQuota<Rate>,
    /// `request_percentage`: of the time of one thread.
    pub(crate) request: ClientQuota<Rate>,
    /// `controller_mutation_rate`.
    pub(crate) mutations: Arc<ClientQuota<MutationUsage>>,
    /// The time that went into requests that are never slowed down.
    exempt: Mutex<Rate>,
}

impl Quotas {
    pub(crate) fn new(config: &BrokerConfig) -> Quotas {
        let windows = Windows::new(config.quota_window_num, config.quota_window_size_seconds);
        let of_controller = Windows::new(
            config.controller_quota_window_num,
            config.controller_quota_window_size_seconds,
        );
        Quotas {
            produce: ClientQuota::new(windows),
            fetch: ClientQuota::new(windows),
            request: ClientQuota::new(windows),
            mutations: Arc::new(ClientQuota::new(of_controller)),
            exempt: Mutex::default(),
        }
    }

    /// The most bytes that a fetch gets, so that a client with a small quota is not paused for each answer.
    pub(crate) fn most_fetched_at_once(&self, context: &RequestContext) -> i32 {
        let most = self.fetch.most_at_once(context);
        most.map_or(i32::MAX, |most| most as i32)
    }

    /// In percent of a thread's time, over the last windows.
    pub(crate) fn exempt_request_time(&self, now_ms: u64) -> f64 {
        let windows = self.request.windows();
        self.exempt.lock().measure(windows, now_ms)
    }
}

/// The limits of each kind, as the metadata has them.
#[derive(Debug, Default)]
struct Limits {
    produce: ClientLimits,
    fetch: ClientLimits,
    request: ClientLimits,
    mutations: ClientLimits,
    addresses: AddressRates,
}

impl Limits {
    fn of(image: &ClientQuotasImage) -> Limits {
        let mut limits = Limits::default();
        for (entity, record) in image.by_entity() {
            let (key, value) = (&*record.key, record.value);
            if let Some(address) = part(entity, "ip") {
                // The controller lets in nothing else; another release's may.
                if key == "connection_creation_rate" {
                    limits.set_address(address, value);
                }
                continue;
            }
            let of_kind = match key {
                "producer_byte_rate" => &mut limits.produce,
                "consumer_byte_rate" => &mut limits.fetch,
                "request_percentage" => &mut limits.request,
                "controller_mutation_rate" => &mut limits.mutations,
                _ => {
                    tracing::warn!("the quota {key} is not known and has no effect");
                    continue;
                }
            };
            of_kind.set(part(entity, "user"), part(entity, "client-id"), value);
        }
        limits
    }

    fn set_address(&mut self, address: QuotaPart, rate: f64) {
        match address {
            QuotaPart::Default => self.addresses.default = Some(rate as i32),
            QuotaPart::Named(text) => match text.parse::<IpAddr>() {
                Ok(address) => {
                    let by_address: &mut BTreeMap<_, _> = &mut self.addresses.by_address;
                    by_address.insert(address.to_canonical(), rate as i32);
                }
                Err(_) => {
                    tracing::warn!(
                        "the quota of ip {text} has no effect: it is no address; set it for an address"
                    );
                }
            },
        }
    }
}

fn part(entity: &QuotaEntity, entity_type: &str) -> Option<QuotaPart> {
    let (_, name) = entity.iter().find(|(it, _)| *it == *entity_type)?;
    Some(match name {
        Some(name) => QuotaPart::Named(name.clone()),
        None => QuotaPart::Default,
    })
}

impl Broker {
    /// Puts the quotas of an image in force.
    pub(crate) fn follow_quotas(&self, image: &ClientQuotasImage) {
        let limits = Limits::of(image);
        let quotas = &self.quotas;
        quotas.produce.set(limits.produce);
        quotas.fetch.set(limits.fetch);
        quotas.request.set(limits.request);
        quotas.mutations.set(limits.mutations);
        self.network.address_quotas.set(limits.addresses);
    }

    /// Has nothing more read from the client for so long.
    pub(crate) fn pause(&self, context: &RequestContext, throttle_ms: u64) {
        // The broker that has forwarded the request pauses its client itself.
        if throttle_ms > 0 && !context.is_forwarded {
            let until_ms = self.now_ms().saturating_add(throttle_ms);
            context.connection.mute_until(until_ms);
        }
    }

    /// Counts a Produce, and pauses its client where that is due; for how long, the answer says.
    pub(crate) fn count_produce(&self, context: &RequestContext, worked: Option<Duration>) -> u64 {
        let quotas = &self.quotas;
        let bytes = context.request_bytes as f64;
        let of_bytes = quotas.produce.record(context, bytes, self.now_ms());
        let of_time = worked.map_or(0, |worked| self.count_time(context, worked));
        self.pause_for_bytes(context, &quotas.produce, of_bytes, of_time)
    }

    /// The same of a Fetch that is to be answered with so many bytes. Where its client has to pause, it gets none of them,
    /// and they do not count.
    pub(crate) fn count_fetch(
        &self,
        context: &RequestContext,
        bytes: u64,
        worked: Option<Duration>,
    ) -> u64 {
        let quotas = &self.quotas;
        let (bytes, now_ms) = (bytes as f64, self.now_ms());
        let of_bytes = quotas.fetch.record(context, bytes, now_ms);
        let of_time = worked.map_or(0, |worked| self.count_time(context, worked));
        let throttle_ms = self.pause_for_bytes(context, &quotas.fetch, of_bytes, of_time);
        if throttle_ms > 0 {
            quotas.fetch.take_back(context, bytes, now_ms);
        }
        throttle_ms
    }

    /// The same of a ShareFetch. Its records are locked for the client already: it gets them, they count, and it pauses
    /// afterwards.
    pub(crate) fn count_share_fetch(
        &self,
        context: &RequestContext,
        bytes: u64,
        worked: Option<Duration>,
    ) -> u64 {
        let quotas = &self.quotas;
        let of_bytes = quotas.fetch.record(context, bytes as f64, self.now_ms());
        let of_time = worked.map_or(0, |worked| self.count_time(context, worked));
        self.pause_for_bytes(context, &quotas.fetch, of_bytes, of_time)
    }

    fn pause_for_bytes(
        &self,
        context: &RequestContext,
        quota: &ClientQuota<Rate>,
        of_bytes: u64,
        of_time: u64,
    ) -> u64 {
        let now_ms = self.now_ms();
        match of_bytes > of_time {
            true => quota.on_throttled(context, of_bytes, now_ms),
            false => self.quotas.request.on_throttled(context, of_time, now_ms),
        }
        let throttle_ms = of_bytes.max(of_time);
        self.pause(context, throttle_ms);
        throttle_ms
    }

    /// Counts the time that a request took of a thread; how long its client has to pause for it.
    fn count_time(&self, context: &RequestContext, worked: Duration) -> u64 {
        let request = &self.quotas.request;
        let throttle_ms = request.record(context, percent(worked), self.now_ms());
        throttle_ms.min(request.windows().length_ms)
    }

    /// Counts the time of a request that is never slowed down. `None` where no time is counted.
    pub(crate) fn count_exempt_time(&self, worked: Option<Duration>) {
        let Some(worked) = worked else {
            return;
        };
        let windows = self.quotas.request.windows();
        let mut exempt = self.quotas.exempt.lock();
        exempt.record(windows, percent(worked), self.now_ms());
    }

    /// The context with what the changes of topics count to, where the client has a quota for them. Where that is strict,
    /// the client knows the error that refuses them.
    pub(crate) fn count_mutations<'a>(
        &self,
        context: &'a RequestContext,
        is_strict: bool,
    ) -> Cow<'a, RequestContext> {
        let mutations = &self.quotas.mutations;
        if !mutations.is_set() {
            return Cow::Borrowed(context);
        }
        let mut context = context.clone();
        let quota = Mutations::new(mutations, &self.context, &context, is_strict);
        context.mutation_quota = Some(Arc::new(quota));
        Cow::Owned(context)
    }

    /// How long the client has to pause for the changes that were decided here, or elsewhere, which `answered` says.
    pub(crate) fn mutation_throttle_ms(&self, context: &RequestContext, answered: i32) -> i32 {
        let Some(quota) = &context.mutation_quota else {
            return answered;
        };
        let throttle_ms = quota.throttle_time_ms();
        let mutations = &self.quotas.mutations;
        mutations.on_throttled(context, throttle_ms, self.now_ms());
        answered.max(wire_ms(throttle_ms))
    }
}

/// A request's share of one thread's second.
fn percent(worked: Duration) -> f64 {
    worked.as_secs_f64() * 100.0
}

/// As the responses carry it.
pub(crate) fn wire_ms(throttle_ms: u64) -> i32 {
    i32::try_from(throttle_ms).unwrap_or(i32::MAX)
}

#[cfg(test)]
mod tests {
    use ottla_metadata::{MetadataImage, Provenance};
    use ottla_protocol::metadata_records::client_quota_record::EntityData;
    use ottla_protocol::metadata_records::{ClientQuotaRecord, MetadataRecord};

    use super::*;

    #[test]
    fn each_key_of_the_metadata_is_a_limit_of_its_kind() {
        let record = |entity: &[(&str, Option<&str>)], key: &str, value| {
            MetadataRecord::ClientQuota(ClientQuotaRecord {
                entity: entity
                    .iter()
                    .map(|(entity_type, name)| EntityData {
                        entity_type: (*entity_type).into(),
                        entity_name: name.map(Into::into),
                        ..Default::default()
                    })
                    .collect(),
                key: key.into(),
                value,
                ..Default::default()
            })
        };
        let (user, any) = (("user", Some("u")), ("client-id", None));
        let records = [
            record(&[user], "producer_byte_rate", 1.0),
            record(&[user, any], "consumer_byte_rate", 2.0),
            record(&[any], "request_percentage", 3.0),
            record(&[("user", None)], "controller_mutation_rate", 4.0),
            record(&[("ip", None)], "connection_creation_rate", 5.0),
            record(
                &[("ip", Some("::ffff:10.0.0.1"))],
                "connection_creation_rate",
                6.0,
            ),
            record(&[user], "of_a_later_release", 7.0),
        ];
        let image = MetadataImage::empty().apply(&records, Provenance::EMPTY);
        let limits = Limits::of(&image.unwrap().0.client_quotas);
        let of = |limits: &ClientLimits| limits.applied("u", "c").limit;
        assert_eq!(of(&limits.produce), Some(1.0));
        assert_eq!(of(&limits.fetch), Some(2.0));
        assert_eq!(of(&limits.request), Some(3.0));
        assert_eq!(of(&limits.mutations), Some(4.0));
        let expected = AddressRates {
            by_address: BTreeMap::from([("10.0.0.1".parse().unwrap(), 6)]),
            default: Some(5),
        };
        assert_eq!(limits.addresses, expected);
    }
}
