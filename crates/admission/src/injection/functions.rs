//! The functions that Istio adds to sprig's for its templates.

mod attributes;
mod networks;
mod proxy_config;

use std::collections::BTreeMap;

use canopus_base::duration::Duration;
use canopus_gotemplate::{Budget, CallError, Functions, Map, Str, StringMap, Value, Variadic, sprig};
use serde_json::Value as Json;

/// Everything that templates of the injector and of gateways may call.
///
/// `env` reads the given variables, which are those of the control plane's own process.
pub fn injection_functions(variables: &BTreeMap<String, String>) -> Functions {
    let mut functions = Functions::builtin();
    sprig::add_to(&mut functions, &sprig::Options::default());
    add_conversions(&mut functions);
    add_maps(&mut functions);
    add_ports(&mut functions);
    let variables = variables.clone();
    functions
        .add("env", move |key: String, default: Str| match variables.get(&key) {
            Some(value) if !value.is_empty() => Str::from(value.as_str()),
            _ => default,
        })
        .add("annotation", annotation)
        .add("valueOrDefault", |value: Value, default: Value| match &value {
            Value::Nil => default,
            Value::String(text) if text.is_empty() => default,
            _ => value,
        })
        .add("directory", |path: String| {
            path.rfind('/').map_or_else(String::new, |at| path[..=at].to_owned())
        })
        .add("contains", |needle: String, haystack: String| haystack.contains(&needle))
        .add("toLower", |text: String| text.to_lowercase())
        .add("kubevirtInterfaces", |text: Str| text)
        .add("excludeInterfaces", |text: Str| text)
        .add("appendMultusNetwork", |present: String, network: String| networks::append(&present, &network))
        .add("otelResourceAttributes", attributes::otel_resource_attributes);
    functions
}

fn add_conversions(functions: &mut Functions) {
    functions
        .add("formatDuration", |duration: Value| {
            let Value::Object(message) = &duration else { return "0s".to_owned() };
            let part = |name: &str| match message.field(name) {
                Some(Value::Int(int, _)) if !message.is_nil() => int,
                _ => 0,
            };
            let nanos = part("Seconds").saturating_mul(1_000_000_000).saturating_add(part("Nanos"));
            Duration::from_nanos(nanos).to_string()
        })
        .add(
            "toJSON",
            |budget: &Budget, map: StringMap| {
                if map.0.is_nil() { Ok(b"{}".to_vec()) } else { Value::from(map).to_json(budget) }
            },
        )
        .add("fromJSON", |text: String| match serde_json::from_str::<Json>(&text) {
            Ok(json) => Value::from(json),
            // Parity: what cannot be read gives this text.
            Err(_) => Value::string("{}"),
        })
        .add("structToJSON", |budget: &Budget, value: Value| match &value {
            Value::Nil => Ok(b"{}".to_vec()),
            value => value.to_json(budget),
        })
        .add("protoToJSON", proxy_config::to_json)
        .add("toYaml", |budget: &Budget, value: Value| {
            let mut text = value.to_yaml(budget)?;
            // Parity: unlike Helm's, this function leaves the line break in place.
            text.push(b'\n');
            Ok::<_, CallError>(text)
        })
        .add("indent", |budget: &Budget, spaces: i64, text: String| {
            let spaces = usize::try_from(spaces).unwrap_or_default();
            budget
                .charge_bytes(text.len().saturating_add(spaces.saturating_mul(text.matches('\n').count())))?;
            Ok::<_, CallError>(text.replace('\n', &format!("\n{}", " ".repeat(spaces))))
        })
        .add("omitNil", |budget: &Budget, value: Value| omit_nil(budget, value));
}

fn add_maps(functions: &mut Functions) {
    functions
        .add("isset", |map: StringMap, key: Str| map.0.contains_key(&key))
        .add("omit", |map: StringMap, keys: Variadic<Str>| {
            StringMap::new(map.entries().filter(|(key, _)| !keys.0.contains(key)))
        })
        .add("strdict", |words: Variadic<Str>| {
            let value = |pair: &[Str]| pair.get(1).cloned().unwrap_or_else(|| Str::from(""));
            StringMap::new(words.0.chunks(2).map(|pair| (pair[0].clone(), value(pair))))
        })
        .add("mergeMaps", |maps: Variadic<StringMap>| merge_maps(maps.0))
        .add("toJsonMap", |budget: &Budget, maps: Variadic<StringMap>| merge_maps(maps.0).to_json(budget));
}

/// Joins maps; of equal keys the last one counts.
fn merge_maps(maps: Vec<StringMap>) -> Value {
    if maps.is_empty() {
        return Value::Map(Map::nil(canopus_gotemplate::MapKind::String));
    }
    StringMap::new(maps.iter().flat_map(StringMap::entries)).into()
}

