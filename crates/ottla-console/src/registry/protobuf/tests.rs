use super::*;

const FILE: &str = r#"
    syntax = "proto3";
    package shop;
    import "inner.proto";
    import "google/protobuf/timestamp.proto";
    message Order {
      int64 big_number = 1;
      repeated string tags = 2;
      map<string, int32> counts = 3;
      State state = 4;
      Inner inner = 5;
      optional string note = 6;
      google.protobuf.Timestamp at = 7;
      bytes raw = 8;
      message Nested { bool is_ok = 1; }
    }
    enum State { NONE = 0; SOME = 1; }
    message Second { double number = 1; }
    message Third {
      Inner inner = 1;
      int32 number = 2;
      repeated sint32 list = 3;
      oneof choice { string text = 4; bool is_set = 5; }
    }
"#;
const INNER: &str = "syntax = \"proto3\"; package shop; message Inner { uint32 id = 1; Inner inner = 2; repeated bool many = 3; }";

fn schema() -> ProtobufSchema {
    let references = [("inner.proto".to_owned(), INNER.to_owned())];
    ProtobufSchema::parse(FILE, &references).unwrap()
}

#[test]
fn messages_are_json() {
    let schema = schema();
    let bytes = [
        0x08, 0x05, // big_number
        0x12, 0x01, b'a', // tags
        0x1a, 0x05, 0x0a, 0x01, b'k', 0x10, 0x02, // counts
        0x20, 0x01, // state
        0x2a, 0x02, 0x08, 0x01, // inner
        0x3a, 0x02, 0x08, 0x09, // at
    ];
    assert_eq!(
        schema.decode(&[0], &bytes).unwrap(),
        r#"{"bigNumber":5,"tags":["a"],"counts":{"k":2},"state":"SOME","inner":{"id":1,"many":[]},"at":{"seconds":9,"nanos":0},"raw":""}"#
    );
    assert_eq!(schema.decode(&[0, 0], &[8, 1]).unwrap(), r#"{"isOk":true}"#);
    let double = [&[9_u8][..], &1.5_f64.to_le_bytes()].concat();
    assert_eq!(schema.decode(&[1], &double).unwrap(), r#"{"number":1.5}"#);
}

#[test]
fn fields_that_are_set_again_replace_or_merge() {
    let schema = schema();
    let decoded = |bytes: &[u8]| schema.decode(&[2], bytes).unwrap();
    // The inner messages are one. Of the numbers, the last counts. Lists grow, packed or not.
    let bytes = [
        &[0x0a, 0x02, 0x08, 0x01, 0x0a, 0x02, 0x18, 0x01][..],
        &[0x10, 0x01, 0x10, 0x02],
        &[0x18, 0x01, 0x1a, 0x02, 0x02, 0x03, 0x18, 0x04],
        &[0xf8, 0x07, 0x01], // an unknown field
    ];
    assert_eq!(
        decoded(&bytes.concat()),
        r#"{"inner":{"id":1,"many":[true]},"number":2,"list":[-1,1,-2,2]}"#
    );
    // Of a oneof, what was set last.
    assert_eq!(
        decoded(&[0x28, 0x01, 0x22, 0x01, b'a']),
        r#"{"number":0,"list":[],"text":"a"}"#
    );
    assert_eq!(
        decoded(&[0x28, 0x01, 0x22, 0x01, b'a', 0x28, 0x00]),
        r#"{"number":0,"list":[],"isSet":false}"#
    );
}

#[test]
fn proto2_has_groups_and_presence() {
    let file = "message A { optional int32 id = 1 [default = 7]; required Kind kind = 2; \
        repeated group Part = 3 { optional sfixed32 size = 1; } enum Kind { ONE = 1; UNO = 1; } \
        map<bool, Kind> kinds = 4; extensions 100 to 200; message B { optional .A.Part part = 1; } }";
    let schema = ProtobufSchema::parse(file, &[]).unwrap();
    assert_eq!(
        schema.decode(&[0], &[]).unwrap(),
        r#"{"part":[],"kinds":{}}"#
    );
    let bytes = [
        &[0x10, 0x01, 0x1b, 0x0d, 0xff, 0xff, 0xff, 0xff, 0x1c][..],
        &[0x1b, 0x1c, 0x22, 0x02, 0x08, 0x01, 0x22, 0x02, 0x10, 0x09],
    ];
    assert_eq!(
        schema.decode(&[0], &bytes.concat()).unwrap(),
        r#"{"kind":"ONE","part":[{"size":-1},{}],"kinds":{"false":9,"true":"ONE"}}"#
    );
    // The group is a message in the message, the entry of the map is not.
    assert_eq!(schema.decode(&[0, 0], &[]).unwrap(), "{}");
    assert_eq!(
        schema.decode(&[0, 1], &[0x0a, 0]).unwrap(),
        r#"{"part":{}}"#
    );
    schema.decode(&[0, 2], &[]).unwrap_err();
}

#[test]
fn names_are_those_of_the_innermost_scope_that_is_imported() {
    let file = r#"syntax = "proto3"; package a.b; import "public.proto"; import "google/protobuf/struct.proto";
        message M { message T { int32 innermost = 1; } T one = 1; b.T two = 2; .T three = 3; c.T four = 4; }
        message T { int32 outer = 1; }"#;
    let with = |name: &str, text: &str| (name.to_owned(), format!("syntax = \"proto3\"; {text}"));
    let references = [
        with(
            "public.proto",
            "import public \"other.proto\"; import \"hidden.proto\"; message T { int32 of_no_package = 1; }",
        ),
        with(
            "other.proto",
            "package c; message T { int32 of_other = 1; }",
        ),
        with(
            "hidden.proto",
            "package a.b.c; message T { int32 of_hidden = 1; }",
        ),
    ];
    let schema = ProtobufSchema::parse(file, &references).unwrap();
    let bytes = [0x0a, 0, 0x12, 0, 0x1a, 0, 0x22, 0];
    assert_eq!(
        schema.decode(&[0], &bytes).unwrap(),
        r#"{"one":{"innermost":0},"two":{"outer":0},"three":{"ofNoPackage":0},"four":{"ofOther":0}}"#
    );
    for wrong in [
        "message A { B b = 1; }",
        "message A { int32 a = 1; int32 b = 1; }",
        "message A {} enum A { B = 0; }",
    ] {
        let text = format!("syntax = \"proto3\"; {wrong}");
        ProtobufSchema::parse(&text, &[]).unwrap_err();
    }
}

#[test]
fn files_of_google_need_no_reference() {
    let names = "any api compiler/plugin descriptor duration empty field_mask source_context struct timestamp type wrappers";
    for name in names.split(' ') {
        let file =
            format!("syntax = \"proto3\"; import \"google/protobuf/{name}.proto\"; message A {{}}");
        let schema = ProtobufSchema::parse(&file, &[]).unwrap();
        assert_eq!(schema.decode(&[0], &[]).unwrap(), "{}");
    }
    let file = r#"syntax = "proto3"; import "google/protobuf/struct.proto"; import "google/protobuf/descriptor.proto";
        extend google.protobuf.FieldOptions { string note = 50000; }
        message A { google.protobuf.Value value = 1 [(note) = "a"]; }"#;
    let schema = ProtobufSchema::parse(file, &[]).unwrap();
    // A structure with one member, which is a text.
    let bytes = [
        0x0a, 0x0c, 0x2a, 0x0a, 0x0a, 0x08, 0x0a, 0x01, b'k', 0x12, 0x03, 0x1a, 0x01, b'v',
    ];
    assert_eq!(
        schema.decode(&[0], &bytes).unwrap(),
        r#"{"value":{"structValue":{"fields":{"k":{"stringValue":"v"}}}}}"#
    );
}

#[test]
fn bytes_that_do_not_fit_the_schema_are_refused() {
    let schema = schema();
    for place in [&[] as &[usize], &[3], &[0, 1], &[0, 0, 0]] {
        schema.decode(place, &[]).unwrap_err();
    }
    schema.decode(&[0], &[0x08]).unwrap_err();
    schema.decode(&[0], &[0x12, 0x09, b'a']).unwrap_err();
    let error = schema.decode(&[0], &vec![0; MOST_BYTES + 1]).unwrap_err();
    assert!(error.contains("MiB"), "{error}");
    let missing = ProtobufSchema::parse(FILE, &[]).unwrap_err();
    assert!(missing.contains("inner.proto"), "{missing}");
    ProtobufSchema::parse("message {", &[]).unwrap_err();
}

#[test]
fn nesting_is_bounded() {
    // Messages in messages, which name their size.
    let mut bytes = Vec::new();
    for _ in 0..150 {
        let mut outer = vec![0x12];
        let mut size = bytes.len();
        while size >= 0x80 {
            outer.push(size as u8 | 0x80);
            size >>= 7;
        }
        outer.push(size as u8);
        outer.append(&mut bytes);
        bytes = outer;
    }
    let inner = ProtobufSchema::parse(INNER, &[]).unwrap();
    inner.decode(&[0], &bytes).unwrap_err();
    let open = "message A { option (a) = { ";
    for text in [open.repeat(5000), "message A {".repeat(5000)] {
        let error = ProtobufSchema::parse(&text, &[]).unwrap_err();
        assert!(error.contains("nested"), "{error}");
    }
    // Brackets that would be in a text if a backslash continued its line.
    let hidden = format!("message A {{ option (a) = \"\\\n{}", "{ a ".repeat(5000));
    let error = ProtobufSchema::parse(&hidden, &[]).unwrap_err();
    assert!(error.contains("nested"), "{error}");
    for wrong in ["\"\\\n{", "\"\\x\" \"{", "\"\\u004\" \"{", "'\\q'", "'\\"] {
        assert_eq!(Shape::of(wrong), Shape::UNKNOWN, "{wrong}");
    }
    let nesting = |text| Shape::of(text).nesting;
    assert_eq!(nesting(r#""\x4{\101{\u0041{\U00000041\"{" '\'{' {"#), 1);
    assert_eq!(nesting("{ /* } */ [ '}' // } \n # } \n \"\\\"}\" { ] }"), 3);
}

#[test]
fn words_and_signs_are_bounded() {
    let shape = Shape::of("a_1=\"b \\\" c\" ; // d e\n");
    assert_eq!((shape.nesting, shape.tokens), (0, 5));
    // Of eight words and signs.
    let half = "enum A { B = 0; } ".repeat(MOST_TOKENS / 16 + 1);
    let references = [("half.proto".to_owned(), half.clone())];
    let file = format!("import \"half.proto\"; {half}");
    let error = ProtobufSchema::parse(&file, &references).unwrap_err();
    assert!(error.contains("words and signs"), "{error}");
    let error = ProtobufSchema::parse(&half, &[]).unwrap_err();
    assert_eq!(error, "A is defined twice");
}

/// Looking at each field of each message would take a thousand times as long.
#[test]
fn fields_that_are_not_set_take_no_time() {
    let (fields, messages) = (10_000, 100_000);
    let mut file =
        "syntax = \"proto3\"; message A { repeated B list = 1; } message B { ".to_owned();
    for number in 1..=fields {
        file.push_str(&format!("optional bool f{number} = {number}; "));
    }
    file.push('}');
    let schema = ProtobufSchema::parse(&file, &[]).unwrap();
    let expected = format!("{{\"list\":[{}{{}}]}}", "{},".repeat(messages - 1));
    let decoded = schema.decode(&[0], &[0x0a, 0].repeat(messages)).unwrap();
    assert!(decoded == expected);
    // The last one and the first one: the order is that of the numbers.
    assert_eq!(
        schema
            .decode(&[1], &[0x80, 0xf1, 0x04, 1, 0x08, 0])
            .unwrap(),
        r#"{"f1":false,"f10000":true}"#
    );
}
