//! Whether groups with members can be converted from one protocol to the other.
//! Source: `ConsumerGroupMigrationPolicy`.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MigrationPolicy {
    /// A group never has members of both protocols.
    Disabled,
    /// From the classic protocol to the consumer protocol.
    Upgrade,
    /// From the consumer protocol to the classic protocol.
    Downgrade,
    Bidirectional,
}

impl MigrationPolicy {
    pub fn from_name(name: &str) -> Option<Self> {
        match name.to_ascii_lowercase().as_str() {
            "disabled" => Some(MigrationPolicy::Disabled),
            "upgrade" => Some(MigrationPolicy::Upgrade),
            "downgrade" => Some(MigrationPolicy::Downgrade),
            "bidirectional" => Some(MigrationPolicy::Bidirectional),
            _ => None,
        }
    }

    pub(super) fn allows_upgrade(self) -> bool {
        matches!(
            self,
            MigrationPolicy::Upgrade | MigrationPolicy::Bidirectional
        )
    }

    pub(super) fn allows_downgrade(self) -> bool {
        matches!(
            self,
            MigrationPolicy::Downgrade | MigrationPolicy::Bidirectional
        )
    }
}
