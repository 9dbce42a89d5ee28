//! `max.connections.per.ip.overrides`: addresses with a connection limit of their own.
//!
//! A host name in the setting is resolved when the setting is read, as in Kafka. At start, a name
//! without an address is an error. When the setting changes, the previous value then stays in
//! effect. Names are resolved on a thread that may block, never when a connection is accepted.
//!
//! Kafka: `ConnectionQuotas.maxConnectionsPerIpOverrides`.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_sync::ArcSwap;
use ottla_sync::Mutex;

/// The setting with host names resolved.
#[derive(Debug, Default)]
pub struct AddressLimits {
    by_address: ArcSwap<HashMap<IpAddr, i32>>,
    /// The setting that was resolved last. The lock is held while names are resolved, so that the
    /// last change wins.
    resolved: Mutex<BTreeMap<String, i32>>,
}

impl AddressLimits {
    /// The connection limit of an address, if the setting has an entry for it.
    pub fn of(&self, address: IpAddr) -> Option<i32> {
        self.by_address.load().get(&address.to_canonical()).copied()
    }

    /// Resolves the setting. The error is for people. Blocks while names are resolved.
    pub fn resolve(&self, config: &BrokerConfig) -> Result<(), String> {
        self.resolve_into(&mut self.resolved.lock(), config)
    }

    /// Whether the setting was last resolved from this configuration. False while it is being
    /// resolved.
    pub(crate) fn are_of(&self, config: &BrokerConfig) -> bool {
        self.resolved
            .try_lock()
            .is_some_and(|resolved| *resolved == config.max_connections_per_ip_overrides)
    }

    /// Resolves the setting of the configuration that `config` returns once this thread holds the
    /// lock. So the thread that runs last has the newest configuration.
    pub(crate) fn resolve_latest(
        &self,
        config: impl FnOnce() -> Arc<BrokerConfig>,
    ) -> Result<(), String> {
        let mut resolved = self.resolved.lock();
        self.resolve_into(&mut resolved, &config())
    }

    fn resolve_into(
        &self,
        resolved: &mut BTreeMap<String, i32>,
        config: &BrokerConfig,
    ) -> Result<(), String> {
        let wanted = &config.max_connections_per_ip_overrides;
        if *resolved != *wanted {
            let by_address = wanted
                .iter()
                .map(|(host, limit)| Ok((address_of(host)?, *limit)))
                .collect::<Result<_, String>>()?;
            self.by_address.store(Arc::new(by_address));
            resolved.clone_from(wanted);
        }
        Ok(())
    }
}

/// The address that Java would use: the first IPv4 address, or the first one if there is none.
fn address_of(host: &str) -> Result<IpAddr, String> {
    let bare = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    if let Ok(address) = bare.parse::<IpAddr>() {
        return Ok(address.to_canonical());
    }
    let unresolved = |reason: String| {
        format!(
            "max.connections.per.ip.overrides: {host} has no address: {reason}; give an address, or a name that has one"
        )
    };
    let found = ottla_sync::net::resolve(bare, 0);
    let found = found.map_err(|error| unresolved(error.to_string()))?;
    let addresses: Vec<IpAddr> = found
        .iter()
        .map(|address| address.ip().to_canonical())
        .collect();
    let of_ipv4 = addresses.iter().find(|address| address.is_ipv4());
    of_ipv4
        .or(addresses.first())
        .copied()
        .ok_or_else(|| unresolved("none was found".to_owned()))
}

#[cfg(test)]
mod tests {
    use ottla_config::single_node_properties;

    use super::*;

    fn config(overrides: &str) -> BrokerConfig {
        let mut properties = single_node_properties("./data", "127.0.0.1:0", "127.0.0.1:0");
        properties.set("max.connections.per.ip.overrides", overrides);
        BrokerConfig::from_properties(&properties).unwrap().0
    }

    #[test]
    fn names_and_addresses_in_any_notation_match_connections() {
        let limits = AddressLimits::default();
        let all = "localhost:3,10.0.0.1:4,2001:db8:0:0::1:5,[::2]:6";
        limits.resolve(&config(all)).unwrap();
        for (address, expected) in [
            ("127.0.0.1", Some(3)),
            ("::ffff:127.0.0.1", Some(3)),
            ("10.0.0.1", Some(4)),
            ("2001:db8::1", Some(5)),
            ("::2", Some(6)),
            ("10.0.0.2", None),
        ] {
            assert_eq!(limits.of(address.parse().unwrap()), expected, "{address}");
        }
    }

    #[test]
    fn a_name_without_an_address_is_refused_and_changes_nothing() {
        let limits = AddressLimits::default();
        limits.resolve(&config("10.0.0.1:4")).unwrap();
        let error = limits
            .resolve(&config("10.0.0.1:9,nobody.invalid:1"))
            .unwrap_err();
        assert!(error.contains("nobody.invalid has no address"), "{error}");
        assert_eq!(limits.of("10.0.0.1".parse().unwrap()), Some(4));
    }
}
