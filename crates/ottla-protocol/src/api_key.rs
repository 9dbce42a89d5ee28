//! The API table (`org.apache.kafka.common.protocol.ApiKeys`), generated from the request schemas.

use std::fmt;
use std::ops::RangeInclusive;

/// Properties of an API in the schemas besides its fields.
#[derive(Clone, Copy, Debug)]
struct ApiFacts {
    name: &'static str,
    /// Empty (lowest above highest) for an API that Kafka removed and whose number it reserves.
    lowest: i16,
    highest: i16,
    request_flexible_from: Option<i16>,
    response_flexible_from: Option<i16>,
    on_broker: bool,
    on_controller: bool,
    latest_version_unstable: bool,
}

/// Generates the enum from the table.
macro_rules! api_keys {
    ($( $name:ident = $code:literal, $lowest:literal..=$highest:literal,
        request flexible $request_flexible:expr, response flexible $response_flexible:expr,
        broker $broker:literal, controller $controller:literal, unstable $unstable:literal; )*) => {
        /// An API key, under Kafka's name for it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(i16)]
        pub enum ApiKey {
            $( $name = $code, )*
        }

        impl ApiKey {
            /// All APIs in numeric order, including the removed ones.
            pub const ALL: &'static [ApiKey] = &[$( ApiKey::$name, )*];

            /// The API with this number.
            pub const fn from_code(code: i16) -> Option<ApiKey> {
                match code {
                    $( $code => Some(ApiKey::$name), )*
                    _ => None,
                }
            }

            const fn facts(self) -> ApiFacts {
                match self {
                    $( ApiKey::$name => ApiFacts {
                        name: stringify!($name),
                        lowest: $lowest,
                        highest: $highest,
                        request_flexible_from: $request_flexible,
                        response_flexible_from: $response_flexible,
                        on_broker: $broker,
                        on_controller: $controller,
                        latest_version_unstable: $unstable,
                    }, )*
                }
            }
        }
    };
}

include!(concat!(env!("OUT_DIR"), "/api_keys.rs"));

impl ApiKey {
    pub const fn code(self) -> i16 {
        self as i16
    }

    /// Kafka's name, as in its logs and metrics: `ListOffsets`.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The versions that 4.4.0 has a schema for, an unstable last one included; empty for an API that
    /// was removed.
    pub const fn valid_versions(self) -> RangeInclusive<i16> {
        let facts = self.facts();
        facts.lowest..=facts.highest
    }

    /// The versions without an unstable latest one: those served and advertised unless
    /// `unstable.api.versions.enable` is set. May be empty.
    pub const fn stable_versions(self) -> RangeInclusive<i16> {
        let facts = self.facts();
        facts.lowest..=facts.highest - facts.latest_version_unstable as i16
    }

    /// Whether the last of the valid versions may still change.
    pub const fn latest_version_unstable(self) -> bool {
        self.facts().latest_version_unstable
    }

    /// Whether brokers serve it.
    pub const fn on_broker(self) -> bool {
        self.facts().on_broker
    }

    /// Whether controllers serve it.
    pub const fn on_controller(self) -> bool {
        self.facts().on_controller
    }

    /// Whether brokers forward it to the active controller. Kafka: `ApiKeys.forwardable`.
    pub const fn is_forwardable(self) -> bool {
        matches!(
            self,
            ApiKey::CreateTopics
                | ApiKey::DeleteTopics
                | ApiKey::CreateAcls
                | ApiKey::DeleteAcls
                | ApiKey::AlterConfigs
                | ApiKey::CreatePartitions
                | ApiKey::CreateDelegationToken
                | ApiKey::RenewDelegationToken
                | ApiKey::ExpireDelegationToken
                | ApiKey::ElectLeaders
                | ApiKey::IncrementalAlterConfigs
                | ApiKey::AlterPartitionReassignments
                | ApiKey::ListPartitionReassignments
                | ApiKey::AlterClientQuotas
                | ApiKey::AlterUserScramCredentials
                | ApiKey::DescribeQuorum
                | ApiKey::UpdateFeatures
                | ApiKey::UnregisterBroker
                | ApiKey::UnregisterController
                | ApiKey::AddRaftVoter
                | ApiKey::RemoveRaftVoter
        )
    }

    /// The lowest version to advertise on a broker listener. Produce advertises 0 although it is served
    /// from 3: with any other value, librdkafka assumes a broker without compression (KAFKA-18659).
    pub const fn lowest_advertised_version(self) -> i16 {
        match self {
            ApiKey::Produce => 0,
            _ => self.facts().lowest,
        }
    }

    /// The version of the `RequestHeader` in front of a request, also for versions not known here: the
    /// header of an ApiVersions request from a newer client must still be read.
    pub const fn request_header_version(self, version: i16) -> i16 {
        match self.facts().request_flexible_from {
            Some(from) if version >= from => 2,
            _ => 1,
        }
    }

    /// The version of the `ResponseHeader`. ApiVersions always uses the oldest: the client does not
    /// know the broker's versions yet (KIP-511).
    pub const fn response_header_version(self, version: i16) -> i16 {
        match (self, self.facts().response_flexible_from) {
            (ApiKey::ApiVersions, _) => 0,
            (_, Some(from)) if version >= from => 1,
            _ => 0,
        }
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
