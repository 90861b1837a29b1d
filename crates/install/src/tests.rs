use std::fs;

use serde_json::{Value as Json, json};

use super::*;

/// A package with one chart per component that renders what it was given.
fn package() -> (tempfile::TempDir, Package) {
    let directory = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = directory.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    write(
        "profiles/default.yaml",
        "spec: {components: {pilot: {enabled: true}, base: {enabled: false}, ingressGateways: [{name: gw, enabled: false}]}, values: {global: {istioNamespace: istio-system, hub: from-profile}}}",
    );
    write("profiles/small.yaml", "spec: {values: {pilot: {autoscaleMax: 2}}}");
    for chart in ["base", "istio-control/istio-discovery", "gateways/istio-ingress", "istio-cni", "ztunnel"] {
        write(&format!("charts/{chart}/Chart.yaml"), "{apiVersion: v2, name: c, version: 1.0.0}");
        write(&format!("charts/{chart}/values.yaml"), "{}");
        write(
            &format!("charts/{chart}/templates/all.yaml"),
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: istiod, namespace: {{ .Release.Namespace }}}\nspec:\n  replicas: 1\n  template: {spec: {containers: [{name: discovery, env: [{name: A, value: a}], args: [x]}]}}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: values}\ndata: {values: {{ .Values | toJson | quote }}}\n",
        );
    }
    let package = Package::open(directory.path());
    (directory, package)
}

fn generated(inputs: &[&str], flags: &[&str]) -> Result<Vec<Manifest>, Error> {
    let (_directory, package) = package();
    let inputs: Vec<Input> =
        inputs.iter().map(|text| Input { file: "iop.yaml".to_owned(), text: (*text).to_owned() }).collect();
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let operator = merge_inputs(&package, &inputs, &flags)?;
    Ok(generate(&package, &operator, false, None)?.manifests)
}

fn values(manifests: &[Manifest]) -> Json {
    let map = manifests.iter().find(|manifest| manifest.kind() == "ConfigMap").unwrap();
    serde_json::from_str(map.object["data"]["values"].as_str().unwrap()).unwrap()
}

#[test]
fn flags_count_more_than_files_and_files_more_than_profiles() {
    let manifests = generated(
        &[
            "spec: {profile: small, hub: from-file, values: {pilot: {autoscaleMin: 3}}}",
            "spec: {values: {pilot: {autoscaleMin: 4}}}",
        ],
        &["values.pilot.autoscaleMax=9", "meshConfig.enableTracing=true"],
    );
    let values = values(&manifests.unwrap());
    assert_eq!(values["global"]["hub"], "from-file");
    assert_eq!(values["pilot"]["autoscaleMin"], 4);
    assert_eq!(values["pilot"]["autoscaleMax"], 9);
    assert_eq!(values["meshConfig"]["enableTracing"], true);
    assert_eq!(values["pilot"]["cni"]["enabled"], false);
}

