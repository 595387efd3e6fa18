//! Every migration exists for both databases, under the same name.

use std::collections::BTreeSet;

use super::tree::{Finding, Tree};

const FOLDERS: [&str; 2] = ["migrations/sqlite/", "migrations/postgres/"];

pub(super) fn check(tree: &Tree) -> Vec<Finding> {
    let [sqlite, postgres] = FOLDERS.map(|folder| names(tree, folder));
    let pairs = [(&sqlite, &postgres, FOLDERS[1]), (&postgres, &sqlite, FOLDERS[0])];
    pairs
        .into_iter()
        .flat_map(|(these, those, folder)| these.difference(those).map(move |name| format!("{folder}{name}")))
        .map(|path| Finding::file(path, "missing: the other database has this migration"))
        .collect()
}

fn names<'a>(tree: &'a Tree, folder: &'a str) -> BTreeSet<&'a str> {
    tree.under(folder).filter_map(|(path, _)| path.strip_prefix(folder)).collect()
}
