//! Extensions: TrafficExtensions, and WasmPlugins converted to TrafficExtensions.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use canopus_api::Kind;
use canopus_api::credential::{Credential, resource_name};
use canopus_api::istio::{TrafficExtension, WasmPlugin};
use canopus_api::url::Url;
use canopus_base::net::parse_ip;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::extensions::v1alpha1::traffic_extension::{ExecutionPhase, FilterConfig};
use canopus_proto::istio::extensions::v1alpha1::{
    PluginType, TrafficExtension as Spec, TrafficSelector, WasmConfig,
};
use canopus_proto::istio::r#type::v1beta1::WorkloadMode;
use canopus_runtime::flags::BLOCKED_CIDRS_IN_WASM_FETCH;
use jiff::Timestamp;

use crate::attachment::{PolicyAttachment, PolicyTarget};
use crate::blocked::Blocked;
use crate::service::{self, Service, ServiceKey};
use crate::telemetry::Side;
use crate::world::{ObjectIndex, Origin, indexed_objects, settings};

/// The suffix of the name of an extension converted from a WasmPlugin. No object name can contain it.
const FROM_WASM_PLUGIN: &str = "~istio-translated-wasmplugin";

/// The maximum length of a Lua script.
const MAX_SCRIPT: usize = 65536;

/// A filter that a user provides.
#[derive(Clone, Debug, PartialEq)]
pub struct Extension {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object, with a suffix if it is a WasmPlugin.
    pub name: String,
    /// The resource version of the object. A new version tells the proxy to fetch the module again.
    pub resource_version: String,
    /// The object.
    pub origin: Origin,
    created: Option<Timestamp>,
    /// The spec, converted if the object is a WasmPlugin.
    pub spec: Spec,
}

/// The filter chains that an extension may be part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Layer {
    /// HTTP filters.
    Http,
    /// Network filters.
    Network,
}

impl Extension {
    /// The phase in which it runs.
    pub fn phase(&self) -> ExecutionPhase {
        self.spec.phase()
    }

    /// The Wasm module, if it has one.
    pub fn wasm(&self) -> Option<&WasmConfig> {
        match &self.spec.filter_config {
            Some(FilterConfig::Wasm(wasm)) => Some(wasm),
            _ => None,
        }
    }

    /// The Lua script, if it has one.
    pub fn script(&self) -> Option<&str> {
        match &self.spec.filter_config {
            Some(FilterConfig::Lua(lua)) => Some(&lua.inline_code),
            _ => None,
        }
    }

    /// The filter chain it is part of.
    pub fn layer(&self) -> Layer {
        match self.wasm().map(WasmConfig::r#type) {
            Some(PluginType::Network) => Layer::Network,
            _ => Layer::Http,
        }
    }

    /// Whether it applies to this side and port.
    pub fn is_at(&self, side: Side, port: u32) -> bool {
        let selectors = &self.spec.r#match;
        selectors.is_empty() || selectors.iter().any(|selector| is_at(selector, side, port))
    }

    /// The name of the image pull Secret, which is in the namespace of the object.
    pub fn pull_secret(&self) -> Option<String> {
        let written =
            self.wasm().map(|wasm| wasm.image_pull_secret.as_str()).filter(|name| !name.is_empty())?;
        match Credential::parse(&resource_name(written), &self.namespace) {
            Ok(Credential::Object { name, .. }) => Some(name.into_string()),
            _ => None,
        }
    }

    /// The blocked address in the URL of its module, if there is one.
    pub fn blocked_address(&self, ctx: &Ctx<'_>) -> Option<IpAddr> {
        blocked_address(ctx, &self.wasm()?.url)
    }

    /// Whether it has a valid module URL or a script.
    fn is_usable(&self) -> bool {
        match &self.spec.filter_config {
            Some(FilterConfig::Wasm(wasm)) => !wasm.url.is_empty() && Url::parse(&wasm.url).is_ok(),
            Some(FilterConfig::Lua(lua)) => (1..=MAX_SCRIPT).contains(&lua.inline_code.len()),
            None => false,
        }
    }
}

fn is_at(selector: &TrafficSelector, side: Side, port: u32) -> bool {
    let on_side = match selector.mode() {
        WorkloadMode::ClientAndServer | WorkloadMode::Undefined => true,
        WorkloadMode::Client => side == Side::Client,
        WorkloadMode::Server => side == Side::Server,
    };
    let mut ports = selector.ports.iter();
    on_side && (selector.ports.is_empty() || ports.any(|own| own.number != 0 && own.number == port))
}

/// The valid extensions of a namespace, oldest first.
pub struct ExtensionsIn;

impl Query for ExtensionsIn {
    const NAME: &'static str = "extensions_in";
    type Key = Arc<str>;
    type Value = Vec<Arc<Extension>>;

    fn run(ctx: &Ctx<'_>, namespace: &Arc<str>) -> Self::Value {
        let index = |kind| ObjectIndex::Namespace(kind, (**namespace).into());
        let own = indexed_objects::<TrafficExtension>(ctx, &index(Kind::TrafficExtension)).into_iter();
        let own = own.map(|(origin, object)| Extension {
            namespace: namespace.to_string(),
            name: origin.name().to_owned(),
            resource_version: object.meta.resource_version.to_string(),
            created: object.meta.creation_timestamp,
            spec: object.spec.clone(),
            origin,
        });
        let plugins = indexed_objects::<WasmPlugin>(ctx, &index(Kind::WasmPlugin)).into_iter();
        let plugins = plugins.map(|(origin, object)| Extension {
            namespace: namespace.to_string(),
            name: format!("{}{FROM_WASM_PLUGIN}", origin.name()),
            resource_version: object.meta.resource_version.to_string(),
            created: object.meta.creation_timestamp,
            spec: extension_from_plugin(&object),
            origin,
        });
        let mut all: Vec<_> = own.chain(plugins).filter(Extension::is_usable).map(Arc::new).collect();
        all.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
        all
    }
}

