//! Ingresses in, the Gateways and VirtualServices they stand for out.

use anyhow::Context;
use canopus_api::{Kind, Object, Options, decode_documents, mesh_config};
use canopus_base::tree::{Limits, Node};
use canopus_engine::{Batch, Engine};
use canopus_mesh::ingress::{DerivedGateway, DerivedVirtualService, IngressHosts};
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};

use super::Suite;
use super::derived;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;

pub(super) struct Ingress;

impl Suite for Ingress {
    fn name(&self) -> &str {
        "ingress"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        compare(case).into()
    }
}

fn compare(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let golden = case.text("golden").context("nothing is expected")?;
    let expected = derived::by_name(case.corpus.documents(&case.path(golden))?);
    Ok(tree::difference(&expected, &derived::by_name(converted(case)?), &Rules::default()))
}

fn converted(case: &Case) -> anyhow::Result<Vec<Node>> {
    let defaults = case.shared.get("defaults").context("no defaults")?;
    let domain = defaults.get("domainSuffix").and_then(Node::as_str).context("no domain")?;
    let mut settings = MeshSettings { domain: domain.into(), ..MeshSettings::default() };
    if let Some(overlay) = defaults.get("meshConfig") {
        settings.mesh = mesh_config::apply_node(overlay, &settings.mesh)?.value;
    }
    let cluster = settings.cluster.clone();
    let input = case.text("input").context("no input")?;
    let text = String::from_utf8(case.corpus.bytes(&case.path(input))?)?;
    let mut batch = Batch::new();
    batch.set::<Settings>((), settings);
    let mut ingresses = Vec::new();
    for outcome in decode_documents(&text, &Limits::default(), Options::watch()) {
        let object = outcome?.value;
        let origin = Origin::new(cluster.clone(), object.key());
        if object.kind() == Kind::Ingress {
            ingresses.push(origin.clone());
        }
        batch.set::<Objects>(origin, object);
    }
    let engine = Engine::new();
    engine.apply(batch);
    let world = engine.snapshot();
    let mut made = Vec::new();
    for origin in &ingresses {
        let gateway = world.get::<DerivedGateway>(origin)?;
        made.extend(gateway.as_ref().clone().map(|gateway| Object::Gateway(gateway).to_node()));
    }
    for host in world.get::<IngressHosts>(&())?.keys() {
        let service = world.get::<DerivedVirtualService>(host)?;
        made.extend(service.as_ref().clone().map(|service| Object::VirtualService(service).to_node()));
    }
    Ok(made)
}
