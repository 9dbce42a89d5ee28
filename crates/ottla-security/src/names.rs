//! The names of access control and their codes in requests and records, in Kafka's spelling.
//!
//! Unknown codes become `Unknown`, as in Kafka.

use std::fmt;

/// The name of the only resource of the type CLUSTER: `Resource.CLUSTER_NAME`.
pub const CLUSTER_NAME: &str = "kafka-cluster";
/// Any name or host: `ResourcePattern.WILDCARD_RESOURCE`, `AclEntry.WildcardHost`.
pub const WILDCARD: &str = "*";

macro_rules! names {
    ($(#[$doc:meta])* $vis:vis enum $type:ident { $($name:ident = $code:literal $java:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(i8)]
        $vis enum $type { $($name = $code,)* }

        impl $type {
            pub const ALL: &[$type] = &[$($type::$name,)*];

            pub fn from_code(code: i8) -> $type {
                match code {
                    $($code => $type::$name,)*
                    _ => $type::Unknown,
                }
            }

            pub fn code(self) -> i8 {
                self as i8
            }

            /// As Java prints it: `DESCRIBE_CONFIGS`.
            pub fn name(self) -> &'static str {
                match self {
                    $($type::$name => $java,)*
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

names! {
    /// An operation on a resource: `org.apache.kafka.common.acl.AclOperation`.
    pub enum Operation {
        Unknown = 0 "UNKNOWN",
        Any = 1 "ANY",
        All = 2 "ALL",
        Read = 3 "READ",
        Write = 4 "WRITE",
        Create = 5 "CREATE",
        Delete = 6 "DELETE",
        Alter = 7 "ALTER",
        Describe = 8 "DESCRIBE",
        ClusterAction = 9 "CLUSTER_ACTION",
        DescribeConfigs = 10 "DESCRIBE_CONFIGS",
        AlterConfigs = 11 "ALTER_CONFIGS",
        IdempotentWrite = 12 "IDEMPOTENT_WRITE",
        CreateTokens = 13 "CREATE_TOKENS",
        DescribeTokens = 14 "DESCRIBE_TOKENS",
        TwoPhaseCommit = 15 "TWO_PHASE_COMMIT",
    }
}

names! {
    /// The type of a resource: `org.apache.kafka.common.resource.ResourceType`.
    pub enum ResourceType {
        Unknown = 0 "UNKNOWN",
        Any = 1 "ANY",
        Topic = 2 "TOPIC",
        Group = 3 "GROUP",
        Cluster = 4 "CLUSTER",
        TransactionalId = 5 "TRANSACTIONAL_ID",
        DelegationToken = 6 "DELEGATION_TOKEN",
        User = 7 "USER",
    }
}

names! {
    /// How the name in an ACL is matched: `org.apache.kafka.common.resource.PatternType`. `Any` and
    /// `Match` occur only in filters.
    pub enum PatternType {
        Unknown = 0 "UNKNOWN",
        Any = 1 "ANY",
        Match = 2 "MATCH",
        Literal = 3 "LITERAL",
        Prefixed = 4 "PREFIXED",
    }
}

names! {
    /// Whether an ACL grants or denies: `org.apache.kafka.common.acl.AclPermissionType`.
    pub enum PermissionType {
        Unknown = 0 "UNKNOWN",
        Any = 1 "ANY",
        Deny = 2 "DENY",
        Allow = 3 "ALLOW",
    }
}

impl Operation {
    /// The name in commands, `SecurityUtils.operationName`: `DescribeConfigs`.
    pub fn title(self) -> String {
        title(self.name())
    }

    /// Whether an ALLOW of this operation grants `wanted`. A DENY implies no other operation.
    pub(crate) fn grants(self, wanted: Operation) -> bool {
        use Operation::*;
        match wanted {
            Describe => matches!(self, All | Describe | Read | Write | Delete | Alter),
            DescribeConfigs => matches!(self, All | DescribeConfigs | AlterConfigs),
            _ => self == All || self == wanted,
        }
    }

    /// The bit of this operation in responses.
    pub fn bit(self) -> i32 {
        1 << self.code()
    }
}

impl ResourceType {
    /// The name in audit lines, `SecurityUtils.resourceTypeName`: `TransactionalId`.
    pub fn title(self) -> String {
        title(self.name())
    }

    /// The operations on resources of this type: `AclEntry.supportedOperations`.
    pub fn operations(self) -> &'static [Operation] {
        use Operation::*;
        match self {
            ResourceType::Unknown | ResourceType::Any => &[],
            ResourceType::Topic => &[
                Read,
                Write,
                Create,
                Describe,
                Delete,
                Alter,
                DescribeConfigs,
                AlterConfigs,
            ],
            ResourceType::Group => &[Read, Describe, Delete, DescribeConfigs, AlterConfigs],
            ResourceType::Cluster => &[
                Create,
                ClusterAction,
                DescribeConfigs,
                AlterConfigs,
                IdempotentWrite,
                Alter,
                Describe,
            ],
            ResourceType::TransactionalId => &[Describe, Write, TwoPhaseCommit],
            ResourceType::DelegationToken => &[Describe],
            ResourceType::User => &[CreateTokens, DescribeTokens],
        }
    }
}

/// Converts `DESCRIBE_CONFIGS` to `DescribeConfigs`.
fn title(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let (first, rest) = word.split_at(1);
        format!("{first}{}", rest.to_ascii_lowercase())
    });
    words.collect()
}
