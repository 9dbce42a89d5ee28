use super::*;

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";

#[test]
fn credentials_and_users_are_found() {
    let text = format!(
        "{PLAIN} required // the broker\n username=\"al ice\" password='a\\\"b;c' user_bob=\"b\\tob\" \
         /* and */ user_carl=c.4-x;"
    );
    let module = parse_property(&text).unwrap();
    assert_eq!(module.class(), PLAIN);
    assert_eq!(module.flag(), ControlFlag::Required);
    assert_eq!(module.credentials(), Some(("al ice", "a\"b;c")));
    let users: Vec<_> = module.users().collect();
    assert_eq!(users, [("bob", "b\tob"), ("carl", "c.4-x")]);
    assert!(module.is_of(Mechanism::Plain) && module.check_class().is_ok());
    assert!(!format!("{module:?}").contains("b;c"));
}

#[test]
fn escapes_are_javas() {
    let read = |value: &str| {
        let module = parse_property(&format!("{PLAIN} optional a=\"{value}\";")).unwrap();
        module.option("a").unwrap().to_owned()
    };
    assert_eq!(read(r"\101\7z\400"), "A\u{7}z 0");
    assert_eq!(read(r"\\ \q \n"), "\\ q \n");
    assert_eq!(read("//no comment"), "//no comment");
}

/// The error message, and the text before the position that it reports.
fn fails(text: &str) -> (String, String) {
    let error = parse_property(text).expect_err(text);
    let before: String = text.chars().take(error.column() - 1).collect();
    (error.to_string(), before)
}

#[test]
fn errors_are_kafkas_and_point_at_the_place() {
    for (text, says, before) in [
        ("", "Login module not specified in JAAS config", ""),
        (
            "M",
            "Login module control flag not specified in JAAS config",
            "M",
        ),
        (
            "M ;",
            "Login module control flag is not available in the JAAS config",
            "M ",
        ),
        ("M requires;", "Invalid login module control flag", "M "),
        (
            "M required",
            "JAAS config entry not terminated by semi-colon",
            "M required",
        ),
        (
            "M required username=\"a\" password=\"b\"",
            "JAAS config entry not terminated by semi-colon",
            "M required username=\"a\" password=\"b\"",
        ),
        (
            "M required username;",
            "Value not specified for an option",
            "M required ",
        ),
        (
            "M required password=12;",
            "begins with a digit needs quotes",
            "M required password=",
        ),
        (
            "M required password=;",
            "Value not specified for an option",
            "M required password=",
        ),
        (
            "M required password=\"x;",
            "not closed",
            "M required password=",
        ),
        (
            "M required username=\"a\", password=\"x\";",
            "blanks between them, not commas",
            "M required username=\"a\"",
        ),
        (
            "M required password=a/b;",
            "not terminated by semi-colon",
            "M required password=a/b;",
        ),
        (
            "M required; N required;",
            "contains 2 login modules, should be 1 module",
            "M required; ",
        ),
    ] {
        let (error, found) = fails(text);
        assert!(error.contains(says), "{text}: {error}");
        assert_eq!(found, before, "{text}: {error}");
    }
}

#[test]
fn the_line_is_shown_with_a_caret_and_without_values() {
    let text = format!("{PLAIN} required username=\"alice\" password=hush!hush;");
    assert_eq!(
        parse_property(&text).unwrap_err().to_string(),
        format!(
            "an option without a name in JAAS config (column 96)\n    {PLAIN} required username=\"...\" \
             password=.......;\n    {}^\n  put the value before it in double quotes\n  probably meant:\n    \
             {PLAIN} required username=\"...\" password=\"...\";",
            " ".repeat(92)
        )
    );
    for text in [
        "M required username=\"alice\" hush;",
        "M required password=\"hush",
        "M required password=\"a\"hush\";",
        "M required password=a hush=x y;",
        "M required password=7hush;",
        "M required password=/hush;",
        "M hush;",
        "hush",
        "M required; hush hush;",
    ] {
        let error = parse_property(text).unwrap_err().to_string();
        assert!(!error.contains("hush"), "{error}");
    }
}