#[test]
fn settings_of_components_and_overlays_change_what_charts_made() {
    let manifests = generated(
        &["spec:
  components:
    pilot:
      k8s:
        replicaCount: 5
        env: [{name: B, value: b}]
        overlays:
        - {kind: Deployment, name: istiod, patches: [{path: 'spec.template.spec.containers.[name:discovery].args.[0]', value: changed}]}"],
        &[],
    )
    .unwrap();
    let deployment = manifests.iter().find(|manifest| manifest.kind() == "Deployment").unwrap();
    let container = &deployment.object["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(deployment.object["spec"]["replicas"], 5);
    assert_eq!(container["env"], json!([{"name": "B", "value": "b"}, {"name": "A", "value": "a"}]));
    assert_eq!(container["args"], json!(["changed"]));
}

#[test]
fn what_is_wrong_is_told_with_its_path_before_anything_is_rendered() {
    let error = generated(&["spec: {values: {pilot: {autoscaleMin: x, typo: 1}}, unknown: 1}"], &[])
        .unwrap_err()
        .to_string();
    assert!(error.contains("unknown field \"unknown\" at spec.unknown"), "{error}");
    assert!(error.contains("values.pilot.autoscaleMin: expected an integer, found a string"), "{error}");
    assert!(error.contains("values.pilot: unknown field \"typo\""), "{error}");
    let error = generated(&["spec: {components: {pilot: {k8s: {resources: {limits: 1}}}}}"], &[])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("spec.components.pilot.k8s.resources: limits: cannot unmarshal number"),
        "{error}"
    );
    let error = generated(&["a: 1\n---\nb: 2"], &[]).unwrap_err().to_string();
    assert_eq!(error, "iop.yaml: contains multiple IstioOperator CRs, only one per file is supported");
    let error = generated(&[], &["profile=../x"]).unwrap_err().to_string();
    assert!(error.starts_with("profile \"../x\" not found; there are: default, small"), "{error}");
}

#[test]
fn values_that_nobody_checks_reach_the_charts() {
    let manifests = generated(&["spec: {unvalidatedValues: {mine: {a: 1}}}"], &[]).unwrap();
    assert_eq!(values(&manifests)["mine"], json!({"a": 1}));
}

#[test]
fn built_in_profiles_can_be_read_without_a_directory() {
    let package = Package::built_in();
    for profile in package.profiles() {
        let operator = merge_inputs(&package, &[], &[format!("profile={profile}")]).unwrap();
        assert!(operator.values()["global"]["istioNamespace"] == "istio-system", "{profile}");
    }
}

#[test]
fn a_translation_has_values_and_a_script_per_chart() {
    let (_directory, package) = package();
    let operator = merge_inputs(&package, &[], &[]).unwrap();
    let translated = translate(&package, &operator).unwrap();
    let names: Vec<&str> = translated.files.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["pilot-values.yaml", "install-pilot.sh", "README.md"]);
    assert!(
        translated.files[1]
            .1
            .contains("helm upgrade --install pilot --namespace istio-system -f pilot-values.yaml")
    );
}

/// The objects of an installation from the charts that are built in.
fn built_in(flags: &[&str]) -> Vec<Manifest> {
    let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
    let package = Package::built_in();
    let operator = merge_inputs(&package, &[], &flags).unwrap();
    generate(&package, &operator, false, None).unwrap().manifests
}

fn find<'a>(manifests: &'a [Manifest], kind: &str, name: &str) -> &'a Json {
    let is_it = |manifest: &&Manifest| manifest.kind() == kind && manifest.name() == name;
    &manifests.iter().find(is_it).unwrap_or_else(|| panic!("no {kind} {name}")).object
}

#[test]
fn built_in_charts_have_the_object_names_of_istio() {
    let manifests = built_in(&[]);
    for (kind, name) in [
        ("Deployment", "istiod"),
        ("Service", "istiod"),
        ("ConfigMap", "istio"),
        ("ConfigMap", "istio-sidecar-injector"),
        ("MutatingWebhookConfiguration", "istio-sidecar-injector"),
        ("ValidatingWebhookConfiguration", "istio-validator-istio-system"),
        ("Deployment", "istio-ingressgateway"),
        ("CustomResourceDefinition", "virtualservices.networking.istio.io"),
    ] {
        find(&manifests, kind, name);
    }
    let canary = built_in(&["revision=canary", "profile=minimal"]);
    find(&canary, "Deployment", "istiod-canary");
    find(&canary, "MutatingWebhookConfiguration", "istio-sidecar-injector-canary");
    assert!(canary.iter().all(|manifest| manifest.name() != "istio-ingressgateway"));
}

#[test]
fn settings_of_the_operator_reach_the_built_in_charts() {
    let manifests = built_in(&[
        "hub=example.com/mesh",
        "tag=7",
        "values.pilot.autoscaleMin=2",
        "values.pilot.env.PILOT_ENABLE_IP_AUTOALLOCATE=false",
        "meshConfig.accessLogFile=/dev/stdout",
        "values.gateways.istio-ingressgateway.type=ClusterIP",
    ]);
    let container = &find(&manifests, "Deployment", "istiod")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "example.com/mesh/canopusd:7");
    let variables = container["env"].as_array().unwrap();
    assert!(variables.contains(&json!({"name": "PILOT_ENABLE_IP_AUTOALLOCATE", "value": "false"})));
    find(&manifests, "PodDisruptionBudget", "istiod");
    let mesh = find(&manifests, "ConfigMap", "istio")["data"]["mesh"].as_str().unwrap();
    assert!(mesh.contains("accessLogFile: /dev/stdout"), "{mesh}");
    assert_eq!(find(&manifests, "Service", "istio-ingressgateway")["spec"]["type"], "ClusterIP");
}

