//! A scenario's world, and what its proxies get.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use canopus_ambient::{Addresses, Authorizations};
use canopus_api::istio::{ServiceEntry, WorkloadEntry, WorkloadGroup};
use canopus_api::{Object, Typed, mesh_config};
use canopus_base::spiffe::Identity;
use canopus_engine::{Batch, Engine, Options, QueryError, Snapshot};
use canopus_envoy::audience::AudiencesOf;
use canopus_envoy::bundle::Bundle;
use canopus_envoy::secret::Secrets;
use canopus_mesh::credential::{Account, SecretAccess};
use canopus_mesh::proxy::Proxy;
use canopus_mesh::registration;
use canopus_mesh::service::PlannedAddresses;
use canopus_mesh::world::{MeshSettings, Objects, Origin, Settings};
use canopus_proto::resource::Resource;
use canopus_runtime::flags::Flags;

use super::scenario::{RecordedProxy, Scenario, Type};

/// What the proxies of a scenario get.
pub(crate) struct Generated {
    proxies: BTreeMap<String, Result<Bundle, String>>,
    addresses: Arc<Vec<Resource>>,
    authorizations: Arc<Vec<Resource>>,
}

impl Generated {
    pub(in crate::suites) fn generate(scenario: &Scenario) -> anyhow::Result<Self> {
        let engine = Engine::with_options(Options::default());
        let mut batch = Batch::new();
        batch.set::<Settings>((), settings(scenario)?);
        for (cluster, object) in &scenario.objects {
            batch.set::<Objects>(Origin::new(cluster.as_str(), object.key()), object.clone());
        }
        let mut connected = Vec::new();
        for recorded in &scenario.proxies {
            let identity = Identity::new("cluster.local", &recorded.namespace, &recorded.service_account)?;
            let proxy = Proxy::new(&recorded.node, Some(identity.clone())).context("cannot read the node")?;
            // Every account may read the Secrets of its namespace.
            let account = Account {
                cluster: proxy.metadata.cluster_id.as_str().into(),
                namespace: identity.namespace,
                name: identity.service_account,
            };
            batch.set::<SecretAccess>(account, true);
            if let Some((origin, entry)) = registered(scenario, &proxy) {
                batch.set::<Objects>(origin, entry);
            }
            connected.push((recorded, proxy));
        }
        engine.apply(batch);
        if scenario.allocates_addresses {
            allocate_addresses(&engine, scenario)?;
        }
        let world = engine.snapshot();
        let mut proxies = BTreeMap::new();
        for (recorded, proxy) in connected {
            let bundle = bundle(&world, &proxy, recorded).map_err(|error| error.to_string());
            proxies.insert(recorded.name.clone(), bundle);
        }
        Ok(Self {
            proxies,
            addresses: world.get::<Addresses>(&())?,
            authorizations: world.get::<Authorizations>(&())?,
        })
    }

    /// All that a proxy gets.
    pub(in crate::suites) fn bundle(&self, proxy: &str) -> anyhow::Result<&Bundle> {
        let bundle = self.proxies.get(proxy).context("no such proxy")?;
        bundle.as_ref().map_err(|error| anyhow::anyhow!("{error}"))
    }

    /// What a proxy gets of a type.
    pub(in crate::suites) fn resources(&self, proxy: &str, kind: Type) -> anyhow::Result<&[Resource]> {
        let bundle = self.bundle(proxy)?;
        Ok(match kind {
            Type::Cds => &bundle.clusters,
            Type::Eds => &bundle.endpoints,
            Type::Lds => &bundle.listeners,
            Type::Rds => &bundle.routes,
            Type::Sds => &bundle.secrets,
            Type::Ecds => &bundle.extensions,
            Type::Nds => &bundle.names,
            Type::Addresses => &self.addresses,
            Type::Authorizations => &self.authorizations,
        })
    }
}

/// The WorkloadEntry that the connection of a proxy brings, if it registers itself.
fn registered(scenario: &Scenario, proxy: &Proxy) -> Option<(Origin, Object)> {
    let name = &proxy.metadata.auto_register_group;
    let groups = scenario.objects.iter().filter_map(|(_, object)| object.get::<WorkloadGroup>());
    let mut groups = groups.filter(|group| *group.meta.namespace == *proxy.metadata.namespace);
    let group = groups.find(|group| *group.meta.name == **name)?;
    let entry = registration::entry(&Flags::read(&scenario.features), proxy, group)?;
    let object = WorkloadEntry::into_object(Arc::new(entry));
    Some((Origin::new(scenario.cluster.as_str(), object.key()), object))
}

/// Writes the addresses that ServiceEntries are to have into their status, as the controller does.
fn allocate_addresses(engine: &Engine, scenario: &Scenario) -> anyhow::Result<()> {
    let planned = engine.snapshot().get::<PlannedAddresses>(&())?;
    let mut batch = Batch::new();
    for (cluster, object) in &scenario.objects {
        let origin = Origin::new(cluster.as_str(), object.key());
        let Some(addresses) = planned.get(&origin) else { continue };
        let Some(mut entry) = object.get::<ServiceEntry>().cloned() else { continue };
        Arc::make_mut(&mut entry).status.addresses.clone_from(addresses);
        batch.set::<Objects>(origin, ServiceEntry::into_object(entry));
    }
    engine.apply(batch);
    Ok(())
}

/// What a proxy gets by following references, and what it asks for by name.
fn bundle(world: &Snapshot, proxy: &Proxy, recorded: &RecordedProxy) -> Result<Bundle, QueryError> {
    if proxy.is_proxyless() {
        return Bundle::generate_proxyless(world, proxy, &recorded.watched_listeners);
    }
    let mut bundle = Bundle::generate(world, proxy)?;
    let audience = &world.get::<AudiencesOf>(proxy)?.secrets;
    for name in &recorded.secrets {
        bundle.secrets.extend(world.get::<Secrets>(&(audience.clone(), name.clone()))?.as_ref().clone());
    }
    Ok(bundle)
}

pub(super) fn settings(scenario: &Scenario) -> anyhow::Result<MeshSettings> {
    let mut settings = MeshSettings {
        cluster: scenario.cluster.as_str().into(),
        flags: Arc::new(Flags::read(&scenario.features)),
        ..MeshSettings::default()
    };
    if let Some(overlay) = &scenario.mesh_config {
        let mesh = mesh_config::apply_node(overlay, &settings.mesh)?.value;
        // Istio goes on with what it has.
        if mesh_config::usable(&mesh).is_ok() {
            settings.mesh = mesh;
        }
    }
    if let Some(networks) = &scenario.mesh_networks {
        settings.networks = mesh_config::read_networks(&networks.to_json().to_string())?.value;
    }
    Ok(settings)
}
