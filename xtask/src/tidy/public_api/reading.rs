//! The public items of a library, read from its sources: what other crates can name, under the path
//! that they write.
//!
//! Types are those that are written, with private aliases replaced. What the compiler derives from
//! private parts, such as whether a type is `Send`, is not seen here.

use std::collections::{BTreeMap, VecDeque};

use syn::{
    Attribute, Ident, ImplItem, Item, ItemEnum, ItemImpl, ItemTrait, ItemUse, TraitItem, Type,
    Visibility,
};

use super::{documentation, text};
use crate::tidy::modules::{ModuleId, Target, Tree, imports, is_of_tests, is_public};

/// One line of the public API.
pub struct Entry {
    /// `ottla_client::Admin::new`
    pub path: String,
    /// `pub fn ottla_client::Admin::new(Client) -> Admin`
    pub line: String,
    /// The file that defines it, within the crate's folder.
    pub file: String,
    /// `None` for what the example of its type covers: fields, variants, implementations.
    pub has_example: Option<bool>,
}

/// The entries of a library, in the order of its modules.
pub fn read(tree: &Tree, name: &str) -> Vec<Entry> {
    let mut reader = Reader {
        tree,
        entries: Vec::new(),
        paths: BTreeMap::new(),
        open: VecDeque::new(),
    };
    if let Some(root) = tree.library() {
        reader.open.push_back((root, name.to_owned()));
        while let Some((module, path)) = reader.open.pop_front() {
            reader.read_module(module, &path);
        }
        reader.read_implementations(root);
        reader.replace_aliases(root);
    }
    reader.entries
}

struct Reader<'a> {
    tree: &'a Tree,
    entries: Vec<Entry>,
    /// The path of each public item. If there are several, the shortest.
    paths: BTreeMap<(ModuleId, String), String>,
    /// Public modules that are not read yet.
    open: VecDeque<(ModuleId, String)>,
}

