//! Who may talk to whom: PeerAuthentication and AuthorizationPolicy.

use anyhow::{Result, ensure};
use canopus_testkit::eventually;

use crate::sidecars::{PATIENCE, Sidecars};

/// How `reviews` takes connections.
fn peer_authentication(mode: &str) -> String {
    format!(
        "
apiVersion: security.istio.io/v1
kind: PeerAuthentication
metadata:
  name: default
  namespace: shop
spec:
  mtls:
    mode: {mode}
"
    )
}

/// Only `frontend` may call, and only below /open.
const ONLY_FRONTEND: &str = "
apiVersion: security.istio.io/v1
kind: AuthorizationPolicy
metadata:
  name: only-frontend
  namespace: shop
spec:
  selector:
    matchLabels: {app: reviews}
  rules:
  - from:
    - source:
        principals: [cluster.local/ns/shop/sa/frontend]
    to:
    - operation:
        paths: [/open*]
";

#[tokio::test]
async fn permissive_workloads_take_mutual_tls_and_plain_text() -> Result<()> {
    let sidecars = Sidecars::start(&peer_authentication("PERMISSIVE"), "").await?;
    let echoed = sidecars.echoed("/items").await?;
    let certificate = &echoed.headers["x-forwarded-client-cert"];
    assert!(certificate.contains("URI=spiffe://cluster.local/ns/shop/sa/frontend"), "{certificate}");
    assert!(certificate.contains("By=spiffe://cluster.local/ns/shop/sa/reviews"), "{certificate}");
    let plain = sidecars.answered_to(|| sidecars.plain_request("/items"), 200).await?;
    assert!(!plain.body.contains("x-forwarded-client-cert"), "{}", plain.body);
    sidecars.check_accepted().await
}

#[tokio::test]
async fn strict_workloads_refuse_plain_text() -> Result<()> {
    let sidecars = Sidecars::start(&peer_authentication("PERMISSIVE"), "").await?;
    sidecars.answered_to(|| sidecars.plain_request("/items"), 200).await?;
    sidecars.write(&peer_authentication("STRICT"))?;
    eventually("no more plain text", PATIENCE, async || {
        let response = sidecars.plain_request("/items").send().await;
        ensure!(response.is_err(), "answered: {response:?}");
        Ok(())
    })
    .await?;
    sidecars.answered("/items", 200).await?;
    sidecars.check_accepted().await
}

#[tokio::test]
async fn callers_are_told_apart_by_their_certificates() -> Result<()> {
    let sidecars = Sidecars::start(ONLY_FRONTEND, "").await?;
    let stranger = sidecars.stranger().await?;
    sidecars.answered("/open/door", 200).await?;
    let refused = sidecars.answered("/closed", 403).await?;
    assert_eq!(refused.body, "RBAC: access denied");
    sidecars.answered_to(|| sidecars.request(&stranger, "/open/door"), 403).await?;
    // Plain text proves no identity.
    sidecars.answered_to(|| sidecars.plain_request("/open/door"), 403).await?;

    sidecars.write(&ONLY_FRONTEND.replace("sa/frontend", "sa/stranger"))?;
    sidecars.answered("/open/door", 403).await?;
    sidecars.answered_to(|| sidecars.request(&stranger, "/open/door"), 200).await?;
    sidecars.check_accepted().await
}
