//! The broker's side of a login.

use ottla_sasl::KerberosService;

use crate::error::GssError;
use crate::handles::{Credential, Name, SecurityContext, Usage};
use crate::keytab::principals;
use crate::library::functions;
use crate::security_layer;

/// One login.
pub struct ServerKerberos {
    credential: Credential,
    context: SecurityContext,
    state: State,
}

enum State {
    /// The context is being established.
    Establishing,
    /// The next message of the client is empty; then the layers are offered.
    Offering {
        client: String,
    },
    /// The client's choice of a layer is expected.
    Choosing {
        client: String,
    },
    Done,
}

/// The result of a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerStep {
    Challenge(Vec<u8>),
    /// The login is complete. The client is this principal.
    Done {
        client: String,
    },
}

/// Reads the key. A login does it anew, so that a keytab can be replaced.
fn credential(service: &KerberosService) -> Result<Credential, GssError> {
    let keytab = service.keytab.as_deref();
    let place = match keytab {
        Some(keytab) => format!("the keytab {keytab}"),
        None => "the default keytab".to_owned(),
    };
    let what = match &service.principal {
        Some(principal) => format!("no key of {principal} in {place}"),
        None => format!("no key in {place}"),
    };
    let principal = service.principal.as_deref();
    let name = principal.map(Name::of_principal).transpose()?;
    let store: Vec<(&str, &str)> = keytab
        .map(|keytab| ("keytab", keytab))
        .into_iter()
        .collect();
    Credential::acquire(&what, name.as_ref(), Usage::Accept, &store)
}

/// Checks that the library, the keytab and the key of a service exist. Blocks.
pub fn check_service(service: &KerberosService) -> Result<(), GssError> {
    let Err(error) = credential(service) else {
        return Ok(());
    };
    // Without the library, no keytab is to blame.
    functions()?;
    let way_out = match &service.keytab {
        Some(keytab) => way_out(keytab, ottla_sync::fs::read(keytab)),
        None => "give the path of a keytab with keyTab".to_owned(),
    };
    Err(GssError::new(format!("{error}; {way_out}")))
}

/// What to do about a keytab without the key.
fn way_out(keytab: &str, read: std::io::Result<Vec<u8>>) -> String {
    match read.map(|bytes| principals(&bytes)) {
        Err(error) => {
            format!("{keytab} cannot be read ({error}): give the path of the keytab with keyTab")
        }
        Ok(names) if names.is_empty() => {
            format!("{keytab} has no key: export the principal's with ktadd of kadmin")
        }
        Ok(names) => format!(
            "{keytab} has keys of {}: give one of them with principal, or export the missing one with \
             ktadd of kadmin",
            names.join(", ")
        ),
    }
}

impl ServerKerberos {
    pub fn begin(service: &KerberosService) -> Result<ServerKerberos, GssError> {
        Ok(ServerKerberos {
            credential: credential(service)?,
            context: SecurityContext::new()?,
            state: State::Establishing,
        })
    }

    /// Processes a message of the client. After an error the login is over.
    pub fn on_message(&mut self, message: &[u8]) -> Result<ServerStep, GssError> {
        match std::mem::replace(&mut self.state, State::Done) {
            State::Establishing => {
                let (established, client) = self.context.accept(&mut self.credential, message)?;
                if !established.is_complete {
                    self.state = State::Establishing;
                    return Ok(ServerStep::Challenge(established.token));
                }
                let client = client.into_text()?;
                if established.token.is_empty() {
                    return self.offer(client);
                }
                self.state = State::Offering { client };
                Ok(ServerStep::Challenge(established.token))
            }
            State::Offering { client } => match message.is_empty() {
                true => self.offer(client),
                false => Err(GssError::new(
                    "the client's message before the offer of security layers is not empty",
                )),
            },
            State::Choosing { client } => {
                let chosen = self.context.unwrap(message)?;
                security_layer::check_choice(&chosen).map_err(GssError::new)?;
                Ok(ServerStep::Done { client })
            }
            State::Done => Err(GssError::new("the login is over")),
        }
    }

    fn offer(&mut self, client: String) -> Result<ServerStep, GssError> {
        let offer = self.context.wrap(&security_layer::offer())?;
        self.state = State::Choosing { client };
        Ok(ServerStep::Challenge(offer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keytab_without_the_key_says_what_it_has() {
        let missing = std::io::Error::from(std::io::ErrorKind::NotFound);
        let text = way_out("/k", Err(missing));
        assert!(text.starts_with("/k cannot be read ("), "{text}");
        let empty = way_out("/k", Ok(vec![5, 2]));
        assert!(empty.starts_with("/k has no key: "), "{empty}");
        let alice = [5, 2, 0, 0, 0, 12, 0, 1, 0, 1, b'X', 0, 5];
        let alice = [&alice[..], b"alice"].concat();
        let text = way_out("/k", Ok(alice));
        assert!(text.starts_with("/k has keys of alice@X: "), "{text}");
    }
}
