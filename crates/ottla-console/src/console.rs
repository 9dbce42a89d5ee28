//! The state of a console, and the sender of a request.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use axum::extract::FromRequestParts;
use axum::http::HeaderMap;
use axum::http::request::Parts;
use tokio::sync::{Mutex, Semaphore};

use crate::attempts::{Attempts, BROWSER_AGE};
use crate::audit::AuditNote;
use crate::budget::Budget;
use crate::config::ConsoleConfig;
use crate::cookie::Cookie;
use crate::measure::Measure;
use crate::oidc::Oidc;
use crate::problem::Problem;
use crate::registry::Registry;
use crate::sampling::Sampling;
use crate::sessions::Sessions;
use crate::visit::Visit;

/// Logins at a time. A broker delays its answer to wrong credentials.
const LOGINS: usize = 8;

pub(crate) struct Console {
    config: ConsoleConfig,
    /// The visit of everybody, if there are no logins.
    everybody: Option<Arc<Visit>>,
    pub(crate) budget: Budget,
    pub(crate) registry: Option<Arc<Registry>>,
    pub(crate) sampling: Sampling,
    pub(crate) sessions: Sessions,
    pub(crate) cookie: Cookie,
    /// Identifies a browser in which a user has logged in.
    pub(crate) browser_cookie: Cookie,
    pub(crate) attempts: Attempts,
    pub(crate) logins: Semaphore,
    /// One rebalance of all sessions: each would take the throttles of the other away.
    pub(crate) rebalances: Arc<Semaphore>,
    /// Held while throttles are changed without a rebalance, which needs its place for a moment. A rebalance
    /// and other changes wait for that.
    pub(crate) throttle_changes: Mutex<()>,
    pub(crate) oidc: Option<Oidc>,
    pub(crate) measure: Option<Measure>,
}

impl Console {
    pub(crate) fn new(config: ConsoleConfig, address: SocketAddr) -> Console {
        let everybody = !config.needs_login(address);
        let budget = Budget::default();
        let sampling = Sampling::new(config.latencies.clone());
        let registry = config.registry.clone();
        let registry = registry.map(|it| Arc::new(Registry::new(it, budget.clone())));
        let visit = || {
            let client = config.client.clone();
            let visit = Visit::new(None, client, budget.clone(), sampling.clone());
            Arc::new(visit.with_registry(registry.clone()))
        };
        let oidc = config.oidc.clone().map(Oidc::new);
        let measure = config.measure.clone().map(Measure::new);
        Console {
            everybody: everybody.then(visit),
            config,
            budget,
            registry,
            sampling,
            sessions: Sessions::default(),
            cookie: Cookie::new(None),
            browser_cookie: Cookie::new(Some(BROWSER_AGE)),
            attempts: Attempts::default(),
            logins: Semaphore::new(LOGINS),
            rebalances: Arc::new(Semaphore::new(1)),
            throttle_changes: Mutex::default(),
            oidc,
            measure,
        }
    }

    pub(crate) fn config(&self) -> &ConsoleConfig {
        &self.config
    }

    pub(crate) fn has_logins(&self) -> bool {
        self.everybody.is_none()
    }

    /// The address for which failed logins count, and that the audit log has: the browser's. A reverse
    /// proxy, which runs on this machine and has a public name, adds it to the end of
    /// `X-Forwarded-For`.
    pub(crate) fn browser_address(&self, peer: Option<SocketAddr>, headers: &HeaderMap) -> IpAddr {
        let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |it| it.ip());
        let is_proxy = peer.is_loopback() && !self.config.public_names.is_empty();
        let forwarded = headers.get_all("x-forwarded-for").iter().next_back();
        let last = forwarded
            .filter(|_| is_proxy)
            .and_then(|it| it.to_str().ok())
            .and_then(|it| it.rsplit(',').next())
            .and_then(|it| it.trim().parse().ok());
        last.unwrap_or(peer)
    }

    /// The visit that a request belongs to.
    pub(crate) fn visit(&self, headers: &HeaderMap) -> Option<Arc<Visit>> {
        match &self.everybody {
            Some(visit) => Some(visit.clone()),
            None => {
                let token = self.cookie.token(headers)?;
                self.sessions.find(token, Instant::now())
            }
        }
    }
}

/// The sender of a request, with the audit note of the request.
pub(crate) struct Visitor {
    pub(crate) visit: Arc<Visit>,
    pub(crate) note: AuditNote,
}

impl std::ops::Deref for Visitor {
    type Target = Visit;

    fn deref(&self) -> &Visit {
        &self.visit
    }
}

impl FromRequestParts<Arc<Console>> for Visitor {
    type Rejection = Problem;

    async fn from_request_parts(
        parts: &mut Parts,
        console: &Arc<Console>,
    ) -> Result<Visitor, Problem> {
        let visit = console.visit(&parts.headers);
        let visit = visit.ok_or_else(Problem::login_required)?;
        let note = parts.extensions.get::<AuditNote>().cloned();
        let note = note.unwrap_or_default();
        note.of_user(visit.audit_name.as_deref());
        Ok(Visitor { visit, note })
    }
}

#[cfg(test)]
mod tests {
    use ottla_client::ClientConfig;

    use super::*;

    #[tokio::test]
    async fn only_a_proxy_on_this_machine_says_where_the_browser_is() {
        let client = ClientConfig::new("127.0.0.1:1").unwrap();
        let mut config = ConsoleConfig::new(client);
        let address = "127.0.0.1:9080".parse().unwrap();
        let plain = Console::new(config.clone(), address);
        config.public_names = vec!["console.example".into()];
        let named = Console::new(config, address);
        let of = |console: &Console, peer: &str, forwarded: &str| {
            let mut headers = HeaderMap::new();
            headers.append("x-forwarded-for", "10.0.0.1".parse().unwrap());
            headers.append("x-forwarded-for", forwarded.parse().unwrap());
            let peer = Some(peer.parse().unwrap());
            console.browser_address(peer, &headers).to_string()
        };
        let (own, other) = ("127.0.0.1:5000", "10.9.9.9:5000");
        assert_eq!(of(&named, own, "10.0.0.2, 10.0.0.3"), "10.0.0.3");
        assert_eq!(of(&named, own, "2001:db8::1"), "2001:db8::1");
        assert_eq!(of(&named, own, "somebody"), "127.0.0.1");
        assert_eq!(of(&named, other, "10.0.0.2"), "10.9.9.9");
        assert_eq!(of(&plain, own, "10.0.0.2"), "127.0.0.1");
    }
}
