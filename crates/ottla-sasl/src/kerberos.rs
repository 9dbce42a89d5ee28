//! The principal of a Kerberos login, from a JAAS entry of Java's `Krb5LoginModule`.
//!
//! Supported options: `useKeyTab`, `keyTab`, `principal`, `storeKey`, `useTicketCache`,
//! `ticketCache` and `serviceName`. The other options control how Java asks for passwords and reads
//! `krb5.conf`; the library here does so by itself.
//!
//! Kafka: `KerberosLogin`.

use crate::jaas::LoginModule;
use crate::kerberos_rules::{KerberosName, KerberosRules};

/// The service that clients of a listener log in to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KerberosService {
    /// `kafka/broker.example.com@EXAMPLE.COM`. `None` is any in the keytab.
    pub principal: Option<String>,
    /// The path of the keytab. `None` is the library's: `KRB5_KTNAME`, or `/etc/krb5.keytab`.
    pub keytab: Option<String>,
    pub rules: KerberosRules,
}

/// A client's login.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KerberosLogin {
    /// The first part of the name of the brokers' principals.
    pub service: String,
    /// `None` is the principal of the tickets.
    pub principal: Option<String>,
    /// The path of the keytab with the client's key. `None` if another program, such as `kinit`,
    /// gets its tickets.
    pub keytab: Option<String>,
    /// The file of tickets. `None` is the library's: `KRB5CCNAME`, or a file of the user. Not used
    /// with a keytab.
    pub ticket_cache: Option<String>,
}

/// What Java reads without `keyTab`.
const DEFAULT_KEYTAB: &str = "/etc/krb5.keytab";
/// The options that are used.
const OPTIONS: [&str; 7] = [
    "keyTab",
    "principal",
    "serviceName",
    "storeKey",
    "ticketCache",
    "useKeyTab",
    "useTicketCache",
];
/// The options that are on or off.
const SWITCHES: [&str; 3] = ["storeKey", "useKeyTab", "useTicketCache"];
const KEYTAB_EXAMPLE: &str = "useKeyTab=true storeKey=true keyTab=\"/etc/kafka.keytab\" \
                              principal=\"kafka/broker.example.com@EXAMPLE.COM\"";

impl KerberosService {
    /// The error is for people.
    pub fn of_entry(entry: &LoginModule, rules: KerberosRules) -> Result<KerberosService, String> {
        check_options(entry)?;
        if !is_on(entry, "useKeyTab") || !is_on(entry, "storeKey") {
            return Err(format!(
                "a listener needs a key for its service; give useKeyTab and storeKey, such as {KEYTAB_EXAMPLE}"
            ));
        }
        let principal = entry.option("principal").ok_or_else(|| {
            format!("there is no principal; give that of the service, such as {KEYTAB_EXAMPLE}")
        })?;
        let principal = (principal != "*").then(|| principal.to_owned());
        if let Some(principal) = &principal {
            KerberosName::parse(principal)
                .map_err(|_| format!("Principal has name with unexpected format {principal}"))?;
        }
        Ok(KerberosService {
            principal,
            keytab: entry.option("keyTab").map(path),
            rules,
        })
    }
}

impl KerberosLogin {
    /// `service_name` is `sasl.kerberos.service.name`. The error is for people.
    pub fn of_entry(
        entry: &LoginModule,
        service_name: Option<&str>,
    ) -> Result<KerberosLogin, String> {
        check_options(entry)?;
        let service = service_name_of(entry, service_name)?;
        let principal = entry.option("principal").map(str::to_owned);
        let uses_keytab = is_on(entry, "useKeyTab");
        if !uses_keytab && !is_on(entry, "useTicketCache") {
            return Err(format!(
                "there is neither a key nor a ticket to log in with; give useTicketCache=true after kinit, or \
                 {KEYTAB_EXAMPLE}"
            ));
        }
        if uses_keytab && principal.as_deref().is_none_or(|it| it == "*") {
            return Err(format!(
                "there is no principal to log in as; give it, such as {KEYTAB_EXAMPLE}"
            ));
        }
        let keytab = entry.option("keyTab").unwrap_or(DEFAULT_KEYTAB);
        Ok(KerberosLogin {
            service,
            principal,
            keytab: uses_keytab.then(|| path(keytab)),
            ticket_cache: entry.option("ticketCache").map(path),
        })
    }
}

/// The name of the brokers' service, from the entry or from a setting.
pub fn service_name_of(entry: &LoginModule, configured: Option<&str>) -> Result<String, String> {
    match (entry.option("serviceName"), configured) {
        (Some(one), Some(other)) if one != other => Err(format!(
            "Conflicting serviceName values found in JAAS and Kafka configs value in JAAS file {one}, value in Kafka \
             config {other}"
        )),
        (Some(name), _) | (None, Some(name)) => Ok(name.to_owned()),
        (None, None) => Err(
            "No serviceName defined in either JAAS or Kafka config; give sasl.kerberos.service.name=kafka, or what \
             the principals of the brokers begin with"
                .to_owned(),
        ),
    }
}

