//! Attempts to log in that have failed: by user, by address, and by browser.
//!
//! After some failures, the next attempt is refused until a time has passed that doubles with each
//! further one. The delay of a user is short, that of an address is long. An attempt counts as
//! failed from its beginning, so attempts at the same time are not free. All tables are bounded, and
//! failures are forgotten.
//!
//! The codes of an identity provider count by address only, and separately: guessed passwords do
//! not delay users that come from the provider.
//!
//! A browser in which a user has logged in keeps a secret, and has separate delays for that user.
//! Otherwise an attacker who keeps guessing, from many addresses or through the same proxy, would
//! lock the user out.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;

use crate::problem::Problem;

/// Failures without a delay.
const FREE: u32 = 4;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MOST_OF_USER: Duration = Duration::from_secs(30);
const MOST_OF_ADDRESS: Duration = Duration::from_secs(5 * 60);
/// After this time without an attempt, the failures are dropped.
const MEMORY: Duration = Duration::from_secs(15 * 60);
/// In each table. Of a full one, the entry with the fewest failures goes, the oldest of those.
const ENTRIES: usize = 4096;
/// Of one user, so that one cannot take the places of all others.
const BROWSERS_OF_USER: usize = 8;
/// After this time without an attempt, a browser is no longer known.
pub(crate) const BROWSER_AGE: Duration = Duration::from_secs(7 * 24 * 60 * 60);

#[derive(Default)]
pub(crate) struct Attempts {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    users: HashMap<String, Failures>,
    addresses: HashMap<IpAddr, Failures>,
    /// Those with codes, by address.
    codes: HashMap<IpAddr, Failures>,
    /// By the secret that the browser keeps.
    browsers: HashMap<String, Browser>,
}

/// A browser in which a user has logged in.
struct Browser {
    user: String,
    failures: Failures,
}

struct Failures {
    count: u32,
    last: Instant,
    /// Attempts before are refused.
    until: Instant,
}

/// The origin of an attempt.
#[derive(Clone, Copy)]
pub(crate) struct Origin<'a> {
    pub(crate) user: &'a str,
    pub(crate) address: IpAddr,
    /// The secret that the browser has sent.
    pub(crate) browser: Option<&'a str>,
}

impl Attempts {
    /// Begins an attempt, or refuses it.
    pub(crate) fn begin(&self, origin: Origin<'_>, now: Instant) -> Result<(), Problem> {
        let Origin { user, address, .. } = origin;
        let address = network(address);
        let mut tables = self.tables.lock();
        if let Some(failures) = tables.of_browser(origin, now) {
            refuse_before(failures.until, now)?;
            failures.count(MOST_OF_USER, now);
            return Ok(());
        }
        let until = until(&tables.users, user, now).max(until(&tables.addresses, &address, now));
        refuse_before(until, now)?;
        count(&mut tables.users, user.to_owned(), MOST_OF_USER, now);
        count(&mut tables.addresses, address, MOST_OF_ADDRESS, now);
        Ok(())
    }

    /// The user is logged in. Returns the secret for the browser to keep. Earlier failures of the
    /// address stay, because they may concern other users. If the browser was known, the failures
    /// of the user stay as well: another client caused them.
    pub(crate) fn succeeded(&self, origin: Origin<'_>, now: Instant) -> String {
        let mut tables = self.tables.lock();
        if let Some(failures) = tables.of_browser(origin, now) {
            *failures = Failures::none(now);
            return origin.browser.unwrap_or_default().to_owned();
        }
        tables.users.remove(origin.user);
        take_back(&mut tables.addresses, &network(origin.address));
        tables.remember(origin.user, now)
    }

    /// Begins an attempt with a code of the identity provider, or refuses it. A code cannot be
    /// guessed, so the delay stays short. It prevents that attempts overload the provider and use
    /// up the slots of real logins.
    pub(crate) fn begin_with_code(&self, address: IpAddr, now: Instant) -> Result<(), Problem> {
        let address = network(address);
        let mut tables = self.tables.lock();
        refuse_before(until(&tables.codes, &address, now), now)?;
        count(&mut tables.codes, address, MOST_OF_USER, now);
        Ok(())
    }

    /// The provider has accepted the code, or did not say whether it is good.
    pub(crate) fn code_not_refused(&self, address: IpAddr) {
        take_back(&mut self.tables.lock().codes, &network(address));
    }

    /// The cluster did not say whether the password is right.
    pub(crate) fn undecided(&self, origin: Origin<'_>, now: Instant) {
        let mut tables = self.tables.lock();
        if let Some(failures) = tables.of_browser(origin, now) {
            failures.take_back();
            return;
        }
        take_back(&mut tables.users, origin.user);
        take_back(&mut tables.addresses, &network(origin.address));
    }
}

impl Tables {
    /// The failures of a browser in which the user has logged in.
    fn of_browser(&mut self, origin: Origin<'_>, now: Instant) -> Option<&mut Failures> {
        let browser = self.browsers.get_mut(origin.browser?)?;
        let is_known = browser.user == origin.user && !browser.is_old(now);
        is_known.then_some(&mut browser.failures)
    }

