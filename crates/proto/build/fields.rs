//! Constants for the fields of messages that are written or read in place, without a generated type.
//!
//! A constant carries the message, the kind and the presence of its field in its type, so that `canopus_proto::wire` refuses a
//! field of another message, or a string where a message belongs, when the caller is compiled.

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Write;

use heck::{ToSnakeCase, ToUpperCamelCase};
use prost_types::field_descriptor_proto::{Label, Type};
use prost_types::{DescriptorProto, FieldDescriptorProto, FileDescriptorSet};

/// The messages, each after the module that gets its constants. Constants are cheap, but the whole of Envoy's API has some
/// twenty thousand fields, so only what is used is here.
const MESSAGES: &[(&str, &str)] = &[
    ("additional_address", "envoy.config.listener.v3.AdditionalAddress"),
    ("address", "envoy.config.core.v3.Address"),
    ("any", "google.protobuf.Any"),
    ("bool_value", "google.protobuf.BoolValue"),
    (
        "certificate_validation_context",
        "envoy.extensions.transport_sockets.tls.v3.CertificateValidationContext",
    ),
    ("cluster", "envoy.config.cluster.v3.Cluster"),
    (
        "combined_validation_context",
        "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext.CombinedCertificateValidationContext",
    ),
    ("common_tls_context", "envoy.extensions.transport_sockets.tls.v3.CommonTlsContext"),
    ("control_plane", "envoy.config.core.v3.ControlPlane"),
    ("custom_tag", "envoy.type.tracing.v3.CustomTag"),
    ("decorator", "envoy.config.route.v3.Decorator"),
    ("delta_discovery_request", "envoy.service.discovery.v3.DeltaDiscoveryRequest"),
    ("delta_discovery_response", "envoy.service.discovery.v3.DeltaDiscoveryResponse"),
    ("discovery_request", "envoy.service.discovery.v3.DiscoveryRequest"),
    ("discovery_response", "envoy.service.discovery.v3.DiscoveryResponse"),
    ("downstream_tls_context", "envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext"),
    ("eds_cluster_config", "envoy.config.cluster.v3.Cluster.EdsClusterConfig"),
    ("filter", "envoy.config.listener.v3.Filter"),
    ("filter_chain", "envoy.config.listener.v3.FilterChain"),
    ("filter_chain_match", "envoy.config.listener.v3.FilterChainMatch"),
    (
        "http_connection_manager",
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
    ),
    ("http_protocol_options", "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"),
    ("http_rbac", "envoy.extensions.filters.http.rbac.v3.RBAC"),
    ("list_value", "google.protobuf.ListValue"),
    ("listener", "envoy.config.listener.v3.Listener"),
    ("literal_tag", "envoy.type.tracing.v3.CustomTag.Literal"),
    ("metadata", "envoy.config.core.v3.Metadata"),
    ("name_info", "istio.networking.nds.v1.NameTable.NameInfo"),
    ("name_table", "istio.networking.nds.v1.NameTable"),
    ("network_rbac", "envoy.extensions.filters.network.rbac.v3.RBAC"),
    ("node", "envoy.config.core.v3.Node"),
    ("permission", "envoy.config.rbac.v3.Permission"),
    ("permission_set", "envoy.config.rbac.v3.Permission.Set"),
    ("policy", "envoy.config.rbac.v3.Policy"),
    ("principal", "envoy.config.rbac.v3.Principal"),
    ("principal_set", "envoy.config.rbac.v3.Principal.Set"),
    ("rbac", "envoy.config.rbac.v3.RBAC"),
    ("rds", "envoy.extensions.filters.network.http_connection_manager.v3.Rds"),
    ("resource", "envoy.service.discovery.v3.Resource"),
    ("resource_name", "envoy.service.discovery.v3.ResourceName"),
    ("route", "envoy.config.route.v3.Route"),
    ("route_action", "envoy.config.route.v3.RouteAction"),
    ("route_configuration", "envoy.config.route.v3.RouteConfiguration"),
    ("route_match", "envoy.config.route.v3.RouteMatch"),
    ("socket_address", "envoy.config.core.v3.SocketAddress"),
    ("string_matcher", "envoy.type.matcher.v3.StringMatcher"),
    ("structure", "google.protobuf.Struct"),
    ("tcp_proxy", "envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy"),
    ("tracing", "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager.Tracing"),
    ("transport_socket", "envoy.config.core.v3.TransportSocket"),
    ("transport_socket_match", "envoy.config.cluster.v3.Cluster.TransportSocketMatch"),
    ("upstream_tls_context", "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext"),
    ("value", "google.protobuf.Value"),
    ("virtual_host", "envoy.config.route.v3.VirtualHost"),
];

/// Words that are no names in Rust.
const KEYWORDS: [&str; 5] = ["enum", "match", "struct", "type", "use"];

