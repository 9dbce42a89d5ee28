//! The state that all connections of a node share: registry, limits and budgets.

use std::sync::{Arc, OnceLock};

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_sync::task::Handle;

use crate::address_limits::AddressLimits;
use crate::connections::Connections;
use crate::creation_rate::AddressQuotas;
use crate::decoded_memory::DecodedMemory;
use crate::handshakes::Handshakes;
use crate::request_memory::RequestMemory;
use crate::stream::KernelTls;
use crate::unsent_answers::UnsentAnswers;

#[derive(Debug)]
pub struct Network {
    pub context: Arc<NodeContext>,
    pub connections: Arc<Connections>,
    pub address_limits: AddressLimits,
    pub(crate) handshakes: Handshakes,
    pub address_quotas: AddressQuotas,
    /// `queued.max.request.bytes`, or a share of the available memory.
    pub request_memory: RequestMemory,
    /// The messages of clients that have not logged in yet. A budget of their own, because anyone who
    /// can connect may send them.
    pub login_memory: RequestMemory,
    /// Memory of decoded requests, in addition to their bytes.
    pub decoded_memory: DecodedMemory,
    /// Responses that clients do not read.
    pub unsent_answers: Arc<UnsentAnswers>,
    /// Send responses with records from remote storage.
    store_threads: OnceLock<Handle>,
}

impl Network {
    pub fn new(context: Arc<NodeContext>, config: &BrokerConfig) -> Network {
        let budgets = context.budgets();
        let request_bytes = match usize::try_from(config.queued_max_request_bytes) {
            Ok(bytes @ 1..) => bytes,
            _ => budgets.request_bytes,
        };
        Network {
            context,
            connections: Arc::default(),
            address_limits: AddressLimits::default(),
            handshakes: Handshakes::default(),
            address_quotas: AddressQuotas::new(config),
            request_memory: RequestMemory::new(request_bytes),
            login_memory: RequestMemory::new(budgets.login_bytes),
            decoded_memory: DecodedMemory::new(budgets.decoded_bytes),
            unsent_answers: Arc::new(UnsentAnswers::new(budgets.unsent_answer_bytes)),
            store_threads: OnceLock::new(),
        }
    }

    /// From now on, these threads send responses with records from remote storage: copying or
    /// encrypting them takes as long as reading them, and other connections must not wait for it.
    pub fn set_store_threads(&self, threads: Handle) {
        // Set once, at the start.
        let _ = self.store_threads.set(threads);
    }

    pub(crate) fn store_threads(&self) -> Option<Handle> {
        self.store_threads.get().cloned()
    }

    /// `ottla.ssl.kernel.enable`: lets the kernel encrypt for TLS connections from now on, if it can.
    /// Says which of both it is.
    pub fn enable_kernel_tls(&self) {
        match KernelTls::probe() {
            Ok(kernel_tls) => {
                let of_keys = if kernel_tls.can_replace_keys() {
                    ""
                } else {
                    "; it cannot replace keys (Linux 6.14 can), so a connection is closed after \
                     15 million TLS records (up to 250 GB), and when its client asks for a new \
                     key; clients connect again"
                };
                tracing::info!(
                    "ottla.ssl.kernel.enable: the kernel encrypts for TLS connections{of_keys}"
                );
                // Set once, at the start.
                let _ = self.handshakes.kernel_tls.set(Arc::new(kernel_tls));
            }
            Err(reason) => tracing::warn!(
                "ottla.ssl.kernel.enable=true: TLS stays in user space, because {reason}; load the \
                 kernel module with \"modprobe tls\" and restart, or remove the setting"
            ),
        }
    }

    /// The number of open connections for which the kernel encrypts.
    pub fn kernel_tls_connections(&self) -> u64 {
        let kernel_tls = self.handshakes.kernel_tls.get();
        kernel_tls.map_or(0, |it| it.connections())
    }
}

/// Applies a change of `max.connections.per.ip.overrides`. Host names are resolved on a separate
/// thread.
pub fn follow_address_limits(network: &Arc<Network>) {
    if network.address_limits.are_of(&network.context.config()) {
        return;
    }
    let following = Arc::clone(network);
    let follow = move || {
        let config = || Arc::clone(&following.context.config());
        if let Err(error) = following.address_limits.resolve_latest(config) {
            tracing::warn!("the previous value stays in force: {error}");
        }
    };
    let thread = ottla_sync::thread::Builder::new().name("address-limits".to_owned());
    if let Err(error) = thread.spawn(follow) {
        tracing::warn!("cannot follow max.connections.per.ip.overrides: {error}");
    }
}
