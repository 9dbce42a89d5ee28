//! The modules of a crate, each with its file and the targets of its names.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Attribute, Item, Meta, Token, UseTree, Visibility, punctuated::Punctuated};

/// The modules of all programs and libraries of a crate.
#[derive(Default)]
pub struct Tree {
    pub modules: Vec<Module>,
    /// Files that could not be parsed, and why.
    pub unread: Vec<(String, String)>,
}

pub type ModuleId = usize;

pub struct Module {
    pub file: String,
    /// Empty for the root of a library or program.
    pub name: String,
    /// Whether it is declared `pub`.
    pub is_public: bool,
    /// Its attributes and documentation, inside and outside.
    pub attributes: Vec<Attribute>,
    parent: Option<ModuleId>,
    root: ModuleId,
    /// A type, a value and a module may share a name.
    names: BTreeMap<String, Vec<Name>>,
    globs: Vec<Import>,
    /// The module's items, without nested modules.
    pub items: Vec<Item>,
}

/// An import of a `use`, as written.
#[derive(Clone)]
pub struct Import {
    /// The local name; `None` for a `*`.
    pub name: Option<String>,
    pub path: Vec<String>,
}

/// How a module is declared.
struct Declaration {
    name: String,
    is_public: bool,
    attributes: Vec<Attribute>,
}

enum Name {
    Item,
    Module(ModuleId),
    Import(Vec<String>),
}

/// The target to which a path resolves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    Module(ModuleId),
    /// An item that this module defines, by its name there.
    Item(ModuleId, String),
}

/// The result of looking up a name in a module.
enum Lookup {
    Found(Target),
    /// Defined by another crate.
    Foreign,
    Unknown,
}

/// Reads the modules of each root of the crate: library, programs, examples, fuzz targets, build
/// script. Keys are paths relative to the crate's folder.
pub fn read(sources: &BTreeMap<&str, &str>) -> Tree {
    let mut tree = Tree::default();
    for path in sources.keys().filter(|path| is_root(path)) {
        let (folder, _) = path.rsplit_once('/').unwrap_or_default();
        let id = tree.modules.len();
        let root = Declaration {
            name: String::new(),
            is_public: true,
            attributes: Vec::new(),
        };
        tree.add_file(sources, path, folder, None, id, root);
    }
    tree
}

fn is_root(path: &str) -> bool {
    let parts: Vec<&str> = path.split('/').collect();
    match parts[..] {
        ["build.rs"] | ["src", "lib.rs" | "main.rs"] => true,
        ["src", "bin", file] | ["examples" | "fuzz_targets", file] => file.ends_with(".rs"),
        ["src", "bin", _, "main.rs"] => true,
        _ => false,
    }
}

/// Whether an item is compiled only into tests.
pub fn is_of_tests(attributes: &[Attribute]) -> bool {
    fn needs_test(meta: &Meta) -> bool {
        let Meta::List(list) = meta else {
            return meta.path().is_ident("test");
        };
        let parts = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
        let mut parts = parts.iter().flatten();
        if list.path.is_ident("any") {
            parts.all(needs_test)
        } else {
            (list.path.is_ident("all") || list.path.is_ident("cfg")) && parts.any(needs_test)
        }
    }
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg") && needs_test(&attribute.meta)
            || attribute.path().is_ident("test")
    })
}

/// The imports of a `use`, one per name.
pub fn imports(tree: &UseTree) -> Vec<Import> {
    fn walk(tree: &UseTree, before: &[String], found: &mut Vec<Import>) {
        let with = |name: String| [before, &[name]].concat();
        let mut add = |name: Option<String>, path| found.push(Import { name, path });
        match tree {
            UseTree::Path(inner) => walk(&inner.tree, &with(inner.ident.to_string()), found),
            // `a::{self}` is `a`.
            UseTree::Name(inner) if inner.ident == "self" && !before.is_empty() => {
                add(before.last().cloned(), before.to_vec());
            }
            UseTree::Name(inner) => {
                add(Some(inner.ident.to_string()), with(inner.ident.to_string()));
            }
            UseTree::Rename(inner) if inner.ident == "self" && !before.is_empty() => {
                add(Some(inner.rename.to_string()), before.to_vec());
            }
            UseTree::Rename(inner) => {
                add(
                    Some(inner.rename.to_string()),
                    with(inner.ident.to_string()),
                );
            }
            UseTree::Glob(_) => add(None, before.to_vec()),
            UseTree::Group(inner) => {
                for tree in &inner.items {
                    walk(tree, before, found);
                }
            }
        }
    }
    let mut found = Vec::new();
    walk(tree, &[], &mut found);
    found
}

