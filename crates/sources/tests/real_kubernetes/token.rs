//! Whose tokens are.

use std::time::Duration;

use canopus_sources::kubernetes::{Access, Cluster, RateLimit, TokenError, TokenOwner};
use canopus_testkit::KubeApi;

const ACCOUNT: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: cart, namespace: shop}
";

#[tokio::test]
async fn tokens_belong_to_the_account_they_were_issued_to() {
    let kube = KubeApi::start().await.unwrap();
    kube.apply(ACCOUNT).await.unwrap();
    let access = Access::Kubeconfig(kube.kubeconfig().to_owned());
    let cluster = Cluster::connect(&access, RateLimit::default()).await.unwrap();
    let issue = ["create", "token", "cart", "--namespace=shop", "--audience=istio-ca"];
    let token = kube.kubectl(&issue).await.unwrap();
    let token = token.trim();
    let owner =
        async |token: &str, audience: &str| cluster.owner_of_token(token, &[audience.to_owned()]).await;

    let cart = TokenOwner { namespace: "shop".into(), service_account: "cart".into(), pod: None };
    assert_eq!(owner(token, "istio-ca").await, Ok(cart));
    let broken = format!("{token}x");
    for (token, audience) in [(token, "vault"), (broken.as_str(), "istio-ca"), ("nonsense", "istio-ca")] {
        let refused = owner(token, audience).await.unwrap_err();
        assert!(matches!(refused, TokenError::Refused(_)), "{refused}");
        assert!(!refused.to_string().contains(token), "the token is told to nobody");
    }
    let administrator = cluster.owner_of_token(kube.token(), &[]).await;
    assert_eq!(administrator, Err(TokenError::NotAServiceAccount));

    kube.kubectl(&["delete", "serviceaccount", "cart", "--namespace=shop"]).await.unwrap();
    // The server itself remembers for ten seconds whom it has authenticated.
    let orphan = async {
        loop {
            match owner(token, "istio-ca").await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(500)).await,
                Err(refused) => break refused,
            }
        }
    };
    let refused = tokio::time::timeout(Duration::from_secs(60), orphan).await.expect("the account is gone");
    assert!(matches!(refused, TokenError::Refused(_)), "{refused}");
}
