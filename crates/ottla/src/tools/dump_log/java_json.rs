//! JSON as printed by Java's Jackson, which formats floating-point numbers differently:
//! `1.048576E7`.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

use crate::tools::java_numbers::double_to_string;

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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn numbers_are_formatted_as_in_java() {
        let value = json!({"a": [1, 10_485_760.0, null], "b": "x\"y"});
        assert_eq!(to_json(&value), r#"{"a":[1,1.048576E7,null],"b":"x\"y"}"#);
    }
}
