//! The value of a patch: whether it is of the type it is to be merged into.

use canopus_base::tree::{Map, Node, Number, Value as TreeValue};
use canopus_proto::descriptors::{self, FieldDescriptor, Kind, MessageDescriptor};
use canopus_proto::google::protobuf::{Struct, Value, value::Kind as ValueKind};
use canopus_proto::istio::networking::v1alpha3::envoy_filter::ApplyTo;
use canopus_proto::json::{self, Problem, Unknown};

use crate::validate::code::{Severity, codes};
use crate::validate::reader;
use crate::validate::scope::Scope;

codes! {
    UNKNOWN_CLASS: error "envoy-filter-class-unknown", "use one of the values of applyTo";
    BAD_VALUE: error "envoy-filter-value-invalid", "give a value of the type that is patched";
    UNKNOWN_TYPE: error "envoy-filter-type-unknown", "use a type of Envoy's v3 API";
    UNKNOWN_FIELD: warning "envoy-filter-field-unknown", "correct the spelling of the field";
    NO_TYPED_CONFIG: warning "envoy-filter-without-typed-config", "add typed_config: extensions are not found by name";
}

/// What a patch of this class is merged into.
fn message_name(apply_to: ApplyTo) -> Option<&'static str> {
    Some(match apply_to {
        ApplyTo::Cluster => "envoy.config.cluster.v3.Cluster",
        ApplyTo::Listener => "envoy.config.listener.v3.Listener",
        ApplyTo::RouteConfiguration => "envoy.config.route.v3.RouteConfiguration",
        ApplyTo::FilterChain => "envoy.config.listener.v3.FilterChain",
        ApplyTo::HttpFilter => "envoy.extensions.filters.network.http_connection_manager.v3.HttpFilter",
        ApplyTo::NetworkFilter => "envoy.config.listener.v3.Filter",
        ApplyTo::VirtualHost => "envoy.config.route.v3.VirtualHost",
        ApplyTo::HttpRoute => "envoy.config.route.v3.Route",
        ApplyTo::ExtensionConfig => "envoy.config.core.v3.TypedExtensionConfig",
        ApplyTo::Bootstrap => "envoy.config.bootstrap.v3.Bootstrap",
        ApplyTo::ListenerFilter => "envoy.config.listener.v3.ListenerFilter",
        ApplyTo::Invalid => return None,
    })
}

/// Checks the value of a patch that applies to a class of objects.
pub(super) fn check(apply_to: i32, value: &Struct, mut scope: Scope<'_>) {
    let name = ApplyTo::try_from(apply_to).ok().and_then(message_name);
    let Some(descriptor) = name.and_then(descriptors::message) else {
        let message = format!("Envoy filter: unknown object type for applyTo {apply_to}");
        return scope.add(UNKNOWN_CLASS.says(message).with_value(apply_to));
    };
    let value = object(value);
    match reader::read(&descriptor, &value) {
        Err(refusal) => refused(&refusal, &descriptor, &value, scope),
        Ok(Some(unknown)) => {
            let found = located(&descriptor, &value);
            let said = UNKNOWN_FIELD.says(format!("Envoy filter: {unknown}"));
            scope.at(first_path(&found)).add(said);
            let mut scope = scope.ours();
            for problem in found.iter().skip(1) {
                scope.at(&problem.path).add(UNKNOWN_FIELD.says(problem.message.clone()));
            }
        }
        Ok(None) => {
            let mut missing = Vec::new();
            without_typed_config(&descriptor, &value, &mut missing);
            scope.add_if(!missing.is_empty(), || {
                let names = missing.join(", ");
                NO_TYPED_CONFIG.says(format!("using deprecated types by name without typed_config; {names}"))
            });
        }
    }
}

/// Says what Istio says, at the place we know of, and whatever else is wrong.
fn refused(refusal: &str, descriptor: &MessageDescriptor, value: &Node, mut scope: Scope<'_>) {
    let found = located(descriptor, value);
    let said = format!("Envoy filter: {refusal}");
    let fault = if refusal.contains("could not resolve Any message type") {
        let hint = if refusal.contains(".v2.") { " (hint: try using the v3 XDS API)" } else { "" };
        UNKNOWN_TYPE.says(format!("referenced type unknown{hint}: {said}"))
    } else {
        BAD_VALUE.says(said)
    };
    scope.at(first_path(&found)).add(fault);
    let mut scope = scope.ours();
    for problem in found.iter().skip(1) {
        scope.at(&problem.path).add_as(Severity::Error, BAD_VALUE.says(problem.message.clone()));
    }
}

/// All problems that our own reader finds, with their places: what it refuses before what it does not know.
fn located(descriptor: &MessageDescriptor, value: &Node) -> Vec<Problem> {
    match json::read_wire(descriptor, value, Unknown::Report) {
        Ok(read) => read.ignored,
        Err(problems) => problems.0,
    }
}

fn first_path(problems: &[Problem]) -> &str {
    problems.first().map_or("", |problem| problem.path.as_str())
}

/// The names of extensions that are meant to be found by name alone.
fn without_typed_config(descriptor: &MessageDescriptor, value: &Node, missing: &mut Vec<String>) {
    let Some(map) = value.as_map() else { return };
    let mut set: Vec<(FieldDescriptor, &Node)> = map
        .iter()
        .filter(|entry| !entry.node.is_null())
        .filter_map(|entry| {
            let by_json_name = descriptor.get_field_by_json_name(&entry.key);
            Some((by_json_name.or_else(|| descriptor.get_field_by_name(&entry.key))?, &entry.node))
        })
        .collect();
    set.sort_by_key(|(field, _)| field.number());
    for (field, value) in &set {
        if let (Kind::Message(inner), false, false) = (field.kind(), field.is_list(), field.is_map()) {
            without_typed_config(&inner, value, missing);
        }
    }
    let is_set = |name: &str| set.iter().any(|(field, _)| field.json_name() == name);
    let takes_config = descriptor.get_field_by_json_name("typedConfig").is_some();
    if takes_config && !is_set("typedConfig") && !is_set("configDiscovery") {
        let name = set.iter().find(|(field, _)| field.json_name() == "name");
        missing.push(name.and_then(|(_, name)| name.as_str()).unwrap_or_default().to_owned());
    }
}

/// A protobuf structure as the document it was read from.
fn object(value: &Struct) -> Node {
    let mut map = Map::new();
    for (key, value) in &value.fields {
        map.insert(key, node(value));
    }
    TreeValue::Map(map).into()
}

fn node(value: &Value) -> Node {
    match &value.kind {
        None | Some(ValueKind::NullValue(_)) => Node::default(),
        Some(ValueKind::BoolValue(truth)) => TreeValue::from(*truth).into(),
        Some(ValueKind::StringValue(text)) => TreeValue::from(text.as_str()).into(),
        Some(ValueKind::NumberValue(number)) => TreeValue::Number(exact(*number)).into(),
        Some(ValueKind::StructValue(fields)) => object(fields),
        Some(ValueKind::ListValue(items)) => TreeValue::List(items.values.iter().map(node).collect()).into(),
    }
}

/// Structures have only floats; what is whole was an integer before.
fn exact(number: f64) -> Number {
    const WHOLE: f64 = 9_007_199_254_740_992.0;
    #[allow(clippy::cast_possible_truncation, reason = "checked to be whole and in range")]
    if number.fract() == 0.0 && number.abs() <= WHOLE {
        Number::Int(number as i64)
    } else {
        Number::Float(number)
    }
}
