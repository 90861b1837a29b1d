//! What answers on which port.

use std::sync::Arc;

use canopus_runtime::flags::PILOT_MAX_REQUESTS_PER_SECOND;
use canopus_sources::kubernetes::RemoteRegistry;

use super::DiscoveryArgs;
use super::identity::Identity;
use super::process::Process;
use super::push_path::PushPath;
use crate::control_plane::Mesh;
use crate::debug::Debug;
use crate::http::{self, identity_documents::IdentityDocuments};
use crate::injection::Injection;
use crate::metrics::{AdmissionMetrics, CallMetrics, collect_remote_clusters};
use crate::serve::grpc::Grpc;
use crate::serve::ports::Ports;
use crate::serve::webhook::Admission;

/// The ports, none of which is open yet.
pub(super) fn ports<'a>(
    process: &'a Process,
    push: &PushPath,
    args: &'a DiscoveryArgs,
    identity: Identity,
    injection: Option<Arc<Injection>>,
    remote: RemoteRegistry,
) -> Ports<'a> {
    let Process { flags, readiness, registry, tracer, .. } = process;
    let debug = Debug::new(Arc::clone(&push.dispatcher))
        .with_ledger(push.ledger.clone())
        .with_history(push.history.clone())
        .with_quarantine(push.quarantine.clone())
        .with_sources(push.source_statuses.clone())
        .with_leaders(push.leaders.clone())
        .with_remote_clusters(remote.clone())
        .with_forecast(identity.forecast);
    let debug = Arc::new(debug);
    collect_remote_clusters(registry, remote, push.source_statuses.clone());
    let mut mesh = Mesh::new(Arc::clone(&push.dispatcher))
        .guarded(readiness.clone(), flags.request_limit())
        .recognising(Arc::clone(&identity.authenticators))
        .answering(Arc::clone(&debug))
        .traced(Arc::clone(tracer));
    if flags.get(PILOT_MAX_REQUESTS_PER_SECOND) <= 0.0 {
        mesh = mesh.with_peer_allowance();
    }
    let admission = Admission {
        metrics: Arc::new(AdmissionMetrics::new(registry)),
        tracer: Arc::clone(tracer),
        injection,
    };
    Ports {
        args: &args.ports,
        grpc: Grpc::new(Arc::new(mesh), args.ports.options(flags))
            .counting(CallMetrics::new(registry))
            .issuing(identity.issuing),
        certificates: identity.certificates,
        served: http::Served {
            readiness: readiness.clone(),
            metrics: registry.clone(),
            debug,
            authenticator: identity.authenticators,
            documents: IdentityDocuments { authority: identity.authority, tokens: identity.join_tokens },
        },
        admission,
        shutdown: &process.shutdown,
    }
}
