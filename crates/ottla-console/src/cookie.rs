//! The cookies that a console sets: for a session, and for a browser in which a user has logged in.
//!
//! Browsers send a cookie to every port of a host. The random part of its name distinguishes the consoles on one host,
//! and only the console that set it knows its value: sessions and browsers are in its memory. Over TLS, the prefix
//! `__Host-` keeps other hosts of the domain, and pages without TLS, from setting it.

use std::time::Duration;

use axum::http::{HeaderMap, header};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

pub(crate) struct Cookie {
    name: String,
    /// Over TLS.
    host_name: String,
    /// Without it, the browser forgets the cookie when it is closed.
    age: Option<Duration>,
}

impl Cookie {
    pub(crate) fn new(age: Option<Duration>) -> Cookie {
        let instance = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 6]>());
        let name = format!("ottla-console-{instance}");
        Cookie {
            host_name: format!("__Host-{name}"),
            name,
            age,
        }
    }

    fn name(&self, headers: &HeaderMap) -> &str {
        match is_secure(headers) {
            true => &self.host_name,
            false => &self.name,
        }
    }

    /// The value that a browser has sent.
    pub(crate) fn token<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        let name = self.name(headers);
        let values = headers.get_all(header::COOKIE).iter();
        let mut cookies = values
            .filter_map(|value| value.to_str().ok())
            .flat_map(|value| value.split(';'));
        cookies.find_map(|cookie| cookie.trim().strip_prefix(name)?.strip_prefix('='))
    }

    /// The header `Set-Cookie` for a browser whose request had these headers.
    pub(crate) fn set(&self, headers: &HeaderMap, token: &str) -> String {
        let secure = if is_secure(headers) { "; Secure" } else { "" };
        let age = self.age.map(|it| format!("; Max-Age={}", it.as_secs()));
        format!(
            "{}={token}; Path=/; HttpOnly; SameSite=Strict{}{secure}",
            self.name(headers),
            age.unwrap_or_default()
        )
    }

    /// Has the browser forget it.
    pub(crate) fn clear(&self, headers: &HeaderMap) -> String {
        format!("{}; Max-Age=0", self.set(headers, ""))
    }
}

/// A proxy that serves HTTPS says so; the cookie then never travels without.
pub(crate) fn is_secure(headers: &HeaderMap) -> bool {
    headers
        .get("x-forwarded-proto")
        .is_some_and(|scheme| scheme == "https")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(of: &[(&'static str, &str)]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for (name, value) in of {
            headers.append(*name, value.parse().unwrap());
        }
        headers
    }

    #[test]
    fn a_console_takes_the_cookie_that_it_has_given() {
        let cookie = Cookie::new(None);
        for scheme in ["http", "https"] {
            let asked = headers(&[("x-forwarded-proto", scheme)]);
            let set = cookie.set(&asked, "secret");
            let (given, marks) = set.split_once(';').unwrap();
            let is_secure = scheme == "https";
            assert_eq!(given.starts_with("__Host-"), is_secure, "{set}");
            assert_eq!(marks.ends_with("; Secure"), is_secure, "{set}");
            assert!(marks.contains("HttpOnly; SameSite=Strict"), "{set}");
            let sent = format!("a=b; {given}; c=d");
            let back = headers(&[("x-forwarded-proto", scheme), ("cookie", &*sent)]);
            assert_eq!(cookie.token(&back), Some("secret"));
            // The cookie of another console on this host and, without TLS, of a console with TLS.
            assert_eq!(Cookie::new(None).token(&back), None);
            let other = if is_secure { "http" } else { "https" };
            let back = headers(&[("x-forwarded-proto", other), ("cookie", &*sent)]);
            assert_eq!(cookie.token(&back), None);
        }
    }

    #[test]
    fn a_cookie_with_an_age_outlives_the_browser() {
        let plain = headers(&[]);
        let aged = Cookie::new(Some(Duration::from_secs(60))).set(&plain, "a");
        assert!(aged.ends_with("; Max-Age=60"), "{aged}");
        assert!(!Cookie::new(None).set(&plain, "a").contains("Max-Age"));
    }
}
