//! The client's side of a login.

use std::sync::{Mutex, PoisonError};

use ottla_sasl::KerberosLogin;

use crate::error::GssError;
use crate::handles::{Credential, Name, SecurityContext, Usage};
use crate::security_layer;

/// One login.
pub struct ClientKerberos {
    credential: Credential,
    service: Name,
    context: SecurityContext,
    /// For messages.
    what: String,
    principal: String,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Establishing,
    /// The server's offer of layers is expected.
    Choosing,
    /// The choice was sent; an empty message is expected.
    Chosen,
}

/// The result of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientStep {
    Response(Vec<u8>),
    Done,
}

/// With a keytab, the logins of this process share its tickets in memory. Logins look for them one
/// at a time, so that the library requests them once.
static GETTING_TICKETS: Mutex<()> = Mutex::new(());

/// Finds the tickets, and whose they are. With a keytab, this asks the KDC if there are none yet.
fn credential(login: &KerberosLogin) -> Result<(Credential, String), GssError> {
    let owner = login.principal.as_deref().unwrap_or("this user");
    let (what, store) = match (&login.keytab, &login.ticket_cache) {
        (Some(keytab), _) => {
            let cache = format!("MEMORY:ottla {owner} {keytab}");
            let store = vec![("client_keytab", keytab.clone()), ("ccache", cache)];
            (
                format!("no ticket for {owner} with the keytab {keytab}"),
                store,
            )
        }
        (None, Some(cache)) => {
            let what = format!("no ticket of {owner} in the cache {cache}");
            (what, vec![("ccache", cache.clone())])
        }
        (None, None) => {
            let what = format!("no ticket of {owner} in the default cache; run kinit");
            (what, Vec::new())
        }
    };
    let store: Vec<(&str, &str)> = store.iter().map(|(key, at)| (*key, at.as_str())).collect();
    let name = login
        .principal
        .as_deref()
        .map(Name::of_principal)
        .transpose()?;
    let _guard = GETTING_TICKETS
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    let acquired = Credential::acquire(&what, name.as_ref(), Usage::Initiate, &store);
    let named = acquired.and_then(|mut credential| {
        let principal = credential.principal(&what)?;
        Ok((credential, principal))
    });
    named.map_err(|error| keytab_error(login, name.as_ref()).unwrap_or(error))
}

/// The error in the keytab. The library reports only that there is no ticket.
fn keytab_error(login: &KerberosLogin, name: Option<&Name>) -> Option<GssError> {
    let keytab = login.keytab.as_deref()?;
    let owner = login.principal.as_deref().unwrap_or("any principal");
    let what = format!("no key of {owner} in the keytab {keytab}");
    Credential::acquire(&what, name, Usage::Accept, &[("keytab", keytab)]).err()
}

impl ClientKerberos {
    /// Begins a login at a host. Returns the first message too.
    pub fn begin(login: &KerberosLogin, host: &str) -> Result<(ClientKerberos, Vec<u8>), GssError> {
        let (credential, principal) = credential(login)?;
        let service = &login.service;
        let mut login = ClientKerberos {
            credential,
            service: Name::of_service(service, host)?,
            context: SecurityContext::new()?,
            what: format!("no ticket of {principal} for the service {service}/{host}"),
            principal,
            state: State::Establishing,
        };
        let first = login.establish(&[])?;
        Ok((login, first))
    }

    fn establish(&mut self, token: &[u8]) -> Result<Vec<u8>, GssError> {
        let (context, credential) = (&mut self.context, &mut self.credential);
        let established = context.initiate(&self.what, credential, &self.service, token)?;
        if established.is_complete {
            self.state = State::Choosing;
        }
        Ok(established.token)
    }

    /// Processes a message of the broker.
    pub fn on_message(&mut self, message: &[u8]) -> Result<ClientStep, GssError> {
        match self.state {
            State::Establishing => self.establish(message).map(ClientStep::Response),
            State::Choosing => {
                let offered = self.context.unwrap(message)?;
                let chosen = security_layer::choose(&offered, &self.principal);
                let chosen = self.context.wrap(&chosen.map_err(GssError::new)?)?;
                self.state = State::Chosen;
                Ok(ClientStep::Response(chosen))
            }
            State::Chosen => Ok(ClientStep::Done),
        }
    }
}
