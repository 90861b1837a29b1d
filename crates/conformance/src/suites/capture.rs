//! Capture settings in, packet-filter programs out.

mod ambient;
mod builder;
mod plugin;
mod sidecar;

pub(super) use ambient::Ambient;
pub(super) use builder::{IptablesBuilder, NftablesBuilder};
pub(super) use plugin::Plugin;
pub(super) use sidecar::Sidecar;

use anyhow::Context;
use canopus_base::tree::{Node, Value};

use crate::case::Case;

/// The packet filter whose program is expected.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filter {
    Iptables,
    Nftables,
}

fn golden(case: &Case) -> anyhow::Result<String> {
    file(case, case.text("golden").context("nothing is expected")?)
}

fn file(case: &Case, name: &str) -> anyhow::Result<String> {
    Ok(String::from_utf8(case.corpus.bytes(&case.path(name))?)?)
}

/// A scalar as a flag would have it.
fn scalar(node: &Node) -> anyhow::Result<String> {
    match &node.value {
        Value::String(text) => Ok(text.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        _ => Ok(serde_json::to_string(&node.to_json())?),
    }
}

fn boolean(node: &Node) -> anyhow::Result<bool> {
    node.as_bool().context("not a boolean")
}

fn texts(node: &Node) -> anyhow::Result<Vec<String>> {
    let items = node.as_list().context("not a list")?;
    items.iter().map(|item| item.as_str().map(str::to_owned).context("not a text")).collect()
}