#[test]
fn node_agent_is_installed_from_its_own_chart() {
    let flags = [
        "components.cni.enabled=true",
        "values.cni.excludeNamespaces[0]=infra",
        "values.global.hub=example.com/mesh",
    ];
    let package = Package::built_in();
    let operator = merge_inputs(&package, &[], &flags.map(str::to_owned)).unwrap();
    let manifests = generate(&package, &operator, false, None).unwrap().manifests;
    let agent = find(&manifests, "DaemonSet", "istio-cni-node");
    let image = agent.pointer("/spec/template/spec/containers/0/image").and_then(Json::as_str).unwrap();
    assert!(image.starts_with("example.com/mesh/cni:"), "{image}");
    let config = find(&manifests, "ConfigMap", "istio-cni-config");
    assert_eq!(config["data"]["EXCLUDE_NAMESPACES"], "infra");
}

#[test]
fn ambient_profile_installs_all_that_a_mesh_without_sidecars_needs() {
    let manifests = built_in(&["profile=ambient", "revision=canary", "values.ztunnel.tag=1.2.3"]);
    let variables = |kind: &str, name: &str| -> Vec<(String, String)> {
        let containers = find(&manifests, kind, name).pointer("/spec/template/spec/containers/0/env");
        let text = |variable: &Json, key: &str| variable[key].as_str().unwrap_or_default().to_owned();
        let variables = containers.and_then(Json::as_array).unwrap().iter();
        variables.map(|variable| (text(variable, "name"), text(variable, "value"))).collect()
    };
    let has = |variables: &[(String, String)], name: &str, value: &str| {
        assert!(variables.contains(&(name.to_owned(), value.to_owned())), "{name}: {variables:?}");
    };
    has(&variables("Deployment", "istiod-canary"), "PILOT_ENABLE_AMBIENT", "true");
    let mesh = find(&manifests, "ConfigMap", "istio-canary")["data"]["mesh"].as_str().unwrap();
    assert!(mesh.contains("ISTIO_META_ENABLE_HBONE"), "{mesh}");
    assert_eq!(find(&manifests, "ConfigMap", "istio-cni-config")["data"]["AMBIENT_ENABLED"], "true");
    has(&variables("DaemonSet", "ztunnel"), "XDS_ADDRESS", "istiod-canary.istio-system.svc:15012");
    let container = &find(&manifests, "DaemonSet", "ztunnel")["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "docker.io/istio/ztunnel:1.2.3");
    find(&manifests, "ServiceAccount", "ztunnel");
    assert!(manifests.iter().all(|manifest| manifest.name() != "istio-ingressgateway"));
}

#[test]
fn chart_that_is_not_built_in_is_an_error_that_names_the_remedy() {
    let message = Package::built_in().chart("waypoint").unwrap_err().to_string();
    assert!(
        message.contains("no chart waypoint is built in") && message.contains("--manifests"),
        "{message}"
    );
}

#[test]
fn chart_that_contains_itself_is_refused_with_the_link_that_does_it() {
    let directory = tempfile::tempdir().unwrap();
    let chart = directory.path().join("shop");
    fs::create_dir_all(chart.join("charts/part")).unwrap();
    for file in ["Chart.yaml", "charts/part/Chart.yaml"] {
        fs::write(chart.join(file), "{apiVersion: v2, name: c, version: 1.0.0}").unwrap();
    }
    assert!(load_chart(&chart).is_ok());
    // A link to another directory is a dependency like any other.
    let other = directory.path().join("other");
    fs::create_dir(&other).unwrap();
    fs::write(other.join("Chart.yaml"), "{apiVersion: v2, name: d, version: 1.0.0}").unwrap();
    std::os::unix::fs::symlink(&other, chart.join("charts/other")).unwrap();
    assert!(load_chart(&chart).is_ok());
    for (link, target) in [("charts/loop", chart.clone()), ("charts/part/charts", chart.join("charts"))] {
        std::os::unix::fs::symlink(target, chart.join(link)).unwrap();
        let message = load_chart(&chart).unwrap_err().to_string();
        assert!(message.contains(link) && message.contains("leads back"), "{message}");
        fs::remove_file(chart.join(link)).unwrap();
    }
}
