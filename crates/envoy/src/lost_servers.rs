//! Servers that providers in force name, and that no service of the mesh is.

use std::collections::BTreeSet;

use canopus_api::security::jwks::JwksServer;
use canopus_engine::{Ctx, Query};
use canopus_mesh::authorization::{PoliciesOf, Policy};
use canopus_mesh::request_authentication::{KeyFetcher, TokenRules, key_fetcher};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::ExtensionProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::Provider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::open_telemetry_tracing_provider::Sampling;

use crate::audience::{ListenerAudience, Shared};
use crate::env::Env;
use crate::provider::upstream;
use crate::telemetry;

/// What the proxies of an audience cannot reach, in Istio's words for what the servers are there for.
///
/// Generation leaves out what needs such a server. This query reports it for metrics; no configuration depends on it.
pub struct LostServers;

impl Query for LostServers {
    const NAME: &'static str = "lost_servers";
    type Key = Shared<ListenerAudience>;
    type Value = BTreeSet<&'static str>;

    fn run(ctx: &Ctx<'_>, audience: &Shared<ListenerAudience>) -> Self::Value {
        let env = Env::new(ctx, audience);
        let mut lost = BTreeSet::new();
        for provider in telemetry::in_force(&env).into_iter().chain(authorizers(&env)) {
            let named = provider.provider.iter().flat_map(servers);
            lost.extend(named.filter(|server| server.is_lost(ctx)).map(|server| server.purpose));
        }
        if lacks_keys(&env) {
            lost.insert("jwks");
        }
        lost
    }
}

/// A server as a provider names it.
struct Server<'a> {
    purpose: &'static str,
    service: &'a str,
    port: u32,
}

impl Server<'_> {
    fn is_lost(&self, ctx: &Ctx<'_>) -> bool {
        upstream(ctx, self.service, self.port).is_none()
    }
}

/// The servers of a provider, in the order in which they are looked up.
fn servers(provider: &Provider) -> Vec<Server<'_>> {
    let one = |purpose, service, port| vec![Server { purpose, service, port }];
    match provider {
        Provider::EnvoyTcpAls(log) => one("envoyTCPAls", &log.service, log.port),
        Provider::EnvoyHttpAls(log) => one("envoyHTTPAls", &log.service, log.port),
        Provider::EnvoyOtelAls(log) => one("envoyOtelAls", &log.service, log.port),
        Provider::Zipkin(tracer) => one("zipkin", &tracer.service, tracer.port),
        Provider::Datadog(tracer) => one("datadog", &tracer.service, tracer.port),
        Provider::Skywalking(tracer) => one("skywalking", &tracer.service, tracer.port),
        Provider::Opentelemetry(tracer) => {
            let mut all = one("opentelemetry", &tracer.service, tracer.port);
            if let Some(Sampling::DynatraceSampler(sampler)) = &tracer.sampling
                && let Some(api) = &sampler.http_service
            {
                all.extend(one("dynatrace", &api.service, api.port));
            }
            all
        }
        Provider::EnvoyExtAuthzHttp(authorizer) => one("authz", &authorizer.service, authorizer.port),
        Provider::EnvoyExtAuthzGrpc(authorizer) => one("authz", &authorizer.service, authorizer.port),
        _ => Vec::new(),
    }
}

/// The providers that policies leave decisions to.
fn authorizers<'a>(env: &'a Env<'_>) -> Vec<&'a ExtensionProvider> {
    let Some(protected) = env.protected() else { return Vec::new() };
    let policies = env.ctx.get::<PoliciesOf>(&protected);
    let names: BTreeSet<&str> = policies.custom.iter().map(Policy::provider).collect();
    env.mesh().extension_providers.iter().filter(|provider| names.contains(provider.name.as_str())).collect()
}

/// Whether the proxy is to fetch the keys of tokens from somebody it does not know.
fn lacks_keys(env: &Env<'_>) -> bool {
    if key_fetcher(env.ctx) == KeyFetcher::ControlPlane {
        return false;
    }
    let Some(protected) = &env.audience.access else { return false };
    let rules = env.ctx.get::<TokenRules>(protected);
    rules.iter().filter(|rule| !rule.jwks_uri.is_empty()).any(|rule| {
        let server = JwksServer::parse(&rule.jwks_uri).ok();
        server.is_none_or(|server| upstream(env.ctx, &server.host, server.port).is_none())
    })
}

#[cfg(test)]
mod tests {
    use crate::audience::AudiencesOf;
    use canopus_api::{Options, decode_documents, mesh_config};
    use canopus_base::tree::Limits;
    use canopus_engine::{Batch, Engine};
    use canopus_mesh::proxy::Proxy;
    use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
    use canopus_proto::envoy::config::core::v3::Node;

    use super::*;

    const MESH: &str = "
extensionProviders:
- {name: spans, zipkin: {service: zipkin.ops.svc.cluster.local, port: 9411}}
- {name: logs, envoyOtelAls: {service: logs.example.com, port: 4317}}
- {name: unused, datadog: {service: datadog.example.com, port: 8126}}
- {name: authorizer, envoyExtAuthzGrpc: {service: authorizer.example.com, port: 9000}}
defaultProviders: {tracing: [spans], accessLogging: [logs]}
";

    const POLICY: &str = "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata: {name: ask, namespace: demo}
spec: {action: CUSTOM, provider: {name: authorizer}, rules: [{}]}
";

    const LOGS: &str = "
apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata: {name: logs, namespace: demo}
spec:
  hosts: [logs.example.com]
  resolution: DNS
  ports: [{number: 4317, name: grpc, protocol: GRPC}]
";

    fn lost(documents: &str) -> BTreeSet<&'static str> {
        let default = MeshSettings::default();
        let mesh = mesh_config::apply(MESH, &default.mesh).unwrap().value;
        let mut batch = Batch::new();
        batch.set::<Settings>((), MeshSettings { mesh, ..default });
        for outcome in decode_documents(documents, &Limits::default(), Options::watch()) {
            let object = outcome.unwrap().value;
            batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
        }
        let engine = Engine::new();
        engine.apply(batch);
        let node =
            Node { id: "sidecar~10.0.0.1~app.demo~demo.svc.cluster.local".into(), ..Default::default() };
        let audiences = engine.get::<AudiencesOf>(&Proxy::new(&node, None).unwrap()).unwrap();
        engine.get::<LostServers>(audiences.listeners.arriving().unwrap()).unwrap().as_ref().clone()
    }

    #[test]
    fn server_of_a_provider_that_nobody_uses_is_not_missed() {
        assert_eq!(lost(""), ["envoyOtelAls", "zipkin"].into());
    }

    #[test]
    fn server_that_is_a_service_is_not_lost() {
        assert_eq!(lost(LOGS), ["zipkin"].into());
    }

    #[test]
    fn authorizer_is_missed_where_a_policy_asks_it() {
        assert_eq!(lost(&format!("{LOGS}---{POLICY}")), ["authz", "zipkin"].into());
    }
}