/// Extensions by the phase they run in.
pub type ExtensionsByPhase = BTreeMap<ExecutionPhase, Vec<Arc<Extension>>>;

/// The extensions that apply to a proxy by phase, those with the highest priority first. Waypoints also have those of the
/// service whose traffic they handle.
pub struct Extensions;

impl Query for Extensions {
    const NAME: &'static str = "extensions_of_proxy";
    type Key = (PolicyTarget, Option<ServiceKey>);
    type Value = ExtensionsByPhase;

    fn run(ctx: &Ctx<'_>, (target, service): &Self::Key) -> Self::Value {
        let services: Vec<_> = service.iter().filter_map(|key| service::service(ctx, key)).collect();
        let namespaces = namespaces(ctx, target, &services);
        let subject = target.subject(ctx).with_services(services);
        let mut found: BTreeMap<_, Vec<Arc<Extension>>> = BTreeMap::new();
        for namespace in namespaces {
            for extension in ctx.get::<ExtensionsIn>(&namespace).iter() {
                if subject.is_targeted_by(&claim(extension)) {
                    found.entry(extension.phase()).or_default().push(extension.clone());
                }
            }
        }
        for extensions in found.values_mut() {
            extensions.sort_by_key(|extension| {
                Reverse(extension.spec.priority.map_or(i32::MIN, |priority| priority.value))
            });
        }
        found
    }
}

/// Finds an extension that a proxy may request. `fronted` are the services behind a waypoint.
pub fn find_extension(
    ctx: &Ctx<'_>,
    target: &PolicyTarget,
    fronted: &[Arc<Service>],
    namespace: &str,
    name: &str,
) -> Option<Arc<Extension>> {
    let namespace = namespaces(ctx, target, fronted).into_iter().find(|own| **own == *namespace)?;
    ctx.get::<ExtensionsIn>(&namespace).iter().find(|extension| extension.name == name).cloned()
}

/// Whether an extension applies to a proxy. `fronted` are the services behind a waypoint.
pub fn is_for(ctx: &Ctx<'_>, target: &PolicyTarget, fronted: &[Arc<Service>], extension: &Extension) -> bool {
    target.subject(ctx).with_services(fronted.iter().cloned()).is_targeted_by(&claim(extension))
}

/// The namespaces whose extensions may apply: its own, then the root namespace, then those of services behind a waypoint.
fn namespaces(ctx: &Ctx<'_>, target: &PolicyTarget, fronted: &[Arc<Service>]) -> Vec<Arc<str>> {
    let root: Arc<str> = settings(ctx).root_namespace().into();
    let mut namespaces = vec![target.namespace.clone()];
    for namespace in std::iter::once(root).chain(fronted.iter().map(|service| service.namespace.clone())) {
        if !namespaces.contains(&namespace) {
            namespaces.push(namespace);
        }
    }
    namespaces
}

fn claim(extension: &Extension) -> PolicyAttachment<'_> {
    PolicyAttachment {
        namespace: &extension.namespace,
        selector: extension.spec.selector.as_ref().map(|selector| &selector.match_labels),
        targets: &extension.spec.target_refs,
    }
}

/// Converts a WasmPlugin to a TrafficExtension.
fn extension_from_plugin(plugin: &WasmPlugin) -> Spec {
    let plugin = plugin.spec.clone();
    let targets = match plugin.target_refs {
        targets if targets.is_empty() => plugin.target_ref.into_iter().collect(),
        targets => targets,
    };
    let selectors = plugin.r#match.into_iter();
    Spec {
        selector: plugin.selector,
        target_refs: targets,
        // Both enumerations have the same numbers.
        phase: plugin.phase,
        priority: plugin.priority,
        r#match: selectors.map(|one| TrafficSelector { mode: one.mode, ports: one.ports }).collect(),
        filter_config: Some(FilterConfig::Wasm(WasmConfig {
            url: plugin.url,
            sha256: plugin.sha256,
            image_pull_policy: plugin.image_pull_policy,
            image_pull_secret: plugin.image_pull_secret,
            plugin_config: plugin.plugin_config,
            plugin_name: plugin.plugin_name,
            fail_strategy: plugin.fail_strategy,
            vm_config: plugin.vm_config,
            r#type: plugin.r#type,
            // Parity: signatures are not checked, so keys are not passed on.
            verification_key: String::new(),
        })),
    }
}

/// The address in a module URL, if it is blocked. Host names are checked by whoever resolves them.
pub(crate) fn blocked_address(ctx: &Ctx<'_>, url: &str) -> Option<IpAddr> {
    let parsed = Url::parse(url).ok()?;
    // A URL without a scheme is an OCI image, which begins with its registry.
    let host = if parsed.scheme.is_empty() { url.split('/').next().unwrap_or(url) } else { parsed.host };
    let address = parse_ip(host).ok()?;
    let (blocked, _) = Blocked::new(settings(ctx).flags.get(BLOCKED_CIDRS_IN_WASM_FETCH));
    blocked.contains(address).then_some(address)
}
