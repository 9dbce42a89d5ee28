//! Settings that Apache Kafka does not have. Their names start with `ottla.`. Kafka ignores them
//! with a warning if it gets the same file.

use super::row::*;
use crate::config_def::*;

configs! {
    pub(super) const ROWS;
    "ottla.accept.unserved"              List   ""     (list_of "settings") Low ReadOnly SUPPORTED;
    "ottla.audit.events"                 List   "denied" (list_of "denied", "allowed") Low ReadOnly SUPPORTED;
    "ottla.audit.file"                   String null   (non_empty)          Low ReadOnly SUPPORTED;
    "ottla.audit.topic"                  String null   (non_empty)          Low ReadOnly SUPPORTED;
    "ottla.console.listener"             String "127.0.0.1:9080" (host_port_or_none) Low ReadOnly SUPPORTED;
    "ottla.console.oidc.client.id"       String null   (non_empty)          Low ReadOnly SUPPORTED;
    "ottla.console.oidc.config"          String null   (non_empty)          Low ReadOnly SUPPORTED;
    "ottla.console.oidc.issuer"          String null   (non_empty)          Low ReadOnly SUPPORTED;
    "ottla.console.public.names"         List   ""     (list)               Low ReadOnly SUPPORTED;
    "ottla.console.read.only"            Boolean "false" _                  Low ReadOnly SUPPORTED;
    "ottla.console.schema.registry"      String null   (non_empty)          Low ReadOnly SUPPORTED;
    "ottla.console.schema.registry.config" String null (non_empty)          Low ReadOnly SUPPORTED;
    "ottla.core.dump.enable"             Boolean "false" _                  Low ReadOnly SUPPORTED;
    "ottla.disk.reserve.bytes"           Long   "33554432" (at_least 0)     Medium ClusterWide SUPPORTED;
    "ottla.http.listener"                String null   (host_port)          Low ReadOnly SUPPORTED;
    "ottla.jaas.file"                    String null   (non_empty)          Medium ReadOnly SUPPORTED;
    "ottla.memory.max.bytes"             Long   "-1"    (at_least -1)       Low ReadOnly SUPPORTED;
    "ottla.metrics.reporter.dir"         String null   (non_empty)          Low ReadOnly SUPPORTED;
    "ottla.metrics.reporter.file.max.bytes" Long "16777216" (at_least 1)    Low ReadOnly SUPPORTED;
    "ottla.metrics.reporter.files"       Int    "4" (at_least 1)            Low ReadOnly SUPPORTED;
    "ottla.metrics.reporter.format"      String "csv"  (one_of "csv", "json") Low ReadOnly SUPPORTED;
    "ottla.metrics.reporter.interval.ms" Long   "10000" (at_least 100)      Low ReadOnly SUPPORTED;
    "ottla.page.cache.max.bytes"         Long   "-2"    (at_least -2)       Low ClusterWide SUPPORTED;
    "ottla.ssl.kernel.enable"            Boolean "false" _                  Low ReadOnly SUPPORTED;
    "ottla.trace.stalls.ms"              Long   "0" (at_least 0)            Low ReadOnly SUPPORTED;
    "ottla.writeback.bytes"              Long   "8388608" (at_least 0)      Low ReadOnly SUPPORTED;
}
