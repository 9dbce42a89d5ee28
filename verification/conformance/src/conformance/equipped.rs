//! Nodes with three log directories and a receiver for the metrics that clients push (KIP-714): on
//! Kafka the plugin of `conformance/java/reporter`, on Ottla its own HTTP listener.

use std::path::Path;

use anyhow::Result;

use super::{Side, start_with};
use ottla_peers::InstalledPeer;
use ottla_testkit::lease_ports;

pub fn start(peer: &InstalledPeer, label: &str, out: &Path, reporter: &Path) -> Result<Side> {
    let dir = out.join(format!("equipped-{label}"));
    std::fs::create_dir_all(out)?;
    let place = out.canonicalize()?.join(format!("equipped-{label}"));
    let dirs = ["first", "second", "third"].map(|name| place.join(name).display().to_string());
    let log_dirs = ("log.dirs", dirs.join(","));
    match peer.id() {
        "ottla" => {
            let [port] = lease_ports()?;
            let listener = ("ottla.http.listener", format!("127.0.0.1:{port}"));
            let mut side = start_with(peer, label, dir, &[log_dirs, listener])?;
            side.arguments = vec![format!("http://127.0.0.1:{port}/metrics")];
            Ok(side)
        }
        _ => {
            let pushed = place.join("pushed.tsv").display().to_string();
            let own = "org.apache.kafka.common.metrics.JmxReporter,PushedMetrics";
            let settings = [
                log_dirs,
                ("metric.reporters", own.to_owned()),
                ("pushed.metrics.file", pushed.clone()),
            ];
            let peer = peer.clone().with_classes(reporter);
            let mut side = start_with(&peer, label, dir, &settings)?;
            side.arguments = vec![pushed];
            Ok(side)
        }
    }
}
