use canopus_proto::descriptors;

use super::*;
use crate::Kind;
use crate::crd::Crd;
use crate::registry::Category;

#[test]
fn every_kind_of_istio_is_defined_as_the_registry_has_it() {
    let defined: Vec<Crd> = definitions().iter().map(|document| Crd::parse(document).unwrap()).collect();
    let istio = Kind::ALL.iter().filter(|kind| kind.info().category == Category::Istio);
    assert_eq!(istio.clone().count(), defined.len());
    for info in istio.map(|kind| kind.info()) {
        let crd = defined.iter().find(|crd| *crd.group == *info.group && *crd.kind == *info.kind).unwrap();
        let versions: Vec<&str> = crd.versions.iter().map(|version| &*version.name).collect();
        assert_eq!(versions, info.versions);
        assert_eq!(crd.versions.iter().filter(|version| version.storage).count(), 1, "{}", info.kind);
    }
}

#[test]
fn everything_something_is_said_about_exists() {
    let pool = descriptors::pool();
    let fields = |name: &str| {
        let (message, field) = name.rsplit_once('.')?;
        pool.get_message_by_name(message)?.get_field_by_name(field)
    };
    let unknown: Vec<String> = limits::names()
        .filter(|name| pool.get_message_by_name(name).is_none() && fields(name).is_none())
        .collect();
    assert_eq!(unknown, Vec::<String>::new());
    for (message, field) in words::all() {
        let message = pool.get_message_by_name(&message).unwrap_or_else(|| panic!("{message} is unknown"));
        assert!(message.get_field_by_name(field).is_some(), "{}.{field} is unknown", message.full_name());
    }
}

#[test]
fn every_field_is_described() {
    let mut silent = Vec::new();
    for definition in definitions() {
        let schema = definition.pointer("/spec/versions/0/schema/openAPIV3Schema").unwrap();
        let name = definition.pointer("/spec/names/kind").and_then(Node::as_str).unwrap();
        undescribed(schema, name, &mut silent);
    }
    assert_eq!(silent, Vec::<String>::new());
}

fn undescribed(schema: &Node, path: &str, silent: &mut Vec<String>) {
    for property in schema.get("properties").and_then(Node::as_map).into_iter().flatten() {
        let path = format!("{path}.{}", property.key);
        if property.node.get("description").is_none() {
            silent.push(path.clone());
        }
        undescribed(&property.node, &path, silent);
    }
    for part in ["items", "additionalProperties"] {
        if let Some(part) = schema.get(part) {
            undescribed(part, path, silent);
        }
    }
}
