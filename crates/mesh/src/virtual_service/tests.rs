use std::sync::Arc;

use canopus_api::{Kind, ObjectKey};
use canopus_proto::istio::networking::v1alpha3::string_match::MatchType;
use canopus_proto::istio::networking::v1alpha3::{HttpMatchRequest, HttpRoute, StringMatch};

use super::*;

fn service(name: &str, hosts: &[&str]) -> Arc<VirtualService> {
    Arc::new(VirtualService {
        origin: Origin::new("c", ObjectKey::new(Kind::VirtualService, "ns", name)),
        created: None,
        semantics: Semantics::Istio,
        export_to: BTreeSet::new(),
        spec: proto::VirtualService {
            hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
            ..Default::default()
        },
    })
}

#[test]
fn gateway_names_say_their_namespace_in_four_ways() {
    for (written, meant) in [
        ("g", "ns/g"),
        ("./g", "ns/g"),
        ("other/g", "other/g"),
        ("g.other.svc.cluster.local", "other/g"),
        ("g.other", "other/g"),
    ] {
        assert_eq!(gateway_name(written, "ns"), meant, "{written}");
    }
}

#[test]
fn narrowest_wildcard_owns_a_host_unless_it_is_named() {
    let services = [
        service("all", &["*"]),
        service("com", &["*.com"]),
        service("a", &["a.com"]),
        service("late", &["a.com", "*.com"]),
    ];
    let owners = HostOwners::new(&services);
    let owner = |host| owners.owner(host).map(|service| service.name().to_owned());
    assert_eq!(owner("a.com").as_deref(), Some("a"));
    assert_eq!(owner("b.com").as_deref(), Some("com"));
    assert_eq!(owner("*.b.com").as_deref(), Some("com"));
    assert_eq!(owner("b.net").as_deref(), Some("all"));
    assert_eq!(HostOwners::new(&services[1..]).owner("b.net"), None);
}

#[test]
fn own_namespace_replaces_private_and_the_mesh_default_stands_in() {
    let mut settings = MeshSettings::default();
    let seen = |export_to: &[&str], settings: &MeshSettings| {
        let export_to: Vec<_> = export_to.iter().map(|entry| (*entry).to_owned()).collect();
        visibility(&export_to, settings, "ns").iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(seen(&[], &settings), ["*"]);
    assert_eq!(seen(&[".", "b"], &settings), ["b", "ns"]);
    settings.mesh.default_virtual_service_export_to = vec![".".to_owned()];
    assert_eq!(seen(&[], &settings), ["ns"]);
    assert_eq!(seen(&["*"], &settings), ["*"]);
}

#[test]
fn routes_for_one_source_namespace_lead_nowhere_from_another() {
    let to = |host: &str, sources: &[&str]| HttpRoute {
        r#match: sources
            .iter()
            .map(|source| HttpMatchRequest { source_namespace: (*source).to_owned(), ..Default::default() })
            .collect(),
        mirror: Some(proto::Destination { host: host.to_owned(), ..Default::default() }),
        ..Default::default()
    };
    let spec = proto::VirtualService {
        http: vec![to("any", &[]), to("a", &["a"]), to("ab", &["a", "b"]), to("loose", &[""])],
        ..Default::default()
    };
    let hosts = |source| destinations(&spec, source).into_keys().collect::<Vec<_>>();
    assert_eq!(hosts(None), ["a", "ab", "any", "loose"]);
    assert_eq!(hosts(Some("b")), ["ab", "any", "loose"]);
}

#[test]
fn delegate_route_is_dropped_when_it_matches_more_than_its_root() {
    let prefix = |text: &str| HttpRoute {
        r#match: vec![HttpMatchRequest {
            uri: Some(StringMatch { match_type: Some(MatchType::Prefix(text.to_owned())) }),
            ..Default::default()
        }],
        ..Default::default()
    };
    assert_eq!(merge_delegate(&prefix("/a"), vec![prefix("/a/b"), prefix("/b")]), [prefix("/a/b")]);
    assert_eq!(merge_delegate(&prefix("/a"), vec![HttpRoute::default()]), [prefix("/a")]);
}
