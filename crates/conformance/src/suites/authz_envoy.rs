//! AuthorizationPolicies in, the filters of one workload out.

use anyhow::{Context, anyhow, bail};
use canopus_api::{Object, Options, decode_documents, mesh_config};
use canopus_base::labels::Labels;
use canopus_base::tree::{Limits, Node};
use canopus_engine::{Batch, Engine};
use canopus_envoy::authorization::{AuthorizationFilters, Built, Guard, Layer, Peer, Stage};
use canopus_mesh::attachment::PolicyTarget;
use canopus_mesh::audience::SelectorLabels;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::Message;
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::envoy::config::listener::v3::{Filter, filter};
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::proto;
use crate::compare::tree::Rules;
use crate::dump::Dump;

pub(super) struct AuthzEnvoy;

impl Suite for AuthzEnvoy {
    fn name(&self) -> &str {
        "authz-envoy"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let layer = match case.text("input").and_then(|file| file.split('/').next()) {
        Some("http") => Layer::Http,
        Some("tcp") => Layer::Tcp,
        _ => bail!("neither about requests nor about connections"),
    };
    let got = filters(case, layer)?;
    let expected = case.entry.get("expect").and_then(Node::as_list).context("nothing is expected")?;
    if expected.len() != got.len() {
        return Ok(vec![Difference::new("", expected.len(), got.len())]);
    }
    let mut found = Vec::new();
    for (at, (file, built)) in expected.iter().zip(&got).enumerate() {
        let file = file.as_str().context("not the name of a file")?;
        let (message, bytes) = encoded(layer, built);
        let expected = proto::read(message, &case.corpus.document(&case.path(file))?)?;
        let descriptor = descriptors::message(message).context("unknown message")?;
        let got = DynamicMessage::decode(descriptor, bytes.as_slice()).map_err(|error| anyhow!("{error}"))?;
        let differences = proto::difference(&expected, &got, &Rules::default());
        found.extend(differences.into_iter().map(|d| Difference { path: format!("{at}{}", d.path), ..d }));
    }
    Ok(found)
}

/// The workload's filters.
fn filters(case: &Case, layer: Layer) -> anyhow::Result<Vec<Built>> {
    let settings = settings(case)?;
    let cluster = settings.cluster.clone();
    let mut batch = Batch::new();
    for object in objects(case)? {
        batch.set::<Objects>(Origin::new(cluster.clone(), object.key()), object);
    }
    batch.set::<Settings>((), settings);
    let engine = Engine::new();
    engine.apply(batch);
    let is_custom = case.entry.get("customBuilder").and_then(Node::as_bool).unwrap_or_default();
    let guard = Guard {
        protected: protected(case)?,
        stage: if is_custom { Stage::Custom } else { Stage::Own },
        peer: Peer::Certificate,
        layer,
    };
    Ok(engine.snapshot().get::<AuthorizationFilters>(&guard)?.as_ref().clone())
}

fn protected(case: &Case) -> anyhow::Result<PolicyTarget> {
    let proxy = case.shared.pointer("/defaults/proxy").context("no proxy")?;
    let labels = proxy.get("labels").and_then(Node::as_map).into_iter().flatten();
    let labels: Labels = labels.filter_map(|entry| Some((&*entry.key, entry.node.as_str()?))).collect();
    let namespace = proxy.get("namespace").and_then(Node::as_str).context("no namespace")?;
    Ok(PolicyTarget {
        namespace: namespace.into(),
        gateway: None,
        labels: SelectorLabels::unreduced(&labels),
        is_waypoint: false,
        service: None,
    })
}

fn settings(case: &Case) -> anyhow::Result<MeshSettings> {
    let mut settings = MeshSettings::default();
    if let Some(name) = case.text("meshConfig") {
        let overlay = case.shared.get("meshConfigs").and_then(|all| all.get(name)).context("no such mesh")?;
        settings.mesh = mesh_config::apply_node(overlay, &settings.mesh)?.value;
    }
    if let Some(bundle) = case.entry.get("trustDomainBundle") {
        let own = bundle.get("trustDomain").and_then(Node::as_str).context("no trust domain")?;
        let aliases = bundle.get("aliases").and_then(Node::as_list).unwrap_or_default();
        settings.mesh.trust_domain = own.to_owned();
        settings.mesh.trust_domain_aliases =
            aliases.iter().filter_map(Node::as_str).map(str::to_owned).collect();
    }
    settings.mesh.root_namespace.clear();
    Ok(settings)
}

/// The policies, and a Service for each that the defaults name.
fn objects(case: &Case) -> anyhow::Result<Vec<Object>> {
    let input = case.text("input").context("no input")?;
    let mut text = String::from_utf8(case.corpus.bytes(&case.path(input))?)?;
    let services = case.shared.pointer("/defaults/services").and_then(Node::as_list).unwrap_or_default();
    for service in services {
        let namespace = service.get("namespace").and_then(Node::as_str).context("no namespace")?;
        let host = service.get("hostname").and_then(Node::as_str).context("no host")?;
        let name = host.split('.').next().unwrap_or(host);
        text.push_str(&format!(
            "\n---\n{{apiVersion: v1, kind: Service, metadata: {{name: {name}, namespace: {namespace}}}, \
             spec: {{clusterIP: 10.0.0.1, ports: [{{name: grpc, port: 9000}}]}}}}\n"
        ));
    }
    let outcomes = decode_documents(&text, &Limits::default(), Options::watch());
    outcomes.into_iter().map(|outcome| Ok(outcome?.value)).collect()
}

/// A filter as a message of its sort of chain.
fn encoded(layer: Layer, built: &Built) -> (&'static str, Vec<u8>) {
    let (name, config) = (built.name.to_owned(), built.config.clone());
    match layer {
        Layer::Tcp => {
            let config_type = Some(filter::ConfigType::TypedConfig(config));
            ("envoy.config.listener.v3.Filter", Filter { name, config_type }.encode_to_vec())
        }
        Layer::Http | Layer::TunnelledTcp => {
            let config_type = Some(http_filter::ConfigType::TypedConfig(config));
            let filter = HttpFilter { name, config_type, ..Default::default() };
            ("envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter", filter.encode_to_vec())
        }
    }
}
