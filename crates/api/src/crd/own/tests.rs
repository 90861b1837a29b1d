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
}