fn add_ports(functions: &mut Functions) {
    functions
        .add("excludeInboundPort", |budget: &Budget, port: Value, excluded: String| {
            let port = port.print(budget)?;
            Ok::<_, CallError>(exclude_port(port.to_text().trim(), &excluded))
        })
        .add("includeInboundPorts", |containers: Value| container_ports(&containers, |_| true))
        .add("applicationPorts", |containers: Value| {
            container_ports(&containers, |name| name != "istio-proxy")
        });
}

fn exclude_port(port: &str, excluded: &str) -> String {
    if port.is_empty() || port == "0" || excluded.split(',').any(|known| known == port) {
        return excluded.to_owned();
    }
    let ports = excluded.split(',').map(str::trim).filter(|port| !port.is_empty());
    ports.chain([port]).collect::<Vec<_>>().join(",")
}

/// The TCP ports of containers.
fn container_ports(containers: &Value, included: fn(&str) -> bool) -> String {
    let mut ports = Vec::new();
    for container in containers.as_list().map_or(&[][..], |list| list.items()) {
        if !included(&text_field(container, "Name")) {
            continue;
        }
        let Value::Object(container) = container else { continue };
        for port in
            container.field("Ports").as_ref().and_then(Value::as_list).map_or(&[][..], |list| list.items())
        {
            let protocol = text_field(port, "Protocol");
            if protocol == "UDP" || protocol == "SCTP" {
                continue;
            }
            if let Value::Object(port) = port
                && let Some(Value::Int(number, _)) = port.field("ContainerPort")
            {
                ports.push(number.to_string());
            }
        }
    }
    ports.join(",")
}

/// A field of a struct that is a string; empty if there is none.
fn text_field(value: &Value, name: &str) -> String {
    let Value::Object(object) = value else { return String::new() };
    match object.field(name) {
        Some(Value::String(text)) => text.to_text().into_owned(),
        _ => String::new(),
    }
}

/// The annotation of an object, or a default in its text form.
fn annotation(budget: &Budget, meta: Value, name: Str, default: Value) -> Result<Str, CallError> {
    let Value::Object(meta) = &meta else {
        return Err(format!("wrong type for value; expected v1.ObjectMeta; got {}", meta.type_name()).into());
    };
    if let Some(Value::Map(annotations)) = meta.field("Annotations")
        && let Some(Value::String(value)) = annotations.get(&name)
    {
        return Ok(value);
    }
    Ok(default.print(budget)?)
}

/// A value without the nils in it; a map or list that had nothing else becomes nil itself.
fn omit_nil(budget: &Budget, value: Value) -> Result<Value, CallError> {
    let (value, _) = without_nils(budget, value, 0)?;
    Ok(value)
}

fn without_nils(budget: &Budget, value: Value, depth: u32) -> Result<(Value, bool), CallError> {
    budget.charge_steps(1)?;
    if depth > 100 {
        return Err("omitNil: the value nests too deep".into());
    }
    match &value {
        Value::Nil => Ok((Value::Nil, true)),
        Value::Map(map) => {
            let mut kept = Vec::new();
            let mut changed = false;
            for (key, item) in map.entries() {
                let (item, item_changed) = without_nils(budget, item, depth + 1)?;
                changed |= item_changed;
                if !item.is_nil() {
                    kept.push((key, item));
                }
            }
            match (changed, kept.is_empty()) {
                (false, _) => Ok((value, false)),
                (true, true) => Ok((Value::Nil, true)),
                (true, false) => Ok((Value::map(kept), true)),
            }
        }
        Value::List(list) => {
            let mut kept = Vec::new();
            let mut changed = false;
            for item in list.items() {
                let (item, item_changed) = without_nils(budget, item.clone(), depth + 1)?;
                changed |= item_changed;
                if !item.is_nil() {
                    kept.push(item);
                }
            }
            match (changed, kept.is_empty()) {
                (false, _) => Ok((value, false)),
                (true, true) => Ok((Value::Nil, true)),
                (true, false) => Ok((Value::list(kept), true)),
            }
        }
        _ => Ok((value, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_are_excluded_once() {
        assert_eq!(exclude_port("15020", ""), "15020");
        assert_eq!(exclude_port("15020", "80, 81,"), "80,81,15020");
        assert_eq!(exclude_port("80", "80,81"), "80,81");
        assert_eq!(exclude_port("0", "80"), "80");
    }

    #[test]
    fn nils_go_and_so_does_what_had_nothing_else() {
        let budget = Budget::default();
        let tree = |text: &str| Value::from(serde_json::from_str::<Json>(text).unwrap());
        let omitted = |text: &str| {
            let value = omit_nil(&budget, tree(text)).unwrap();
            String::from_utf8(value.to_json(&budget).unwrap()).unwrap()
        };
        assert_eq!(omitted(r#"{"a":{"b":null},"c":{"d":1,"e":null},"f":[]}"#), r#"{"c":{"d":1},"f":[]}"#);
        assert_eq!(omitted(r#"{"a":null}"#), "null");
    }
}