/// Java accepts a path, or a URL of a file.
fn path(text: &str) -> String {
    let text = text.strip_prefix("FILE:").unwrap_or(text);
    text.strip_prefix("file://").unwrap_or(text).to_owned()
}

/// Refuses an option in the wrong case, and a switch that is neither on nor off. Java ignores both
/// without a message, and then logs in with another key or with none.
fn check_options(entry: &LoginModule) -> Result<(), String> {
    for (name, value) in entry.options() {
        let meant = OPTIONS.iter().find(|it| it.eq_ignore_ascii_case(name));
        if let Some(meant) = meant
            && *meant != name
            && entry.option(meant).is_none()
        {
            return Err(format!(
                "{name} is not an option of Kerberos logins; give {meant}, in this case"
            ));
        }
        let is_switch = SWITCHES.contains(&name);
        let is_clear = ["true", "false"]
            .iter()
            .any(|it| value.eq_ignore_ascii_case(it));
        if is_switch && !is_clear {
            return Err(format!(
                "{name}={value} is neither on nor off; give {name}=true or {name}=false"
            ));
        }
    }
    Ok(())
}

fn is_on(entry: &LoginModule, option: &str) -> bool {
    entry
        .option(option)
        .is_some_and(|value| value.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jaas::parse_property;
    use crate::mechanism::Mechanism;

    fn entry(options: &str) -> LoginModule {
        let module = Mechanism::Gssapi.login_module();
        parse_property(&format!("{module} required {options};")).unwrap()
    }

    #[test]
    fn the_service_comes_from_its_entry() {
        let rules = || KerberosRules::parse(["DEFAULT"]).unwrap();
        let service = |options: &str| KerberosService::of_entry(&entry(options), rules());
        let key = "useKeyTab=true storeKey=true keyTab=\"/k\"";
        let full = service(&format!("{key} principal=\"kafka/b@X\"")).unwrap();
        assert_eq!(full.principal.as_deref(), Some("kafka/b@X"));
        assert_eq!(full.keytab.as_deref(), Some("/k"));
        let any = service(&format!("{key} principal=\"*\"")).unwrap();
        assert_eq!(any.principal, None);
        for (options, says) in [
            (
                "useKeyTab=true principal=\"kafka/b@X\"".to_owned(),
                "storeKey",
            ),
            (
                "storeKey=true principal=\"kafka/b@X\"".to_owned(),
                "useKeyTab",
            ),
            (key.to_owned(), "there is no principal"),
            (
                format!("{key} principal=\"a/b/c@X\""),
                "unexpected format a/b/c@X",
            ),
        ] {
            let error = service(&options).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_slip_in_an_option_is_refused_instead_of_passed_over() {
        let login = |options: &str| KerberosLogin::of_entry(&entry(options), Some("kafka"));
        for (options, says) in [
            (
                "useKeyTab=true keytab=\"/k\" principal=\"a@X\"",
                "keytab is not an option of Kerberos logins; give keyTab",
            ),
            (
                "useKeyTab=yes keyTab=\"/k\" principal=\"a@X\"",
                "useKeyTab=yes is neither on nor off; give useKeyTab=true",
            ),
        ] {
            let error = login(options).unwrap_err();
            assert!(error.starts_with(says), "{error}");
        }
        let java = "useTicketCache=true debug=yes useKeyTab=FALSE keyTab=\"/k\" keytab=\"/l\"";
        assert!(login(java).is_ok());
    }

    #[test]
    fn a_client_has_a_keytab_or_tickets() {
        let login = |options: &str| KerberosLogin::of_entry(&entry(options), Some("kafka"));
        let with_key = login("useKeyTab=true keyTab=\"file:///k\" principal=\"a@X\"").unwrap();
        assert_eq!(with_key.keytab.as_deref(), Some("/k"));
        assert_eq!(with_key.service, "kafka");
        let default = login("useKeyTab=true principal=\"a@X\"").unwrap();
        assert_eq!(default.keytab.as_deref(), Some(DEFAULT_KEYTAB));
        let tickets = login("useTicketCache=true ticketCache=\"FILE:/t\" keyTab=\"/k\"").unwrap();
        assert_eq!(tickets.keytab, None);
        assert_eq!(tickets.ticket_cache.as_deref(), Some("/t"));
        for (options, says) in [
            ("principal=\"a@X\"", "neither a key nor a ticket"),
            ("useKeyTab=true", "no principal to log in as"),
            (
                "useTicketCache=true serviceName=other",
                "Conflicting serviceName",
            ),
        ] {
            let error = login(options).unwrap_err();
            assert!(error.contains(says), "{error}");
        }
        let nameless = KerberosLogin::of_entry(&entry("useTicketCache=true"), None).unwrap_err();
        assert!(nameless.contains("No serviceName defined"), "{nameless}");
        let named = entry("useTicketCache=true serviceName=other");
        let named = KerberosLogin::of_entry(&named, None).unwrap();
        assert_eq!(named.service, "other");
    }
}
