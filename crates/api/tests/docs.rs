//! The pages made from tables are current.
#![expect(clippy::unwrap_used, reason = "a test that cannot write its file has failed")]

use std::fs;
use std::path::Path;

use canopus_api::docs;

/// Compares a page with its file, or writes it when `UPDATE_GOLDEN` is set.
fn check(name: &str, page: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    #[expect(clippy::disallowed_methods, reason = "a switch of this test alone")]
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&path, page).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap_or_default();
    assert!(written == page, "docs/{name} is out of date: run this test with UPDATE_GOLDEN=1");
}

#[test]
fn page_of_kinds_is_up_to_date() {
    check("kinds.md", &docs::kinds_page());
}

#[test]
fn page_of_labels_and_annotations_is_up_to_date() {
    check("labels-and-annotations.md", &docs::keys_page());
}
