//! The Rust types of settings.

use crate::config_def::{ConfigDef, ConfigValue};

/// A Rust type for the value of a setting.
pub(crate) trait FromValue {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self;
}

fn integer(value: Option<ConfigValue>, def: &ConfigDef) -> i64 {
    match value {
        Some(ConfigValue::Integer(number)) => number,
        other => panic!("{} is not an integer setting: {other:?}", def.name),
    }
}

macro_rules! integers {
    ($($type:ty),*) => {$(
        impl FromValue for $type {
            fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
                integer(value, def).try_into().expect("the type's range has been checked")
            }
        }
        impl FromValue for Option<$type> {
            fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
                value.map(|value| <$type>::from_value(Some(value), def))
            }
        }
    )*};
}
integers!(i16, i32, i64);

impl FromValue for bool {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        match value {
            Some(ConfigValue::Boolean(value)) => value,
            other => panic!("{} is not a boolean setting: {other:?}", def.name),
        }
    }
}

impl FromValue for f64 {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        match value {
            Some(ConfigValue::Double(value)) => value,
            other => panic!("{} is not a setting with a fraction: {other:?}", def.name),
        }
    }
}

impl FromValue for String {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        match value {
            Some(ConfigValue::Text(text)) => text,
            other => panic!("{} is not a text setting: {other:?}", def.name),
        }
    }
}

impl FromValue for Option<String> {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        value.map(|value| String::from_value(Some(value), def))
    }
}

impl FromValue for Vec<String> {
    fn from_value(value: Option<ConfigValue>, def: &ConfigDef) -> Self {
        match value {
            Some(ConfigValue::List(items)) => items,
            None => Vec::new(),
            other => panic!("{} is not a list setting: {other:?}", def.name),
        }
    }
}
