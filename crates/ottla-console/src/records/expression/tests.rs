use bytes::Bytes;
use ottla_records::{Compression, RecordBatch, RecordBatchBuilder, RecordHeader};
use ottla_types::Timestamp;

use super::parser::MAX_REGEXES;
use super::*;

fn batch(key: Option<&str>, value: Option<&[u8]>, headers: &[(&str, Option<&str>)]) -> RecordBatch {
    let headers: Vec<RecordHeader> = headers
        .iter()
        .map(|(name, value)| {
            let value = value.map(|it| Bytes::copy_from_slice(it.as_bytes()));
            RecordHeader::new(Bytes::copy_from_slice(name.as_bytes()), value)
        })
        .collect();
    let mut builder = RecordBatchBuilder::new(Compression::None);
    builder.append(Timestamp(1000), key.map(str::as_bytes), value, &headers);
    builder.build()
}

/// Whether the expression holds for a record with a value of JSON.
fn holds(expression: &str) -> bool {
    const VALUE: &str = r#"{"amount": 120.5, "name": "Anna", "ok": true, "none": null, "tags": ["a", "b"],
        "items": [{"id": 3, "price": 1}, {"id": 7, "price": 9.99}], "quoted": "42", "a-b": 1}"#;
    let batch = batch(
        Some("user-42"),
        Some(VALUE.as_bytes()),
        &[("source", Some("web")), ("empty", None)],
    );
    let records = batch.records(1 << 20).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    Expression::parse(expression)
        .unwrap_or_else(|error| panic!("{expression}: {error}"))
        .holds(&Subject::new("orders", 3, &record))
}

#[test]
fn expressions_that_hold() {
    for expression in [
        "value.amount > 100",
        "value.amount>=120.5&&value.amount<=1.205e2",
        "value.amount > 100 && headers.source == \"web\"",
        "value.amount > 1000 || key.startsWith('user-')",
        "!(value.amount > 1000)",
        "!has(value.error)",
        "has(value.none) && value.none == null",
        "value.missing != 1",
        "value.items[*].id == 7",
        "value.items[1].id == 7",
        "value.items[-1].id == 7",
        "$.items[0].price == 1",
        "$..price >= 9.99",
        "$.*.id == 3 || $['name'] == 'Anna'",
        "value['a-b'] == 1 && value.a-b == 1",
        "value.name.matches('^A.*a$')",
        "value.name.size() == 4 && size(value.tags) == 2",
        "'b' in value.tags",
        "partition in [1, 3] && topic == 'orders' && offset == 0 && timestamp == 1000",
        "value.ok",
        "value.ok == true && value.quoted == '42'",
        "key == 'user-42' && key.endsWith('42') && key.contains('er-')",
        "value.contains('\"Anna\"')",
        "headers.empty == null && has(headers.source) && !has(headers.other)",
        "value.amount > -1",
    ] {
        assert!(holds(expression), "{expression}");
    }
}

#[test]
fn expressions_that_do_not_hold() {
    for expression in [
        "value.amount < 100",
        "value.missing == 1",
        "value.missing > 1",
        "value.name > 5",
        "value.none",
        "value.items[*].id == 8",
        "value.items[2].id == 7",
        "value.quoted == 42",
        "key.contains('43')",
        "'c' in value.tags",
        "partition in []",
        "headers.other == 'x'",
    ] {
        assert!(!holds(expression), "{expression}");
    }
}

