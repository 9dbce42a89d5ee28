//! The audit log: authorisation decisions in the format of Kafka's logger
//! `kafka.authorizer.logger`, and for a denial also the command that would allow the request.
//!
//! A client that is denied in a loop must neither fill the disk nor hide the denials of other
//! clients. Therefore the number of lines per second is limited, for each principal and address and
//! in total. The next denial after that second reports the number of omitted denials.
//! `ottla.audit.file` and `ottla.audit.topic` receive the same decisions as JSON, and allowed requests
//! if configured. Text that a client chose is always written on one line, and is cut if it is long.

mod queue;

mod file;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Instant;

use ottla_config::BrokerConfig;
use ottla_context::NodeContext;
use ottla_metrics::line_limit::LineLimit;
use ottla_protocol::ApiKey;
use ottla_security::{
    Action, Client, Operation, ResourceType, Rule, StandardAuthorizer, escaped, flags_to_allow,
};
use ottla_sync::Mutex;
use serde_json::Value;

pub use queue::{AuditQueue, AuditReports, lost_line};

const LOGGER: &str = "kafka.authorizer.logger";
/// The maximum number of denials per second of one principal and address.
const DENIALS_OF_ONE: u64 = 10;
/// The maximum number of denials per second in total.
const DENIALS_OF_ALL: u64 = 200;

/// The maximum number of characters of a name. A client may send longer ones to fill the disk.
const LONGEST_NAME: usize = 1_024;

/// Checks that decisions can be written to `ottla.audit.file`, if there are any. Changes nothing. The
/// error starts with the setting.
pub fn check_audit_file(config: &BrokerConfig) -> Result<(), String> {
    match &config.ottla_audit_file {
        Some(path) if config.has_authorizer() => file::check(path),
        _ => Ok(()),
    }
}

/// The audit log of an authorizer.
#[derive(Debug)]
pub(crate) struct Audit {
    since: Instant,
    /// Per second.
    denials: Mutex<LineLimit>,
    /// Which decisions the file and the topic receive.
    has_denied: bool,
    has_allowed: bool,
    file: Option<AuditFile>,
    topic: Option<Arc<AuditTopic>>,
}

/// `ottla.audit.file`.
#[derive(Debug)]
struct AuditFile {
    path: String,
    queue: Arc<AuditQueue>,
}

/// `ottla.audit.topic`. The broker, which can reach the leaders of the topic, writes it.
#[derive(Debug)]
pub struct AuditTopic {
    pub name: String,
    pub queue: AuditQueue,
}

impl AuditTopic {
    /// Whether a client, a broker among them, writes or reads the topic itself. Each write would
    /// otherwise cause the next one, and so would each read of a consumer.
    fn is_used_by(&self, action: Action<'_>) -> bool {
        let is_use = matches!(
            action.operation,
            Operation::Read | Operation::Write | Operation::Describe
        );
        is_use && action.resource_type == ResourceType::Topic && action.name == self.name
    }
}

impl Audit {
    pub fn new(config: &BrokerConfig) -> Audit {
        let has = |event: &str| config.ottla_audit_events.iter().any(|it| it == event);
        let file = config.ottla_audit_file.clone().map(|path| AuditFile {
            path,
            queue: Arc::default(),
        });
        let topic = config.ottla_audit_topic.clone();
        let topic = topic.filter(|_| config.process_roles.broker);
        let topic = topic.map(|name| {
            Arc::new(AuditTopic {
                name,
                queue: AuditQueue::default(),
            })
        });
        Audit {
            since: ottla_sync::time::now(),
            denials: Mutex::new(LineLimit::new(DENIALS_OF_ONE, DENIALS_OF_ALL)),
            has_denied: has("denied"),
            has_allowed: has("allowed"),
            file,
            topic,
        }
    }

    pub fn topic(&self) -> Option<&Arc<AuditTopic>> {
        self.topic.as_ref()
    }

    /// The queues of the file and the topic, if they are configured, with their names.
    pub fn queues(&self) -> impl Iterator<Item = (&'static str, &AuditQueue)> {
        let file = self.file.as_ref().map(|file| ("file", &*file.queue));
        let topic = self.topic.as_ref().map(|topic| ("topic", &topic.queue));
        file.into_iter().chain(topic)
    }

