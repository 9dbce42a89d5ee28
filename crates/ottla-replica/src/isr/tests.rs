//! The effective ISR while a proposal is pending, and the effect of responses.

use super::*;

fn ids(ids: &[i32]) -> Vec<BrokerId> {
    ids.iter().copied().map(BrokerId).collect()
}

/// Brokers 1 and 2 are in sync, as of partition epoch 5.
fn isr() -> Isr {
    Isr::new(ids(&[1, 2]), PartitionEpoch(5))
}

fn epoch_of(broker: BrokerId) -> BrokerEpoch {
    BrokerEpoch(100 + i64::from(broker.0))
}

fn expansion(isr: &mut Isr) -> AlterPartition {
    isr.propose_expansion(BrokerId(3), LeaderEpoch(4), epoch_of)
}

fn altered(leader_epoch: i32, partition_epoch: i32, isr: &[i32]) -> AlteredPartition {
    AlteredPartition {
        leader_epoch: LeaderEpoch(leader_epoch),
        partition_epoch: PartitionEpoch(partition_epoch),
        isr: ids(isr),
    }
}

#[test]
fn a_proposal_names_the_epochs_that_it_changes() {
    let mut isr = isr();
    let member = |broker_id, broker_epoch| IsrMember {
        broker_id: BrokerId(broker_id),
        broker_epoch: BrokerEpoch(broker_epoch),
    };
    assert_eq!(
        expansion(&mut isr),
        AlterPartition {
            leader_epoch: LeaderEpoch(4),
            partition_epoch: PartitionEpoch(5),
            new_isr: vec![member(1, 101), member(2, 102), member(3, 103)],
        }
    );
}

#[test]
fn the_larger_set_counts_while_a_proposal_is_under_way() {
    let mut expanding = isr();
    let proposal = expansion(&mut expanding);
    assert!(expanding.maximal_contains(BrokerId(3)) && !expanding.contains(BrokerId(3)));
    assert_eq!(
        (expanding.maximal_len(), expanding.committed().len()),
        (3, 2)
    );
    let answer = Ok(altered(4, 6, &[1, 2, 3]));
    assert_eq!(expanding.on_answer(&proposal, answer), Settled::Changed);
    assert_eq!(expanding.committed(), ids(&[1, 2, 3]));
    assert_eq!(expanding.partition_epoch(), PartitionEpoch(6));

    let mut shrinking = isr();
    let proposal = shrinking.propose_shrinking(&ids(&[2]), LeaderEpoch(4), epoch_of);
    assert!(shrinking.contains(BrokerId(2)) && shrinking.maximal_len() == 2);
    let answer = Ok(altered(4, 6, &[1]));
    assert_eq!(shrinking.on_answer(&proposal, answer), Settled::Changed);
    assert_eq!(shrinking.committed(), ids(&[1]));
}

#[test]
fn the_effect_of_a_refusal_depends_on_the_controllers_state() {
    use ErrorCode as E;
    let table = [
        (E::IneligibleReplica, Settled::Changed, false),
        (E::OperationNotAttempted, Settled::Changed, false),
        (E::InvalidUpdateVersion, Settled::Unchanged, true),
        (E::FencedLeaderEpoch, Settled::Unchanged, true),
        (E::UnknownTopicOrPartition, Settled::Unchanged, true),
        (E::UnknownTopicId, Settled::Unchanged, true),
        (E::InvalidRequest, Settled::Unchanged, true),
        (E::NewLeaderElected, Settled::Unchanged, true),
        (E::NotController, Settled::Retry, true),
        (E::StaleBrokerEpoch, Settled::Retry, true),
        (E::NetworkException, Settled::Retry, true),
        (E::UnknownServerError, Settled::Retry, true),
    ];
    for (error, settled, stays_pending) in table {
        let mut isr = isr();
        let proposal = expansion(&mut isr);
        assert_eq!(isr.on_answer(&proposal, Err(error)), settled, "{error:?}");
        assert_eq!(isr.is_proposal_pending(), stays_pending, "{error:?}");
        assert_eq!(
            isr.maximal_contains(BrokerId(3)),
            stays_pending,
            "{error:?}"
        );
        assert_eq!(isr.committed(), ids(&[1, 2]), "{error:?}");
    }
}

#[test]
fn answers_that_are_out_of_date_change_nothing() {
    let mut isr = isr();
    let proposal = expansion(&mut isr);
    for stale in [altered(3, 6, &[1, 2, 3]), altered(4, 4, &[1, 2, 3])] {
        assert_eq!(isr.on_answer(&proposal, Ok(stale)), Settled::Unchanged);
        assert!(isr.is_proposal_pending());
    }
    // The metadata arrived before the response.
    isr.on_registration(ids(&[1]), PartitionEpoch(6), false);
    let answer = Ok(altered(4, 6, &[1, 2, 3]));
    assert_eq!(isr.on_answer(&proposal, answer), Settled::Unchanged);
    assert_eq!(isr.committed(), ids(&[1]));
}

#[test]
fn metadata_older_than_a_response_keeps_later_proposals() {
    let mut isr = isr();
    let shrinking = isr.propose_shrinking(&ids(&[2]), LeaderEpoch(4), epoch_of);
    isr.on_answer(&shrinking, Ok(altered(4, 6, &[1])));
    expansion(&mut isr);
    isr.on_registration(ids(&[1]), PartitionEpoch(6), false);
    assert!(isr.maximal_contains(BrokerId(3)));
    isr.on_registration(ids(&[1]), PartitionEpoch(6), true);
    assert!(!isr.maximal_contains(BrokerId(3)), "in a new leader epoch");
    expansion(&mut isr);
    isr.on_registration(ids(&[1]), PartitionEpoch(7), false);
    assert!(
        !isr.maximal_contains(BrokerId(3)),
        "at a new partition epoch"
    );
}