#[test]
fn a_path_alone_holds_if_it_selects_something() {
    let batch = batch(None, Some(br#"{"a": {"b": null}}"#), &[]);
    let records = batch.records(1 << 20).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    let holds = |path: &str| {
        let path = Expression::parse_path(path).unwrap();
        path.holds(&Subject::new("t", 0, &record))
    };
    assert!(holds("$.a.b") && holds("$..b") && !holds("$.a.c"));
    assert!(holds("$.a.b == null"));
    assert!(Expression::parse_path("a.b").is_err());
}

#[test]
fn whole_keys_and_values_are_texts_and_numbers() {
    for (bytes, expression, expected) in [
        (
            &b"42"[..],
            "value == '42' && value == 42 && value > 41",
            true,
        ),
        (b"42", "value == '43' || value == 43", false),
        (b"\"x\"", "value == 'x'", true),
        (b"plain", "value == 'plain' && value.startsWith('pl')", true),
        (
            b"\xff\xfe",
            "value.contains('a') || value.amount == 1",
            false,
        ),
    ] {
        let batch = batch(None, Some(bytes), &[]);
        let records = batch.records(1 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let parsed = Expression::parse(expression).unwrap();
        assert_eq!(
            parsed.holds(&Subject::new("t", 0, &record)),
            expected,
            "{expression}"
        );
    }
    // A record without a value.
    let batch = batch(None, None, &[]);
    let records = batch.records(1 << 20).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    let parsed = Expression::parse("value == null && !has(value.a)").unwrap();
    assert!(parsed.holds(&Subject::new("t", 0, &record)));
}

#[test]
fn whole_numbers_are_exact() {
    const VALUE: &[u8] = br#"{"id": 9007199254740993, "largest": 18446744073709551615,
        "least": -9223372036854775808, "real": 9007199254740993.5}"#;
    let batch = batch(None, Some(VALUE), &[]);
    let records = batch.records(1 << 20).unwrap();
    let record = records.iter().next().unwrap().unwrap();
    for (expression, expected) in [
        ("value.id == 9007199254740993", true),
        ("value.id == 9007199254740992", false),
        ("value.id > 9007199254740992", true),
        ("value.id in [9007199254740992, 9007199254740994]", false),
        ("value.largest == 18446744073709551615", true),
        ("value.largest == 18446744073709551614", false),
        ("value.least == -9223372036854775808", true),
        ("value.least == -9223372036854775807", false),
        ("value.id < 9.1e15 && value.real > 9007199254740991", true),
        (
            "value.largest < 999999999999999999999999999999999999999999",
            true,
        ),
        ("offset == 0.0 && timestamp == 1e3", true),
        ("value.id.contains('40993')", true),
    ] {
        let parsed = Expression::parse(expression).unwrap();
        let holds = parsed.holds(&Subject::new("t", 0, &record));
        assert_eq!(holds, expected, "{expression}");
    }
}

#[test]
fn errors_name_the_mistake() {
    for (expression, says) in [
        ("value.amount >", "it ends too early"),
        ("value.amount > 1 )", "unexpected ) near character 18"),
        ("amount > 1", "amount is unknown; there are key, value"),
        ("value.name == 'x", "quotation mark is missing"),
        (
            "value.name.like('x')",
            "like is unknown; there are contains",
        ),
        ("value.name.matches('(')", "unclosed group"),
        ("value.name.contains(5)", "contains needs a text"),
        ("offset.a == 1", "only key, value and headers have parts"),
        ("value # 1", "unexpected # near character 7"),
        ("(value", ") is missing"),
        ("", "it ends too early"),
    ] {
        let error = Expression::parse(expression).unwrap_err();
        assert!(error.contains(says), "{expression}: {error}");
    }
    let deep = format!("{}value{}", "(".repeat(100), ")".repeat(100));
    assert!(Expression::parse(&deep).unwrap_err().contains("nested"));
    let long = "value || ".repeat(1000);
    assert!(Expression::parse(&long).unwrap_err().contains("longer"));
}

#[test]
fn no_expression_needs_much_stack() {
    for sign in ["||", "&&"] {
        let chain = format!("$.a{}", format!("{sign}$.a").repeat(800));
        let nested = format!("{}$.a{}", format!("(1{sign}(").repeat(30), "))".repeat(30));
        for expression in [chain, nested] {
            assert_eq!(
                holds(&expression),
                sign == "||" && expression.starts_with('(')
            );
        }
    }
    for method in [".size()", ".contains('')"] {
        let several = format!("value{}", method.repeat(5));
        assert!(Expression::parse(&several).is_ok());
        let many = format!("value{}", method.repeat(300));
        let refused = Expression::parse(&many).unwrap_err();
        assert!(refused.contains("in each other"), "{refused}");
    }
}

#[test]
fn a_record_that_takes_too_long_is_given_up() {
    let deep = "{\"a\":".repeat(100) + "1" + &"}".repeat(100);
    let long = format!("[{}1]", "0,".repeat(5000));
    for (value, expression) in [
        (&deep, "$..a..a..a..a..a..a..a..a..a..a..b == 1"),
        // An unknown result stays unknown when negated.
        (&deep, "!($..a..a..a..a..a..a..a..a..a..a..b == 1)"),
        (&long, "value[*] < size(value[*])"),
        (&long, "value[*] > value[*]"),
    ] {
        let batch = batch(None, Some(value.as_bytes()), &[]);
        let records = batch.records(1 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let subject = Subject::new("t", 0, &record);
        let began = std::time::Instant::now();
        Expression::parse(expression).unwrap().holds(&subject);
        assert!(subject.is_given_up(), "{expression}");
        assert!(began.elapsed().as_secs() < 20, "{expression}");
    }
}

#[test]
fn a_record_whose_json_takes_too_much_memory_is_given_up() {
    let objects = format!("[{}0]", "{\"a\":0},".repeat(200_000));
    let long = format!("{{\"a\": \"{}\"}}", "x".repeat(2_000_000));
    for (value, expression, expected) in [
        (&objects, "value[0].a == 0", None),
        (&objects, "!has(value[0].b)", None),
        // Without its JSON there is no need to give it up.
        (&objects, "value.contains('a') && offset == 0", Some(true)),
        (&long, "value.a.startsWith('xx')", Some(true)),
        (&long, "has(value.b)", Some(false)),
    ] {
        let batch = batch(None, Some(value.as_bytes()), &[]);
        let records = batch.records(16 << 20).unwrap();
        let record = records.iter().next().unwrap().unwrap();
        let subject = Subject::new("t", 0, &record);
        let holds = Expression::parse(expression).unwrap().holds(&subject);
        let judged = (!subject.is_given_up()).then_some(holds);
        assert_eq!(judged, expected, "{expression}");
    }
}

#[test]
fn regular_expressions_are_few_and_small() {
    let refused = Expression::parse(r"key.matches('\w{99}')").unwrap_err();
    assert!(refused.contains("size limit"), "{refused}");
    let many = ["key.matches('a')"; MAX_REGEXES + 1].join(" || ");
    let refused = Expression::parse(&many).unwrap_err();
    assert!(refused.contains("more than 8"), "{refused}");
    Expression::parse(r"key.matches('^[a-z]{2,8}-\d+$')").unwrap();
}
