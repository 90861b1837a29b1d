//! Parsers of outside bytes as functions of bytes that must not panic. [`TARGETS`] lists them.
//!
//! `cargo xtask fuzz` runs these functions under libFuzzer; the thin binaries for that are in `fuzz/`, which needs a nightly
//! compiler. Inputs worth keeping are files in `corpus/<target>`. `tests/corpus.rs` feeds them to the same functions with
//! the ordinary compiler, so that what was found once is tested for ever.
//!
//! A new target is a function here with a row in [`TARGETS`], a binary in `fuzz/` and a directory with at least one input.

mod configuration;
mod identity;
mod mesh;
mod requests;

/// A target: its name, and what it does with an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets, by name.
pub const TARGETS: [Target; 25] = [
    ("admission_review", requests::admission_review),
    ("agent_stream", requests::agent_stream),
    ("cel", configuration::cel),
    ("certificate", identity::certificate),
    ("consul_answer", requests::consul_answer),
    ("csr", identity::csr),
    ("debug_query", mesh::debug_query),
    ("dns_query", requests::dns_query),
    ("host_match", configuration::host_match),
    ("image_manifest", requests::image_manifest),
    ("jwt", identity::jwt),
    ("last_good_log", requests::last_good_log),
    ("name_table", requests::name_table),
    ("node_metadata", mesh::node_metadata),
    ("pem", identity::pem),
    ("proto_json", configuration::proto_json),
    ("rejection", requests::rejection),
    ("selectors", configuration::selectors),
    ("snapshot", requests::snapshot),
    ("spiffe_id", identity::spiffe_id),
    ("template", configuration::template),
    ("trust_bundle", identity::trust_bundle),
    ("watch_line", requests::watch_line),
    ("xds_request", requests::xds_request),
    ("yaml_decode", configuration::yaml_decode),
];

/// Runs one target.
///
/// # Panics
///
/// If there is no target of this name, or if the input breaks a law of it.
pub fn run(target: &str, input: &[u8]) {
    let found = TARGETS.iter().find(|(name, _)| *name == target);
    let (_, run) = found.unwrap_or_else(|| panic!("no fuzz target is called `{target}`"));
    run(input);
}

/// The first `N` lines of a text, the last with everything that follows; missing ones are empty.
fn lines<const N: usize>(input: &[u8]) -> Option<[&str; N]> {
    let text = std::str::from_utf8(input).ok()?;
    let mut lines = text.splitn(N, '\n');
    Some([(); N].map(|()| lines.next().unwrap_or_default()))
}
