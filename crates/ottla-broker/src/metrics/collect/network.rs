//! `kafka.server:type=socket-server-metrics`, and the threads that serve connections.

use ottla_context::ListenerTls;

use super::counted::counted;
use crate::Broker;
use ottla_metrics::Metric;
use ottla_metrics::family::Family;

pub(super) fn collect(broker: &Broker, families: &mut Vec<Family>) {
    let mut connection_count = Family::gauge(
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections by listener",
    );
    for (listener, count) in broker.open_connections() {
        // Ottla does not assign connections to network processors.
        let labels = [("listener", listener), ("networkProcessor", "0".to_owned())];
        connection_count.push(labels, count as f64);
    }
    families.push(connection_count);
    #[rustfmt::skip]
    let counters = [
        (Metric::ConnectionsAccepted, "kafka_server_socket_server_metrics_connection_creation", "Connections accepted"),
        (Metric::ConnectionsClosed, "kafka_server_socket_server_metrics_connection_close", "Connections closed"),
        (Metric::ConnectionsIdle, "ottla_connections_idle", "Connections closed after connections.max.idle.ms"),
        (Metric::ExpiredConnectionsKilled, "kafka_server_socket_server_metrics_expired_connections_killed_count", "Connections closed because a request came after their session had expired"),
        (Metric::SuccessfulAuthentications, "kafka_server_socket_server_metrics_successful_authentication", "Logins with SASL, and TLS handshakes of clients that need none"),
        (Metric::SuccessfulAuthenticationsWithoutReauth, "kafka_server_socket_server_metrics_successful_authentication_no_reauth", "Logins of clients that cannot reauthenticate on their connection"),
        (Metric::FailedAuthentications, "kafka_server_socket_server_metrics_failed_authentication", "Peers that failed to authenticate over TLS or SASL"),
        (Metric::SuccessfulReauthentications, "kafka_server_socket_server_metrics_successful_reauthentication", "Successful reauthentications"),
        (Metric::FailedReauthentications, "kafka_server_socket_server_metrics_failed_reauthentication", "Failed reauthentications"),
        (Metric::BytesReceived, "kafka_server_socket_server_metrics_incoming_byte", "Bytes received"),
        (Metric::BytesSent, "kafka_server_socket_server_metrics_outgoing_byte", "Bytes sent"),
        (Metric::ConnectionsRefused, "ottla_connections_refused", "Connections refused because of a limit"),
        (Metric::AcceptsPaused, "ottla_accepts_paused", "Times that a listener paused because a connection limit was reached or no file handle was free"),
        (Metric::ConnectionsDelayed, "ottla_connections_delayed", "Connections delayed because of max.connection.creation.rate"),
        (Metric::ConnectionsClosedForMemory, "ottla_connections_closed_for_memory", "Connections closed because they sent part of a request, or read almost nothing of their responses, while others waited for memory"),
        (Metric::RefusedForMemory, "ottla_requests_refused_for_memory", "New topics, partitions, members of groups, committed offsets, producer IDs, transactional IDs and delegation tokens refused because the heap was above its budget"),
        (Metric::ConnectionsThrottled, "ottla_connections_throttled", "Connections closed over the quota connection_creation_rate of their address"),
        (Metric::MalformedRequests, "ottla_malformed_requests", "Connections closed because of data that is not a request"),
        (Metric::FailedAuthentications, "ottla_failed_authentications", "Peers that failed to authenticate over TLS or SASL"),
        (Metric::ServerErrors, "ottla_server_errors", "Requests that failed with an internal error"),
    ];
    families.extend(counted(broker, counters));
    let network = &broker.network;
    let expired = broker.context.metrics.get(Metric::ExpiredConnectionsKilled) as f64;
    #[rustfmt::skip]
    let gauges = [
        ("kafka_network_socketserver_expiredconnectionskilledcount", "Connections closed because a request came after their session had expired, since the start", expired),
        ("kafka_network_socketserver_memorypoolavailable", "Bytes still available to requests, of queued.max.request.bytes", network.request_memory.available_bytes() as f64),
    ];
    families.extend(Family::gauges(gauges));
    tls(broker, families);
    authorizer(broker, families);
    #[rustfmt::skip]
    let gauges = [
        ("ottla_request_memory_bound_bytes", "Maximum bytes of requests: queued.max.request.bytes, or a share of the available memory", network.request_memory.total_bytes() as f64),
        ("ottla_login_memory_available_bytes", "Bytes still available to messages of clients that have not logged in", network.login_memory.available_bytes() as f64),
        ("ottla_decoded_memory_available_bytes", "Bytes still available to decoded requests", network.decoded_memory.available_bytes() as f64),
        ("ottla_unsent_answer_bytes", "Bytes of responses in memory that their clients do not read", network.unsent_answers.bytes() as f64),
    ];
    families.extend(Family::gauges(gauges));
    fetch_sessions(broker, families);
    if let Some(idle) = broker.context.metrics.worker_idle.ratio() {
        let help = "Share of time that the threads that serve requests were idle, 0 to 1, in the \
                    last minute; in Ottla the same threads serve the network";
        let names = [
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            // The exporter's KRaft rules produce this name; the rules of Strimzi produce the name
            // above.
            "kafka_network_socketserver_networkprocessoravgidlepercent",
        ];
        families.extend(names.map(|name| Family::gauge(name, help).value(idle)));
    }
}

