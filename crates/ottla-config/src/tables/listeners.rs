//! Settings of listeners, connections and sockets.
//!
//! Source of names, types, defaults and valid values: Kafka 4.3.1, `SocketServerConfigs`.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "advertised.listeners"                   List   null                           (non_empty_list) High   ReadOnly SUPPORTED;
    "connections.max.idle.ms"                Long   "600000"                       _                Medium ReadOnly SUPPORTED;
    "early.start.listeners"                  List   null                           (list)           High   ReadOnly STARTED_LISTENERS;
    "inter.broker.listener.name"             String null                           _                Medium ReadOnly SUPPORTED;
    "listener.security.protocol.map"         String "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT" _                Low    PerBroker SUPPORTED;
    "listeners"                              List   "PLAINTEXT://:9092"            (non_empty_list) High   PerBroker SUPPORTED;
    "max.connection.creation.rate"           Int    "2147483647"                   (at_least 0)     Medium ClusterWide SUPPORTED;
    "max.connections"                        Int    "2147483647"                   (at_least 0)     Medium ClusterWide SUPPORTED;
    "max.connections.per.ip"                 Int    "2147483647"                   (at_least 0)     Medium ClusterWide SUPPORTED;
    "max.connections.per.ip.overrides"       String ""                             _                Medium ClusterWide SUPPORTED;
    "num.network.threads"                    Int    "3"                            (at_least 1)     High   ClusterWide THREADS;
    "queued.max.request.bytes"               Long   "-1"                           _                Medium ReadOnly SUPPORTED;
    "queued.max.requests"                    Int    "500"                          (at_least 1)     High   ReadOnly QUEUE;
    "socket.connection.setup.timeout.max.ms" Long   "30000"                        _                Medium ReadOnly CONNECTION_SETUP;
    "socket.connection.setup.timeout.ms"     Long   "10000"                        _                Medium ReadOnly SUPPORTED;
    "socket.listen.backlog.size"             Int    "50"                           (at_least 1)     Medium ReadOnly SUPPORTED;
    "socket.receive.buffer.bytes"            Int    "102400"                       _                High   ReadOnly SUPPORTED;
    "socket.request.max.bytes"               Int    "104857600"                    (at_least 1)     High   ReadOnly SUPPORTED;
    "socket.send.buffer.bytes"               Int    "102400"                       _                High   ReadOnly SUPPORTED;
}
