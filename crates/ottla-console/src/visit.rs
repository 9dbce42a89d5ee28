//! A visit: the cluster as one user may see it.
//!
//! Without logins, all users share one visit. With logins, each visit has its own client, which
//! connects with the user's credentials, so the cluster's ACLs decide what the user may do.

use std::sync::Arc;
use std::time::Duration;

use ottla_client::admin::EndpointType;
use ottla_client::{Admin, Client, ClientConfig, ClientError};
use ottla_sasl::Secret;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::budget::Budget;
use crate::details::Details;
use crate::kept::{Kept, Place, Promise};
use crate::problem::Problem;
use crate::rebalancing::Rebalancing;
use crate::registry::Registry;
use crate::sampling::Sampling;
use crate::view::View;

/// Previews of redrives that can still be confirmed.
const REDRIVES: usize = 16;
/// Places at which searches of topics with very many partitions continue.
const CURSORS: usize = 16;
/// How long the console waits for the cluster in one request of the page.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a snapshot of the cluster waits for the active controller.
const CONTROLLER_PATIENCE: Duration = Duration::from_secs(5);

pub(crate) struct Visit {
    /// `None` without logins.
    pub(crate) user: Option<String>,
    /// As the audit log names the user: a user of the provider can have the name of a user of the cluster.
    pub(crate) audit_name: Option<String>,
    pub(crate) admin: Admin,
    pub(crate) view: Arc<View>,
    pub(crate) details: Details,
    /// The user's share of the console's budget.
    pub(crate) budget: Budget,
    pub(crate) redrives: Kept<Arc<Promise>>,
    pub(crate) cursors: Kept<Arc<Place>>,
    /// Of the whole console. It is read with the console's credentials.
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) rebalancing: Rebalancing,
    /// For a user that has logged in at the console's identity provider.
    pub(crate) id_token: Option<Secret>,
    ended: watch::Sender<bool>,
}

impl Visit {
    pub(crate) fn new(
        user: Option<String>,
        mut config: ClientConfig,
        budget: Budget,
        sampling: Sampling,
    ) -> Visit {
        config.client_id = "ottla-console".into();
        config.default_api_timeout = config.default_api_timeout.min(PATIENCE);
        config.request_timeout = config.request_timeout.min(PATIENCE);
        let forwarded = Admin::new(Client::unconnected(ClientConfig {
            default_api_timeout: config.default_api_timeout.min(CONTROLLER_PATIENCE),
            request_timeout: config.request_timeout.min(CONTROLLER_PATIENCE),
            ..config.clone()
        }));
        let admin = Admin::new(Client::unconnected(config));
        Visit {
            audit_name: user.clone(),
            user,
            view: View::new(admin.clone(), forwarded, budget.clone(), sampling),
            details: Details::default(),
            admin,
            budget,
            registry: None,
            redrives: Kept::new(REDRIVES),
            cursors: Kept::new(CURSORS),
            rebalancing: Rebalancing::default(),
            id_token: None,
            ended: watch::Sender::new(false),
        }
    }

    pub(crate) fn with_registry(mut self, registry: Option<Arc<Registry>>) -> Visit {
        self.registry = registry;
        self
    }

    pub(crate) fn of_provider(mut self, id_token: Secret, audit_name: String) -> Visit {
        self.id_token = Some(id_token);
        self.audit_name = Some(audit_name);
        self
    }

    /// A user of the cluster and a user of the provider with the same name are different users.
    pub(crate) fn is_of_same_person(&self, other: &Visit) -> bool {
        self.audit_name == other.audit_name && self.id_token.is_some() == other.id_token.is_some()
    }

    pub(crate) fn client(&self) -> &Client {
        self.admin.client()
    }

    /// Whether the cluster accepts the credentials.
    pub(crate) async fn check(&self) -> Result<(), ClientError> {
        let cluster = self.admin.describe_cluster(EndpointType::Broker, false);
        cluster.await.map(drop)
    }

    /// For work that continues without the page: it waits for the cluster as long as the console's
    /// configuration says, for example during a change of the controller. It starts with the
    /// brokers known at this moment.
    pub(crate) async fn patient_admin(&self, given: &ClientConfig) -> Result<Admin, ClientError> {
        // The user of the page must not wait for an unreachable cluster.
        self.check().await?;
        let client = Client::connect(self.patient_config(given)).await?;
        Ok(Admin::new(client))
    }

    fn patient_config(&self, given: &ClientConfig) -> ClientConfig {
        ClientConfig {
            default_api_timeout: given.default_api_timeout,
            request_timeout: given.request_timeout,
            ..self.client().config().clone()
        }
    }

    /// A place for an event stream.
    pub(crate) fn stream(&self) -> Result<OwnedSemaphorePermit, Problem> {
        self.budget.stream()
    }

    /// Ends its streams.
    pub(crate) fn end(&self) {
        self.ended.send_replace(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.ended.borrow()
    }

    /// Completes when the visit has ended.
    pub(crate) async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        let _ = ended.wait_for(|ended| *ended).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_request_of_the_page_waits_less_than_work_without_it() {
        let given = ClientConfig::new("127.0.0.1:1").unwrap();
        let (budget, sampling) = (Budget::default(), Sampling::new(None));
        let visit = Visit::new(None, given.clone(), budget, sampling);
        let own = visit.client().config();
        assert_eq!(own.default_api_timeout, PATIENCE);
        let patient = visit.patient_config(&given);
        assert!(patient.default_api_timeout > PATIENCE);
        assert_eq!(patient.default_api_timeout, given.default_api_timeout);
        assert_eq!(patient.request_timeout, given.request_timeout);
        assert_eq!(patient.client_id, own.client_id);
    }
}
