//! An OAUTHBEARER token that the embedding program gets and replaces, for example for a logged-in
//! user.

use std::sync::Arc;

use ottla_sasl::Secret;
use ottla_sync::Mutex;

/// A token in use. All clones share it. Open connections log in with a new token when the broker
/// requests it (KIP-368); later connections use it at once.
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
