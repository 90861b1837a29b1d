//! Pages of the documentation that are made from the tables of this crate.

use std::fmt::Write as _;

use crate::catalogue::Key;
use crate::kinds::Kind;
use crate::registry::{Category, Scope};
use crate::{annotations, labels};

/// The page of kinds.
pub fn kinds_page() -> String {
    let mut page = String::from(
        "# Kinds\n\nThe objects that the mesh reads. Every version that is listed is read; the first is the one that is \
         watched and\nwritten. This page is made from the registry of kinds.\n",
    );
    let categories = [
        Category::Istio,
        Category::GatewayApi,
        Category::Kubernetes,
        Category::MultiCluster,
        Category::Inference,
    ];
    for category in categories {
        let _ = write!(
            page,
            "\n## {}\n\n| Kind | Group | Versions | Plural | Short | Scope | Since |\n|---|---|---|---|---|---|---|\n",
            category.title()
        );
        let members = Kind::ALL.iter().map(|kind| kind.info()).filter(|info| info.category == category);
        for info in members {
            let scope = match info.scope {
                Scope::Namespaced => "namespace",
                Scope::Cluster => "cluster",
            };
            let since = info.min_bundle.map_or_else(String::new, |(major, minor)| format!("{major}.{minor}"));
            let group = if info.group.is_empty() { "core" } else { info.group };
            let _ = writeln!(
                page,
                "| {} | {group} | {} | {} | {} | {scope} | {since} |",
                info.kind,
                info.versions.join(", "),
                info.plural,
                info.short_names.join(", "),
            );
        }
    }
    page.push_str(
        "\n*Since* is the release of the Gateway API CRDs from which on a kind is watched; an older CRD is left alone.\n",
    );
    page
}

/// The page of labels and annotations.
pub fn keys_page() -> String {
    let mut page = String::from(
        "# Labels and annotations\n\nWhat the mesh reads and writes on objects, besides their specs. This page is made from \
         the catalogue of labels and\nannotations.\n",
    );
    keys(&mut page, "Labels", labels::ALL);
    keys(&mut page, "Annotations", annotations::ALL);
    page
}

fn keys(page: &mut String, title: &str, keys: &[Key]) {
    let _ = write!(page, "\n## {title}\n\n| Name | On | Stability | What it does |\n|---|---|---|---|\n");
    let mut shown: Vec<&Key> = keys.iter().filter(|key| !key.hidden).collect();
    shown.sort_by_key(|key| key.name);
    for key in shown {
        let deprecated = if key.deprecated { ", deprecated" } else { "" };
        let _ = writeln!(
            page,
            "| `{}` | {} | {}{deprecated} | {} |",
            key.name,
            key.kinds.join(", "),
            key.stability.as_str(),
            key.about
        );
    }
}
