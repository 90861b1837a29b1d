//! Objects and kinds come, change and go.

use std::collections::BTreeSet;

use canopus_api::Kind;
use canopus_api::crd::own;
use canopus_api::istio::VirtualService;
use canopus_api::kube::Service;
use canopus_sources::kubernetes::{Listing, Options, all_kinds};
use canopus_testkit::KubeApi;

use crate::mirror::Mirror;

const SHOP: &str = r#"
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop, annotations: {note: first}}
spec: {selector: {app: web}, ports: [{name: http, port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.0.0.1], conditions: {ready: true}}]
---
apiVersion: v1
kind: Secret
metadata: {name: certificate, namespace: shop}
type: kubernetes.io/tls
stringData: {tls.crt: certificate, tls.key: key}
---
apiVersion: v1
kind: Secret
metadata: {name: release, namespace: shop}
type: helm.sh/release.v1
stringData: {release: large}
"#;

const ROUTE: &str = r#"
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: web, namespace: shop}
spec:
  hosts: [web]
  http: [{route: [{destination: {host: web}}]}]
"#;

/// What the scenario has objects of.
const FOLLOWED: [Kind; 3] = [Kind::Namespace, Kind::Service, Kind::EndpointSlice];

fn definition(kind: Kind) -> String {
    let name = kind.info().resource();
    let manifests = own::manifests();
    let found = manifests.into_iter().find(|manifest| manifest.text.contains(&format!("name: {name}\n")));
    found.unwrap_or_else(|| panic!("no definition of {name}")).text
}

async fn objects_come_change_and_go(kube: &KubeApi, listing: Listing) {
    let options = Options { listing, ..Options::new(FOLLOWED.into()) };
    let mut mirror = Mirror::start(kube.kubeconfig(), options).await;
    mirror.equals_fresh_read(kube, &FOLLOWED).await;
    mirror.until("a whole world", |mirror| mirror.intake.world().is_whole()).await;
    assert!(mirror.status().is_live());

    kube.apply(SHOP).await.unwrap();
    mirror.equals_fresh_read(kube, &FOLLOWED).await;
    kube.kubectl(&["annotate", "service", "web", "--namespace=shop", "note=second", "--overwrite"])
        .await
        .unwrap();
    mirror.equals_fresh_read(kube, &FOLLOWED).await;
    let service = mirror.get(Kind::Service, "shop", "web").unwrap().get::<Service>().unwrap();
    assert_eq!(service.meta.annotation("note"), Some("second"));

    // Who comes later sees the same.
    let options = Options { listing, ..Options::new(FOLLOWED.into()) };
    Mirror::start(kube.kubeconfig(), options).await.equals_fresh_read(kube, &FOLLOWED).await;

    kube.kubectl(&["delete", "service,endpointslice", "--all", "--namespace=shop"]).await.unwrap();
    mirror.equals_fresh_read(kube, &FOLLOWED).await;
    assert!(mirror.get(Kind::Service, "shop", "web").is_none());
}

async fn kinds_come_and_go_with_their_definitions(kube: &KubeApi) {
    let mut mirror = Mirror::start(kube.kubeconfig(), Options::new(all_kinds())).await;
    mirror.until("a whole world", |mirror| mirror.intake.world().is_whole()).await;
    assert_eq!(mirror.phase(Kind::VirtualService), None);

    kube.apply(&definition(Kind::VirtualService)).await.unwrap();
    let crd = format!("crd/{}", Kind::VirtualService.info().resource());
    kube.kubectl(&["wait", "--for=condition=Established", &crd]).await.unwrap();
    kube.apply(ROUTE).await.unwrap();
    mirror.until("the route", |mirror| mirror.get(Kind::VirtualService, "shop", "web").is_some()).await;
    let route = mirror.get(Kind::VirtualService, "shop", "web").unwrap().get::<VirtualService>().unwrap();
    assert_eq!(route.spec.hosts, ["web"]);
    assert!(mirror.get(Kind::Secret, "shop", "certificate").is_some());
    assert!(mirror.get(Kind::Secret, "shop", "release").is_none(), "secrets of Helm are not asked for");

    kube.kubectl(&["delete", &crd]).await.unwrap();
    mirror
        .until("no route", |mirror| {
            mirror.get(Kind::VirtualService, "shop", "web").is_none()
                && mirror.phase(Kind::VirtualService).is_none()
        })
        .await;
}

#[tokio::test]
async fn real_kube_world_follows_objects_and_kinds() {
    let kube = KubeApi::start().await.unwrap();
    objects_come_change_and_go(&kube, Listing::Stream).await;
    objects_come_change_and_go(&kube, Listing::Pages(2)).await;
    kinds_come_and_go_with_their_definitions(&kube).await;

    // A kind that cannot be read and is needed holds up everything else, and says why.
    let needed = BTreeSet::from([Kind::Service]);
    let config = std::fs::read_to_string(kube.kubeconfig()).unwrap();
    let stranger = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(stranger.path(), config.replace(kube.token(), "nobody")).unwrap();
    let mut mirror = Mirror::start(stranger.path(), Options::new(needed)).await;
    mirror
        .until("a reason", |mirror| {
            mirror.phase(Kind::Service).is_some_and(|phase| phase.to_string().contains("Unauthorized"))
        })
        .await;
    assert!(!mirror.intake.world().is_whole());
}
