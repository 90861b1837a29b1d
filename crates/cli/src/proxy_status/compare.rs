//! Whether a proxy has what the control plane has for it.

use std::fmt::Write as _;

use canopus_proto::{Message, Name};
use similar::TextDiff;

use crate::proxy_config::dump::ConfigDump;
use crate::proxy_config::render::{self, Format};

/// Lines around a difference.
const CONTEXT: usize = 7;

/// Compares clusters, listeners and routes, each as JSON.
pub(super) fn compare(own: &ConfigDump, envoy: &ConfigDump) -> anyhow::Result<String> {
    let mut text = String::new();
    let clusters = |dump: &ConfigDump| printed(dump.dynamic_clusters(), |cluster| cluster.name.clone());
    let listeners = |dump: &ConfigDump| printed(dump.dynamic_listeners(), |listener| listener.name.clone());
    let routes = |dump: &ConfigDump| {
        let sorted = dump.dynamic_routes().map(|mut tables| {
            for table in &mut tables {
                table.virtual_hosts.sort_by(|a, b| a.name.cmp(&b.name));
            }
            tables
        });
        printed(sorted, |table| table.name.clone())
    };
    for (what, own, envoy) in [
        ("Clusters", clusters(own), clusters(envoy)),
        ("Listeners", listeners(own), listeners(envoy)),
        ("Routes", routes(own), routes(envoy)),
    ] {
        if own == envoy {
            let _ = writeln!(text, "{what} Match");
            continue;
        }
        let difference = TextDiff::from_lines(&own, &envoy);
        let difference = difference
            .unified_diff()
            .context_radius(CONTEXT)
            .header(&format!("Istiod {what}"), &format!("Envoy {what}"))
            .to_string();
        let _ = writeln!(text, "{what} Don't Match\n{difference}");
    }
    Ok(text)
}

/// Resources by name, or why there are none.
fn printed<M: Message + Name>(resources: anyhow::Result<Vec<M>>, name: impl Fn(&M) -> String) -> String {
    match resources {
        Ok(mut resources) => {
            resources.sort_by_key(|resource| name(resource));
            render::messages(&resources, Format::Json)
        }
        Err(error) => format!("{error:#}\n"),
    }
}
