//! An OAUTHBEARER token that the embedding program gets and replaces, for example for a logged-in
//! user.

use std::sync::Arc;

use ottla_sasl::Secret;
use ottla_sync::Mutex;

/// A token in use. All clones share it. Open connections log in with a new token when the broker
/// requests it (KIP-368); later connections use it at once.
///
/// ```no_run
/// # fn example(config: &mut ottla_client::ClientConfig) {
/// use ottla_client::{Secret, SuppliedToken};
///
/// let token = SuppliedToken::new(Secret::new("eyJhbGciOi…"));
/// config.security.log_in_with_token(token.clone());
/// // Later, for the connections of all clients with this configuration:
/// token.replace(Secret::new("eyJhbGciOj…"));
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SuppliedToken(Arc<Mutex<Secret>>);

impl SuppliedToken {
    /// A token to begin with.
    ///
    /// ```
    /// use ottla_client::{Secret, SuppliedToken};
    ///
    /// let token = SuppliedToken::new(Secret::new("eyJhbGciOi…"));
    /// assert!(!format!("{token:?}").contains("eyJ"));
    /// ```
    pub fn new(token: Secret) -> SuppliedToken {
        SuppliedToken(Arc::new(Mutex::new(token)))
    }

    /// Replaces the token for all clones.
    ///
    /// ```no_run
    /// # fn example(token: &ottla_client::SuppliedToken) {
    /// use ottla_client::Secret;
    ///
    /// token.replace(Secret::new("eyJhbGciOj…"));
    /// # }
    /// ```
    pub fn replace(&self, token: Secret) {
        *self.0.lock() = token;
    }

    pub(crate) fn current(&self) -> Secret {
        self.0.lock().clone()
    }
}
