//! The edges between a crate's files: every path in its code, resolved to the file that defines its
//! target.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use super::graph::Arrows;
use crate::tidy::modules::{Import, ModuleId, Target, Tree, imports, is_of_tests, is_re_export};

pub fn arrows(tree: &Tree) -> Arrows {
    let mut arrows = Arrows::new();
    for (id, module) in tree.modules.iter().enumerate() {
        let mut reader = Reader {
            tree,
            module: id,
            blocks: Vec::new(),
            arrows: &mut arrows,
        };
        for item in &module.items {
            reader.visit_item(item);
        }
    }
    arrows
}

/// Visits the code of one module.
struct Reader<'a> {
    tree: &'a Tree,
    module: ModuleId,
    /// Local names of the `use`s in the enclosing blocks, outermost first.
    blocks: Vec<BTreeMap<String, Vec<String>>>,
    arrows: &'a mut Arrows,
}

impl Reader<'_> {
    /// Adds the edge of a path. A path to a module is no edge; if the module is used, its items are
    /// named elsewhere.
    fn follow(&mut self, path: &[String]) {
        if let Some(Target::Item(definer, name)) = self.resolve(path) {
            self.draw(definer, name);
        }
    }

    fn resolve(&self, path: &[String]) -> Option<Target> {
        let (first, rest) = path.split_first()?;
        let imported = self.blocks.iter().rev().find_map(|block| block.get(first));
        match imported {
            Some(import) => self.tree.resolve(self.module, &[import, rest].concat()),
            None => self.tree.resolve(self.module, path),
        }
    }

    fn draw(&mut self, definer: ModuleId, name: String) {
        let [from, to] = [self.module, definer].map(|id| &self.tree.modules[id].file);
        if from != to {
            let names = self.arrows.entry((from.clone(), to.clone())).or_default();
            names.insert(name);
        }
    }

    /// Follows the paths among the tokens of a macro or an attribute, whose grammar is unknown.
    fn follow_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        // A path with a leading `::` belongs to another crate, and an identifier after a dot is a
        // field or a method.
        let mut is_foreign = false;
        let (mut colons, mut is_after_dot) = (0, false);
        for token in tokens {
            match &token {
                TokenTree::Punct(punct) if punct.as_char() == ':' => {
                    colons += 1;
                    continue;
                }
                TokenTree::Ident(ident) if colons == 2 && !path.is_empty() => {
                    path.push(ident.to_string());
                }
                _ => {
                    if !is_foreign {
                        self.follow(&path);
                    }
                    path.clear();
                    match &token {
                        TokenTree::Ident(ident) => {
                            is_foreign = colons == 2 || is_after_dot;
                            path.push(ident.to_string());
                        }
                        TokenTree::Group(group) => self.follow_tokens(group.stream()),
                        TokenTree::Punct(_) | TokenTree::Literal(_) => {}
                    }
                }
            }
            colons = 0;
            is_after_dot = matches!(&token, TokenTree::Punct(punct) if punct.as_char() == '.');
        }
        if !is_foreign {
            self.follow(&path);
        }
    }
}

/// Skips code that is compiled only into tests.
macro_rules! without_tests {
    ($($visit:ident: $node:ty),* $(,)?) => {
        $(
            fn $visit(&mut self, node: &'ast $node) {
                if !is_of_tests(&node.attrs) {
                    visit::$visit(self, node);
                }
            }
        )*
    };
}

impl<'ast> Visit<'ast> for Reader<'_> {
    without_tests! {
        visit_arm: syn::Arm,
        visit_expr_block: syn::ExprBlock,
        visit_field: syn::Field,
        visit_field_value: syn::FieldValue,
        visit_impl_item_const: syn::ImplItemConst,
        visit_impl_item_fn: syn::ImplItemFn,
        visit_item_const: syn::ItemConst,
        visit_item_fn: syn::ItemFn,
        visit_item_impl: syn::ItemImpl,
        visit_item_mod: syn::ItemMod,
        visit_item_struct: syn::ItemStruct,
        visit_local: syn::Local,
        visit_variant: syn::Variant,
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if item.leading_colon.is_some() || is_of_tests(&item.attrs) {
            return;
        }
        for import in imports(&item.tree) {
            if let Some(Target::Item(definer, name)) = self.resolve(&import.path)
                // A facade does not use its own modules by re-exporting their items.
                && !(is_re_export(&item.vis) && self.tree.is_inside(definer, self.module))
            {
                self.draw(definer, name);
            }
        }
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        let mut names = BTreeMap::new();
        for statement in &block.stmts {
            if let syn::Stmt::Item(syn::Item::Use(item)) = statement {
                for Import { name, path } in imports(&item.tree) {
                    names.extend(name.map(|name| (name, path)));
                }
            }
        }
        self.blocks.push(names);
        visit::visit_block(self, block);
        self.blocks.pop();
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        if path.leading_colon.is_none() {
            let parts = path.segments.iter().map(|part| part.ident.to_string());
            self.follow(&parts.collect::<Vec<String>>());
        }
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.visit_path(&item.path);
        self.follow_tokens(item.tokens.clone());
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.follow_tokens(list.tokens.clone());
    }

    /// The scope of a visibility is not a use.
    fn visit_vis_restricted(&mut self, _: &'ast syn::VisRestricted) {}
}
