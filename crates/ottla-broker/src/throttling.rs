//! Counts requests to the quotas of their clients, and pauses those that use too much.
//!
//! Which requests count to what is here; what was used, and whose limit applies, is in `quotas`.
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
