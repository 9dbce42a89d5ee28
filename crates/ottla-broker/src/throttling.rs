//! Charges requests to client quotas, and throttles clients.
//!
//! This file defines which requests are charged to which quota; `quotas` measures the usage.
//!
//! Kafka: `ClientQuotaManager`, `ClientRequestQuotaManager`, `RequestHandlerHelper`.

mod request_time;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use ottla_metadata::ClientQuotasImage;
use ottla_net::RequestContext;
use ottla_security::quota::Rate;

use crate::Broker;
use crate::quotas::{ClientQuota, Limits, Mutations};

pub(crate) use request_time::throttled;

impl Broker {
    /// Applies the quotas of an image.
    pub(crate) fn follow_quotas(&self, image: &ClientQuotasImage) {
        let limits = Limits::of(image);
        let quotas = &self.quotas;
        quotas.produce.set(limits.produce);
        quotas.fetch.set(limits.fetch);
        quotas.request.set(limits.request);
        quotas.mutations.set(limits.mutations);
        self.network.address_quotas.set(limits.addresses);
    }

    /// Mutes the client's connection for this time.
    pub(crate) fn pause(&self, context: &RequestContext, throttle_ms: u64) {
        // The broker that forwarded the request throttles its client itself.
        if throttle_ms > 0 && !context.is_forwarded {
            let until_ms = self.now_ms().saturating_add(throttle_ms);
            context.connection.mute_until(until_ms);
        }
    }

    /// Charges a Produce, and throttles its client if necessary. Returns the throttle time for the
    /// response.
    pub(crate) fn count_produce(&self, context: &RequestContext, worked: Option<Duration>) -> u64 {
        let quotas = &self.quotas;
        if worked.is_none() && !quotas.produce.is_set() {
            return 0;
        }
        let bytes = context.request_bytes as f64;
        let of_bytes = quotas.produce.record(context, bytes, self.now_ms());
        let of_time = worked.map_or(0, |worked| self.count_time(context, worked));
        self.pause_for_bytes(context, &quotas.produce, of_bytes, of_time)
    }

    /// Charges a Fetch whose response has this size. If its client is throttled, it receives no
    /// records, and they are not charged.
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

    /// Charges a ShareFetch. Its records are already locked for the client, so it receives them,
    /// they are charged, and it is throttled afterwards.
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

    /// Charges the time that a request took of a thread. Returns the throttle time.
    fn count_time(&self, context: &RequestContext, worked: Duration) -> u64 {
        let request = &self.quotas.request;
        let throttle_ms = request.record(context, percent(worked), self.now_ms());
        throttle_ms.min(request.windows().length_ms)
    }

    /// Records the time of a request that is never throttled. `None` if time is not measured.
    pub(crate) fn count_exempt_time(&self, worked: Option<Duration>) {
        let Some(worked) = worked else {
            return;
        };
        let windows = self.quotas.request.windows();
        let mut exempt = self.quotas.exempt.lock();
        exempt.record(windows, percent(worked), self.now_ms());
    }

    /// Adds the quota that changes of topics are charged to, if the client has one. `is_strict`:
    /// the client knows the error for an exceeded quota.
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

    /// The throttle time for the changes that were decided here, or on another node, which reported
    /// `answered`.
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

/// The share of one thread's second, in percent.
fn percent(worked: Duration) -> f64 {
    worked.as_secs_f64() * 100.0
}

/// The throttle time in the type of responses.
pub(crate) fn wire_ms(throttle_ms: u64) -> i32 {
    i32::try_from(throttle_ms).unwrap_or(i32::MAX)
}
