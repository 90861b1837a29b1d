//! The store of the API server is restored from an older copy: its resource versions come again.

use canopus_api::Kind;
use canopus_sources::kubernetes::{Listing, Options};
use canopus_testkit::KubeApi;

use crate::mirror::Mirror;

const FOLLOWED: [Kind; 2] = [Kind::Namespace, Kind::ConfigMap];

#[tokio::test]
async fn real_kube_store_restored_from_an_older_copy_is_followed() {
    let mut kube = KubeApi::start().await.unwrap();
    let make = async |kube: &KubeApi, name: &str| {
        kube.kubectl(&["create", "configmap", name, "--from-literal=key=value"]).await.unwrap();
    };
    make(&kube, "stays").await;
    make(&kube, "comes-back").await;
    kube.back_up().await.unwrap();
    kube.kubectl(&["delete", "configmap", "comes-back"]).await.unwrap();
    for number in 0..20 {
        make(&kube, &format!("goes-{number}")).await;
    }
    let options = || Options::new(FOLLOWED.into());
    let mut streamed = Mirror::start(kube.kubeconfig(), options()).await;
    let paged = Options { listing: Listing::Pages(5), ..options() };
    let mut paged = Mirror::start(kube.kubeconfig(), paged).await;
    for mirror in [&mut streamed, &mut paged] {
        mirror.equals_fresh_read(&kube, &FOLLOWED).await;
        assert!(mirror.get(Kind::ConfigMap, "default", "goes-19").is_some());
    }

    kube.restore().await.unwrap();
    make(&kube, "after").await;
    for mirror in [&mut streamed, &mut paged] {
        mirror.equals_fresh_read(&kube, &FOLLOWED).await;
        assert!(mirror.get(Kind::ConfigMap, "default", "goes-19").is_none());
        assert!(mirror.get(Kind::ConfigMap, "default", "comes-back").is_some());
        assert!(mirror.get(Kind::ConfigMap, "default", "after").is_some());
    }
}
