//! The audit log: one line for each change, with the user and the result.
//!
//! The target of the lines is `ottla.console.audit`, at level info. They name resources and
//! settings, never the contents of records or passwords.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{Method, StatusCode};
use parking_lot::Mutex;

/// The bytes of a request's method and path, and of what a handler adds, that a line has. A client without a login can send
/// paths of 64 KiB, and a name in a body can be longer.
const MOST_REQUEST: usize = 1024;
const MOST_WHAT: usize = 16 << 10;

/// The part that a handler adds to the line of its request.
#[derive(Clone, Default)]
pub(crate) struct AuditNote(Arc<Mutex<Note>>);

#[derive(Default)]
struct Note {
    request: String,
    is_change: bool,
    peer: Option<SocketAddr>,
    /// Of the browser behind a proxy.
    browser: Option<IpAddr>,
    user: Option<String>,
    what: String,
}

/// The address of the browser, or of a proxy in front of the console.
#[derive(Clone, Copy)]
pub(crate) struct Peer(pub(crate) SocketAddr);

impl AuditNote {
    pub(crate) fn new(request: &Request) -> AuditNote {
        let method = request.method();
        AuditNote(Arc::new(Mutex::new(Note {
            request: in_line(&format!("{method} {}", request.uri().path()), MOST_REQUEST),
            is_change: method != Method::GET && method != Method::HEAD,
            peer: request.extensions().get::<Peer>().map(|peer| peer.0),
            ..Note::default()
        })))
    }

    pub(crate) fn of_user(&self, user: Option<&str>) {
        self.0.lock().user = user.map(str::to_owned);
    }

    /// The address of the browser, as the console knows it.
    pub(crate) fn of_browser(&self, browser: IpAddr) {
        let mut note = self.0.lock();
        let is_behind = note.peer.is_some_and(|it| it.ip() != browser);
        note.browser = is_behind.then_some(browser);
    }

    pub(crate) fn peer(&self) -> Option<SocketAddr> {
        self.0.lock().peer
    }

    /// Names the changed object, beyond the path of the request.
    pub(crate) fn names(&self, what: impl AsRef<str>) {
        self.0.lock().what = in_line(what.as_ref(), MOST_WHAT);
    }

    /// The request is a preview and changes nothing.
    pub(crate) fn is_preview(&self) {
        self.0.lock().is_change = false;
    }

    /// A line about the actions of a stream since its request was logged.
    pub(crate) fn later(&self, what: &str) {
        let note = self.0.lock();
        tracing::info!(
            target: "ottla.console.audit",
            user = note.user.as_deref().unwrap_or("-"),
            request = %note.request,
            "{what}"
        );
    }
}

/// A part of a line, with at most this many bytes of the text. Line breaks must not look like separate lines.
fn in_line(text: &str, most: usize) -> String {
    let end = text.floor_char_boundary(most);
    let part = text[..end].replace(char::is_control, "\u{fffd}");
    match text.len() - end {
        0 => part,
        more => format!("{part}… ({more} bytes more)"),
    }
}

/// Writes the line of a request that was to change something.
pub(crate) fn record(note: &AuditNote, status: StatusCode) {
    let note = note.0.lock();
    if !note.is_change {
        return;
    }
    tracing::info!(
        target: "ottla.console.audit",
        user = note.user.as_deref().unwrap_or("-"),
        peer = %note.peer.map_or_else(|| "-".to_owned(), |peer| peer.to_string()),
        browser = note.browser.map(tracing::field::display),
        request = %note.request,
        status = status.as_u16(),
        "{}",
        message(status, &note.what)
    );
}

/// How a change ended, and what it was, if its request does not say.
fn message(status: StatusCode, what: &str) -> String {
    let outcome = match status {
        _ if status.is_success() => "changed",
        _ if status.is_client_error() => "refused",
        _ => "failed",
    };
    match what.is_empty() {
        true => outcome.to_owned(),
        false => format!("{outcome}: {what}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_message_says_how_a_change_ended() {
        for (status, what, text) in [
            (StatusCode::NO_CONTENT, "", "changed"),
            (StatusCode::OK, "3 records", "changed: 3 records"),
            (StatusCode::FORBIDDEN, "", "refused"),
            (StatusCode::BAD_GATEWAY, "to b", "failed: to b"),
        ] {
            assert_eq!(message(status, what), text);
        }
    }

    #[test]
    fn a_name_with_line_breaks_stays_one_line() {
        let note = AuditNote::default();
        note.names("to a\r\nuser=root \u{1b}[2Jb");
        let what = &note.0.lock().what;
        assert_eq!(what, "to a\u{fffd}\u{fffd}user=root \u{fffd}[2Jb");
    }

    #[test]
    fn a_line_is_bounded() {
        let path = format!("/{}", "x".repeat(60_000));
        let request = Request::delete(path).body(axum::body::Body::empty());
        let note = AuditNote::new(&request.unwrap());
        note.names("é".repeat(100_000));
        let note = note.0.lock();
        assert!(note.request.len() < MOST_REQUEST + 100, "{}", note.request);
        assert!(note.request.ends_with("bytes more)"), "{}", note.request);
        assert!(note.what.len() < MOST_WHAT + 100, "{}", note.what.len());
        assert!(note.what.starts_with("éé") && note.what.ends_with("… (183616 bytes more)"));
    }
}
