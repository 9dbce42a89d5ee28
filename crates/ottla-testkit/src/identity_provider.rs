//! An identity provider (OpenID Connect) for tests: its document, its keys, users that log in, and tokens for codes and
//! for refresh tokens. Like a real provider, it checks the client, the redirect URI, and the PKCE verifier.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use serde_json::{Value, json};

use crate::tokens::TokenIssuer;

pub const CLIENT_ID: &str = "the console";
pub const CLIENT_SECRET: &str = "hush: 1+1";

#[derive(Clone)]
pub struct IdentityProvider {
    url: String,
    state: Arc<Mutex<State>>,
}

/// The behaviour that a test may change.
pub struct Conduct {
    /// Claims of ID tokens that replace the right ones.
    pub id_claims: Value,
    /// Fields of the discovery document that replace the right ones.
    pub document: Value,
    /// Fields of the answers with tokens that replace the right ones.
    pub answer: Value,
    /// How long access tokens are valid.
    pub seconds: i64,
    /// Instead of any other answer.
    pub only_answer: Option<(u16, String)>,
    pub refuses_refreshing: bool,
}

struct State {
    conduct: Conduct,
    issuer: TokenIssuer,
    /// Logins whose codes were not used yet.
    logins: HashMap<String, Login>,
    /// The person of each refresh token.
    refresh_tokens: HashMap<String, String>,
    /// Paths of requests, in order.
    requests: Vec<String>,
    count: usize,
}

struct Login {
    user: String,
    nonce: String,
    challenge: String,
    redirect_uri: String,
}

/// Where the provider sends a browser after a login.
#[derive(Debug)]
pub struct Return {
    pub redirect_uri: String,
    pub code: String,
    pub state: String,
}

impl IdentityProvider {
    /// It answers until the process ends.
    pub fn start() -> IdentityProvider {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let provider = IdentityProvider {
            url,
            state: Arc::new(Mutex::new(State {
                conduct: Conduct {
                    id_claims: json!({}),
                    document: json!({}),
                    answer: json!({}),
                    seconds: 600,
                    only_answer: None,
                    refuses_refreshing: false,
                },
                issuer: TokenIssuer::new("first"),
                logins: HashMap::new(),
                refresh_tokens: HashMap::new(),
                requests: Vec::new(),
                count: 0,
            })),
        };
        let answering = provider.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let Some((head, body)) = request_of(&mut stream) else {
                    continue;
                };
                let (status, answer) = answering.answer(&head, &body);
                let length = answer.len();
                let text = format!(
                    "HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\nConnection: close\r\n\
                     Content-Length: {length}\r\n\r\n{answer}"
                );
                // A client may have gone.
                let _ = stream.write_all(text.as_bytes());
            }
        });
        provider
    }

    /// Its issuer.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Writes its key set, for brokers.
    pub fn write_keys(&self, path: &Path) -> PathBuf {
        self.state.lock().issuer.write_keys(path)
    }

    pub fn change(&self, change: impl FnOnce(&mut Conduct)) {
        change(&mut self.state.lock().conduct);
    }

    /// Signs with a new key from now on.
    pub fn replace_key(&self, key_id: &str) {
        self.state.lock().issuer = TokenIssuer::new(key_id);
    }

    /// The paths of the requests so far.
    pub fn requests(&self) -> Vec<String> {
        self.state.lock().requests.clone()
    }

    /// The number of refresh tokens that are good.
    pub fn refresh_tokens(&self) -> usize {
        self.state.lock().refresh_tokens.len()
    }

    /// A user logs in, in a browser that was redirected to this address.
    pub fn log_in(&self, address: &str, user: &str) -> Return {
        let (endpoint, query) = address.split_once('?').expect("a query");
        assert_eq!(endpoint, format!("{}/authorize", self.url));
        let fields = fields_of(query);
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        assert_eq!(field("response_type"), "code");
        assert_eq!(field("client_id"), CLIENT_ID);
        assert_eq!(field("code_challenge_method"), "S256");
        assert!(field("scope").split(' ').any(|it| it == "openid"));
        let mut state = self.state.lock();
        let code = state.next("code");
        let redirect_uri = field("redirect_uri");
        let login = Login {
            user: user.to_owned(),
            nonce: field("nonce"),
            challenge: field("code_challenge"),
            redirect_uri: redirect_uri.clone(),
        };
        state.logins.insert(code.clone(), login);
        Return {
            redirect_uri,
            code,
            state: field("state"),
        }
    }

    fn answer(&self, head: &str, body: &str) -> (u16, String) {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let mut state = self.state.lock();
        state.requests.push(path.to_owned());
        if let Some(only) = &state.conduct.only_answer {
            return only.clone();
        }
        match path {
            "/.well-known/openid-configuration" => (200, self.document(&state.conduct.document)),
            "/keys" => (200, state.issuer.keys()),
            "/token" if !is_client(head) => (401, json!({ "error": "invalid_client" }).to_string()),
            "/token" => self.grant(&mut state, &fields_of(body)),
            "/revoke" => {
                let fields = fields_of(body);
                let token = fields.get("token").cloned().unwrap_or_default();
                state.refresh_tokens.remove(&token);
                (200, String::new())
            }
            _ => (404, String::new()),
        }
    }

    fn document(&self, changes: &Value) -> String {
        let url = &self.url;
        let document = json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "jwks_uri": format!("{url}/keys"),
            "revocation_endpoint": format!("{url}/revoke"),
            "end_session_endpoint": format!("{url}/logout"),
            "code_challenge_methods_supported": ["S256"],
        });
        with(document, changes).to_string()
    }

    fn grant(&self, state: &mut State, fields: &HashMap<String, String>) -> (u16, String) {
        let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
        let refused = || (400, json!({ "error": "invalid_grant" }).to_string());
        let (user, nonce) = match &*field("grant_type") {
            "authorization_code" => {
                // A code is good once.
                let Some(login) = state.logins.remove(&field("code")) else {
                    return refused();
                };
                let hash = digest(&SHA256, field("code_verifier").as_bytes());
                let challenge = BASE64_URL_SAFE_NO_PAD.encode(hash);
                if challenge != login.challenge || field("redirect_uri") != login.redirect_uri {
                    return refused();
                }
                (login.user, Some(login.nonce))
            }
            "refresh_token" if !state.conduct.refuses_refreshing => {
                match state.refresh_tokens.remove(&field("refresh_token")) {
                    Some(user) => (user, None),
                    None => return refused(),
                }
            }
            _ => return refused(),
        };
        let refresh_token = state.next("refresh");
        state
            .refresh_tokens
            .insert(refresh_token.clone(), user.clone());
        let id = json!({ "iss": self.url, "aud": CLIENT_ID, "nonce": nonce });
        let id = with(id, &state.conduct.id_claims);
        let access = json!({ "iss": self.url, "aud": "kafka", "jti": state.next("token") });
        let seconds = state.conduct.seconds;
        let answer = json!({
            "token_type": "Bearer",
            "expires_in": seconds,
            "access_token": state.issuer.token(&user, seconds, &access),
            "id_token": state.issuer.token(&user, 600, &id),
            "refresh_token": refresh_token,
        });
        (200, with(answer, &state.conduct.answer).to_string())
    }
}

