//! The rules of the inbox; `under_loom` has its interleavings.

mod under_loom;

use super::inbox::Inbox;

#[test]
fn the_bound_counts_queued_bytes() {
    let inbox = Inbox::new(100);
    let mut token = inbox.push('a', 60).expect("the token is free");
    assert!(!inbox.is_over_bound());
    assert!(inbox.push('b', 60).is_none());
    assert!(inbox.is_over_bound());
    inbox.look(&mut token);
    assert_eq!(inbox.pop(&mut token), Some('a'));
    assert!(!inbox.is_over_bound());
    assert!(token.take_room_made());
    assert!(!token.take_room_made(), "one notification");
    assert_eq!(inbox.pop(&mut token), Some('b'));
    assert_eq!(inbox.pop(&mut token), None);
    assert!(inbox.release(token).is_none());
}

#[test]
fn places_are_found_after_earlier_entries_have_left_the_queue() {
    let inbox = Inbox::new(100);
    let mut token = inbox.push('a', 1).expect("the token is free");
    let first = inbox.reserve(1);
    let second = inbox.reserve(1);
    assert!(inbox.fill(second, 'c').is_none());
    inbox.look(&mut token);
    assert_eq!(inbox.pop(&mut token), Some('a'));
    assert_eq!(inbox.pop(&mut token), None);
    assert!(inbox.fill(first, 'b').is_none());
    assert_eq!(inbox.pop(&mut token), Some('b'));
    assert_eq!(inbox.pop(&mut token), Some('c'));
    let mut token = inbox.release(token).expect("a place was filled in between");
    inbox.look(&mut token);
    assert!(inbox.release(token).is_none());
}

#[test]
fn places_are_found_after_the_empty_queue_has_given_its_memory_back() {
    let inbox = Inbox::new(100);
    let mut token = inbox.push('a', 1).expect("the token is free");
    inbox.look(&mut token);
    assert_eq!(inbox.pop(&mut token), Some('a'));
    inbox.free_room();
    let place = inbox.reserve(1);
    inbox.free_room();
    assert!(inbox.fill(place, 'b').is_none());
    assert_eq!(inbox.pop(&mut token), Some('b'));
}
