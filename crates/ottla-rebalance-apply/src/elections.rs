//! Elections of the first replicas, once they are in sync.

use std::collections::{BTreeMap, BTreeSet};

use ottla_client::admin::ElectionType;
use ottla_client::{Admin, ClientError};
use ottla_types::ErrorCode;

use crate::targets::Partition;

/// A broker that has just become in sync may not be eligible everywhere yet.
const ATTEMPTS: u32 = 20;
/// Partitions per request.
const AT_ONCE: usize = 1000;

#[derive(Default, Debug)]
pub(crate) struct Elections {
    attempts: BTreeMap<Partition, u32>,
    /// Elected, or led by the first replica already.
    pub(crate) elected: usize,
    /// Given up, with the last reason.
    pub(crate) failed: BTreeMap<Partition, String>,
}

impl Elections {
    /// Elects the first replicas of these partitions. Returns those with which it is done, whether
    /// they were elected or given up.
    pub(crate) async fn hold(
        &mut self,
        admin: &Admin,
        partitions: &BTreeSet<Partition>,
    ) -> Result<Vec<Partition>, ClientError> {
        let mut done = Vec::new();
        let all: Vec<&Partition> = partitions.iter().collect();
        for chunk in all.chunks(AT_ONCE) {
            let chunk: BTreeSet<Partition> = chunk.iter().map(|it| (*it).clone()).collect();
            let results = admin
                .elect_leaders(ElectionType::Preferred, Some(&chunk))
                .await?;
            for topic in &results {
                for result in &topic.partition_result {
                    let partition = (topic.topic.to_string(), result.partition_id);
                    let message = result.error_message.as_ref();
                    let outcome = ClientError::check("", result.error_code, message);
                    if self.on_result(&partition, outcome) {
                        done.push(partition);
                    }
                }
            }
        }
        Ok(done)
    }

    /// Whether the election is over.
    fn on_result(&mut self, partition: &Partition, outcome: Result<(), ClientError>) -> bool {
        match outcome {
            Ok(()) => {}
            Err(error) if error.code() == Some(ErrorCode::ElectionNotNeeded) => {}
            Err(error) => {
                let attempts = self.attempts.entry(partition.clone()).or_default();
                *attempts += 1;
                if *attempts < ATTEMPTS {
                    return false;
                }
                self.failed
                    .insert(partition.clone(), error.broker_message());
                return true;
            }
        }
        self.elected += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_election_is_tried_again_for_a_while() {
        let mut elections = Elections::default();
        let partition = ("t".to_owned(), 0);
        let refused = |code: ErrorCode| Err(ClientError::broker("", code.code(), None::<&str>));
        for _ in 1..ATTEMPTS {
            assert!(
                !elections.on_result(&partition, refused(ErrorCode::PreferredLeaderNotAvailable))
            );
        }
        assert!(elections.on_result(&partition, refused(ErrorCode::PreferredLeaderNotAvailable)));
        assert_eq!((elections.elected, elections.failed.len()), (0, 1));
        assert!(elections.on_result(&partition, refused(ErrorCode::ElectionNotNeeded)));
        assert!(elections.on_result(&partition, Ok(())));
        assert_eq!(elections.elected, 2);
    }
}
