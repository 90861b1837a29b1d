//! `canopus install` on a real API server: what it finds before it changes anything, what it does when an object is refused, and the
//! ways forth and back.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use canopus_testkit::{KubeApi, eventually};

const PATIENCE: Duration = Duration::from_secs(60);

const NAMESPACE: &str = "--namespace=istio-system";

/// Refuses the ConfigMap that the mesh configuration is in.
const REFUSAL: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-mesh}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations: [{expression: "object.metadata.name != 'istio'", message: no meshes here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-mesh}
spec: {policyName: no-mesh, validationActions: [Deny]}
"#;

/// Runs the tool; whether it succeeded, and what it said. No nodes run pods here, so nothing is waited for.
fn canopus(kubeconfig: &Path, arguments: &[&str]) -> Result<(bool, String)> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_canopus"));
    command.arg(arguments[0]).arg("--kubeconfig").arg(kubeconfig).args(&arguments[1..]);
    let output = command.output().context("canopus")?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(text)?))
}

fn succeeds(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let (succeeded, text) = canopus(kubeconfig, arguments)?;
    ensure!(succeeded, "{arguments:?}: {text}");
    Ok(text)
}

fn fails(kubeconfig: &Path, arguments: &[&str]) -> Result<String> {
    let (succeeded, text) = canopus(kubeconfig, arguments)?;
    ensure!(!succeeded, "{arguments:?}: {text}");
    Ok(text)
}

const INSTALL: [&str; 6] =
    ["install", "--skip-confirmation", "--set", "profile=minimal", "--readiness-timeout", "0s"];

async fn mesh_configuration(kube: &KubeApi) -> Result<String> {
    kube.kubectl(&["get", "configmap", "istio", NAMESPACE, "--output=jsonpath={.data.mesh}"]).await
}

/// A kubeconfig of somebody who may read and nothing else.
async fn reader(kube: &KubeApi, directory: &Path) -> Result<std::path::PathBuf> {
    kube.kubectl(&["create", "namespace", "people"]).await?;
    kube.kubectl(&["create", "serviceaccount", "reader", "--namespace=people"]).await?;
    let bind =
        ["create", "clusterrolebinding", "reader", "--clusterrole=view", "--serviceaccount=people:reader"];
    kube.kubectl(&bind).await?;
    let token = kube.kubectl(&["create", "token", "reader", "--namespace=people"]).await?;
    let text = std::fs::read_to_string(kube.kubeconfig())?;
    ensure!(text.contains(kube.token()), "the kubeconfig has no token");
    let path = directory.join("reader.kubeconfig");
    std::fs::write(&path, text.replace(kube.token(), token.trim()))?;
    Ok(path)
}

#[tokio::test(flavor = "multi_thread")]
async fn real_install_names_missing_rights_resumes_after_a_refusal_and_is_rolled_back() -> Result<()> {
    let kube = KubeApi::start().await?;
    let directory = tempfile::tempdir()?;
    let admin = kube.kubeconfig();

    // All rights that are missing are named at once, and nothing is changed.
    let refused = fails(&reader(&kube, directory.path()).await?, &INSTALL)?;
    for part in ["lacks rights", "create", "clusterroles.rbac.authorization.k8s.io", "cluster-admin"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    assert!(kube.kubectl(&["get", "namespace", "istio-system"]).await.is_err(), "something was changed");

    // An object that is refused stops the installation; the same command resumes it.
    kube.apply(REFUSAL).await?;
    let try_create = ["create", "configmap", "istio", "--namespace=default", "--dry-run=server"];
    eventually("the policy counts", PATIENCE, async || {
        ensure!(kube.kubectl(&try_create).await.is_err(), "not yet");
        Ok(())
    })
    .await?;
    let refused = fails(admin, &INSTALL)?;
    for part in ["ConfigMap istio-system/istio", "no meshes here", "the same command goes on from there"] {
        assert!(refused.contains(part), "{part}: {refused}");
    }
    kube.kubectl(&["delete", "validatingadmissionpolicybinding", "no-mesh"]).await?;
    eventually("the policy is gone", PATIENCE, async || kube.kubectl(&try_create).await.map(drop)).await?;
    let resumed = succeeds(admin, &INSTALL)?;
    assert!(!resumed.contains(" 0 as they should be"), "it began anew: {resumed}");

    // Forth and back, and forth again.
    let before = mesh_configuration(&kube).await?;
    assert!(!before.contains("accessLogFile"), "{before}");
    let mut upgrade = INSTALL.to_vec();
    upgrade[0] = "upgrade";
    upgrade.extend(["--set", "meshConfig.accessLogFile=/dev/stdout"]);
    succeeds(admin, &upgrade)?;
    let after = mesh_configuration(&kube).await?;
    assert!(after.contains("accessLogFile: /dev/stdout"), "{after}");
    assert_eq!(
        succeeds(admin, &["rollback", "--list"])?.lines().count(),
        3,
        "a heading and two installations"
    );
    let shown = succeeds(admin, &["rollback", "--dry-run"])?;
    assert!(
        shown.contains("~ ConfigMap istio-system/istio") && shown.contains("-    accessLogFile"),
        "{shown}"
    );
    assert_eq!(mesh_configuration(&kube).await?, after, "a dry run changes nothing");
    let rollback = ["rollback", "--skip-confirmation", "--readiness-timeout", "0s"];
    succeeds(admin, &rollback)?;
    assert_eq!(mesh_configuration(&kube).await?, before);
    succeeds(admin, &[&rollback[..], &["--to", "2"]].concat())?;
    assert_eq!(mesh_configuration(&kube).await?, after);
    let unknown = fails(admin, &[&rollback[..], &["--to", "9"]].concat())?;
    assert!(unknown.contains("installation 9 is not remembered; there are: 4, 3, 2, 1"), "{unknown}");

    // What is remembered goes with the revision.
    // Nothing collects garbage here, so nobody waits for it.
    let uninstall =
        ["uninstall", "--revision", "default", "--skip-confirmation", "--readiness-timeout", "0s"];
    succeeds(admin, &uninstall)?;
    let records =
        ["get", "secrets", "--all-namespaces", "--selector=operator.istio.io/component", "--output=name"];
    assert_eq!(kube.kubectl(&records).await?.trim(), "");
    let nothing = fails(admin, &rollback)?;
    assert!(nothing.contains("no installation of revision default is remembered"), "{nothing}");
    Ok(())
}
