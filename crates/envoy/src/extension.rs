//! Filters that users bring along: where they stand among the others, and (ECDS) what they run.
//!
//! Scripts are part of the listeners. Modules are not: the proxy asks for them by name, and its agent fetches them.

mod unfetched;
mod wasm;

use std::sync::Arc;

use canopus_engine::{Ctx, Query};
use canopus_mesh::extension::{self, Extension, Layer};
use canopus_mesh::service::Service;
use canopus_mesh::waypoint::ServicesBehind;
use canopus_proto::envoy::config::core::v3::{
    DataSource, ExtensionConfigSource, TypedExtensionConfig, data_source::Specifier,
};
use canopus_proto::envoy::config::listener::v3::{Filter, filter};
use canopus_proto::envoy::extensions::filters::http::lua::v3::Lua;
use canopus_proto::envoy::extensions::filters::http::rbac::v3::Rbac as HttpRbac;
use canopus_proto::envoy::extensions::filters::http::wasm::v3::Wasm as HttpWasm;
use canopus_proto::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpFilter, http_filter,
};
use canopus_proto::envoy::extensions::filters::network::rbac::v3::Rbac as NetworkRbac;
use canopus_proto::envoy::extensions::filters::network::wasm::v3::Wasm as NetworkWasm;
use canopus_proto::istio::extensions::v1alpha1::traffic_extension::ExecutionPhase as Phase;
use canopus_proto::resource::Resource;
use canopus_proto::{Any, Name};

use crate::audience::{Build, ExtensionAudience, Shared};
use crate::env::{Class, Env};
use crate::filter::{Filters, http_filter};
use crate::{envoy_filter, names, telemetry};

/// What the names of extensions begin with.
const PREFIX: &str = "extensions.istio.io/trafficextension/";

/// The phases in which extensions run, in their order.
const PHASES: [Phase; 4] = [Phase::Authn, Phase::Authz, Phase::Stats, Phase::Unspecified];

/// The configuration of an extension, by its name: a module, or what an EnvoyFilter adds.
pub struct Extensions;

impl Query for Extensions {
    const NAME: &'static str = "extensions";
    type Key = (Shared<ExtensionAudience>, String);
    type Value = Option<Resource>;

    fn run(ctx: &Ctx<'_>, (audience, name): &Self::Key) -> Self::Value {
        let config = envoy_filter::extension(ctx, &audience.extension_patches, name)
            .or_else(|| module(ctx, audience, name))?;
        Some(Resource::encode(name.as_str(), &config))
    }
}

/// The configuration of a module; `None` if there is none of this name, or it is not the proxy's to ask for.
fn module(ctx: &Ctx<'_>, audience: &ExtensionAudience, name: &str) -> Option<TypedExtensionConfig> {
    let (namespace, object) = name.strip_prefix(PREFIX)?.split_once('.')?;
    let extension =
        extension::find_extension(ctx, &audience.plugins, &fronted(ctx, audience), namespace, object)?;
    let typed_config = match extension.blocked_address(ctx) {
        Some(address) => unfetched::in_place_of(&extension, address),
        None => {
            let config = Some(wasm::config(ctx, audience, &extension)?);
            match extension.layer() {
                Layer::Http => Any::pack(&HttpWasm { config }),
                Layer::Network => Any::pack(&NetworkWasm { config }),
            }
        }
    };
    Some(TypedExtensionConfig { name: name.to_owned(), typed_config: Some(typed_config) })
}

/// The services that the proxy stands in front of, if it is a waypoint.
fn fronted(ctx: &Ctx<'_>, audience: &ExtensionAudience) -> Arc<Vec<Arc<Service>>> {
    audience.waypoint.as_ref().map(|waypoint| ctx.get::<ServicesBehind>(waypoint)).unwrap_or_default()
}

/// The extensions at one place, by phase.
#[derive(Default)]
pub(crate) struct Placed {
    found: Vec<Arc<Extension>>,
}

impl Placed {
    /// The extensions of requests that come to a port.
    pub(crate) fn http(env: &Env<'_>, class: Class, port: u32) -> Self {
        Self::new(env, Layer::Http, class, port)
    }

    /// The extensions of connections to a port.
    pub(crate) fn network(env: &Env<'_>, class: Class, port: u32) -> Self {
        Self::new(env, Layer::Network, class, port)
    }

    fn new(env: &Env<'_>, layer: Layer, class: Class, port: u32) -> Self {
        let side = telemetry::side(class);
        let is_here = |extension: &&Arc<Extension>| {
            extension.layer() == layer
                && extension.is_at(side, port)
                && can_run(&env.audience.build, extension)
        };
        Self { found: env.extensions().values().flatten().filter(is_here).cloned().collect() }
    }

    fn in_phases(&self, phases: &[Phase]) -> impl Iterator<Item = &Arc<Extension>> {
        phases.iter().flat_map(|phase| self.found.iter().filter(move |one| one.phase() == *phase))
    }

    /// The HTTP filters of these phases.
    pub(crate) fn http_filters(&self, phases: &[Phase]) -> Vec<HttpFilter> {
        self.in_phases(phases).map(|extension| filter_of_requests(extension)).collect()
    }

    /// Adds the network filters of these phases.
    pub(crate) fn on_connections(&self, filters: &mut Filters, phases: &[Phase]) {
        for extension in self.in_phases(phases) {
            let types = [NetworkWasm::type_url(), NetworkRbac::type_url()];
            filters.push(&Filter {
                name: resource_name(extension),
                config_type: Some(filter::ConfigType::ConfigDiscovery(discovered(types))),
            });
        }
    }

    /// The network filters of all phases, where nothing stands between them.
    pub(crate) fn all_on_connections(&self) -> Filters {
        let mut filters = Filters::default();
        self.on_connections(&mut filters, &PHASES);
        filters
    }
}

/// Whether the proxy was built with what an extension needs.
fn can_run(build: &Build, extension: &Extension) -> bool {
    build.has(&match (extension.script(), extension.layer()) {
        (Some(_), _) => Lua::full_name(),
        (None, Layer::Http) => HttpWasm::full_name(),
        (None, Layer::Network) => NetworkWasm::full_name(),
    })
}

fn filter_of_requests(extension: &Extension) -> HttpFilter {
    let name = resource_name(extension);
    match extension.script() {
        Some(script) => {
            let source = DataSource {
                specifier: Some(Specifier::InlineString(script.to_owned())),
                ..Default::default()
            };
            http_filter(&name, &Lua { default_source_code: Some(source), ..Default::default() })
        }
        None => HttpFilter {
            name,
            config_type: Some(http_filter::ConfigType::ConfigDiscovery(discovered([
                HttpWasm::type_url(),
                HttpRbac::type_url(),
            ]))),
            ..Default::default()
        },
    }
}

/// A configuration to be asked for. The proxy waits for it: it may be what protects the workload. Where a module cannot be
/// had, the agent puts a filter in its place that lets everything through or nothing.
fn discovered(types: [String; 2]) -> ExtensionConfigSource {
    ExtensionConfigSource {
        config_source: Some(names::ads()),
        type_urls: types.to_vec(),
        ..Default::default()
    }
}

fn resource_name(extension: &Extension) -> String {
    format!("{PREFIX}{}.{}", extension.namespace, extension.name)
}
