use std::collections::BTreeMap;

use canopus_proto::Any;
use canopus_proto::google::protobuf::{Struct, Timestamp};
use canopus_proto::istio::mcp::v1alpha1::{Metadata, Resource as Envelope};
use canopus_proto::istio::networking::v1alpha3::VirtualService;
use canopus_xds::client::Received;

use canopus_api::Object;

use super::*;

fn enveloped(name: &str, body: Any) -> Received {
    let metadata = Metadata {
        name: name.to_owned(),
        create_time: Some(Timestamp { seconds: 1_767_323_045, nanos: 0 }),
        version: "7".to_owned(),
        labels: BTreeMap::from([("team".to_owned(), "a".to_owned())]),
        ..Default::default()
    };
    let envelope = Envelope { metadata: Some(metadata), body: Some(body) };
    Received { body: Any::pack(&envelope), ..Received::default() }
}

fn update(kind: Kind, resources: Vec<Received>) -> Update {
    Update {
        type_url: type_url(kind),
        nonce: "n".into(),
        version: "1".into(),
        resources,
        ..Update::default()
    }
}

fn hosts(host: &str) -> Any {
    Any::pack(&VirtualService { hosts: vec![host.to_owned()], ..Default::default() })
}

#[test]
fn answer_lists_all_objects_of_its_kind() {
    let answer = update(Kind::VirtualService, vec![enveloped("shop/cart", hosts("cart"))]);
    let (changes, rejection) = listing(Kind::VirtualService, &answer);
    let part = SourcePart::Kind(Kind::VirtualService);
    let [
        Change::Problems(_, none),
        Change::Begin(begun),
        Change::Set(Object::VirtualService(cart)),
        Change::End(ended),
    ] = &changes[..]
    else {
        panic!("{changes:?}")
    };
    assert_eq!((none.len(), *begun, *ended, rejection), (0, part, part, None));
    assert_eq!(
        (&*cart.meta.namespace, &*cart.meta.name, &*cart.meta.resource_version),
        ("shop", "cart", "7")
    );
    assert_eq!((cart.meta.label("team"), &cart.spec.hosts[..]), (Some("a"), &["cart".to_owned()][..]));
    assert_eq!(cart.meta.creation_timestamp.unwrap().to_string(), "2026-01-02T03:04:05Z");
}

#[test]
fn kind_without_a_message_of_its_own_comes_as_a_structure() {
    let spec = Struct { fields: [("gatewayClassName".to_owned(), "istio".into())].into() };
    let answer = update(Kind::KubernetesGateway, vec![enveloped("shop/web", Any::pack(&spec))]);
    let (changes, _) = listing(Kind::KubernetesGateway, &answer);
    let found = changes.iter().find_map(|change| match change {
        Change::Set(Object::KubernetesGateway(gateway)) => Some(gateway.spec.gateway_class_name.to_string()),
        _ => None,
    });
    assert_eq!(found.as_deref(), Some("istio"), "{changes:?}");
}

#[test]
fn object_that_cannot_be_read_stays_as_it_was() {
    let stranger = Any { type_url: "type.googleapis.com/example.Unknown".into(), ..Any::default() };
    let answer = update(Kind::VirtualService, vec![enveloped("shop/cart", stranger)]);
    let (changes, rejection) = listing(Kind::VirtualService, &answer);
    let key = ObjectKey::new(Kind::VirtualService, "shop", "cart");
    assert!(changes.contains(&Change::Keep(key)), "{changes:?}");
    assert_eq!(rejection, None, "the others are taken");
}

#[test]
fn answer_with_an_object_of_no_name_is_refused_as_a_whole() {
    let answer = update(Kind::VirtualService, vec![enveloped("cart", hosts("cart"))]);
    let (changes, rejection) = listing(Kind::VirtualService, &answer);
    assert!(matches!(changes[..], [Change::Problems(..)]), "{changes:?}");
    assert!(rejection.is_some_and(|reason| reason.contains("`namespace/name`")));
}

#[test]
fn types_are_named_as_the_protocol_names_them() {
    assert_eq!(type_url(Kind::VirtualService), "networking.istio.io/v1/VirtualService");
    assert_eq!(kind_of("networking.istio.io/v1/VirtualService"), Some(Kind::VirtualService));
    assert_eq!(kind_of("core/v1alpha1/MeshConfig"), None);
}
