//! The host of an ACL as a range of addresses: `10.0.0.0/8`, `2001:db8::/32`. From Kafka 4.4 on,
//! with `metadata.version` 4.4-IV1.
//!
//! Kafka: `CidrUtils`, which uses `SubnetUtils` and `SubnetUtils6` of Apache Commons Net.

use std::net::{IpAddr, Ipv6Addr};

/// A range of addresses of one family.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct HostRange {
    /// The first address, as a number.
    first: u128,
    /// The number of bits after the prefix.
    host_bits: u32,
    is_v6: bool,
}

impl HostRange {
    /// Whether the host of an ACL is meant as a range.
    pub fn is_one(host: &str) -> bool {
        host.contains('/')
    }

    /// The error is Kafka's message.
    pub fn parse(text: &str) -> Result<HostRange, String> {
        let unparsed = |why: &str| format!("Could not parse [{text}]{why}");
        let is_v6 = text.contains(':');
        let Some((address, prefix)) = text.split_once('/') else {
            return Err(unparsed(" - missing prefix length"));
        };
        if is_v6 {
            let prefix: i32 = prefix
                .parse()
                .map_err(|_| unparsed(" - invalid prefix length"))?;
            if !(0..=128).contains(&prefix) {
                return Err(unparsed(" - prefix length must be between 0 and 128"));
            }
            // Java reads an address in brackets, and with the scope of a link-local one.
            let in_brackets = address.strip_prefix('[');
            let bare = in_brackets
                .and_then(|it| it.strip_suffix(']'))
                .unwrap_or(address);
            let bare = bare.split('%').next().unwrap_or_default();
            match bare.parse::<Ipv6Addr>() {
                // Java takes an address that maps one of version 4 for the latter.
                Ok(it) if it.to_ipv4_mapped().is_some() => {
                    Err(format!("Could not parse [{address}] - not an IPv6 address"))
                }
                Ok(it) => Ok(HostRange::new(u128::from(it), 128 - prefix as u32, true)),
                Err(_) => Err(format!("Could not parse [{address}]")),
            }
        } else {
            let mut bytes = [0; 4];
            let mut parts = address.split('.');
            for byte in &mut bytes {
                let part = parts.next().and_then(|part| digits(part, 3));
                *byte = in_range(part.ok_or_else(|| unparsed(""))?, 255)?;
            }
            let prefix = digits(prefix, 2).filter(|_| parts.next().is_none());
            let prefix = in_range(prefix.ok_or_else(|| unparsed(""))?, 32)?;
            let address = u128::from(u32::from_be_bytes(bytes));
            Ok(HostRange::new(address, 32 - u32::from(prefix), false))
        }
    }

    fn new(address: u128, host_bits: u32, is_v6: bool) -> HostRange {
        HostRange {
            first: address & HostRange::prefix_mask(host_bits),
            host_bits,
            is_v6,
        }
    }

    fn prefix_mask(host_bits: u32) -> u128 {
        u128::MAX.checked_shl(host_bits).unwrap_or(0)
    }

    pub fn contains(&self, address: IpAddr) -> bool {
        let (address, is_v6) = match address {
            IpAddr::V4(address) => (u128::from(u32::from(address)), false),
            IpAddr::V6(address) => (u128::from(address), true),
        };
        is_v6 == self.is_v6 && address & HostRange::prefix_mask(self.host_bits) == self.first
    }
}

/// The address of a client in the spelling of [`host_address`](crate::host_address), which may end
/// with the scope of a link-local address.
pub(crate) fn address_of(host: &str) -> Option<IpAddr> {
    host.split('%').next()?.parse().ok()
}

/// A number of at most `most` decimal digits.
fn digits(text: &str, most: usize) -> Option<u16> {
    let is_number = (1..=most).contains(&text.len()) && text.bytes().all(|it| it.is_ascii_digit());
    text.parse().ok().filter(|_| is_number)
}

fn in_range(value: u16, last: u8) -> Result<u8, String> {
    match u8::try_from(value) {
        Ok(value) if value <= last => Ok(value),
        _ => Err(format!("Value [{value}] not in range [0,{last}]")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(range: &str, host: &str) -> bool {
        let range = HostRange::parse(range).expect(range);
        range.contains(address_of(host).expect(host))
    }

    #[test]
    fn addresses_are_found_in_ranges() {
        for (range, host, is_in) in [
            ("10.1.0.0/16", "10.1.0.0", true),
            ("10.1.0.0/16", "10.1.255.255", true),
            ("10.1.0.0/16", "10.2.0.0", false),
            ("10.1.2.3/16", "10.1.9.9", true),
            ("10.1.2.3/32", "10.1.2.3", true),
            ("10.1.2.3/32", "10.1.2.4", false),
            ("0.0.0.0/0", "255.1.2.3", true),
            ("0.0.0.0/0", "::1", false),
            ("2001:db8::/32", "2001:db8:0:0:0:0:0:1", true),
            ("2001:db8::/32", "2001:db9:0:0:0:0:0:1", false),
            ("fe80::/10", "fe80:0:0:0:0:0:0:1%eth0", true),
            ("::/0", "2001:db8::1", true),
            ("::/0", "10.1.2.3", false),
            ("::1/128", "::1", true),
            ("[2001:db8::]/32", "2001:db8:0:0:0:0:0:1", true),
            ("fe80::1%2/64", "fe80:0:0:0:0:0:0:9%eth0", true),
            ("fe80::1%2/64", "fe81:0:0:0:0:0:0:9%eth0", false),
        ] {
            assert_eq!(has(range, host), is_in, "{host} in {range}");
        }
    }

    #[test]
    fn other_texts_are_refused_with_kafkas_words() {
        for (text, message) in [
            ("10.0.0.0/33", "Value [33] not in range [0,32]"),
            ("10.0.0.256/8", "Value [256] not in range [0,255]"),
            ("10.0.0/8", "Could not parse [10.0.0/8]"),
            ("10.0.0.0.0/8", "Could not parse [10.0.0.0.0/8]"),
            ("10.0.0.0/", "Could not parse [10.0.0.0/]"),
            ("10.0.0.0/008", "Could not parse [10.0.0.0/008]"),
            ("10.0.0.0/8/8", "Could not parse [10.0.0.0/8/8]"),
            ("host/8", "Could not parse [host/8]"),
            (
                "2001:db8::/129",
                "Could not parse [2001:db8::/129] - prefix length must be between 0 and 128",
            ),
            (
                "2001:db8::/x",
                "Could not parse [2001:db8::/x] - invalid prefix length",
            ),
            (
                "::ffff:10.0.0.0/104",
                "Could not parse [::ffff:10.0.0.0] - not an IPv6 address",
            ),
            ("[2001:db8::/32", "Could not parse [[2001:db8::]"),
        ] {
            assert_eq!(HostRange::parse(text), Err(message.to_owned()), "{text}");
        }
    }
}