    /// Makes a browser known. Returns its secret.
    fn remember(&mut self, user: &str, now: Instant) -> String {
        self.browsers.retain(|_, it| !it.is_old(now));
        let of_user = |it: &&Browser| it.user == user;
        if self.browsers.values().filter(of_user).count() >= BROWSERS_OF_USER {
            self.forget_oldest(|it| it.user == user);
        }
        if self.browsers.len() >= ENTRIES {
            self.forget_oldest(|_| true);
        }
        let secret = URL_SAFE_NO_PAD.encode(rand::random::<[u8; 32]>());
        let browser = Browser {
            user: user.to_owned(),
            failures: Failures::none(now),
        };
        self.browsers.insert(secret.clone(), browser);
        secret
    }

    fn forget_oldest(&mut self, among: impl Fn(&Browser) -> bool) {
        let browsers = self.browsers.iter().filter(|(_, it)| among(it));
        let oldest = browsers.min_by_key(|(_, it)| it.failures.last);
        if let Some(secret) = oldest.map(|(secret, _)| secret.clone()) {
            self.browsers.remove(&secret);
        }
    }
}

impl Browser {
    fn is_old(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.failures.last) >= BROWSER_AGE
    }
}

impl Failures {
    fn none(now: Instant) -> Failures {
        Failures {
            count: 0,
            last: now,
            until: now,
        }
    }

    fn count(&mut self, most: Duration, now: Instant) {
        if now.saturating_duration_since(self.last) >= MEMORY {
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.last = now;
        if self.count > FREE {
            let doublings = (self.count - FREE - 1).min(16);
            self.until = now + (FIRST_DELAY * (1u32 << doublings)).min(most);
        }
    }

    fn take_back(&mut self) {
        self.count = self.count.saturating_sub(1);
        self.until = self.last;
    }
}

fn refuse_before(until: Instant, now: Instant) -> Result<(), Problem> {
    let wait = until.saturating_duration_since(now);
    match wait.is_zero() {
        true => Ok(()),
        false => Err(Problem::too_many(format!(
            "too many logins of this user or from this address have failed; try again in {} s",
            wait.as_secs() + 1
        ))),
    }
}

/// A host mostly has a whole /64 of IPv6 addresses.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        loopback if loopback.is_loopback() => loopback,
        IpAddr::V6(address) => {
            let prefix = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        address => address,
    }
}

fn until<K, Q>(table: &HashMap<K, Failures>, key: &Q, now: Instant) -> Instant
where
    K: Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    table.get(key).map_or(now, |it| it.until)
}

fn count<K>(table: &mut HashMap<K, Failures>, key: K, most: Duration, now: Instant)
where
    K: Hash + Eq + Clone,
{
    if table.len() >= ENTRIES && !table.contains_key(&key) {
        table.retain(|_, it| now.saturating_duration_since(it.last) < MEMORY);
        if table.len() >= ENTRIES {
            let least = table.iter().min_by_key(|(_, it)| (it.count, it.last));
            if let Some(least) = least.map(|(key, _)| key.clone()) {
                table.remove(&least);
            }
        }
    }
    let failures = table.entry(key).or_insert_with(|| Failures::none(now));
    failures.count(most, now);
}

