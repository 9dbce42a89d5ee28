//! An OAUTHBEARER token that the program itself gets and replaces, as for a person who has logged in to it.

use std::sync::Arc;

use ottla_sasl::Secret;
use ottla_sync::Mutex;

/// A token in use. All clones are the same one. Connections that are open log in with a new token when the broker asks for
/// it (KIP-368); those that are opened later, at once.
#[derive(Clone, Debug)]
pub struct SuppliedToken(Arc<Mutex<Secret>>);

impl SuppliedToken {
    pub fn new(token: Secret) -> SuppliedToken {
        SuppliedToken(Arc::new(Mutex::new(token)))
    }

    pub fn replace(&self, token: Secret) {
        *self.0.lock() = token;
    }

    pub(crate) fn current(&self) -> Secret {
        self.0.lock().clone()
    }
}
