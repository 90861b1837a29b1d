//! The API server goes away and comes back; connections break and fall silent.

use canopus_api::Kind;
use canopus_sources::kubernetes::{Listing, Options};
use canopus_testkit::{KubeApi, Relay};

use crate::mirror::Mirror;

const FOLLOWED: [Kind; 2] = [Kind::Namespace, Kind::ConfigMap];

async fn make(kube: &KubeApi, name: &str) {
    kube.kubectl(&["create", "configmap", name, "--from-literal=key=value"]).await.unwrap();
}

async fn delete(kube: &KubeApi, name: &str) {
    kube.kubectl(&["delete", "configmap", name]).await.unwrap();
}

#[tokio::test]
async fn real_kube_world_outlives_outages() {
    let mut kube = KubeApi::start().await.unwrap();
    let relay = Relay::start(kube.address()).await.unwrap();
    let kubeconfig = kube.kubeconfig_by_way_of(relay.address()).unwrap();
    for name in ["stays", "goes", "last"] {
        make(&kube, name).await;
    }
    let mut streamed = Mirror::start(&kubeconfig, Options::new(FOLLOWED.into())).await;
    let options = Options { listing: Listing::Pages(1), ..Options::new(FOLLOWED.into()) };
    let mut paged = Mirror::start(&kubeconfig, options).await;
    for mirror in [&mut streamed, &mut paged] {
        mirror.equals_fresh_read(&kube, &FOLLOWED).await;
    }
    let before = streamed.len();

    // The connection is cut: what is known stays, and what happened meanwhile is made up for.
    relay.cut();
    for mirror in [&mut streamed, &mut paged] {
        mirror.until("staleness", |mirror| mirror.is_stale(Kind::ConfigMap)).await;
        assert_eq!(mirror.len(), before);
        assert!(mirror.intake.world().is_whole());
    }
    delete(&kube, "goes").await;
    make(&kube, "new").await;
    relay.heal();
    for mirror in [&mut streamed, &mut paged] {
        mirror.equals_fresh_read(&kube, &FOLLOWED).await;
        mirror.until("recovery", |mirror| mirror.status().is_live()).await;
    }

    // The API server is killed and comes back.
    kube.stop();
    for mirror in [&mut streamed, &mut paged] {
        mirror.until("staleness", |mirror| mirror.is_stale(Kind::ConfigMap)).await;
        assert_eq!(mirror.len(), before);
    }
    kube.resume().await.unwrap();
    delete(&kube, "new").await;
    for mirror in [&mut streamed, &mut paged] {
        mirror.equals_fresh_read(&kube, &FOLLOWED).await;
        mirror.until("recovery", |mirror| mirror.status().is_live()).await;
    }

    // The server forgets what happened: everything is listed anew, and what went meanwhile is gone.
    relay.cut();
    streamed.until("staleness", |mirror| mirror.is_stale(Kind::ConfigMap)).await;
    delete(&kube, "last").await;
    // A server remembers no further back than its own start.
    kube.stop();
    kube.resume().await.unwrap();
    relay.heal();
    for mirror in [&mut streamed, &mut paged] {
        mirror.equals_fresh_read(&kube, &FOLLOWED).await;
        mirror.until("recovery", |mirror| mirror.status().is_live()).await;
        assert!(mirror.get(Kind::ConfigMap, "default", "last").is_none());
        assert!(mirror.get(Kind::ConfigMap, "default", "stays").is_some());
    }
}
