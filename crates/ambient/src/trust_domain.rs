//! The trust domain in workload resources.

use canopus_engine::Ctx;
use canopus_mesh::world::settings;

/// The trust domain of workload identities; empty for the default, which clients assume.
pub(crate) fn trust_domain(ctx: &Ctx<'_>) -> String {
    let settings = settings(ctx);
    match settings.trust_domain() {
        "cluster.local" => String::new(),
        domain => domain.to_owned(),
    }
}
