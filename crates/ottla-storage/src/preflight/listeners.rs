//! What clients need for each listener with TLS or logins.

use ottla_config::{BrokerConfig, Properties, SecurityProtocol};
use ottla_context::ListenerTls;

use super::look::Look;

/// `tls` has the listeners whose stores can be used.
pub(super) fn examine(
    properties: &Properties,
    config: &BrokerConfig,
    tls: &[ListenerTls],
    look: &mut Look,
) {
    let place = properties.place("listeners");
    for listener in config.listeners.iter().filter(|it| !it.is_controller) {
        let protocol = listener.protocol;
        if protocol == SecurityProtocol::Plaintext {
            continue;
        }
        let mut needs = vec![format!("security.protocol={}", protocol.name())];
        let mut change = "";
        if protocol.uses_sasl()
            && let Some(sasl) = config.sasl.listener(&listener.name)
        {
            let mechanisms = sasl.mechanisms.iter().map(|it| it.mechanism.name());
            let mechanisms: Vec<_> = mechanisms.collect();
            if !protocol.uses_tls()
                && (mechanisms.contains(&"PLAIN") || mechanisms.contains(&"OAUTHBEARER"))
            {
                change = "give it SASL_SSL: without TLS, PLAIN sends passwords and OAUTHBEARER tokens that anyone on the network can read";
            }
            needs.push(format!("sasl.mechanism={}", mechanisms.join(" or ")));
        }
        let own = tls.iter().find(|it| it.listener == listener.name);
        needs.extend(own.into_iter().flat_map(ListenerTls::needs_of_clients));
        let what = format!("clients of {listener} need {}", needs.join(", "));
        look.note("listeners", &place, what, change);
    }
}
