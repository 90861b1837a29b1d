//! Only some namespaces, and only our revision, are seen.

use canopus_api::Kind;
use canopus_base::labels::Selector;
use canopus_sources::kubernetes::{Options, Selection};
use canopus_testkit::KubeApi;
use tokio::sync::watch;

use crate::mirror::Mirror;

const NAMESPACES: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: seen, labels: {mesh: "on"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: unseen}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: map, namespace: seen}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: map, namespace: unseen}
"#;

#[tokio::test]
async fn real_kube_selectors_decide_which_namespaces_are_seen() {
    let kube = KubeApi::start().await.unwrap();
    kube.apply(NAMESPACES).await.unwrap();
    let select = |text: &str| Selection::new(vec![Selector::parse(text).unwrap()]);
    let (selections, selection) = watch::channel(select("mesh=on"));
    let kinds = [Kind::Namespace, Kind::ConfigMap].into();
    let mut mirror = Mirror::start(kube.kubeconfig(), Options { selection, ..Options::new(kinds) }).await;
    let sees = |mirror: &Mirror, namespace: &str| mirror.get(Kind::ConfigMap, namespace, "map").is_some();
    mirror.until("a whole world", |mirror| mirror.intake.world().is_whole()).await;
    assert!(sees(&mirror, "seen") && !sees(&mirror, "unseen"));
    assert!(mirror.get(Kind::Namespace, "", "unseen").is_some(), "namespaces themselves are always seen");

    kube.kubectl(&["label", "namespace", "unseen", "mesh=on"]).await.unwrap();
    mirror.until("a namespace that came into sight", |mirror| sees(mirror, "unseen")).await;
    kube.kubectl(&["label", "namespace", "seen", "mesh-"]).await.unwrap();
    mirror.until("a namespace that went out of sight", |mirror| !sees(mirror, "seen")).await;
    assert!(sees(&mirror, "unseen"));

    selections.send_replace(select("!mesh"));
    mirror.until("other selectors", |mirror| sees(mirror, "seen") && !sees(mirror, "unseen")).await;
    selections.send_replace(Selection::default());
    mirror.until("no selectors", |mirror| sees(mirror, "seen") && sees(mirror, "unseen")).await;
}
