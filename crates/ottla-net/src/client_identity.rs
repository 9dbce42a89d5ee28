//! Who a request comes from, and from where.

use std::net::IpAddr;

use ottla_security::{Client, Principal, host_address};

/// A principal and an address. Made once for a connection, and for each request that a broker has forwarded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientIdentity {
    pub principal: Principal,
    address: IpAddr,
    /// The address as ACLs and audit lines spell it.
    host: String,
}

impl ClientIdentity {
    pub fn new(principal: Principal, address: IpAddr) -> ClientIdentity {
        ClientIdentity {
            principal,
            address,
            host: host_address(address),
        }
    }

    pub fn address(&self) -> IpAddr {
        self.address
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn client(&self) -> Client<'_> {
        Client {
            principal: self.principal.as_str(),
            host: &self.host,
        }
    }
}
