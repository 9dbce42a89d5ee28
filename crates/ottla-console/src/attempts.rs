//! Attempts to log in that have failed, by user and by address.
//!
//! After some failures, the next attempt is refused until a time has passed that doubles with each
//! further one. The delay of a user is short, so that nobody can keep a user out by guessing; that
//! of an address is long. An attempt counts as failed from its beginning, so attempts at the same
//! time are not free. Both tables are bounded, and failures are forgotten.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::problem::Problem;

/// Failures without a delay.
const FREE: u32 = 4;
const FIRST_DELAY: Duration = Duration::from_secs(1);
const MOST_OF_USER: Duration = Duration::from_secs(30);
const MOST_OF_ADDRESS: Duration = Duration::from_secs(5 * 60);
/// After so long without an attempt, the failures are forgotten.
const MEMORY: Duration = Duration::from_secs(15 * 60);
/// In each table. Of a full one, the entry with the fewest failures goes, the oldest of those.
const ENTRIES: usize = 4096;

#[derive(Default)]
pub(crate) struct Attempts {
    tables: Mutex<Tables>,
}

#[derive(Default)]
struct Tables {
    users: HashMap<String, Failures>,
    addresses: HashMap<IpAddr, Failures>,
}

struct Failures {
    count: u32,
    last: Instant,
    /// Attempts before are refused.
    until: Instant,
}

impl Attempts {
    /// Begins an attempt, or refuses it.
    pub(crate) fn begin(&self, user: &str, address: IpAddr, now: Instant) -> Result<(), Problem> {
        let address = network(address);
        let mut tables = self.tables.lock();
        let wait = wait(&tables.users, user, now).max(wait(&tables.addresses, &address, now));
        if !wait.is_zero() {
            return Err(Problem::too_many(format!(
                "too many logins of this user or from this address have failed; try again in {} s",
                wait.as_secs() + 1
            )));
        }
        count(&mut tables.users, user.to_owned(), MOST_OF_USER, now);
        count(&mut tables.addresses, address, MOST_OF_ADDRESS, now);
        Ok(())
    }

    /// The person is logged in. Earlier failures of the address stay: they may be about others.
    pub(crate) fn succeeded(&self, user: &str, address: IpAddr) {
        let mut tables = self.tables.lock();
        tables.users.remove(user);
        take_back(&mut tables.addresses, &network(address));
    }

    /// The cluster did not say whether the password is right.
    pub(crate) fn undecided(&self, user: &str, address: IpAddr) {
        let mut tables = self.tables.lock();
        take_back(&mut tables.users, user);
        take_back(&mut tables.addresses, &network(address));
    }
}

/// A host mostly has a whole /64 of IPv6 addresses.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let prefix = u128::from(address) >> 64 << 64;
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        address => address,
    }
}

fn wait<K, Q>(table: &HashMap<K, Failures>, key: &Q, now: Instant) -> Duration
where
    K: Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    let until = table.get(key).map_or(now, |it| it.until);
    until.saturating_duration_since(now)
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
    let failures = table.entry(key).or_insert(Failures {
        count: 0,
        last: now,
        until: now,
    });
    if now.saturating_duration_since(failures.last) >= MEMORY {
        failures.count = 0;
    }
    failures.count = failures.count.saturating_add(1);
    failures.last = now;
    if failures.count > FREE {
        let doublings = (failures.count - FREE - 1).min(16);
        failures.until = now + (FIRST_DELAY * (1u32 << doublings)).min(most);
    }
}

fn take_back<K, Q>(table: &mut HashMap<K, Failures>, key: &Q)
where
    K: Hash + Eq + Borrow<Q>,
    Q: Hash + Eq + ?Sized,
{
    if let Some(failures) = table.get_mut(key) {
        failures.count = failures.count.saturating_sub(1);
        failures.until = failures.last;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, number])
    }

    /// The delay after so many failures.
    fn delay(attempts: &Attempts, user: &str, from: IpAddr, now: Instant) -> Duration {
        let tables = attempts.tables.lock();
        wait(&tables.users, user, now).max(wait(&tables.addresses, &network(from), now))
    }

    #[test]
    fn the_delay_of_a_user_and_of_an_address_grows_to_a_bound() {
        let (attempts, mut now) = (Attempts::default(), Instant::now());
        let mut delays = Vec::new();
        for number in 0..20 {
            // Each time from another address.
            attempts.begin("alice", address(number), now).unwrap();
            let delay = delay(&attempts, "alice", address(99), now);
            delays.push(delay.as_secs());
            now += delay;
        }
        assert_eq!(&delays[..8], [0, 0, 0, 0, 1, 2, 4, 8]);
        assert_eq!(delays[19], MOST_OF_USER.as_secs());
        for number in 0..20 {
            // Each time another user.
            let user = format!("user {number}");
            attempts.begin(&user, address(200), now).unwrap();
            now += delay(&attempts, "nobody", address(200), now);
        }
        attempts.begin("bob", address(200), now).unwrap();
        let refused = attempts.begin("carol", address(200), now).unwrap_err();
        assert_eq!(refused.status(), 429);
        assert!(refused.detail().contains("301 s"), "{}", refused.detail());
        attempts.begin("carol", address(201), now).unwrap();
    }

    #[test]
    fn a_login_clears_its_user_and_not_the_failures_of_its_address() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..FREE {
            attempts.begin("alice", address(1), now).unwrap();
        }
        attempts.begin("bob", address(1), now).unwrap();
        attempts.succeeded("bob", address(1));
        assert!(delay(&attempts, "bob", address(1), now).is_zero());
        attempts.begin("alice", address(1), now).unwrap();
        assert!(attempts.begin("bob", address(1), now).is_err());
        attempts.undecided("alice", address(1));
        attempts.begin("bob", address(1), now).unwrap();
    }

    #[test]
    fn failures_are_forgotten_and_bounded() {
        let (attempts, now) = (Attempts::default(), Instant::now());
        for _ in 0..FREE + 1 {
            attempts.begin("alice", address(1), now).unwrap();
        }
        for number in 0..ENTRIES as u32 + 50 {
            let from = IpAddr::from((0x0b00_0000 + number).to_be_bytes());
            attempts.begin(&number.to_string(), from, now).unwrap();
        }
        let tables = attempts.tables.lock();
        assert_eq!(
            (tables.users.len(), tables.addresses.len()),
            (ENTRIES, ENTRIES)
        );
        drop(tables);
        assert!(attempts.begin("alice", address(2), now).is_err());
        let later = now + MEMORY;
        attempts.begin("alice", address(1), later).unwrap();
        assert!(delay(&attempts, "alice", address(1), later).is_zero());
    }

    #[test]
    fn the_addresses_of_one_host_are_one() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("2001:db8:1:2::5"), of("2001:db8:1:2:ffff::1"));
        assert_ne!(of("2001:db8:1:2::5"), of("2001:db8:1:3::5"));
        assert_eq!(of("::ffff:10.0.0.1"), address(1));
    }
}