impl Reader<'_> {
    fn read_module(&mut self, id: ModuleId, path: &str) {
        let tree = self.tree;
        let module = &tree.modules[id];
        self.add(&module.file, path, format!("pub mod {path}"));
        self.needs_example(&module.attributes);
        for item in &module.items {
            if let Item::Use(item) = item {
                if is_shown(&item.vis, &item.attrs) {
                    self.read_use(item, id, path);
                }
            } else if let Some((attributes, visibility, name)) = declaration(item)
                && is_shown(visibility, attributes)
            {
                self.read_named(id, &name.to_string(), &format!("{path}::{name}"));
            }
        }
        for (child, declared) in tree.children(id) {
            if declared.is_public && !documentation::is_hidden(&declared.attributes) {
                let path = format!("{path}::{}", declared.name);
                self.open.push_back((child, path));
            }
        }
    }

    fn read_use(&mut self, item: &ItemUse, id: ModuleId, path: &str) {
        for import in imports(&item.tree) {
            let target = match item.leading_colon {
                None => self.tree.resolve(id, &import.path),
                Some(_) => None,
            };
            let name = import.name.as_deref().unwrap_or("*");
            let public = format!("{path}::{name}");
            match target {
                Some(Target::Item(definer, name)) if import.name.is_some() => {
                    self.read_named(definer, &name, &public);
                }
                Some(Target::Module(module)) if import.name.is_some() => {
                    self.open.push_back((module, public));
                }
                // Of another crate, whose API is its own.
                _ => {
                    let line = format!("pub use {public} = {}", import.path.join("::"));
                    let tree = self.tree;
                    self.add(&tree.modules[id].file, &public, line);
                }
            }
        }
    }

    /// Reads the items with a name: a type and a function may share one.
    fn read_named(&mut self, definer: ModuleId, name: &str, path: &str) {
        let tree = self.tree;
        let module = &tree.modules[definer];
        let key = (definer, name.to_owned());
        if let Some(first) = self.paths.get(&key) {
            let line = format!("pub use {path} = {first}");
            self.add(&module.file, path, line);
            return;
        }
        self.paths.insert(key, path.to_owned());
        let before = self.entries.len();
        for item in &module.items {
            if let Some((attributes, _, found)) = declaration(item)
                && found == name
            {
                self.read_item(item, &module.file, path);
                self.needs_example_at(path, attributes);
            }
        }
        // A macro generates it.
        if self.entries.len() == before {
            self.add(&module.file, path, format!("pub {path}"));
        }
    }

    fn read_item(&mut self, item: &Item, file: &str, path: &str) {
        match item {
            Item::Struct(item) => {
                let public = text::of_fields(&item.fields);
                let is_whole = public.len() == item.fields.len();
                let names: Vec<&str> = public.iter().map(|(name, _)| name.as_str()).collect();
                // More fields of a struct without private ones break those who write all of them.
                let is_closed = is_whole && !documentation::may_grow(&item.attrs);
                let names = match (is_closed, names.is_empty()) {
                    (true, true) => String::new(),
                    (true, false) => format!(" {{ {} }}", names.join(", ")),
                    (false, _) => " { .. }".to_owned(),
                };
                let generics = text::of(&item.generics);
                self.add(file, path, format!("pub struct {path}{generics}{names}"));
                for (name, ty) in &public {
                    self.add(file, path, format!("pub {path}::{name}: {ty}"));
                }
                self.read_derives(&item.attrs, file, path);
            }
            Item::Enum(item) => self.read_enum(item, file, path),
            Item::Trait(item) => self.read_trait(item, file, path),
            Item::Fn(item) => self.add(file, path, text::of_function(path, &item.sig)),
            Item::Type(item) => {
                let (generics, ty) = (text::of(&item.generics), text::of(&item.ty));
                self.add(file, path, format!("pub type {path}{generics} = {ty}"));
            }
            Item::Const(item) => {
                let line = format!("pub const {path}: {}", text::of(&item.ty));
                self.add(file, path, line);
            }
            Item::Static(item) => {
                let line = format!("pub static {path}: {}", text::of(&item.ty));
                self.add(file, path, line);
            }
            _ => self.add(file, path, format!("pub {path}")),
        }
    }

    fn read_enum(&mut self, item: &ItemEnum, file: &str, path: &str) {
        let names: Vec<String> = item
            .variants
            .iter()
            .map(|it| it.ident.to_string())
            .collect();
        let names = match documentation::may_grow(&item.attrs) {
            true => "..".to_owned(),
            false => names.join(", "),
        };
        let generics = text::of(&item.generics);
        self.add(
            file,
            path,
            format!("pub enum {path}{generics} {{ {names} }}"),
        );
        for variant in &item.variants {
            let mut line = format!("pub {path}::{}", variant.ident);
            line.push_str(&text::of_variant(&variant.fields));
            if let Some((_, number)) = &variant.discriminant {
                line.push_str(&format!(" = {}", text::of(number)));
            }
            self.add(file, path, line);
        }
        self.read_derives(&item.attrs, file, path);
    }

    fn read_trait(&mut self, item: &ItemTrait, file: &str, path: &str) {
        let shown = documentation::of(&item.attrs);
        let (mut required, mut lines) = (Vec::new(), Vec::new());
        for inner in &item.items {
            match inner {
                TraitItem::Fn(method) => {
                    let name = method.sig.ident.to_string();
                    let inner_path = format!("{path}::{name}");
                    let line = text::of_function(&inner_path, &method.sig);
                    // The example of a trait is an implementation, which shows its methods.
                    let has_example = shown.contains(&format!("fn {name}("))
                        || documentation::has_example(&documentation::of(&method.attrs));
                    lines.push((inner_path, line, Some(has_example)));
                    if method.default.is_none() {
                        required.push(name);
                    }
                }
                TraitItem::Type(ty) => {
                    let line = format!("pub type {path}::{}", ty.ident);
                    lines.push((path.to_owned(), line, None));
                    required.push(ty.ident.to_string());
                }
                TraitItem::Const(constant) => {
                    let line = format!("pub const {path}::{}", constant.ident);
                    lines.push((path.to_owned(), line, None));
                    required.push(constant.ident.to_string());
                }
                _ => {}
            }
        }
        let generics = text::of(&item.generics);
        let bounds = match item.supertraits.is_empty() {
            true => String::new(),
            false => format!(": {}", text::of(&item.supertraits)),
        };
        // Another required item breaks the implementations of other crates.
        let required = required.join(", ");
        let line = format!("pub trait {path}{generics}{bounds} {{ {required} }}");
        self.add(file, path, line);
        for (path, line, has_example) in lines {
            self.entries.push(Entry {
                path,
                line,
                file: file.to_owned(),
                has_example,
            });
        }
    }

    fn read_derives(&mut self, attributes: &[Attribute], file: &str, path: &str) {
        for name in documentation::derived(attributes) {
            self.add(file, path, format!("impl {name} for {path}"));
        }
    }

    /// Reads the methods and traits of public types, wherever they are implemented.
    fn read_implementations(&mut self, root: ModuleId) {
        let tree = self.tree;
        for (id, module) in tree.modules_of(root) {
            for item in &module.items {
                if let Item::Impl(item) = item
                    && let Type::Path(ty) = &*item.self_ty
                {
                    let parts = ty.path.segments.iter().map(|it| it.ident.to_string());
                    let target = tree.resolve(id, &parts.collect::<Vec<String>>());
                    if let Some(Target::Item(definer, name)) = target
                        && let Some(path) = self.paths.get(&(definer, name)).cloned()
                    {
                        self.read_implementation(item, &module.file, &path);
                    }
                }
            }
        }
    }

    fn read_implementation(&mut self, item: &ItemImpl, file: &str, path: &str) {
        if let Some((implemented, _)) = &item.trait_ {
            let name = text::of_last(implemented);
            if name == "Drop" {
                return;
            }
            self.add(file, path, format!("impl {name} for {path}"));
            for inner in &item.items {
                if let ImplItem::Type(ty) = inner {
                    let (inner, ty) = (&ty.ident, text::of(&ty.ty));
                    let line = format!("impl {name} for {path}: {inner} = {ty}");
                    self.add(file, path, line);
                }
            }
            return;
        }
        for inner in &item.items {
            match inner {
                ImplItem::Fn(method) if is_shown(&method.vis, &method.attrs) => {
                    let path = format!("{path}::{}", method.sig.ident);
                    self.add(file, &path, text::of_function(&path, &method.sig));
                    self.needs_example(&method.attrs);
                }
                ImplItem::Const(constant) if is_shown(&constant.vis, &constant.attrs) => {
                    let ty = text::of(&constant.ty);
                    let line = format!("pub const {path}::{}: {ty}", constant.ident);
                    self.add(file, path, line);
                }
                _ => {}
            }
        }
    }

    /// Other crates see the types behind aliases that they cannot name.
    fn replace_aliases(&mut self, root: ModuleId) {
        let tree = self.tree;
        let mut aliases = BTreeMap::new();
        for (id, module) in tree.modules_of(root) {
            for item in &module.items {
                if let Item::Type(item) = item
                    && item.generics.params.is_empty()
                    && !self.paths.contains_key(&(id, item.ident.to_string()))
                {
                    aliases.insert(item.ident.to_string(), text::of(&item.ty));
                }
            }
        }
        for entry in &mut self.entries {
            entry.line = text::with_replaced(&entry.line, &aliases);
        }
    }

    fn add(&mut self, file: &str, path: &str, line: String) {
        self.entries.push(Entry {
            path: path.to_owned(),
            line,
            file: file.to_owned(),
            has_example: None,
        });
    }

    /// The last entry is an item that readers look up by itself.
    fn needs_example(&mut self, attributes: &[Attribute]) {
        if let Some(last) = self.entries.last_mut() {
            let shown = documentation::of(attributes);
            last.has_example = Some(documentation::has_example(&shown));
        }
    }

    /// As [`Reader::needs_example`], for the first entry with this path.
    fn needs_example_at(&mut self, path: &str, attributes: &[Attribute]) {
        if let Some(entry) = self.entries.iter_mut().find(|it| it.path == path) {
            let shown = documentation::of(attributes);
            entry.has_example = Some(documentation::has_example(&shown));
        }
    }
}

