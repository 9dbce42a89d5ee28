//! Waits until a broker has applied what its controller has acknowledged.

use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::probe::{connect, push_string};

const DESCRIBE_CONFIGS: i16 = 32;
const INCREMENTAL_ALTER_CONFIGS: i16 = 44;
const ONE: [u8; 4] = 1i32.to_be_bytes();
/// The type of a resource that is a group.
const GROUP: u8 = 32;
const SETTING: &str = "consumer.session.timeout.ms";
const PATIENCE: Duration = Duration::from_secs(60);

/// Each call sets values that none before has set.
static VALUES: AtomicU32 = AtomicU32::new(45_001);

/// Waits until the only broker of a cluster, on this local port without logins, has applied every
/// change that was acknowledged before this call. It applies changes in order, but one after the
/// other to its parts. A second change that is made when a first one is seen belongs to a later
/// pass, so when it is seen, the pass of the first one has ended.
///
/// `marker` is the name of a group of which a setting is changed. Callers at the same time must
/// have different ones.
pub fn settle(port: u16, marker: &str) -> Result<()> {
    let mut asker = connect(port)?.patient(PATIENCE)?;
    // One resource, and one setting of it.
    let mut setting = ONE.to_vec();
    setting.push(GROUP);
    push_string(&mut setting, marker);
    setting.extend_from_slice(&ONE);
    push_string(&mut setting, SETTING);
    for _ in 0..2 {
        let value = VALUES.fetch_add(1, Ordering::Relaxed).to_string();
        let (to_set, is_only_validated) = (0, 0);
        let mut change = setting.clone();
        change.push(to_set);
        push_string(&mut change, &value);
        change.push(is_only_validated);
        let answer = asker.ask(INCREMENTAL_ALTER_CONFIGS, 0, &change)?;
        // After the correlation ID, the throttle time and the length of the array.
        ensure!(
            answer.get(12..14) == Some(&[0, 0]),
            "the setting of a group is refused: {answer:?}"
        );
        let without_synonyms = 0;
        let request = [&setting[..], &[without_synonyms]].concat();
        let mut described = Vec::new();
        push_string(&mut described, SETTING);
        push_string(&mut described, &value);
        let since = Instant::now();
        loop {
            let answer = asker.ask(DESCRIBE_CONFIGS, 1, &request)?;
            if answer.windows(described.len()).any(|it| it == described) {
                break;
            }
            ensure!(
                since.elapsed() < PATIENCE,
                "a change is not applied after {PATIENCE:?}"
            );
            thread::sleep(Duration::from_millis(5));
        }
    }
    Ok(())
}
