//! `request_percentage`: the time that requests take of the threads that serve them.
//!
//! Only the time in which a request is processed counts, not the time in which it waits.

use std::future::poll_fn;
use std::pin::pin;
use std::time::Duration;

use ottla_net::RequestContext;
use ottla_protocol::{ApiKey, Message};
use ottla_security::Principal;

use super::wire_ms;
use crate::Broker;
use crate::endpoint::Endpoint;

/// The quota that the time of a request is charged to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum CountsTo {
    Client,
    /// Exempt, because the cluster needs it.
    Nobody,
    /// The handler charges it together with the bytes.
    ItsHandler,
    /// The embedded request is charged.
    WhatIsInside,
}

fn counts_to(api_key: ApiKey, endpoint: Endpoint) -> CountsTo {
    use ApiKey::*;
    match (api_key, endpoint) {
        (Fetch | ShareFetch, Endpoint::Broker) => CountsTo::ItsHandler,
        (WriteTxnMarkers, Endpoint::Broker) => CountsTo::Nobody,
        (
            AlterPartition | Fetch | FetchSnapshot | Vote | BeginQuorumEpoch | EndQuorumEpoch
            | DescribeQuorum | AddRaftVoter | RemoveRaftVoter | UpdateRaftVoter,
            Endpoint::Controller,
        ) => CountsTo::Nobody,
        (Envelope, _) => CountsTo::WhatIsInside,
        _ => CountsTo::Client,
    }
}

/// Whether a client asks for versions before its login. Kafka answers it without the quotas. Otherwise
/// anyone who can connect could use up those of a client ID.
fn is_before_login(context: &RequestContext) -> bool {
    context.api_key == ApiKey::ApiVersions
        && context.listener().protocol.uses_sasl()
        && *context.principal() == Principal::anonymous()
}

/// Awaits the response of a request, charges its time, and throttles its client if this quota, or
/// another one according to the response, is exceeded.
pub(crate) async fn throttled<R: Message>(
    broker: &Broker,
    context: &RequestContext,
    answer: impl Future<Output = R>,
) -> R {
    let counts_to = charged(broker, context);
    let is_charged = matches!(counts_to, CountsTo::Client | CountsTo::Nobody);
    // Pinned here, so that it is not moved into one future after the other.
    let (mut response, worked) = timed(pin!(answer), is_charged).await;
    let of_others = response.throttle_time_ms();
    if let Some(throttle_ms) = charge(broker, context, counts_to, worked, of_others) {
        response.set_throttle_time_ms(throttle_ms);
    }
    response
}

/// What the time of this request is charged to, if the quota is set anywhere.
fn charged(broker: &Broker, context: &RequestContext) -> CountsTo {
    match broker.quotas.request.is_set() && !is_before_login(context) {
        true => counts_to(context.api_key, Endpoint::of(context.listener())),
        false => CountsTo::ItsHandler,
    }
}

/// Charges the time of a request, and throttles its client. `of_others` is the throttle time of the response; returns the
/// time of this quota if it is longer. Not generic, because each handler has a copy of [`throttled`].
fn charge(
    broker: &Broker,
    context: &RequestContext,
    counts_to: CountsTo,
    worked: Duration,
    of_others: i32,
) -> Option<i32> {
    let others_ms = of_others.max(0) as u64;
    match counts_to {
        CountsTo::ItsHandler | CountsTo::WhatIsInside => {
            broker.pause(context, others_ms);
            None
        }
        CountsTo::Nobody => {
            broker.count_exempt_time(Some(worked));
            None
        }
        CountsTo::Client => {
            let throttle_ms = broker.count_time(context, worked);
            let is_longer = wire_ms(throttle_ms) > of_others;
            if is_longer {
                let request = &broker.quotas.request;
                request.on_throttled(context, throttle_ms, broker.now_ms());
            }
            broker.pause(context, throttle_ms.max(others_ms));
            is_longer.then(|| wire_ms(throttle_ms))
        }
    }
}

/// The result of a future, and how long it was polled, if that `is_measured`. One function for both, because each place
/// that polls a handler gets a copy of its code.
async fn timed<R>(work: impl Future<Output = R>, is_measured: bool) -> (R, Duration) {
    let mut work = pin!(work);
    let mut worked = Duration::ZERO;
    let result = poll_fn(|context| {
        let began = is_measured.then(ottla_sync::time::now);
        let polled = work.as_mut().poll(context);
        if let Some(began) = began {
            worked += ottla_sync::time::elapsed(began);
        }
        polled
    });
    let result = result.await;
    (result, worked)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ottla_config::SecurityProtocol;
    use ottla_net::{ClientIdentity, Connection, ListenerInfo};
    use ottla_testkit::peer::client_context;

    use super::*;

    #[test]
    fn versions_before_a_login_count_for_no_client() {
        let mut context = client_context(ApiKey::ApiVersions, 3);
        assert!(!is_before_login(&context));
        let from = context.peer_addr();
        let listener = ListenerInfo {
            protocol: SecurityProtocol::SaslSsl,
            ..context.listener().clone()
        };
        context.connection = Arc::new(Connection::new(2, Arc::new(listener), from, 0));
        assert!(is_before_login(&context));
        let alice = ClientIdentity::new(Principal::user("alice"), from.ip());
        context.identity = Arc::new(alice);
        assert!(!is_before_login(&context));
    }

    #[tokio::test]
    async fn waiting_does_not_count() {
        const WAIT: Duration = Duration::from_secs(3);
        let work = async {
            std::thread::sleep(Duration::from_millis(20));
            tokio::time::sleep(WAIT).await;
            std::thread::sleep(Duration::from_millis(20));
            7
        };
        let (result, worked) = timed(work, true).await;
        assert_eq!(result, 7);
        assert!(worked >= Duration::from_millis(40), "{worked:?}");
        assert!(worked < WAIT, "{worked:?}");
    }

    #[test]
    fn cluster_requests_count_for_no_client() {
        for (api_key, endpoint, expected) in [
            (ApiKey::Metadata, Endpoint::Broker, CountsTo::Client),
            (ApiKey::Fetch, Endpoint::Broker, CountsTo::ItsHandler),
            (ApiKey::Fetch, Endpoint::Controller, CountsTo::Nobody),
            (ApiKey::DescribeQuorum, Endpoint::Broker, CountsTo::Client),
            (
                ApiKey::Envelope,
                Endpoint::Controller,
                CountsTo::WhatIsInside,
            ),
        ] {
            assert_eq!(counts_to(api_key, endpoint), expected, "{api_key}");
        }
    }
}
