//! The message and enum types of `.proto` files, with the names of types resolved.
//!
//! Has only what decoding needs: no options, services or extensions. Types refer to each other by
//! their index in [`Types`].

use std::collections::{HashMap, HashSet};

use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
};

/// A name is looked up in each package and message around it.
const MOST_NAME_BYTES: usize = 512;

#[derive(Debug)]
pub(super) struct Types {
    messages: Vec<MessageType>,
    enums: Vec<EnumType>,
    /// The messages of the first file that are not in another message.
    outermost: Vec<usize>,
}

#[derive(Debug)]
pub(super) struct MessageType {
    /// By their numbers.
    pub(super) fields: Vec<Field>,
    /// The indexes of the fields that have a value even if they are not set.
    pub(super) without_presence: Vec<usize>,
    /// The messages in it, without the entries of maps, which are not in the file.
    inner: Vec<usize>,
    is_map_entry: bool,
}

#[derive(Debug)]
pub(super) struct Field {
    pub(super) number: u32,
    pub(super) json_name: String,
    pub(super) kind: Type,
    /// The index of the message or the enum; 0 for other types.
    index: usize,
    pub(super) is_repeated: bool,
    /// Whether "not set" differs from the default.
    has_presence: bool,
    /// At most one field of a oneof is set.
    pub(super) oneof: Option<i32>,
}

#[derive(Debug)]
struct EnumType {
    /// The first value, which is the default.
    first: i32,
    names: HashMap<i32, String>,
}

impl Types {
    /// The first file is the schema; the others are all files that it imports, directly or not.
    pub(super) fn resolve(files: &[FileDescriptorProto]) -> Result<Types, String> {
        let mut names = Names::default();
        let mut outermost = Vec::new();
        for (index, file) in files.iter().enumerate() {
            let messages = names.declare_file(index, file)?;
            if index == 0 {
                outermost = messages;
            }
        }
        let visible = visible(files);
        let mut messages = Vec::with_capacity(names.messages.len());
        for declared in &names.messages {
            let is_proto3 = files[declared.file].syntax() == "proto3";
            let fields = declared.message.field.iter();
            let fields = fields.map(|it| names.field(declared, it, is_proto3, &visible));
            let mut fields = fields.collect::<Result<Vec<Field>, String>>()?;
            fields.sort_by_key(|it| it.number);
            if let Some(pair) = fields.windows(2).find(|it| it[0].number == it[1].number) {
                let (name, number) = (&declared.name, pair[0].number);
                return Err(format!("{name} has two fields with the number {number}"));
            }
            let indexes = 0..fields.len();
            messages.push(MessageType {
                without_presence: indexes.filter(|it| !fields[*it].has_presence).collect(),
                fields,
                inner: declared.inner.clone(),
                is_map_entry: is_map_entry(declared.message),
            });
        }
        Ok(Types {
            messages,
            enums: names.enums.into_iter().map(EnumType::new).collect(),
            outermost,
        })
    }

    /// The message at this place: the index of a message of the first file, then of those in it.
    pub(super) fn at(&self, place: &[usize]) -> Option<&MessageType> {
        let mut inner = &self.outermost;
        let mut found = None;
        for index in place {
            let message = &self.messages[*inner.get(*index)?];
            inner = &message.inner;
            found = Some(message);
        }
        found
    }

    /// The type of a field that is a message or a group.
    pub(super) fn message(&self, field: &Field) -> &MessageType {
        &self.messages[field.index]
    }

    /// The type of the entries of a field that is a map: a key and a value.
    pub(super) fn map_entry(&self, field: &Field) -> Option<&MessageType> {
        match field.kind {
            Type::Message => Some(self.message(field)).filter(|it| it.is_map_entry),
            _ => None,
        }
    }

    /// The name of a value of a field that is an enum.
    pub(super) fn enum_name(&self, field: &Field, number: i64) -> Option<&str> {
        let number = i32::try_from(number).ok()?;
        self.enums[field.index]
            .names
            .get(&number)
            .map(String::as_str)
    }

    /// The default of a field that is an enum.
    pub(super) fn enum_default(&self, field: &Field) -> i32 {
        self.enums[field.index].first
    }
}

impl EnumType {
    fn new(declared: &EnumDescriptorProto) -> EnumType {
        let mut names = HashMap::new();
        for value in &declared.value {
            // Of names for the same number, the first counts.
            let name = names.entry(value.number());
            name.or_insert_with(|| value.name().to_owned());
        }
        EnumType {
            first: declared.value.first().map_or(0, |it| it.number()),
            names,
        }
    }
}

/// For each file, the files whose names it can use: itself, those that it imports, and those that
/// they import publicly, directly or not.
fn visible(files: &[FileDescriptorProto]) -> Vec<HashSet<usize>> {
    let of_name: HashMap<&str, usize> = files
        .iter()
        .map(FileDescriptorProto::name)
        .zip(0..)
        .collect();
    let imports = |file: &FileDescriptorProto| -> Vec<usize> {
        let names = file.dependency.iter();
        names
            .filter_map(|it| of_name.get(it.as_str()).copied())
            .collect()
    };
    let public = |file: &FileDescriptorProto| -> Vec<usize> {
        let indexes = file.public_dependency.iter();
        let names = indexes.filter_map(|it| file.dependency.get(usize::try_from(*it).ok()?));
        names
            .filter_map(|it| of_name.get(it.as_str()).copied())
            .collect()
    };
    let mut visible = Vec::with_capacity(files.len());
    for (index, file) in files.iter().enumerate() {
        let mut seen = HashSet::from([index]);
        let mut waiting = imports(file);
        while let Some(next) = waiting.pop() {
            if seen.insert(next) {
                waiting.extend(public(&files[next]));
            }
        }
        visible.push(seen);
    }
    visible
}

