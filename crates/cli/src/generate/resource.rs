//! The resources of a bundle as trees, by type.

use anyhow::{Context as _, anyhow};
use canopus_base::tree::{Node, Value};
use canopus_envoy::bundle::Bundle;
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use canopus_proto::envoy::extensions::transport_sockets::tls::v3::{Secret, secret};
use canopus_proto::resource::Resource;
use canopus_proto::{Message as _, json};
use clap::ValueEnum;

/// What Envoy prints instead of a private key.
const REDACTED: &str = "[redacted]";

/// The variable that holds the credentials for pulling a Wasm module.
const PULL_SECRET: &str = "ISTIO_META_WASM_IMAGE_PULL_SECRET";

/// The types a proxy receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(super) enum Type {
    Cds,
    Eds,
    Lds,
    Rds,
    Sds,
    Ecds,
    Nds,
}

impl Type {
    /// The types that every proxy subscribes to.
    pub(super) const USUAL: [Self; 6] = [Self::Cds, Self::Eds, Self::Lds, Self::Rds, Self::Sds, Self::Ecds];

    /// The short name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Cds => "cds",
            Self::Eds => "eds",
            Self::Lds => "lds",
            Self::Rds => "rds",
            Self::Sds => "sds",
            Self::Ecds => "ecds",
            Self::Nds => "nds",
        }
    }

    /// The message inside.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Cds => "envoy.config.cluster.v3.Cluster",
            Self::Eds => "envoy.config.endpoint.v3.ClusterLoadAssignment",
            Self::Lds => "envoy.config.listener.v3.Listener",
            Self::Rds => "envoy.config.route.v3.RouteConfiguration",
            Self::Sds => "envoy.extensions.transport_sockets.tls.v3.Secret",
            Self::Ecds => "envoy.config.core.v3.TypedExtensionConfig",
            Self::Nds => "istio.networking.nds.v1.NameTable",
        }
    }

    fn resources(self, bundle: &Bundle) -> &[Resource] {
        match self {
            Self::Cds => &bundle.clusters,
            Self::Eds => &bundle.endpoints,
            Self::Lds => &bundle.listeners,
            Self::Rds => &bundle.routes,
            Self::Sds => &bundle.secrets,
            Self::Ecds => &bundle.extensions,
            Self::Nds => &bundle.names,
        }
    }
}

/// A resource to print.
pub(super) struct Printed {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) bytes: usize,
    /// The message with its type, every `Any` in it opened.
    pub(super) body: Node,
}

/// The resources of each type.
pub(super) type Resources = Vec<(Type, Vec<Printed>)>;

/// Reads the resources of the wanted types.
pub(super) fn print_types(bundle: &Bundle, types: &[Type]) -> anyhow::Result<Resources> {
    let of_type = |kind: &Type| -> anyhow::Result<_> {
        let printed = kind.resources(bundle).iter().map(|resource| printed(*kind, resource));
        Ok((*kind, printed.collect::<anyhow::Result<_>>()?))
    };
    types.iter().map(of_type).collect()
}

fn printed(kind: Type, resource: &Resource) -> anyhow::Result<Printed> {
    let descriptor = descriptors::message(kind.message()).context("a type without a descriptor")?;
    let message = DynamicMessage::decode(descriptor, resource.body.clone())
        .map_err(|error| anyhow!("{} {}: {error}", kind.name(), resource.name))?;
    let mut body = Node::from(Value::Map(
        [("@type", Node::from(Value::from(format!("type.googleapis.com/{}", kind.message()))))]
            .into_iter()
            .collect(),
    ));
    if let (Value::Map(body), Value::Map(fields)) = (&mut body.value, json::write_dynamic(&message).value) {
        for field in fields.into_entries() {
            body.insert(field.key, field.node);
        }
    }
    Ok(Printed {
        name: resource.name.to_string(),
        version: resource.version.to_string(),
        bytes: resource.body.len(),
        body,
    })
}

/// Redacts the credentials in extension configurations.
pub(super) fn hide_secrets(resources: &mut Resources) {
    let extensions = resources.iter_mut().filter(|(kind, _)| *kind == Type::Ecds);
    for one in extensions.flat_map(|(_, printed)| printed) {
        hide_pull_secrets(&mut one.body);
    }
}

/// Redacts the credentials for pulling Wasm modules, which are in the environment of the module's VM.
fn hide_pull_secrets(node: &mut Node) {
    if let Some(secret) = node.get_mut(PULL_SECRET) {
        *secret = Value::from(REDACTED).into();
    }
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(hide_pull_secrets),
        Value::Map(map) => {
            let mut entries = std::mem::take(map).into_entries();
            entries.iter_mut().for_each(|entry| hide_pull_secrets(&mut entry.node));
            *map = entries.into_iter().map(|entry| (entry.key, entry.node)).collect();
        }
        _ => {}
    }
}

/// Redacts private keys.
pub(super) fn hide_keys(secrets: &mut [Resource]) -> anyhow::Result<()> {
    for resource in secrets {
        let mut secret = Secret::decode(resource.body.clone())?;
        if let Some(secret::Type::TlsCertificate(certificate)) = &mut secret.r#type {
            if let Some(key) = &mut certificate.private_key {
                *key = DataSource {
                    specifier: Some(Specifier::InlineBytes(REDACTED.as_bytes().into())),
                    ..Default::default()
                };
            }
            if let Some(provider) = &mut certificate.private_key_provider {
                provider.config_type = None;
            }
        }
        *resource = Resource::encode(resource.name.clone(), &secret);
    }
    Ok(())
}
