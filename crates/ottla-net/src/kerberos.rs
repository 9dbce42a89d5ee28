//! Kerberos at the listeners of this node: keys are checked at start, and messages of clients are
//! passed to the library on a thread that may block.
//!
//! Kafka: `LoginManager`, which logs a listener in at start, and `SaslServerAuthenticator`.

use std::sync::Arc;

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_gssapi::{Accepted, ServerKerberos, accept, check_service};
use ottla_sasl::KerberosService;
use ottla_security::KerberosAnswer;

/// Checks that this node has the keys of these listeners, as far as they have GSSAPI. Blocks. The
/// error is for people.
pub fn check_kerberos(
    config: &BrokerConfig,
    is_checked: impl Fn(&str) -> bool,
) -> Result<(), String> {
    let services = config.sasl.kerberos_services().into_iter();
    for (listener, service) in services.filter(|(listener, _)| is_checked(listener)) {
        check_service(service)
            .map_err(|error| format!("listener {listener} with SASL GSSAPI: {error}"))?;
    }
    Ok(())
}

/// Processes a message of a client. `under_way` is the login until it ends.
pub(crate) async fn ask_kerberos(
    under_way: &mut Option<ServerKerberos>,
    service: Arc<KerberosService>,
    message: Vec<u8>,
    context: &NodeContext,
) -> KerberosAnswer {
    let complain = |what: &str, reason: String| {
        let say = || tracing::warn!("a Kerberos login is {what}: {}", reason.escape_debug());
        context.complaints.say(say);
    };
    match accept(under_way.take(), service, message).await {
        Ok(Accepted::Challenge(login, challenge)) => {
            *under_way = Some(login);
            KerberosAnswer::Challenge(challenge)
        }
        Ok(Accepted::Done {
            user: Ok(user),
            principal,
        }) => {
            tracing::debug!("the Kerberos principal {principal} is User:{user}");
            KerberosAnswer::Done { user }
        }
        Ok(Accepted::Done {
            user: Err(reason),
            principal,
        }) => {
            let reason = format!(
                "Failed to set name for '{principal}' based on Kerberos authentication rules: {reason}; add a rule \
                 to sasl.kerberos.principal.to.local.rules"
            );
            complain("accepted, but its connection is closed", reason);
            KerberosAnswer::Nameless
        }
        Err(error) if error.is_passing() => KerberosAnswer::TryAgain(error.to_string()),
        Err(error) => {
            complain("refused", error.to_string());
            KerberosAnswer::Refused
        }
    }
}

#[cfg(test)]
mod tests {
    use ottla_config::Properties;

    use super::*;

    #[test]
    fn the_error_names_the_listener_whose_key_is_missing() {
        let text = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n\
                    listeners=A://localhost:1,I://localhost:3,C://localhost:4\n\
                    inter.broker.listener.name=I\n\
                    listener.security.protocol.map=A:SASL_PLAINTEXT,I:PLAINTEXT,C:PLAINTEXT\n\
                    controller.quorum.bootstrap.servers=localhost:4\nlog.dirs=/data\n\
                    sasl.kerberos.service.name=kafka\n\
                    listener.name.a.gssapi.sasl.jaas.config=com.sun.security.auth.module.Krb5LoginModule required \
                    useKeyTab=true storeKey=true keyTab=\"/nowhere/kafka.keytab\" principal=\"kafka/localhost@X\";\n";
        let properties = Properties::parse(text, "server.properties").unwrap();
        let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
        assert_eq!(check_kerberos(&config, |listener| listener == "I"), Ok(()));
        let error = check_kerberos(&config, |_| true).unwrap_err();
        // Without the library, the error names the library.
        let says = ["/nowhere/kafka.keytab", "libgssapi-krb5-2"];
        assert!(
            error.starts_with("listener A with SASL GSSAPI: "),
            "{error}"
        );
        assert!(says.iter().any(|says| error.contains(says)), "{error}");
    }
}