fn is_map_entry(message: &DescriptorProto) -> bool {
    let options = message.options.as_ref();
    options.is_some_and(|it| it.map_entry == Some(true))
}

struct Declared<'a> {
    file: usize,
    /// With the package and the messages around it.
    name: String,
    message: &'a DescriptorProto,
    inner: Vec<usize>,
}

#[derive(Clone, Copy)]
enum Named {
    Message(usize),
    Enum(usize),
}

/// The types of all files by their full names.
#[derive(Default)]
struct Names<'a> {
    messages: Vec<Declared<'a>>,
    enums: Vec<&'a EnumDescriptorProto>,
    /// With the file.
    of_name: HashMap<String, (usize, Named)>,
}

impl<'a> Names<'a> {
    /// The messages of the file that are not in another message.
    fn declare_file(
        &mut self,
        index: usize,
        file: &'a FileDescriptorProto,
    ) -> Result<Vec<usize>, String> {
        self.declare_enums(index, file.package(), &file.enum_type)?;
        let messages = file.message_type.iter();
        let declared = messages.map(|it| self.declare_message(index, file.package(), it));
        declared.collect()
    }

    fn declare_message(
        &mut self,
        file: usize,
        scope: &str,
        message: &'a DescriptorProto,
    ) -> Result<usize, String> {
        let name = joined(scope, message.name());
        let index = self.messages.len();
        self.declare(file, name.clone(), Named::Message(index))?;
        self.messages.push(Declared {
            file,
            name: name.clone(),
            message,
            inner: Vec::new(),
        });
        self.declare_enums(file, &name, &message.enum_type)?;
        for nested in &message.nested_type {
            let inner = self.declare_message(file, &name, nested)?;
            if !is_map_entry(nested) {
                self.messages[index].inner.push(inner);
            }
        }
        Ok(index)
    }

    fn declare_enums(
        &mut self,
        file: usize,
        scope: &str,
        enums: &'a [EnumDescriptorProto],
    ) -> Result<(), String> {
        for declared in enums {
            let name = joined(scope, declared.name());
            self.declare(file, name, Named::Enum(self.enums.len()))?;
            self.enums.push(declared);
        }
        Ok(())
    }

    fn declare(&mut self, file: usize, name: String, named: Named) -> Result<(), String> {
        if name.len() > MOST_NAME_BYTES {
            return Err(format!("a name has more than {MOST_NAME_BYTES} bytes"));
        }
        match self.of_name.insert(name.clone(), (file, named)) {
            None => Ok(()),
            Some(_) => Err(format!("{name} is defined twice")),
        }
    }

    fn field(
        &self,
        of: &Declared<'_>,
        field: &FieldDescriptorProto,
        is_proto3: bool,
        visible: &[HashSet<usize>],
    ) -> Result<Field, String> {
        let named = match field.type_name.as_deref() {
            None => None,
            Some(name) => {
                let found = self.find(&of.name, name, &visible[of.file]);
                let unknown = || format!("{} has a field of the unknown type {name}", of.name);
                Some(found.ok_or_else(unknown)?)
            }
        };
        let (kind, index) = match named {
            Some(Named::Message(index)) if field.r#type == Some(Type::Group as i32) => {
                (Type::Group, index)
            }
            Some(Named::Message(index)) => (Type::Message, index),
            Some(Named::Enum(index)) => (Type::Enum, index),
            None => (field.r#type(), 0),
        };
        let is_repeated = field.label() == Label::Repeated;
        let is_message = matches!(kind, Type::Message | Type::Group);
        Ok(Field {
            number: u32::try_from(field.number()).unwrap_or(0),
            json_name: field
                .json_name
                .clone()
                .unwrap_or_else(|| lower_camel_case(field.name())),
            kind,
            index,
            is_repeated,
            has_presence: !is_repeated && (!is_proto3 || is_message || field.oneof_index.is_some()),
            oneof: field.oneof_index,
        })
    }

    /// The type that this name means in a message: the innermost of the scopes around it counts.
    fn find(&self, scope: &str, name: &str, visible: &HashSet<usize>) -> Option<Named> {
        let known = |name: &str| {
            let (file, named) = self.of_name.get(name)?;
            visible.contains(file).then_some(*named)
        };
        if let Some(full) = name.strip_prefix('.') {
            return known(full);
        }
        let mut scope = scope;
        loop {
            let found = known(&joined(scope, name));
            if found.is_some() || scope.is_empty() {
                return found;
            }
            scope = scope.rsplit_once('.').map_or("", |(outer, _)| outer);
        }
    }
}

fn joined(scope: &str, name: &str) -> String {
    match scope {
        "" => name.to_owned(),
        _ => format!("{scope}.{name}"),
    }
}

/// The name of a field in JSON.
fn lower_camel_case(name: &str) -> String {
    let mut json = String::with_capacity(name.len());
    let mut is_upper = false;
    for letter in name.chars() {
        match letter {
            '_' => is_upper = true,
            _ if is_upper => {
                json.push(letter.to_ascii_uppercase());
                is_upper = false;
            }
            _ => json.push(letter),
        }
    }
    json
}
