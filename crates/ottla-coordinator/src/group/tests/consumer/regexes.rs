//! Subscriptions by regular expressions.

use std::collections::BTreeSet;

use bytestring::ByteString;

use super::{alive, check, joining};
use crate::group::consumer::resolve;
use crate::group::modern::test_image::TestImage;
use crate::group::tests::Script;

fn joining_with(member_id: &str, regex: &str) -> super::Heartbeat {
    joining(member_id, &[]).matching(regex)
}

/// Resolves the expressions in place of the shell.
fn answer(script: &mut Script, regexes: &[&'static str]) -> String {
    let regexes: BTreeSet<ByteString> = regexes.iter().map(|regex| (*regex).into()).collect();
    let image = script.coordinator.metadata.image().clone();
    let resolved = resolve(&regexes, &image, |topic| topic != "hidden", script.now());
    let now = script.now();
    let outcome = script
        .coordinator
        .on_regexes_resolved(&"g".into(), resolved, now);
    script.render(outcome)
}

fn cluster() -> TestImage {
    TestImage::new().topic("ab", 1).topic("ac", 1).topic("b", 1)
}

#[test]
fn an_expression_is_resolved_beside_the_coordinator() {
    let mut script = Script::with_topics(cluster());
    check(
        script.send(joining_with("m1", "a.*")),
        "timer session g/m1 in 45000
         write 1: g/m1 wants [] `a.*`
         write 1: g/m1 Stable@1 after 0: -
         reply 1: heartbeat m1@1 -
         resolve g: [a.*]",
    );
    // The resolution is requested only once.
    check(
        script.send(alive("m1", 1)),
        "timer session g/m1 in 45000
         reply 2: heartbeat m1@1",
    );
    check(
        answer(&mut script, &["a.*"]),
        "write 2: g `a.*` is [ab, ac]
         write 2: g epoch 2",
    );
    assert_eq!(script.beat(alive("m1", 1)), "m1@2 ab:0 ac:0");
    // Another member with the same expression does not wait.
    assert!(script.send(joining_with("m2", "a.*")).contains("g epoch 3"));
    script.check_restart();

    script.pass(10_001);
    script.change_topics(TestImage::new().topic("ad", 1).topic("hidden", 1));
    let text = script.send(alive("m1", 2));
    assert!(text.contains("resolve g: [a.*]"), "{text}");
    check(
        answer(&mut script, &["a.*"]),
        "write 6: g `a.*` is [ab, ac, ad]
         write 6: g epoch 4",
    );
}

#[test]
fn an_expression_is_removed_with_its_last_subscriber() {
    let mut script = Script::with_topics(cluster());
    script.send(joining_with("m1", "a.*"));
    answer(&mut script, &["a.*"]);
    script.send(alive("m1", 1));
    let text = script.send(alive("m1", 2).matching("b"));
    assert!(text.contains("g `a.*` tombstone"), "{text}");
    assert!(text.contains("resolve g: [b]"), "{text}");
    answer(&mut script, &["b"]);
    // Topics that do not match any more are revoked at once, regardless of the target.
    let text = script.send(alive("m1", 2).owns(&[]));
    assert!(text.contains("b:0"), "{text}");
    let text = script.send(alive("m1", -1));
    assert!(text.contains("g `b` tombstone"), "{text}");
    script.check_restart();
}

#[test]
fn a_resolution_of_an_unsubscribed_expression_is_ignored() {
    let mut script = Script::with_topics(cluster());
    script.send(joining_with("m1", "a.*"));
    script.send(alive("m1", -1));
    check(answer(&mut script, &["a.*"]), "");
}

#[test]
fn an_invalid_expression_is_refused_with_the_message_of_re2j() {
    let mut script = Script::with_topics(cluster());
    assert_eq!(
        script.beat(joining_with("m1", "[")),
        "INVALID_REGULAR_EXPRESSION SubscribedTopicRegex `[` is not a valid regular expression: \
         missing closing ]."
    );
    assert_eq!(script.state("g"), "-");
}

#[test]
fn a_member_may_subscribe_to_names_and_an_expression() {
    let mut script = Script::with_topics(cluster());
    assert_eq!(
        script.beat(joining("m1", &["b"]).matching("a.*")),
        "m1@2 b:0"
    );
    answer(&mut script, &["a.*"]);
    assert_eq!(script.beat(alive("m1", 2)), "m1@3 ab:0 ac:0 b:0");
}