/// `kafka.server:type=FetchSessionCache`.
fn fetch_sessions(broker: &Broker, families: &mut Vec<Family>) {
    let cached = broker.fetch_sessions.cached();
    #[rustfmt::skip]
    let gauges = [
        ("kafka_server_fetchsessioncache_numincrementalfetchsessions", "Fetch sessions that are kept for clients", cached.sessions as f64),
        ("kafka_server_fetchsessioncache_numincrementalfetchpartitionscached", "Partitions of all fetch sessions", cached.partitions as f64),
    ];
    families.extend(Family::gauges(gauges));
    let name = "kafka_server_fetchsessioncache_incrementalfetchsessionevictions";
    let evictions = Family::counter(name, "Fetch sessions evicted in favour of others");
    families.push(evictions.value(cached.evictions as f64));
}

/// The decisions about requests. Without an authorizer there are none.
fn authorizer(broker: &Broker, families: &mut Vec<Family>) {
    let decisions = broker.authorizer.decisions();
    #[rustfmt::skip]
    let counters = [
        ("ottla_authorizer_allowed", "Decisions of the authorizer to allow an operation on a resource", decisions.allowed as f64),
        ("ottla_authorizer_denied", "Decisions of the authorizer to deny an operation on a resource, also for resources that a response leaves out", decisions.denied as f64),
    ];
    families.extend(Family::counters(counters));
    let acls = Family::gauge("ottla_authorizer_acls", "ACLs of the cluster");
    families.push(acls.value(broker.metadata().kept.acls.len() as f64));
    let mut lost = Family::counter(
        "ottla_authorizer_audit_lost",
        "Decisions that are missing in the file of ottla.audit.file and in the topic of ottla.audit.topic",
    );
    for (to, count) in broker.authorizer.lost_decisions() {
        lost.push([("to", to.to_owned())], count as f64);
    }
    families.push(lost);
}

/// The remaining validity of this node's certificates, and who encrypts.
fn tls(broker: &Broker, families: &mut Vec<Family>) {
    let mut expiry = Family::gauge(
        "ottla_tls_certificate_expiry_seconds",
        "Seconds until a certificate that this node shows expires, its own or that of an issuer; negative afterwards",
    );
    let now = ottla_sync::time::wall_clock();
    for ListenerTls { listener, context } in broker.context.tls.all() {
        for (alias, chain) in context.chains() {
            for facts in chain {
                let labels = [
                    ("listener", listener.clone()),
                    ("alias", alias.clone()),
                    ("subject", facts.subject.clone()),
                ];
                expiry.push(labels, facts.seconds_left(now) as f64);
            }
        }
    }
    families.push(expiry);
    let by_kernel = Family::gauge(
        "ottla_kernel_tls_connections",
        "Open TLS connections for which the kernel encrypts (ottla.ssl.kernel.enable)",
    );
    families.push(by_kernel.value(broker.network.kernel_tls_connections() as f64));
}
