//! What the node's agent reads from its settings.

use canopus_cni::selector::{self, Enablement};

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestSplitExcludeNamespaces" => {
            |row| Ok(equal("want", &row.texts("want")?, &selector::split_namespaces(row.text("input")?)))
        }
        "TestEnablementFromString" => enablement,
        _ => return None,
    })
}

/// Selectors that can be read can be used, and are the same when they are written and read again.
fn enablement(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let text = row.text("args")?;
    let read = selector::parse(text)?;
    Enablement::new(&read)?;
    let mut found = equal("args", &false, &read.is_empty());
    let again = selector::parse(&serde_json::to_string(&read)?)?;
    found.extend(equal("args", &read, &again));
    Ok(found)
}