impl Tree {
    /// Adds the module of a file; `folder` contains the files of its children.
    fn add_file(
        &mut self,
        sources: &BTreeMap<&str, &str>,
        file: &str,
        folder: &str,
        parent: Option<ModuleId>,
        root: ModuleId,
        mut declared: Declaration,
    ) {
        let items = match syn::parse_file(sources[file]) {
            Ok(parsed) => {
                declared.attributes.extend(parsed.attrs);
                parsed.items
            }
            Err(error) => {
                let why = format!("does not parse: {error}");
                self.unread.push((file.to_owned(), why));
                Vec::new()
            }
        };
        self.add(sources, file, folder, parent, root, declared, items);
    }

    fn add(
        &mut self,
        sources: &BTreeMap<&str, &str>,
        file: &str,
        folder: &str,
        parent: Option<ModuleId>,
        root: ModuleId,
        declared: Declaration,
        items: Vec<Item>,
    ) {
        let id = self.modules.len();
        self.modules.push(Module {
            file: file.to_owned(),
            name: declared.name,
            is_public: declared.is_public,
            attributes: declared.attributes,
            parent,
            root,
            names: BTreeMap::new(),
            globs: Vec::new(),
            items: Vec::new(),
        });
        for item in items {
            let Item::Mod(inner) = item else {
                self.modules[id].add_item(item);
                continue;
            };
            if is_of_tests(&inner.attrs) {
                continue;
            }
            let name = inner.ident.to_string();
            let child = Name::Module(self.modules.len());
            let inside = format!("{folder}/{name}");
            let declared = Declaration {
                name: name.clone(),
                is_public: is_public(&inner.vis),
                attributes: inner.attrs,
            };
            if let Some((_, items)) = inner.content {
                self.add(sources, file, &inside, Some(id), root, declared, items);
            } else {
                let places = [format!("{inside}.rs"), format!("{inside}/mod.rs")];
                let Some(place) = places
                    .iter()
                    .find(|place| sources.contains_key(place.as_str()))
                else {
                    let why = format!("there is no file for its module `{name}`");
                    self.unread.push((file.to_owned(), why));
                    continue;
                };
                self.add_file(sources, place, &inside, Some(id), root, declared);
            }
            self.modules[id].names.entry(name).or_default().push(child);
        }
    }

    /// Resolves a path in a module; `None` for a path into another crate.
    pub fn resolve(&self, module: ModuleId, path: &[String]) -> Option<Target> {
        match self.resolve_guarded(module, path, &mut BTreeSet::new()) {
            Lookup::Found(target) => Some(target),
            Lookup::Foreign | Lookup::Unknown => None,
        }
    }

    /// `seen` holds the names being resolved, which terminates mutual imports.
    fn resolve_guarded(
        &self,
        module: ModuleId,
        path: &[String],
        seen: &mut BTreeSet<(ModuleId, String)>,
    ) -> Lookup {
        let mut at = module;
        let mut is_local = false;
        for (index, part) in path.iter().enumerate() {
            let parent = self.modules[at].parent;
            at = match (part.as_str(), parent) {
                ("crate", _) => self.modules[at].root,
                ("self", _) => at,
                ("super", Some(parent)) => parent,
                _ => match self.look_up(at, part, index + 1 == path.len(), seen) {
                    Lookup::Found(Target::Module(inner)) => inner,
                    // Generated by a macro, or included from a generated file.
                    Lookup::Unknown if is_local => {
                        return Lookup::Found(Target::Item(at, part.clone()));
                    }
                    found => return found,
                },
            };
            is_local = true;
        }
        Lookup::Found(Target::Module(at))
    }