fn take_back<K, Q>(table: &mut HashMap<K, Failures>, key: &Q)
where
    K: Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    if let Some(failures) = table.get_mut(key) {
        failures.take_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// From a browser that is not known.
    fn from(user: &str, address: IpAddr) -> Origin<'_> {
        Origin {
            user,
            address,
            browser: None,
        }
    }

    /// The delay of the user after the failures so far.
    fn delay(attempts: &Attempts, user: &str, address: IpAddr, now: Instant) -> Duration {
        let tables = attempts.tables.lock();
        let of_address = until(&tables.addresses, &network(address), now);
        let until = until(&tables.users, user, now).max(of_address);
        until.saturating_duration_since(now)
    }

    #[test]
    fn the_delay_of_a_user_and_of_an_address_grows_to_a_bound() {
        let (attempts, mut now) = (Attempts::default(), Instant::now());
        let mut delays = Vec::new();
        for number in 0..20 {
            // Each time from another address.
            attempts.begin(from("alice", address(number)), now).unwrap();
            let delay = delay(&attempts, "alice", address(99), now);
            delays.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(&delays[..8], [0, 0, 0, 0, 1, 2, 4, 8]);
        assert_eq!(delays[19], MOST_OF_USER.as_secs());
        for number in 0..20 {
            // Each time another user.
            let user = format!("user {number}");
            attempts.begin(from(&user, address(200)), now).unwrap();
            now += delay(&attempts, "nobody", address(200), now);
        }
        attempts.begin(from("bob", address(200)), now).unwrap();
        let refused = attempts.begin(from("carol", address(200)), now);
        let refused = refused.unwrap_err();
        assert_eq!(refused.status(), 429);
        assert!(refused.detail().contains("301 s"), "{}", refused.detail());
        attempts.begin(from("carol", address(201)), now).unwrap();
    }

    #[test]
    fn codes_that_are_refused_delay_further_codes_and_no_passwords() {
        let (attempts, mut now) = (Attempts::default(), Instant::now());
        for _ in 0..100 {
            attempts.begin_with_code(address(1), now).unwrap();
            attempts.code_not_refused(address(1));
        }
        for _ in 0..FREE + 1 {
            attempts.begin_with_code(address(1), now).unwrap();
        }
        let refused = attempts.begin_with_code(address(1), now).unwrap_err();
        assert_eq!(refused.status(), 429);
        attempts.begin_with_code(address(2), now).unwrap();
        attempts.begin(from("alice", address(1)), now).unwrap();
        for _ in 0..20 {
            now += MOST_OF_USER;
            attempts.begin_with_code(address(1), now).unwrap();
        }
    }

    #[test]
    fn a_login_clears_its_user_and_not_the_failures_of_its_address() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..FREE {
            attempts.begin(from("alice", address(1)), now).unwrap();
        }
        attempts.begin(from("bob", address(1)), now).unwrap();
        attempts.succeeded(from("bob", address(1)), now);
        assert!(delay(&attempts, "bob", address(1), now).is_zero());
        attempts.begin(from("alice", address(1)), now).unwrap();
        assert!(attempts.begin(from("bob", address(1)), now).is_err());
        attempts.undecided(from("alice", address(1)), now);
        attempts.begin(from("bob", address(1)), now).unwrap();
    }

    #[test]
    fn nobody_keeps_a_user_out_of_a_browser_that_is_known() {
        let (attempts, mut now) = (Attempts::default(), Instant::now());
        // All come from one proxy.
        let proxy = address(1);
        attempts.begin(from("alice", proxy), now).unwrap();
        let secret = attempts.succeeded(from("alice", proxy), now);
        for _ in 0..20 {
            now += delay(&attempts, "alice", proxy, now);
            attempts.begin(from("alice", proxy), now).unwrap();
        }
        let known = |user| Origin {
            browser: Some(&secret),
            ..from(user, proxy)
        };
        assert!(attempts.begin(from("alice", proxy), now).is_err());
        attempts.begin(known("alice"), now).unwrap();
        assert_eq!(attempts.succeeded(known("alice"), now), secret);
        // The failures of the proxy's address remain.
        assert!(attempts.begin(from("alice", proxy), now).is_err());
        // The browser has no advantage for other users, and a limit for its own user.
        assert!(attempts.begin(known("bob"), now).is_err());
        for _ in 0..FREE + 1 {
            attempts.begin(known("alice"), now).unwrap();
        }
        assert!(attempts.begin(known("alice"), now).is_err());
        attempts.undecided(known("alice"), now);
        attempts.begin(known("alice"), now).unwrap();
        let later = now + BROWSER_AGE;
        assert_ne!(attempts.succeeded(known("alice"), later), secret);
    }

    #[test]
    fn known_browsers_are_bounded() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        let other = attempts.succeeded(from("bob", address(1)), now);
        let secrets: Vec<String> = (0..BROWSERS_OF_USER as u64 + 1)
            .map(|at| {
                let at = now + Duration::from_secs(at);
                attempts.succeeded(from("alice", address(1)), at)
            })
            .collect();
        let tables = attempts.tables.lock();
        assert_eq!(tables.browsers.len(), BROWSERS_OF_USER + 1);
        assert!(!tables.browsers.contains_key(&secrets[0]));
        assert!(tables.browsers.contains_key(&other));
        drop(tables);
        for number in 0..ENTRIES {
            attempts.succeeded(from(&format!("user {number}"), address(1)), now);
        }
        assert_eq!(attempts.tables.lock().browsers.len(), ENTRIES);
    }

    #[test]
    fn failures_are_forgotten_and_bounded() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..FREE + 1 {
            attempts.begin(from("alice", address(1)), now).unwrap();
        }
        for number in 0..ENTRIES as u32 + 50 {
            let address = IpAddr::from((0x0b00_0000 + number).to_be_bytes());
            let user = number.to_string();
            attempts.begin(from(&user, address), now).unwrap();
        }
        let tables = attempts.tables.lock();
        assert_eq!(
            (tables.users.len(), tables.addresses.len()),
            (ENTRIES, ENTRIES)
        );
        drop(tables);
        assert!(attempts.begin(from("alice", address(2)), now).is_err());
        let later = now + MEMORY;
        attempts.begin(from("alice", address(1)), later).unwrap();
        assert!(delay(&attempts, "alice", address(1), later).is_zero());
    }

    #[test]
    fn the_addresses_of_one_host_are_one() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::5"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::5"), of("2001:db8:1:3::5"));
        assert_eq!(of("::ffff:10.0.0.1"), address(1));
        assert!(of("::1").is_loopback() && !of("::2").is_loopback());
    }
}
