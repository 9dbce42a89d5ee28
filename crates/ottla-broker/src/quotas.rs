//! Client quotas: measures usage, and throttles clients that exceed their limits.
//!
//! A client over its quota receives its response at once, with `throttle_time_ms`, and its
//! connection is not read for that time (KIP-219). If no client has a quota of some kind, it costs
//! one load of a flag per request.
//!
//! `ottla-security` determines the applicable limit and measures usage. This module owns the locks,
//! and defines which requests are charged to which quota.
//!
//! Kafka: `QuotaFactory`, `ClientQuotaManager`, `ClientRequestQuotaManager`,
//! `ControllerMutationQuotaManager`, `RequestHandlerHelper`.

mod client_quota;
mod mutations;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_metadata::{ClientQuotasImage, QuotaEntity};
use ottla_net::{AddressRates, RequestContext};
use ottla_security::quota::{ClientLimits, QuotaPart, Rate, Windows};
use ottla_sync::Mutex;

pub(crate) use client_quota::ClientQuota;
pub(crate) use mutations::{MutationUsage, Mutations, SHOWN};

/// The client quotas by kind.
#[derive(Debug)]
pub(crate) struct Quotas {
    /// `producer_byte_rate`.
    pub(crate) produce: ClientQuota<Rate>,
    /// `consumer_byte_rate`.
    pub(crate) fetch: ClientQuota<Rate>,
    /// `request_percentage`: in percent of one thread's time.
    pub(crate) request: ClientQuota<Rate>,
    /// `controller_mutation_rate`.
    pub(crate) mutations: Arc<ClientQuota<MutationUsage>>,
    /// The time of requests that are never throttled.
    pub(crate) exempt: Mutex<Rate>,
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

    /// The maximum size of a fetch response, so that a client with a small quota is not throttled
    /// after each one.
    pub(crate) fn most_fetched_at_once(&self, context: &RequestContext) -> i32 {
        let most = self.fetch.most_at_once(context);
        most.map_or(i32::MAX, |most| most as i32)
    }

    /// In percent of one thread's time, over the last windows.
    pub(crate) fn exempt_request_time(&self, now_ms: u64) -> f64 {
        let windows = self.request.windows();
        self.exempt.lock().measure(windows, now_ms)
    }
}

/// The limits of each kind in the metadata.
#[derive(Debug, Default)]
pub(crate) struct Limits {
    pub(crate) produce: ClientLimits,
    pub(crate) fetch: ClientLimits,
    pub(crate) request: ClientLimits,
    pub(crate) mutations: ClientLimits,
    pub(crate) addresses: AddressRates,
}

impl Limits {
    pub(crate) fn of(image: &ClientQuotasImage) -> Limits {
        let mut limits = Limits::default();
        for (entity, record) in image.by_entity() {
            let (key, value) = (&*record.key, record.value);
            if let Some(address) = part(entity, "ip") {
                // The controller accepts no other key; a newer release may.
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
                    tracing::warn!("the quota {key} is unknown and has no effect");
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
                        "the quota of ip {text} has no effect: it is not an address; set it for an address"
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

#[cfg(test)]
mod tests {
    use ottla_metadata::{MetadataImage, Provenance};
    use ottla_protocol::metadata_records::client_quota_record::EntityData;
    use ottla_protocol::metadata_records::{ClientQuotaRecord, MetadataRecord};

    use super::*;

    #[test]
    fn each_quota_key_sets_its_limit() {
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
