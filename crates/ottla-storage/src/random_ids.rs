//! Random IDs.

use ottla_types::Uuid;

/// A random ID that is not one of the reserved ones.
pub fn random_uuid() -> Uuid {
    loop {
        if let Some(id) = Uuid::from_random(ottla_sync::random::random("ids")) {
            return id;
        }
    }
}