impl State {
    /// A name that nothing else has.
    fn next(&mut self, kind: &str) -> String {
        self.count += 1;
        format!("{kind}-{}", self.count)
    }
}

fn with(mut value: Value, changes: &Value) -> Value {
    for (name, change) in changes.as_object().into_iter().flatten() {
        value[name] = change.clone();
    }
    value
}

/// Whether a request is of the client: its ID and its secret are encoded as in forms before they become a header.
fn is_client(head: &str) -> bool {
    let mut headers = head.lines().filter_map(|line| line.split_once(": "));
    let given = headers.find(|(name, _)| name.eq_ignore_ascii_case("authorization"));
    let given = given.and_then(|(_, value)| value.strip_prefix("Basic "));
    let given = given.and_then(|it| BASE64_STANDARD.decode(it).ok());
    let Some((id, secret)) = given
        .as_deref()
        .and_then(|it| std::str::from_utf8(it).ok())
        .and_then(|it| it.split_once(':'))
    else {
        return false;
    };
    decoded(id) == CLIENT_ID && decoded(secret) == CLIENT_SECRET
}

/// The fields of a form or of a query.
pub fn fields_of(text: &str) -> HashMap<String, String> {
    let fields = text.split('&').filter_map(|field| field.split_once('='));
    fields
        .map(|(name, value)| (name.to_owned(), decoded(value)))
        .collect()
}

fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&first, more)) = rest.split_first() {
        rest = more;
        let digits = std::str::from_utf8(more.get(..2).unwrap_or_default()).unwrap_or_default();
        match (first, u8::from_str_radix(digits, 16)) {
            (b'%', Ok(byte)) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            (b'+', _) => bytes.push(b' '),
            _ => bytes.push(first),
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// The head and the body of a request.
fn request_of(stream: &mut impl Read) -> Option<(String, String)> {
    let mut request = Vec::new();
    let mut piece = [0; 4096];
    loop {
        match stream.read(&mut piece) {
            Ok(0) | Err(_) => return None,
            Ok(count) => request.extend_from_slice(&piece[..count]),
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let mut lengths = head.lines().filter_map(|line| {
                let (name, value) = line.split_once(": ")?;
                let is_length = name.eq_ignore_ascii_case("content-length");
                is_length.then(|| value.parse::<usize>().ok())?
            });
            if body.len() >= lengths.next().unwrap_or(0) {
                return Some((head.to_owned(), body.to_owned()));
            }
        }
    }
}
