//! Reads the keys of token issuers from `sasl.oauthbearer.jwks.endpoint.url`: at start, and then
//! periodically.
//!
//! If a source cannot be read at start, the start fails, as in Kafka. If it cannot be read later,
//! the previous keys stay in use, and the read is retried after
//! `sasl.oauthbearer.jwks.endpoint.retry.backoff.ms`, twice that, and so on.
//!
//! Kafka: `RefreshingHttpsJwks`, `JwksFileVerificationKeyResolver`.

use std::sync::Arc;
use std::time::Duration;

use ottla_context::NodeContext;
use ottla_oauth::read_issuer_keys;
use ottla_sasl::KeySource;
use ottla_sasl::oauth_token::KeySet;
use ottla_sync::task::AbortHandle;

/// How often each source is checked for a due read.
const CHECK: Duration = Duration::from_secs(1);

/// Reads all sources of the configuration in parallel. Blocks. The error is for people.
pub fn load_token_keys(context: &NodeContext) -> Result<(), String> {
    let sources = context.config().sasl.key_sources();
    let load = |source: &KeySource| {
        let keys = KeySet::parse(&read(source)?).map_err(|error| of_source(source, &error))?;
        context.token_keys.set(source, keys);
        Ok(())
    };
    ottla_sync::thread::scope(|scope| {
        let reads = sources
            .iter()
            .map(|source| scope.spawn(move || load(source)));
        let reads: Vec<_> = reads.collect();
        reads.into_iter().try_for_each(|read| {
            let outcome = read.join();
            outcome
                .unwrap_or_else(|_| Err("the thread that reads keys of tokens panicked".to_owned()))
        })
    })
}

/// Reads the sources again until the node stops: a file every second, and a URL every
/// `sasl.oauthbearer.jwks.endpoint.refresh.ms`, or when a token names an unknown key. Each source
/// has its own task, so that a source that does not answer does not delay the others.
pub async fn keep_token_keys(context: Arc<NodeContext>) {
    let mut readers: Vec<(KeySource, AbortHandle)> = Vec::new();
    let following = async {
        loop {
            let sources = context.config().sasl.key_sources();
            readers.retain(|(source, task)| {
                let is_named = sources.contains(source);
                if !is_named {
                    task.abort();
                }
                is_named
            });
            for source in sources {
                if !readers.iter().any(|(known, _)| *known == source) {
                    let reading =
                        keep_reading(Reader::new(source.clone(), &context), Arc::clone(&context));
                    readers.push((source, ottla_sync::task::spawn(reading).abort_handle()));
                }
            }
            ottla_sync::time::sleep(CHECK).await;
        }
    };
    ottla_sync::select! {
        () = following => {}
        () = context.stopping() => {}
    }
    for (_, task) in readers {
        task.abort();
    }
}

async fn keep_reading(mut reader: Reader, context: Arc<NodeContext>) {
    loop {
        ottla_sync::time::sleep(CHECK).await;
        reader.read_if_due(&context).await;
    }
}

/// A source and the state of its reads.
struct Reader {
    source: KeySource,
    due_at_ms: u64,
    backoff: Duration,
    /// The text of the last read.
    last: Option<String>,
}

impl Reader {
    fn new(source: KeySource, context: &NodeContext) -> Reader {
        let now_ms = context.now_ms();
        Reader {
            due_at_ms: match context.token_keys.of(&source) {
                Some(_) if !is_file(&source) => now_ms + millis(source.refresh),
                _ => now_ms,
            },
            backoff: source.retry_backoff,
            last: None,
            source,
        }
    }