    /// Looks up a name in a module. At the end of a path, an item takes precedence over a module of
    /// the same name.
    fn look_up(
        &self,
        at: ModuleId,
        name: &str,
        is_last: bool,
        seen: &mut BTreeSet<(ModuleId, String)>,
    ) -> Lookup {
        if !seen.insert((at, name.to_owned())) {
            return Lookup::Unknown;
        }
        let module = &self.modules[at];
        let mut best = Lookup::Unknown;
        for meaning in module.names.get(name).into_iter().flatten() {
            let found = match meaning {
                Name::Item => Lookup::Found(Target::Item(at, name.to_owned())),
                Name::Module(inner) => Lookup::Found(Target::Module(*inner)),
                Name::Import(path) => match self.resolve_guarded(at, path, seen) {
                    Lookup::Unknown => Lookup::Foreign,
                    found => found,
                },
            };
            let is_wanted = match &found {
                Lookup::Found(Target::Item(..)) => is_last,
                Lookup::Found(Target::Module(_)) => !is_last,
                Lookup::Foreign | Lookup::Unknown => false,
            };
            if is_wanted || matches!(best, Lookup::Unknown) {
                best = found;
            }
        }
        if matches!(best, Lookup::Unknown) {
            best = self.look_up_in_globs(at, name, is_last, seen);
        }
        seen.remove(&(at, name.to_owned()));
        best
    }

    fn look_up_in_globs(
        &self,
        at: ModuleId,
        name: &str,
        is_last: bool,
        seen: &mut BTreeSet<(ModuleId, String)>,
    ) -> Lookup {
        let mut best = Lookup::Unknown;
        for glob in &self.modules[at].globs {
            match self.resolve_guarded(at, &glob.path, seen) {
                Lookup::Found(Target::Module(inner)) => {
                    match self.look_up(inner, name, is_last, seen) {
                        Lookup::Unknown => {}
                        found => return found,
                    }
                }
                // The variants of an enum; the `use` itself is the edge to it.
                Lookup::Found(Target::Item(..)) => {}
                Lookup::Foreign | Lookup::Unknown => best = Lookup::Foreign,
            }
        }
        best
    }

    /// The root of the crate's library.
    pub fn library(&self) -> Option<ModuleId> {
        let is_root = |module: &Module| module.parent.is_none() && module.file == "src/lib.rs";
        self.modules.iter().position(is_root)
    }

    /// The modules of the library or program with this root.
    pub fn modules_of(&self, root: ModuleId) -> impl Iterator<Item = (ModuleId, &Module)> {
        let all = self.modules.iter().enumerate();
        all.filter(move |(_, module)| module.root == root)
    }

    /// The modules that this one declares.
    pub fn children(&self, parent: ModuleId) -> impl Iterator<Item = (ModuleId, &Module)> {
        let all = self.modules.iter().enumerate();
        all.filter(move |(_, module)| module.parent == Some(parent))
    }

    /// Whether a module is nested in another one.
    pub fn is_inside(&self, inner: ModuleId, outer: ModuleId) -> bool {
        let parents = std::iter::successors(Some(inner), |id| self.modules[*id].parent);
        parents.skip(1).any(|id| id == outer)
    }
}

impl Module {
    fn add_item(&mut self, item: Item) {
        let (attributes, name) = match &item {
            Item::Const(item) => (&item.attrs, Some(&item.ident)),
            Item::Enum(item) => (&item.attrs, Some(&item.ident)),
            Item::Fn(item) => (&item.attrs, Some(&item.sig.ident)),
            Item::Macro(item) => (&item.attrs, item.ident.as_ref()),
            Item::Static(item) => (&item.attrs, Some(&item.ident)),
            Item::Struct(item) => (&item.attrs, Some(&item.ident)),
            Item::Trait(item) => (&item.attrs, Some(&item.ident)),
            Item::Type(item) => (&item.attrs, Some(&item.ident)),
            Item::Union(item) => (&item.attrs, Some(&item.ident)),
            Item::Use(item) => (&item.attrs, None),
            Item::Impl(item) => (&item.attrs, None),
            _ => {
                self.items.push(item);
                return;
            }
        };
        if is_of_tests(attributes) {
            return;
        }
        if let Some(name) = name {
            let meanings = self.names.entry(name.to_string()).or_default();
            meanings.push(Name::Item);
        }
        if let Item::Use(item) = &item
            && item.leading_colon.is_none()
        {
            for import in imports(&item.tree) {
                match import.name.clone() {
                    Some(name) => {
                        let meanings = self.names.entry(name).or_default();
                        meanings.push(Name::Import(import.path));
                    }
                    None => self.globs.push(import),
                }
            }
        }
        self.items.push(item);
    }
}

/// Whether other crates may use it, if they can reach its module.
pub fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

/// Whether a `use` re-exports its imports.
pub fn is_re_export(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}