    fn push(&self, line: &Value, action: Action<'_>, rule: &Rule) {
        let line: Arc<str> = line.to_string().into();
        if let Some(file) = &self.file {
            file.queue.push(Arc::clone(&line));
        }
        if let Some(topic) = &self.topic
            && !(rule.is_allowed() && topic.is_used_by(action))
        {
            topic.queue.push(line);
        }
    }

    /// Writes the file, if it is configured, until the node stops.
    pub fn write_file(&self, context: &Arc<NodeContext>) -> impl Future<Output = ()> + use<> {
        let file = self.file.as_ref();
        let writing = file.map(|file| {
            let queue = Arc::clone(&file.queue);
            file::write(queue, Arc::clone(context), file.path.clone())
        });
        async {
            if let Some(writing) = writing {
                writing.await;
            }
        }
    }

    pub fn on_allowed(
        &self,
        authorizer: &StandardAuthorizer,
        client: Client<'_>,
        action: Action<'_>,
        api_key: ApiKey,
    ) {
        let is_logged = tracing::enabled!(target: LOGGER, tracing::Level::DEBUG);
        let is_kept = self.has_allowed && self.queues().next().is_some();
        if !is_logged && !is_kept {
            return;
        }
        let rule = authorizer.explain(client, action).rule;
        let (principal, name) = (shortened(client.principal), shortened(action.name));
        let (client, action) = with_names(client, action, &principal, &name);
        if is_logged {
            tracing::debug!(target: LOGGER, "{}", line(client, action, api_key, &rule));
        }
        if is_kept {
            let line = queue::line(client, action, api_key, &rule, None);
            self.push(&line, action, &rule);
        }
    }

    /// Logs a denial. `is_asked` is false if the client did not name the resource, and the response
    /// just leaves it out.
    pub fn on_denied(
        &self,
        authorizer: &StandardAuthorizer,
        client: Client<'_>,
        action: Action<'_>,
        api_key: ApiKey,
        is_asked: bool,
    ) {
        if !is_asked {
            if tracing::enabled!(target: LOGGER, tracing::Level::TRACE) {
                let rule = authorizer.explain(client, action).rule;
                let (principal, name) = (shortened(client.principal), shortened(action.name));
                let (client, action) = with_names(client, action, &principal, &name);
                tracing::trace!(target: LOGGER, "{}", line(client, action, api_key, &rule));
            }
            return;
        }
        let second = ottla_sync::time::elapsed(self.since).as_secs();
        let of = (client.principal, client.host);
        let (has_room, left_out) = self.denials.lock().count(second, of);
        if left_out > 0 {
            tracing::info!(target: LOGGER, "{left_out} more denials were not logged");
        }
        if !has_room {
            if self.has_denied {
                self.queues().for_each(|(_, queue)| queue.lose(1));
            }
            return;
        }
        let rule = authorizer.explain(client, action).rule;
        let (principal, name) = (shortened(client.principal), shortened(action.name));
        let (client, action) = with_names(client, action, &principal, &name);
        let way_out = way_out(client, action, &rule);
        tracing::info!(target: LOGGER, "{}", line(client, action, api_key, &rule));
        tracing::info!(target: LOGGER, "to allow it: {way_out}");
        if self.has_denied {
            let line = queue::line(client, action, api_key, &rule, Some(&way_out));
            self.push(&line, action, &rule);
        }
    }
}

/// A name, or its beginning and a mark if it is long.
fn shortened(name: &str) -> Cow<'_, str> {
    match name.char_indices().nth(LONGEST_NAME) {
        Some((end, _)) => Cow::Owned(format!("{}…", &name[..end])),
        None => Cow::Borrowed(name),
    }
}

fn with_names<'a>(
    client: Client<'a>,
    action: Action<'_>,
    principal: &'a str,
    name: &'a str,
) -> (Client<'a>, Action<'a>) {
    let Action {
        operation,
        resource_type,
        ..
    } = action;
    let client = Client {
        principal,
        host: client.host,
    };
    let action = Action {
        operation,
        resource_type,
        name,
    };
    (client, action)
}