    async fn read_if_due(&mut self, context: &NodeContext) {
        let is_missing = context.token_keys.take_missing(&self.source);
        if context.now_ms() < self.due_at_ms && !is_missing {
            return;
        }
        let source = self.source.clone();
        let read = ottla_sync::task::spawn_blocking(move || read(&source)).await;
        let read = read.unwrap_or_else(|error| Err(of_source(&self.source, &error.to_string())));
        let outcome = read.and_then(|text| {
            if self.last.as_ref() != Some(&text) {
                let keys = KeySet::parse(&text);
                let keys = keys.map_err(|error| of_source(&self.source, &error))?;
                context.token_keys.set(&self.source, keys);
                self.last = Some(text);
            }
            Ok(())
        });
        let wait = match outcome {
            Ok(()) => {
                self.backoff = self.source.retry_backoff;
                match is_file(&self.source) {
                    true => CHECK,
                    false => self.source.refresh,
                }
            }
            Err(error) => {
                tracing::warn!("{error}; the previous keys stay in force");
                let wait = self.backoff;
                self.backoff = (wait * 2).min(self.source.retry_backoff_max.max(CHECK));
                wait.max(CHECK)
            }
        };
        self.due_at_ms = context.now_ms() + millis(wait);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

fn of_source(source: &KeySource, error: &str) -> String {
    format!(
        "sasl.oauthbearer.jwks.endpoint.url={}: {error}; without these keys no token can be verified",
        source.url
    )
}

fn is_file(source: &KeySource) -> bool {
    source.url.starts_with("file:")
}

/// Reads the text of a source. Blocks.
fn read(source: &KeySource) -> Result<String, String> {
    read_issuer_keys(source).map_err(|error| of_source(source, &error))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::Barrier;

    use ottla_config::{BrokerConfig, Properties};
    use ottla_testkit::tokens::TokenIssuer;

    use super::*;

    /// Less than the ten seconds after which a silent source is given up.
    const SOON: Duration = Duration::from_secs(7);

    /// Two listeners, the first with the keys at `first`, the other with those at `second`.
    fn context(first: &str, second: &str) -> Arc<NodeContext> {
        let mut text = "process.roles=broker,controller\nnode.id=1\ncontroller.listener.names=C\n\
                        listeners=A://localhost:1,B://localhost:2,I://localhost:3,C://localhost:4\n\
                        inter.broker.listener.name=I\n\
                        listener.security.protocol.map=A:SASL_PLAINTEXT,B:SASL_PLAINTEXT,I:PLAINTEXT,C:PLAINTEXT\n\
                        controller.quorum.bootstrap.servers=localhost:4\nlog.dirs=/data\n\
                        sasl.enabled.mechanisms=OAUTHBEARER\n"
            .to_owned();
        for (name, url) in [("a", first), ("b", second)] {
            let listener = format!("listener.name.{name}.");
            text += &format!(
                "{listener}oauthbearer.sasl.server.callback.handler.class=\
                 org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler\n\
                 {listener}sasl.oauthbearer.jwks.endpoint.url={url}\n"
            );
        }
        let properties = Properties::parse(&text, "server.properties").unwrap();
        let (config, _) = BrokerConfig::from_properties(&properties).unwrap();
        Arc::new(NodeContext::new(config))
    }

    /// Serves the keys of this issuer once, after `wait`, then accepts connections without answering.
    fn serving_once(issuer: &TokenIssuer, wait: impl Fn() + Send + 'static) -> String {
        let dir = tempfile::tempdir().unwrap();
        let keys = issuer.write_keys(&dir.path().join("keys.json"));
        let body = std::fs::read_to_string(keys).unwrap();
        let length = body.len();
        let answer = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/keys", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let mut held = Vec::new();
            for (number, stream) in listener.incoming().enumerate() {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4096]);
                if number == 0 {
                    wait();
                    let _ = stream.write_all(answer.as_bytes());
                } else {
                    held.push(stream);
                }
            }
        });
        url
    }

    #[test]
    fn sources_are_read_at_the_same_time() {
        let issuer = TokenIssuer::new("one");
        // Each answers when both have been asked.
        let both = Arc::new(Barrier::new(2));
        let [first, second] = [(); 2].map(|()| {
            let both = Arc::clone(&both);
            serving_once(&issuer, move || {
                both.wait();
            })
        });
        let context = context(&first, &second);
        load_token_keys(&context).unwrap();
        for source in context.config().sasl.key_sources() {
            assert!(
                context
                    .token_keys
                    .of(&source)
                    .is_some_and(|keys| keys.has("one"))
            );
        }
    }

    #[tokio::test]
    async fn a_silent_source_does_not_delay_others() {
        let dir = tempfile::tempdir().unwrap();
        let (issuer, next) = (TokenIssuer::new("one"), TokenIssuer::new("two"));
        let file = issuer.write_keys(&dir.path().join("keys.json"));
        let silent = serving_once(&issuer, || {});
        let context = context(&silent, &format!("file://{}", file.display()));
        load_token_keys(&context).unwrap();
        let sources = context.config().sasl.key_sources();
        let keeping = ottla_sync::task::spawn(keep_token_keys(Arc::clone(&context)));
        context
            .token_keys
            .on_missing(&sources[0], "two", context.now_ms());
        // By then the first is asked, and does not answer.
        ottla_sync::time::sleep(2 * CHECK).await;
        next.write_keys(&file);
        let changed = async {
            while !context
                .token_keys
                .of(&sources[1])
                .is_some_and(|keys| keys.has("two"))
            {
                ottla_sync::time::sleep(CHECK / 20).await;
            }
        };
        ottla_sync::time::timeout(SOON, changed).await.unwrap();
        keeping.abort();
    }

    #[test]
    fn the_error_names_the_source_that_cannot_be_read() {
        let context = context("file:///nowhere/keys.json", "file:///nowhere/keys.json");
        let gone = load_token_keys(&context).unwrap_err();
        let expected =
            "sasl.oauthbearer.jwks.endpoint.url=file:///nowhere/keys.json: cannot be read";
        assert!(gone.starts_with(expected), "{gone}");
    }
}
