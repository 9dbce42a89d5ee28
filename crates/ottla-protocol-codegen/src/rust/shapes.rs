//! The structs of a message.

use std::collections::BTreeMap;

use crate::schema::{Field, Message, Struct};

/// The structs of a message: first the message itself, then those defined inline.
pub(super) fn shapes_of(message: &Message) -> Vec<Struct> {
    fn add_nested(fields: &[Field], shapes: &mut Vec<Struct>) {
        for field in fields.iter().filter(|field| !field.fields.is_empty()) {
            let name = field
                .kind
                .struct_name()
                .expect("only structs have fields of their own");
            shapes.push(Struct {
                name: name.to_owned(),
                versions: field.versions,
                fields: field.fields.clone(),
            });
            add_nested(&field.fields, shapes);
        }
    }
    let mut shapes = vec![Struct {
        name: message.name.clone(),
        versions: message.versions,
        fields: message.fields.clone(),
    }];
    add_nested(&message.fields, &mut shapes);
    for shared in &message.structs {
        shapes.push(shared.clone());
        add_nested(&shared.fields, &mut shapes);
    }
    refuse_recursion(message, &shapes);
    shapes
}

/// Decoding recurses along the schema, so its depth is bounded only if no struct contains itself.
fn refuse_recursion(message: &Message, shapes: &[Struct]) {
    let by_name: BTreeMap<&str, &Struct> = shapes
        .iter()
        .map(|shape| (shape.name.as_str(), shape))
        .collect();
    assert_eq!(
        by_name.len(),
        shapes.len(),
        "{}: two structs of one name",
        message.name
    );
    fn visit<'a>(name: &'a str, path: &mut Vec<&'a str>, by_name: &BTreeMap<&'a str, &'a Struct>) {
        assert!(!path.contains(&name), "{path:?} contains itself");
        path.push(name);
        for field in &by_name
            .get(name)
            .unwrap_or_else(|| panic!("no struct {name}"))
            .fields
        {
            if let Some(inner) = field.kind.struct_name() {
                visit(inner, path, by_name);
            }
        }
        path.pop();
    }
    visit(&message.name, &mut Vec::new(), &by_name);
}
