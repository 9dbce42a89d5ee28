//! The host name of this machine, under which a listener without a host is advertised.
//!
//! Kafka: `ListenerInfo.withWildcardHostnamesResolved`, which asks `InetAddress.getLocalHost().getCanonicalHostName()`.

use std::net::IpAddr;
use std::sync::OnceLock;

use ottla_config::Listener;

/// The canonical name of the address of the host name. Returns the address itself if it has no
/// name, and `localhost` if the host name has no address. The first call asks the resolver, and can
/// block.
pub fn canonical_host_name() -> String {
    static NAME: OnceLock<String> = OnceLock::new();
    let name = NAME.get_or_init(|| {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy().into_owned();
        let addresses = |host: &str| match dns_lookup::lookup_host(host) {
            Ok(addresses) => addresses.collect(),
            Err(_) => Vec::new(),
        };
        canonical(&host, addresses, |address| {
            dns_lookup::lookup_addr(address).ok()
        })
    });
    name.clone()
}

/// The host of the listener that clients are given.
pub fn host_of(listener: &Listener) -> String {
    match &listener.host {
        Some(host) => host.clone(),
        None => canonical_host_name(),
    }
}

fn canonical(
    host: &str,
    addresses: impl Fn(&str) -> Vec<IpAddr>,
    name: impl Fn(&IpAddr) -> Option<String>,
) -> String {
    let found = addresses(host);
    // The first address, as Java does by default.
    let first = found
        .iter()
        .find(|address| address.is_ipv4())
        .or(found.first());
    let Some(address) = first else {
        return "localhost".to_owned();
    };
    // A name that does not resolve back to the address is not a name of this machine.
    let leads_back = |name: &String| addresses(name).contains(address);
    name(address)
        .filter(leads_back)
        .unwrap_or_else(|| address.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &str = "10.0.0.7";

    fn addresses(host: &str) -> Vec<IpAddr> {
        match host {
            "broker7" => vec!["::1".parse().unwrap(), V4.parse().unwrap()],
            "broker7.example.org" => vec![V4.parse().unwrap()],
            _ => Vec::new(),
        }
    }

    #[test]
    fn the_name_of_the_host_address_is_returned() {
        let full = |_: &IpAddr| Some("broker7.example.org".to_owned());
        assert_eq!(canonical("broker7", addresses, full), "broker7.example.org");
    }

    #[test]
    fn an_address_without_a_name_is_returned_as_it_is() {
        assert_eq!(canonical("broker7", addresses, |_| None), V4);
        let stranger = |_: &IpAddr| Some("elsewhere.example.org".to_owned());
        assert_eq!(canonical("broker7", addresses, stranger), V4);
    }

    #[test]
    fn a_host_without_an_address_is_local() {
        assert_eq!(canonical("nowhere", addresses, |_| None), "localhost");
    }
}
