//! The attributes of a client that the patterns of a subscription match.

use std::net::SocketAddr;

use bytestring::ByteString;
use ottla_types::Uuid;

/// The attributes of a client.
#[derive(Clone, Debug)]
pub(crate) struct ClientFacts {
    pub(crate) client_instance_id: Uuid,
    pub(crate) client_id: ByteString,
    /// Name and version.
    pub(crate) software: Option<(ByteString, ByteString)>,
    pub(crate) address: SocketAddr,
}

impl ClientFacts {
    /// The attribute that a pattern names.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        let software = self.software.as_ref();
        match name {
            "client_instance_id" => Some(self.client_instance_id.to_string()),
            "client_id" => Some(self.client_id.to_string()),
            "client_software_name" => software.map(|(name, _)| name.to_string()),
            "client_software_version" => software.map(|(_, version)| version.to_string()),
            "client_source_address" => Some(self.address.ip().to_canonical().to_string()),
            "client_source_port" => Some(self.address.port().to_string()),
            _ => None,
        }
    }
}
