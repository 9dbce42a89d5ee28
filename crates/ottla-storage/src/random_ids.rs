//! Ids that nobody else has.

use ottla_types::Uuid;

/// A random id that is none of the reserved ones.
pub fn random_uuid() -> Uuid {
    loop {
        if let Some(id) = Uuid::from_random(ottla_sync::random::random("ids")) {
            return id;
        }
    }
}
