//! What ties the answer of the provider to the browser that was sent there.
//!
//! The cookie has a random part and the time. The state, the nonce and the verifier of PKCE are derived from it with a key
//! of this console, so nothing has to be remembered, and none of them tells another one.

use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit, Mac};
use ottla_sasl::is_same_secret;
use sha2::{Digest, Sha256};

/// How long a login at the provider may take.
pub(crate) const FLOW_AGE: Duration = Duration::from_secs(10 * 60);
/// Of the value of a cookie.
const MOST_COOKIE_BYTES: usize = 128;

pub(crate) struct Flows {
    key: [u8; 32],
    /// Times count from here.
    began: Instant,
}

/// A login that one browser has begun.
pub(crate) struct Flow {
    cookie: String,
    pub(crate) state: String,
    pub(crate) nonce: String,
    /// Proves that the sender of the code has requested it (RFC 7636).
    pub(crate) verifier: String,
}

impl Default for Flows {
    fn default() -> Flows {
        Flows {
            key: rand::random(),
            began: Instant::now(),
        }
    }
}

impl Flows {
    pub(crate) fn begin(&self, now: Instant) -> Flow {
        let random = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        self.flow(format!("{}.{random}", self.seconds(now)))
    }

    /// The flow of a browser with this cookie, if it is the one that the answer belongs to, and is not old.
    pub(crate) fn find(&self, cookie: &str, state: &str, now: Instant) -> Option<Flow> {
        if cookie.len() > MOST_COOKIE_BYTES {
            return None;
        }
        let (begun, _) = cookie.split_once('.')?;
        let age = self.seconds(now).checked_sub(begun.parse().ok()?)?;
        let flow = self.flow(cookie.to_owned());
        let is_own = is_same_secret(state.as_bytes(), flow.state.as_bytes());
        (is_own && age < FLOW_AGE.as_secs()).then_some(flow)
    }

    fn flow(&self, cookie: String) -> Flow {
        let derived = |purpose: &str| {
            let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("a key of any length");
            mac.update(format!("{purpose}:{cookie}").as_bytes());
            URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes())
        };
        Flow {
            state: derived("state"),
            nonce: derived("nonce"),
            verifier: derived("verifier"),
            cookie,
        }
    }

    fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.began).as_secs()
    }
}

impl Flow {
    /// The value of the browser's cookie.
    pub(crate) fn cookie(&self) -> &str {
        &self.cookie
    }

    /// The challenge for the provider, derived from the verifier with S256.
    pub(crate) fn challenge(&self) -> String {
        URL_SAFE_NO_PAD.encode(Sha256::digest(self.verifier.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_belongs_to_the_browser_that_has_asked() {
        let (flows, now) = (Flows::default(), Instant::now());
        let flow = flows.begin(now);
        let found = flows.find(flow.cookie(), &flow.state, now).unwrap();
        assert_eq!(
            (&found.nonce, &found.verifier),
            (&flow.nonce, &flow.verifier)
        );
        assert_eq!(flow.verifier.len(), 43);
        assert!(flow.state != flow.nonce && flow.nonce != flow.verifier);
        let other = flows.begin(now);
        assert!(flows.find(other.cookie(), &flow.state, now).is_none());
        assert!(flows.find(flow.cookie(), &other.state, now).is_none());
        assert!(flows.find(flow.cookie(), "", now).is_none());
        // Of another console.
        let elsewhere = Flows::default();
        assert!(elsewhere.find(flow.cookie(), &flow.state, now).is_none());
    }

    #[test]
    fn nobody_makes_an_old_login_young() {
        let (flows, now) = (Flows::default(), Instant::now());
        let flow = flows.begin(now);
        let find = |cookie: &str, at| flows.find(cookie, &flow.state, at).is_some();
        assert!(find(flow.cookie(), now + FLOW_AGE - Duration::from_secs(2)));
        assert!(!find(flow.cookie(), now + FLOW_AGE));
        let (_, random) = flow.cookie().split_once('.').unwrap();
        let younger = format!("{}.{random}", FLOW_AGE.as_secs());
        assert!(!find(&younger, now + FLOW_AGE));
        for cookie in ["", ".", "x.y", "99999999999999999999.a", &"1".repeat(9999)] {
            assert!(!find(cookie, now));
        }
    }

    #[test]
    fn the_challenge_is_the_hash_of_the_verifier() {
        // RFC 7636, appendix B.
        let flow = Flow {
            cookie: String::new(),
            state: String::new(),
            nonce: String::new(),
            verifier: "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk".into(),
        };
        assert_eq!(
            flow.challenge(),
            "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
        );
    }
}