/// The source of the module `fields`.
pub(crate) fn generate(set: &FileDescriptorSet) -> Result<String, Box<dyn Error>> {
    let types = Types::new(set);
    let (mut modules, mut all) = (String::new(), String::new());
    for (module, full_name) in MESSAGES {
        let message = types.messages.get(*full_name);
        let message = message.ok_or_else(|| format!("{full_name} is not in the descriptor set"))?;
        let path = &types.paths[*full_name];
        writeln!(modules, "/// Fields of `{full_name}`.\npub mod {module} {{\n    use super::*;")?;
        writeln!(modules, "    type Owner = {path};")?;
        for field in &message.field {
            let (name, number) = (field.name(), field.number());
            let constant = name.to_ascii_uppercase();
            let (kind, presence) = (types.kind(message, field), presence(field));
            writeln!(modules, "    /// `{name}`")?;
            writeln!(modules, "    pub const {constant}: Field<Owner, {kind}, {presence}> =")?;
            writeln!(modules, "        Field::new({number}, WireType::{});", wire_type(field))?;
            writeln!(all, "    Declared::new({name:?}, {module}::{constant}),")?;
        }
        writeln!(modules, "}}\nimpl TypeUrl for {path} {{")?;
        writeln!(modules, "    const TYPE_URL: &'static str = \"type.googleapis.com/{full_name}\";\n}}")?;
    }
    writeln!(modules, "#[cfg(test)]\npub(super) fn all() -> Vec<Declared> {{\n    vec![\n{all}    ]\n}}")?;
    Ok(modules)
}

/// Every type of the set, by its full name.
struct Types<'a> {
    messages: BTreeMap<String, &'a DescriptorProto>,
    /// Where `prost` puts messages and enums.
    paths: BTreeMap<String, String>,
}

impl<'a> Types<'a> {
    fn new(set: &'a FileDescriptorSet) -> Self {
        let mut types = Self { messages: BTreeMap::new(), paths: BTreeMap::new() };
        for file in &set.file {
            let module = file.package().split('.').fold("crate".to_owned(), |all, part| join(&all, part));
            for found in &file.enum_type {
                types.add_enum(file.package(), &module, found.name());
            }
            for message in &file.message_type {
                types.add(file.package(), &module, message);
            }
        }
        types
    }

    fn add(&mut self, scope: &str, module: &str, message: &'a DescriptorProto) {
        let full_name = format!("{scope}.{}", message.name());
        let inner = join(module, message.name());
        self.paths.insert(full_name.clone(), format!("{module}::{}", message.name().to_upper_camel_case()));
        for found in &message.enum_type {
            self.add_enum(&full_name, &inner, found.name());
        }
        for nested in &message.nested_type {
            self.add(&full_name, &inner, nested);
        }
        self.messages.insert(full_name, message);
    }

    fn add_enum(&mut self, scope: &str, module: &str, name: &str) {
        self.paths.insert(format!("{scope}.{name}"), format!("{module}::{}", name.to_upper_camel_case()));
    }

    /// What a field holds, as a type of `canopus_proto::wire`.
    fn kind(&self, message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
        if is_packed(field) {
            return "Other".to_owned();
        }
        let path = || &self.paths[field.type_name().trim_start_matches('.')];
        match field.r#type() {
            Type::String => "Text".to_owned(),
            Type::Bytes => "Binary".to_owned(),
            Type::Bool => "Bool".to_owned(),
            Type::Uint32 => "Unsigned".to_owned(),
            Type::Enum => format!("Enumeration<{}>", path()),
            Type::Message => match map_entry(message, field) {
                Some([key, value]) if key.r#type() == Type::String => {
                    format!("Map<{}>", self.kind(message, value))
                }
                Some(_) => "Other".to_owned(),
                None => format!("Nested<{}>", path()),
            },
            _ => "Other".to_owned(),
        }
    }
}

/// The key and the value of a field that is a map.
fn map_entry<'a>(
    message: &'a DescriptorProto,
    field: &FieldDescriptorProto,
) -> Option<&'a [FieldDescriptorProto; 2]> {
    let own = field.type_name().rsplit('.').next()?;
    let entry = message.nested_type.iter().find(|nested| nested.name() == own)?;
    let is_map = entry.options.as_ref().is_some_and(prost_types::MessageOptions::map_entry);
    entry.field.first_chunk().filter(|_| is_map)
}

fn is_repeated(field: &FieldDescriptorProto) -> bool {
    field.label() == Label::Repeated
}

/// Numbers of a list share one field in proto3, unless it says otherwise.
fn is_packed(field: &FieldDescriptorProto) -> bool {
    let packed = field.options.as_ref().and_then(|options| options.packed).unwrap_or(true);
    is_repeated(field) && packed && scalar_wire_type(field.r#type()) != "Delimited"
}

/// Whether the default is left out.
fn presence(field: &FieldDescriptorProto) -> &'static str {
    let is_message = matches!(field.r#type(), Type::Message | Type::Group);
    match is_message || is_repeated(field) || field.oneof_index.is_some() {
        true => "Explicit",
        false => "Implicit",
    }
}

fn wire_type(field: &FieldDescriptorProto) -> &'static str {
    if is_packed(field) { "Delimited" } else { scalar_wire_type(field.r#type()) }
}

fn scalar_wire_type(kind: Type) -> &'static str {
    match kind {
        Type::Double | Type::Fixed64 | Type::Sfixed64 => "Fixed64",
        Type::Float | Type::Fixed32 | Type::Sfixed32 => "Fixed32",
        Type::String | Type::Bytes | Type::Message | Type::Group => "Delimited",
        _ => "Varint",
    }
}

fn join(module: &str, name: &str) -> String {
    let name = name.to_snake_case();
    let raw = if KEYWORDS.contains(&name.as_str()) { "r#" } else { "" };
    format!("{module}::{raw}{name}")
}
