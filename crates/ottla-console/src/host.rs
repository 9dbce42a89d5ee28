//! Names of hosts, as headers and URLs have them.

use std::net::IpAddr;

/// A host without its port. An IPv6 address keeps its brackets.
pub(crate) fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port))
            if port.bytes().all(|it| it.is_ascii_digit()) && !name.ends_with(':') =>
        {
            name
        }
        _ => host,
    }
}

/// Whether bytes sent to a host of this name stay on this machine.
pub(crate) fn is_loopback(name: &str) -> bool {
    let address = name.trim_start_matches('[').trim_end_matches(']');
    name.eq_ignore_ascii_case("localhost")
        || address
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_names_are_hosts_of_this_machine() {
        for (host, is_own) in [
            ("localhost:80", true),
            ("127.0.0.1", true),
            ("[::1]:9", true),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example:80", false),
            ("10.0.0.1", false),
            ("", false),
        ] {
            assert_eq!(is_loopback(without_port(host)), is_own, "{host}");
        }
    }
}