/// Kafka: `StandardAuthorizerData.buildAuditMessage`.
fn line(client: Client<'_>, action: Action<'_>, api_key: ApiKey, rule: &Rule) -> String {
    let Client { principal, host } = client;
    let Action {
        operation,
        resource_type,
        name,
    } = action;
    let is = match rule.is_allowed() {
        true => "Allowed",
        false => "Denied",
    };
    let rule = rule.to_string();
    let (principal, name, rule) = (escaped(principal), escaped(name), escaped(&rule));
    format!(
        "Principal = {principal} is {is} operation = {operation} from host = {host} on resource = \
         {}:LITERAL:{name} for request = {} with resourceRefCount = 1 based on rule {rule}",
        resource_type.title(),
        api_key.name(),
    )
}

/// The command that an administrator could run to allow the request.
fn way_out(client: Client<'_>, action: Action<'_>, rule: &Rule) -> String {
    let add = format!("ottla acls {}", flags_to_allow(client, action));
    match rule {
        Rule::Acl(acl) => {
            let acl = acl.to_string();
            let acl = escaped(&acl);
            format!("remove the ACL that denies it ({acl}), then: {add}")
        }
        _ => add,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLIENT: Client<'_> = Client {
        principal: "User:ANONYMOUS",
        host: "127.0.0.1",
    };
    const ACTION: Action<'_> = Action {
        operation: Operation::Read,
        resource_type: ResourceType::Topic,
        name: "foo",
    };

    #[test]
    fn a_line_has_the_format_of_kafka() {
        assert_eq!(
            line(CLIENT, ACTION, ApiKey::Fetch, &Rule::DefaultDeny),
            "Principal = User:ANONYMOUS is Denied operation = READ from host = 127.0.0.1 on resource \
             = Topic:LITERAL:foo for request = Fetch with resourceRefCount = 1 based on rule \
             DefaultDeny"
        );
    }

    #[test]
    fn a_denial_names_the_command_that_would_allow_it() {
        let hostile = Action {
            name: "a'; rm\n",
            ..ACTION
        };
        assert_eq!(
            way_out(CLIENT, ACTION, &Rule::DefaultDeny),
            "ottla acls --add --allow-principal User:ANONYMOUS --allow-host 127.0.0.1 --operation Read \
             --topic foo"
        );
        let out = way_out(CLIENT, hostile, &Rule::DefaultDeny);
        assert!(out.ends_with(r"--topic 'a'\''; rm'"), "{out}");
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(shortened("é"), "é");
        let longest = "é".repeat(LONGEST_NAME);
        assert_eq!(shortened(&longest), longest);
        assert_eq!(shortened(&format!("{longest}é")), format!("{longest}…"));
        let name = "\u{1}".repeat(32_000);
        let name = shortened(&name);
        let (client, action) = with_names(CLIENT, ACTION, CLIENT.principal, &name);
        let (rule, command) = (
            Rule::DefaultDeny,
            way_out(client, action, &Rule::DefaultDeny),
        );
        let written = queue::line(client, action, ApiKey::Fetch, &rule, Some(&command));
        assert!(written.to_string().len() < 20 * LONGEST_NAME);
    }

    #[test]
    fn a_client_cannot_inject_lines() {
        let forging = Client {
            principal: "User:a\nPrincipal = User:b",
            ..CLIENT
        };
        let hostile = Action {
            name: "a\r\n\u{1b}[2J\u{2028}b",
            ..ACTION
        };
        let written = line(forging, hostile, ApiKey::Fetch, &Rule::DefaultDeny);
        assert!(!written.contains(char::is_control), "{written:?}");
        assert!(
            written.contains(r"Topic:LITERAL:a\r\n\u{1b}[2J\u{2028}b for"),
            "{written}"
        );
    }

    #[test]
    fn reading_and_writing_the_topic_is_not_written_to_it() {
        let topic = AuditTopic {
            name: "foo".to_owned(),
            queue: AuditQueue::default(),
        };
        let with = |operation, resource_type, name| Action {
            operation,
            resource_type,
            name,
        };
        for used in [Operation::Read, Operation::Write, Operation::Describe] {
            assert!(topic.is_used_by(with(used, ResourceType::Topic, "foo")));
            assert!(!topic.is_used_by(with(used, ResourceType::Topic, "bar")));
            assert!(!topic.is_used_by(with(used, ResourceType::Group, "foo")));
        }
        for change in [Operation::Delete, Operation::AlterConfigs, Operation::Alter] {
            assert!(!topic.is_used_by(with(change, ResourceType::Topic, "foo")));
        }
    }
}
