//! The identity of a client: principal and address.

use std::net::IpAddr;

use ottla_security::{Client, Principal, host_address};

/// The principal and address of a client. Created once per connection, and once per request that a
/// broker forwards.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientIdentity {
    pub principal: Principal,
    address: IpAddr,
    /// The address in the spelling of ACLs and audit lines.
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
