//! What proxies receive, as scenarios in `tests/goldens/`.
//!
//! Each file has objects, a proxy and the excerpt of its configuration that matters; see `canopus_golden` for the format. To
//! update them after a change of behaviour, run `UPDATE_GOLDENS=1 cargo test -p canopus-envoy --test goldens` and review the
//! diff.

use std::path::Path;

use canopus_envoy::bundle::Bundle;
use canopus_golden::{Shown, Subject, check_all};
use canopus_proto::resource::Resource;

#[test]
fn proxies_receive_what_scenarios_expect() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/goldens");
    let count = check_all(&directory, generate).unwrap();
    assert!(count >= 80, "{count} scenarios");
}

fn generate(subject: &Subject) -> anyhow::Result<Vec<Shown>> {
    let Subject { mesh, proxy, listeners, .. } = subject;
    let bundle = if proxy.is_proxyless() {
        Bundle::generate_proxyless(mesh, proxy, listeners)?
    } else {
        Bundle::generate(mesh, proxy)?
    };
    let all: [(&'static str, &'static str, Vec<Resource>); 7] = [
        ("cds", "envoy.config.cluster.v3.Cluster", bundle.clusters),
        ("eds", "envoy.config.endpoint.v3.ClusterLoadAssignment", bundle.endpoints),
        ("lds", "envoy.config.listener.v3.Listener", bundle.listeners),
        ("rds", "envoy.config.route.v3.RouteConfiguration", bundle.routes),
        ("sds", "envoy.extensions.transport_sockets.tls.v3.Secret", bundle.secrets),
        ("ecds", "envoy.config.core.v3.TypedExtensionConfig", bundle.extensions),
        ("nds", "istio.networking.nds.v1.NameTable", bundle.names),
    ];
    Ok(all.into_iter().map(|(kind, message, resources)| Shown::resources(kind, message, resources)).collect())
}
