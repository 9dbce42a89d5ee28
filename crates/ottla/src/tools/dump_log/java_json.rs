//! JSON as Java's Jackson prints it, which differs from others in floating-point numbers: `1.048576E7`.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

struct JavaNumbers;

impl Formatter for JavaNumbers {
    fn write_f64<W: ?Sized + io::Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        writer.write_all(double_to_string(value).as_bytes())
    }
}

pub(super) fn to_json(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut bytes, JavaNumbers);
    value
        .serialize(&mut serializer)
        .expect("a value can always be written into memory");
    String::from_utf8(bytes).expect("JSON is text")
}

/// `Double.toString` for numbers that are neither infinite nor NaN, of which JSON has none.
fn double_to_string(value: f64) -> String {
    let magnitude = value.abs();
    if magnitude == 0.0 || (1e-3..1e7).contains(&magnitude) {
        return format!("{value:?}");
    }
    // "1.048576e7", or "1e7" where there is only one digit.
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let fraction = if digits.contains('.') { "" } else { ".0" };
    format!("{digits}{fraction}E{exponent}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_java_s() {
        for (value, text) in [
            (0.0, "0.0"),
            (-0.5, "-0.5"),
            (0.001, "0.001"),
            (0.00025, "2.5E-4"),
            (9_999_999.0, "9999999.0"),
            (10_000_000.0, "1.0E7"),
            (10_485_760.0, "1.048576E7"),
            (-1.5e300, "-1.5E300"),
        ] {
            assert_eq!(double_to_string(value), text);
        }
        let value = json!({"a": [1, 10_485_760.0, null], "b": "x\"y"});
        assert_eq!(to_json(&value), r#"{"a":[1,1.048576E7,null],"b":"x\"y"}"#);
    }
}
