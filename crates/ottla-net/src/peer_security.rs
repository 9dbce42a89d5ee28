//! TLS and SASL settings of connections to other nodes.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_oauth::LoginTokens;
use ottla_sasl::{ClientCredentials, PeerCredentials, SaslPeer};
use ottla_tls::TlsContext;

/// The settings for a listener of another node. The default is for a listener without TLS and SASL.
#[derive(Clone, Default, Debug)]
pub struct PeerSecurity {
    /// The key and the trusted certificates of this node, if the listener of the peer uses TLS.
    pub tls: Option<Arc<TlsContext>>,
    /// The credentials of this node, if the listener of the peer uses SASL.
    pub sasl: Option<Arc<SaslPeer>>,
    /// The OAuth tokens that this node has.
    pub tokens: Arc<LoginTokens>,
}

impl PeerSecurity {
    /// At the listener of brokers with this name.
    pub fn at_brokers(
        context: &NodeContext,
        config: &BrokerConfig,
        listener: &str,
    ) -> PeerSecurity {
        PeerSecurity {
            tls: context.tls.of(listener),
            sasl: config.sasl.peer(listener).cloned(),
            tokens: Arc::clone(&context.login_tokens),
        }
    }

    /// At the listener of controllers.
    pub fn at_controllers(context: &NodeContext, config: &BrokerConfig) -> PeerSecurity {
        PeerSecurity {
            tls: context.tls.of_controllers(config),
            sasl: config.sasl_of_controllers(),
            tokens: Arc::clone(&context.login_tokens),
        }
    }

    /// The credentials for a login now. Waits for a token only if there is none that is valid.
    pub(crate) async fn credentials(&self, peer: &SaslPeer) -> Result<ClientCredentials, String> {
        match &peer.credentials {
            PeerCredentials::Known(known) => Ok(known.clone()),
            PeerCredentials::Token(source) => {
                let got = self.tokens.credentials(source, time_of_day_ms).await;
                got.map_err(|error| error.message)
            }
        }
    }
}

fn time_of_day_ms() -> i64 {
    let now: SystemTime = ottla_sync::time::wall_clock();
    let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}
