//! State shared by the threads of one life of the broker.

use std::sync::Arc;
use std::time::Duration;

use ottla_sync::atomic::{AtomicBool, Ordering};

use super::cluster::Cluster;
use crate::partition::Partition;
use crate::partition::host::PartitionHost;

pub(super) const DATA: &str = "/data";

/// Simulated time limit for everything that does not wait for a fault to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct Running {
    pub(super) cluster: Cluster,
    pub(super) host: Arc<PartitionHost>,
    pub(super) partition: Arc<Partition>,
    pub(super) is_over: Arc<AtomicBool>,
}

impl Running {
    pub(super) fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
}