/// Whether other crates see it, if they can reach its module.
fn is_shown(visibility: &Visibility, attributes: &[Attribute]) -> bool {
    is_public(visibility) && !is_of_tests(attributes) && !documentation::is_hidden(attributes)
}

/// What an item with a name is declared with.
fn declaration(item: &Item) -> Option<(&Vec<Attribute>, &Visibility, &Ident)> {
    Some(match item {
        Item::Const(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Enum(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Fn(item) => (&item.attrs, &item.vis, &item.sig.ident),
        Item::Static(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Struct(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Trait(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Type(item) => (&item.attrs, &item.vis, &item.ident),
        Item::Union(item) => (&item.attrs, &item.vis, &item.ident),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::modules;

    fn entries(sources: &[(&str, &str)]) -> Vec<Entry> {
        let tree = modules::read(&sources.iter().copied().collect());
        assert_eq!(tree.unread, []);
        read(&tree, "x")
    }

    fn lines(text: &str) -> Vec<String> {
        let all = entries(&[("src/lib.rs", text)]);
        all.into_iter().skip(1).map(|entry| entry.line).collect()
    }

    #[test]
    fn items_have_the_path_that_users_write() {
        let found = entries(&[
            (
                "src/lib.rs",
                "mod a; pub mod b; pub use a::A; pub use other::Foreign as F;",
            ),
            (
                "src/a.rs",
                "mod inner; pub use inner::A; pub struct Unreachable;",
            ),
            (
                "src/a/inner.rs",
                "pub struct A; impl super::A { pub fn f(&self) {} fn g(&self) {} }",
            ),
            (
                "src/b.rs",
                "pub use crate::a::A; pub fn f() {} #[doc(hidden)] pub fn hidden() {}",
            ),
        ]);
        let lines: Vec<&str> = found.iter().map(|entry| entry.line.as_str()).collect();
        assert_eq!(
            lines,
            [
                "pub mod x",
                "pub struct x::A",
                "pub use x::F = other::Foreign",
                "pub mod x::b",
                "pub use x::b::A = x::A",
                "pub fn x::b::f()",
                "pub fn x::A::f(&self)",
            ]
        );
        assert_eq!(found[1].file, "src/a/inner.rs");
    }

    #[test]
    fn additions_that_break_others_change_a_line() {
        let of = |text: &str| lines(text)[0].clone();
        let open = "pub struct S { pub a: u8, b: u8 }";
        assert_eq!(of(open), "pub struct x::S { .. }");
        assert_eq!(of(&open.replace("b: u8", "b: u8, pub c: u8")), of(open));
        let closed = "pub struct S { pub a: u8 }";
        assert_eq!(of(closed), "pub struct x::S { a }");
        let listed = "pub enum E { A, B(u8) }";
        assert_eq!(of(listed), "pub enum x::E { A, B }");
        assert_eq!(
            of(&format!("#[non_exhaustive] {listed}")),
            "pub enum x::E { .. }"
        );
        let required = "pub trait T: Send { fn a(&self); fn b(&self) {} }";
        assert_eq!(of(required), "pub trait x::T: Send { a }");
    }

    #[test]
    fn fields_variants_and_implementations_have_lines() {
        assert_eq!(
            lines(
                "#[derive(Clone)] pub struct S(pub u8); impl fmt::Display for S {} impl From<u8> for S {}"
            ),
            [
                "pub struct x::S { 0 }",
                "pub x::S::0: u8",
                "impl Clone for x::S",
                "impl Display for x::S",
                "impl From<u8> for x::S",
            ]
        );
        assert_eq!(
            lines(
                "pub enum E { A = 1, B { c: Vec<u8> } } impl IntoIterator for E { type Item = u8; }"
            ),
            [
                "pub enum x::E { A, B }",
                "pub x::E::A = 1",
                "pub x::E::B { c: Vec<u8> }",
                "impl IntoIterator for x::E",
                "impl IntoIterator for x::E: Item = u8",
            ]
        );
        let others = "pub type T<A> = Vec<A>; pub const C: u8 = 1; #[cfg(test)] pub fn f() {}";
        assert_eq!(
            lines(others),
            ["pub type x::T<A> = Vec<A>", "pub const x::C: u8"]
        );
    }

    #[test]
    fn private_aliases_are_replaced() {
        let text = "type P = (String, i32); pub type Q = P; pub fn f(_: &[P]) -> Vec<Q> {}";
        assert_eq!(
            lines(text),
            [
                "pub type x::Q = (String, i32)",
                "pub fn x::f(&[(String, i32)]) -> Vec<Q>",
            ]
        );
    }

    #[test]
    fn examples_are_looked_for_on_items_and_not_on_their_parts() {
        let example = "/// Words.\n///\n/// ```\n/// f();\n/// ```\n";
        let missing = |text: &str| {
            let all = entries(&[("src/lib.rs", text)]);
            let missing = all.iter().filter(|it| it.has_example == Some(false));
            missing.map(|entry| entry.path.clone()).collect::<Vec<_>>()
        };
        let root = "//! ```\n//! f();\n//! ```\n";
        assert_eq!(missing("pub fn f() {}"), ["x", "x::f"]);
        assert_eq!(
            missing(&format!("{root}{example} pub struct S {{ pub a: u8 }}")),
            [""; 0]
        );
        let method = format!("{root}{example} pub struct S; impl S {{ pub fn f() {{}} }}");
        assert_eq!(missing(&method), ["x::S::f"]);
        let shown = "/// ```\n/// impl T for S { fn a(&self) {} }\n/// ```\n";
        let of_trait = format!("{root}{shown} pub trait T {{ fn a(&self); fn b(&self); }}");
        assert_eq!(missing(&of_trait), ["x::T::b"]);
    }
}
