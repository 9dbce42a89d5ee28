//! The comparison of a secret with a guess. If it took longer the more of the guess is right, clients could find the secret
//! piece by piece.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Duration;

use ottla_sasl::{EnabledMechanism, Mechanism, Secret};

use crate::measure::{Row, best_of};

pub const ROW: Row = Row {
    name: "password-comparison",
    operation: "the refusal of a password of 1,000 characters",
    counted: "characters before the first that is wrong",
    smallest: 9,
    measure,
};

const LENGTH: usize = 1_000;
const COMPARISONS: u32 = 100_000;

fn measure(right: u64) -> Duration {
    let right = right as usize;
    let plain = EnabledMechanism {
        mechanism: Mechanism::Plain,
        max_reauth_ms: None,
        users: BTreeMap::from([("alice".to_owned(), Secret::new("a".repeat(LENGTH)))]),
        tokens: None,
        kerberos: None,
    };
    let rest = "a".repeat(LENGTH - right - 1);
    let guess = Secret::new(format!("{}b{rest}", "a".repeat(right)));
    best_of(COMPARISONS, || {
        for _ in 0..COMPARISONS {
            assert!(!plain.is_password(black_box("alice"), black_box(&guess)));
        }
    })
}
