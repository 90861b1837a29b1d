//! Who may read secrets.

use canopus_sources::kubernetes::{Access, Cluster, RateLimit};
use canopus_testkit::KubeApi;

/// The account `gateway` may list secrets in its namespace; `default` may not.
const RIGHTS: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: shop}
rules:
- apiGroups: ['']
  resources: [secrets]
  verbs: [get, list, watch]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: gateway, namespace: shop}
";

#[tokio::test]
async fn accounts_may_list_secrets_as_their_roles_say() {
    let kube = KubeApi::start().await.unwrap();
    kube.apply(RIGHTS).await.unwrap();
    let access = Access::Kubeconfig(kube.kubeconfig().to_owned());
    let cluster = Cluster::connect(&access, RateLimit::default()).await.unwrap();
    let may =
        async |namespace: &str, account: &str| cluster.may_list_secrets(namespace, account).await.unwrap();
    assert!(may("shop", "gateway").await);
    assert!(!may("shop", "default").await);
    assert!(!may("other", "gateway").await);
}
