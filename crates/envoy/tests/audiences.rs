//! `docs/audiences.md` says what the code says: `UPDATE_DOCS=1 cargo test -p canopus-envoy --test audiences` writes it anew.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::fmt::Write as _;
use std::path::Path;

use canopus_envoy::audience::{FACTS, FAMILIES};

const PAGE: &str = "docs/audiences.md";

/// The page: which family depends on which facts, and what each fact is.
fn page() -> String {
    let mut page = String::from(
        "# Which configuration depends on what\n\n\
         Canopus generates configuration for *audiences*, not for proxies. An audience holds the facts that a family of\n\
         resources may depend on; proxies whose audiences are equal share every byte. Before a fact gets into an audience it\n\
         is reduced to what can matter in this mesh: labels that no selector picks the workload by, the zone where no\n\
         service or rule looks at it, the workload's name where nothing reports it are left out.\n\n\
         Patches of EnvoyFilters are applied to what was generated. Proxies with the same patches share the result.\n\n\
         `/debug/wastez` tells how many resources were generated and how many of them nobody had.\n\n\
         This page is written from the code by `UPDATE_DOCS=1 cargo test -p canopus-envoy --test audiences`.\n\n\
         | fact |",
    );
    FAMILIES.iter().for_each(|family| write!(page, " {} |", family.name).unwrap());
    page.push_str("\n|---|");
    page.push_str(&"---|".repeat(FAMILIES.len()));
    for (fact, _) in FACTS {
        write!(page, "\n| `{fact}` |").unwrap();
        for family in FAMILIES {
            page.push_str(if family.facts.contains(fact) { " yes |" } else { " |" });
        }
    }
    page.push_str("\n\n| fact | what it says |\n|---|---|\n");
    FACTS.iter().for_each(|(fact, says)| writeln!(page, "| `{fact}` | {} |", says.trim()).unwrap());
    page
}

#[test]
fn page_of_audiences_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
    #[expect(clippy::disallowed_methods, reason = "whoever starts the test may want the page written")]
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, page()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(written, page(), "{PAGE} is not current");
}
