//! The target of a measurement: a running cluster, or brokers that are started for the run.

mod bandwidth;
pub mod cluster;
pub mod kafka_artefacts;
pub mod local_cluster;
pub mod metrics_endpoint;
mod spec;

use std::collections::BTreeMap;

use anyhow::Result;

pub use cluster::Cluster;
pub use local_cluster::LocalCluster;
pub use metrics_endpoint::{Metrics, MetricsEndpoint};
pub use spec::TargetSpec;

/// A target that responds.
pub struct RunningTarget {
    pub spec: TargetSpec,
    pub cluster: Cluster,
    pub local: Option<LocalCluster>,
}

impl RunningTarget {
    /// Starts the brokers if necessary, and waits until they respond.
    pub async fn start(
        spec: &TargetSpec,
        needs: &local_cluster::BrokerRequirements,
    ) -> Result<RunningTarget> {
        let local = match spec {
            TargetSpec::Remote { .. } => None,
            TargetSpec::Ottla { .. } | TargetSpec::Kafka => {
                let (spec, needs) = (spec.clone(), needs.clone());
                let started =
                    tokio::task::spawn_blocking(move || LocalCluster::start(&spec, &needs));
                Some(started.await??)
            }
        };
        let (bootstrap, settings) = match (&local, spec) {
            (Some(local), _) => (local.bootstrap(), BTreeMap::new()),
            (
                None,
                TargetSpec::Remote {
                    bootstrap,
                    settings,
                    ..
                },
            ) => (bootstrap.clone(), settings.clone()),
            (None, _) => (String::new(), BTreeMap::new()),
        };
        let mut cluster = Cluster::connect(&bootstrap, settings).await?;
        match &local {
            Some(_) => cluster.wait_for_brokers(needs.brokers).await?,
            None => cluster.measure_bandwidth().await,
        }
        let target = RunningTarget {
            spec: spec.clone(),
            cluster,
            local,
        };
        // An endpoint that does not respond is reported before anything is created.
        target.metrics().await?;
        Ok(target)
    }

    /// The summed metrics of a remote cluster's brokers; `None` without endpoints.
    pub async fn metrics(&self) -> Result<Option<Metrics>> {
        let endpoints = match &self.spec {
            TargetSpec::Remote { metrics, .. } if !metrics.is_empty() => metrics.clone(),
            _ => return Ok(None),
        };
        let scraped = tokio::task::spawn_blocking(move || {
            let mut all = Metrics::default();
            for endpoint in &endpoints {
                all = all.plus(&endpoint.scrape()?);
            }
            anyhow::Ok(all)
        });
        Ok(Some(scraped.await??))
    }
}
