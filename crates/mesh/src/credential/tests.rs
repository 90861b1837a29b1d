use std::collections::BTreeMap;

use canopus_api::kube::{ConfigMapData, SecretBytes, SecretData};
use canopus_api::{Meta, Object};
use canopus_engine::{Batch, Engine, Query};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value};

use super::*;
use crate::audience::View;
use crate::proxy::Proxy;
use crate::world::Objects;

/// What a proxy gets for a name, in short.
struct Got;

impl Query for Got {
    const NAME: &'static str = "got";
    type Key = (Proxy, String);
    type Value = Option<String>;

    fn run(ctx: &Ctx<'_>, (proxy, name): &Self::Key) -> Self::Value {
        let text = |bytes: &Bytes| String::from_utf8_lossy(bytes).into_owned();
        let gateway = View::new(ctx, proxy).gateway_runner(ctx);
        let reader = SecretReader { cluster: proxy.metadata.cluster_id.as_str().into(), gateway };
        Some(match material(ctx, &reader, name)? {
            Material::Certificate { chain, key, .. } => format!("{}+{}", text(&chain), text(&key)),
            Material::Roots { roots, revoked } => {
                revoked.map_or_else(|| text(&roots), |revoked| format!("{}-{}", text(&roots), text(&revoked)))
            }
        })
    }
}

fn proxy(cluster: &str, identity: Option<(&str, &str)>) -> Proxy {
    let metadata = [("CLUSTER_ID", cluster), ("NAMESPACE", "ns")];
    let metadata: BTreeMap<_, _> = metadata.map(|(key, value)| (key.to_owned(), Value::from(value))).into();
    let node = Node {
        id: "router~10.0.0.1~gateway.ns~ns.svc.cluster.local".into(),
        metadata: Some(Struct::from(metadata)),
        ..Default::default()
    };
    let identity = identity.map(|(namespace, account)| Identity::new("td", namespace, account).unwrap());
    Proxy::new(&node, identity).unwrap()
}

struct World(Engine);

impl World {
    fn new() -> Self {
        let world = Self(Engine::new());
        world.allow("Kubernetes", "reader");
        world
    }

    fn allow(&self, cluster: &str, account: &str) {
        let account = Account { cluster: cluster.into(), namespace: "ns".into(), name: account.into() };
        self.0.apply(std::mem::take(Batch::new().set::<SecretAccess>(account, true)));
    }

    fn put(&self, cluster: &str, object: impl Into<Object>) {
        let object = object.into();
        self.0.apply(std::mem::take(Batch::new().set::<Objects>(Origin::new(cluster, object.key()), object)));
    }

    fn secret(&self, cluster: &str, name: &str, r#type: &str, data: &[(&str, &str)]) {
        let data = data.iter().map(|&(key, value)| (key.into(), SecretBytes::new(value.to_owned())));
        let spec = SecretData { r#type: r#type.into(), data: data.collect() };
        self.put(cluster, Secret { meta: Meta::new("ns", name), spec, ..Default::default() });
    }

    fn got(&self, proxy: &Proxy, name: &str) -> Option<String> {
        self.0.get::<Got>(&(proxy.clone(), name.to_owned())).unwrap().as_ref().clone()
    }
}

const READER: Option<(&str, &str)> = Some(("ns", "reader"));

#[test]
fn certificate_is_given_to_accounts_that_may_read_secrets_of_its_namespace() {
    let world = World::new();
    world.secret("Kubernetes", "cert", "kubernetes.io/tls", &[("tls.crt", "chain"), ("tls.key", "key")]);
    let got = |identity| world.got(&proxy("Kubernetes", identity), "kubernetes://cert");
    assert_eq!(got(READER).as_deref(), Some("chain+key"));
    assert_eq!(got(Some(("ns", "other"))), None);
    assert_eq!(got(Some(("other", "reader"))), None);
    assert_eq!(got(None), None);
}

#[test]
fn roots_are_in_a_secret_of_their_own_or_beside_the_certificate() {
    let world = World::new();
    world.secret(
        "Kubernetes",
        "a",
        "Opaque",
        &[("cert", "c"), ("key", "k"), ("cacert", "own"), ("crl", "revoked")],
    );
    world.secret("Kubernetes", "b", "Opaque", &[("ca.crt", "beside")]);
    world.secret("Kubernetes", "b-cacert", "Opaque", &[("ca.crt", "apart")]);
    // Roots are public: no right to read Secrets is needed.
    let stranger = proxy("Kubernetes", Some(("ns", "other")));
    assert_eq!(world.got(&stranger, "kubernetes://a-cacert").as_deref(), Some("own-revoked"));
    assert_eq!(world.got(&stranger, "kubernetes://b-cacert").as_deref(), Some("apart"));
    assert_eq!(world.got(&stranger, "kubernetes://c-cacert"), None);
}

#[test]
fn nothing_is_given_when_a_secret_is_incomplete_or_not_for_tls() {
    let world = World::new();
    world.secret("Kubernetes", "half", "Opaque", &[("tls.crt", "chain"), ("tls.key", "")]);
    world.secret("Kubernetes", "token", "kubernetes.io/service-account-token", &[("ca.crt", "roots")]);
    let reader = proxy("Kubernetes", READER);
    assert_eq!(world.got(&reader, "kubernetes://half"), None);
    assert_eq!(world.got(&reader, "kubernetes://token-cacert"), None);
}

#[test]
fn proxys_own_cluster_goes_before_the_one_of_the_configuration() {
    let world = World::new();
    world.allow("remote", "reader");
    world.secret("Kubernetes", "both", "", &[("cert", "config"), ("key", "k")]);
    world.secret("Kubernetes", "one", "", &[("cert", "config"), ("key", "k")]);
    world.secret("remote", "both", "", &[("cert", "remote"), ("key", "k")]);
    let reader = proxy("remote", READER);
    assert_eq!(world.got(&reader, "kubernetes://both").as_deref(), Some("remote+k"));
    assert_eq!(world.got(&reader, "kubernetes://one").as_deref(), Some("config+k"));
}

#[test]
fn config_maps_give_roots_to_anyone_who_has_an_identity() {
    let world = World::new();
    let data = BTreeMap::from([("ca.crt".into(), "roots".into())]);
    let spec = ConfigMapData { data, ..Default::default() };
    world.put("Kubernetes", ConfigMap { meta: Meta::new("any", "ca"), spec, ..Default::default() });
    assert_eq!(world.got(&proxy("Kubernetes", READER), "configmap://any/ca").as_deref(), Some("roots"));
    assert_eq!(world.got(&proxy("Kubernetes", None), "configmap://any/ca"), None);
}

#[test]
fn gateway_secrets_are_given_only_when_a_gateway_of_the_proxy_refers_to_them() {
    let world = World::new();
    world.secret("Kubernetes", "cert", "", &[("cert", "chain"), ("key", "k")]);
    assert_eq!(world.got(&proxy("Kubernetes", READER), "kubernetes-gateway://ns/cert"), None);
}