#[test]
fn the_line_that_was_probably_meant_is_shown() {
    let meant = "PlainLoginModule required username=\"...\" password=\"...\";";
    for rest in [
        "username=\"a\" password=\"b\";",
        "requird username=\"a\" password=\"b\";",
        "required username=\"a\" password=\"b\"",
        "required username=\"a\", password=\"b\";",
        "required username=\"a\" password=12ab;",
        "required username=\"a\" password=a/b;",
        "required username=\"a\" password=x!y;",
        "required username=\"a\" password=x!;",
        "required username=\"a\" password=x-y,z;",
        "required username=\"a\" password=$%\"\\;",
        "required username=\"a\" password=;",
        "required username=\"a\" password=\"b;",
        "required username=\"a\" password='b",
        "required username \"a\" password:\"b\";",
        "username=7 password=8",
    ] {
        let error = parse_property(&format!("PlainLoginModule {rest}")).expect_err(rest);
        let shown = error.to_string();
        let found = shown.split_once("probably meant:\n    ");
        assert_eq!(found.map(|(_, line)| line), Some(meant), "{rest}: {shown}");
    }
    // A flag alone, and texts beyond repair.
    let error = parse_property("PlainLoginModule").unwrap_err().to_string();
    assert!(error.ends_with("    PlainLoginModule required;"), "{error}");
    for text in ["", "M required; N required;", "M required a b c;"] {
        let error = parse_property(text).expect_err(text).to_string();
        assert!(!error.contains("probably meant"), "{error}");
    }
    let file = "KafkaServer {\n  PlainLoginModule required\n  password=1x\n};";
    let error = JaasFile::parse(file).unwrap_err().to_string();
    assert!(error.ends_with("    password=\"...\""), "{error}");
}

#[test]
fn files_have_sections() {
    let file = format!(
        "/* ours */ KafkaServer {{\n  {PLAIN} required\n  username=\"a\"\n  password=\"b\";\n  \
         org.apache.kafka.common.security.scram.ScramLoginModule required;\n}};\n\
         internal.KafkaServer {{ {PLAIN} required user_x=\"${{/}}y\"; }};"
    );
    let file = JaasFile::parse(&file).unwrap();
    let entries = file.section("KafkaServer").unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0].credentials(), Some(("a", "b")));
    let internal = file.section("internal.KafkaServer").unwrap();
    assert_eq!(internal[0].option("user_x"), Some("/y"));
    assert!(file.section("KafkaClient").is_none());
    for (text, line, says) in [
        ("KafkaServer {\n M required;\n}", 3, "semicolon at its end"),
        ("KafkaServer\n M required;\n};", 2, "without {"),
        ("KafkaServer {\n M required;", 2, "without }"),
        (
            "A { M required; };\nA { M required; };",
            2,
            "second section",
        ),
        (
            "A { M required a=\"${user.home}\"; };",
            1,
            "system property of Java",
        ),
        ("A {\n M required\n a=1;\n};", 3, "begins with a digit"),
    ] {
        let error = JaasFile::parse(text).unwrap_err();
        assert_eq!(error.line(), line, "{error}");
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn modules_are_let_in_by_name() {
    let check = |class: &str| {
        parse_property(&format!("{class} required;"))
            .unwrap()
            .check_class()
    };
    for mechanism in Mechanism::ALL {
        assert_eq!(check(mechanism.login_module()), Ok(()));
    }
    let jndi = check("com.sun.security.auth.module.JndiLoginModule").unwrap_err();
    assert!(jndi.contains("is not allowed"), "{jndi}");
    let other = check("com.example.Login").unwrap_err();
    assert!(other.contains("Java class"), "{other}");
    let moved = check("org.apache.kafka.PlainLoginModule").unwrap_err();
    assert!(
        moved.ends_with(&format!("probably meant {PLAIN}")),
        "{moved}"
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_an_entry_or_an_error(text in ".{0,200}") {
        let _ = parse_property(&text).map_err(|error| error.to_string());
        let _ = JaasFile::parse(&text).map_err(|error| error.to_string());
    }

    #[test]
    fn anything_of_its_marks_is_an_entry_or_an_error(text in "[a-c;={}\"'\\\\/*. \n0-9$-]{0,60}") {
        let _ = parse_property(&text).map_err(|error| error.to_string());
        let _ = JaasFile::parse(&text).map_err(|error| error.to_string());
    }
}
