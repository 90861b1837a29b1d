use canopus_admission::injection::{Config, Values};
use canopus_engine::Batch;
use canopus_mesh::world::Settings;
use canopus_runtime::flags::Flags;

use super::*;
use crate::testing::{objects, plan};

const TEMPLATE: &str = "
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{.ServiceAccount}}
  namespace: {{.Namespace}}
  labels: {{ toJsonMap .InfrastructureLabels }}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: {{.DeploymentName}}, namespace: {{.Namespace}}}
spec:
  template:
    spec:
      containers: [{name: istio-proxy, image: {{.ProxyImage}}}]
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: {{.DeploymentName}}, namespace: {{.Namespace}}}
spec: {maxReplicas: 1}
";

const GATEWAY: &str = "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: web, namespace: shop, labels: {team: a}, annotations: {gateway.istio.io/controller-version: '5'}}
spec: {gatewayClassName: istio, listeners: [{name: http, port: 80, protocol: HTTP}]}
";

fn world(template: &str, documents: &str) -> Engine {
    let templates = BTreeMap::from([("kube-gateway".to_owned(), template.to_owned())]);
    let config = Config::from_templates(templates, &BTreeMap::new()).unwrap();
    let values = Values::read("global: {hub: hub, tag: tag}").unwrap();
    let injector = Injector::new(config, values, mesh_config::default_mesh_config(), "");
    let mut batch: Batch = objects(documents);
    batch.set::<Settings>((), MeshSettings { flags: Arc::new(Flags::defaults()), ..MeshSettings::default() });
    let installation = Installation { injector: Arc::new(injector), kubernetes_version: (1, 36) };
    batch.set::<InstalledTemplates>((), installation);
    let engine = Engine::new();
    engine.apply(batch);
    engine
}

fn planned(template: &str, documents: &str) -> Plan {
    plan(&GatewayDeploymentController, &world(template, documents))
}

fn managed(plan: &Plan, kind: Kind) -> Option<(Value, Option<Observed>)> {
    let write = plan.writes.iter().find(|write| write.target.kind == kind)?;
    match &write.change {
        Change::Manage { fields, seen, .. } => Some((fields.clone(), seen.clone())),
        _ => None,
    }
}

fn fault(template: &str, documents: &str) -> String {
    let plan = planned(template, documents);
    assert_eq!(plan.writes, []);
    plan.faults.into_values().next().unwrap()
}

#[test]
fn gateway_gets_what_its_template_makes_with_names_and_labels() {
    let plan = planned(TEMPLATE, GATEWAY);
    let targets: Vec<_> = plan.writes.iter().map(|write| write.target.to_string()).collect();
    assert_eq!(targets.len(), 2, "{targets:?}");
    let (account, seen) = managed(&plan, Kind::ServiceAccount).unwrap();
    assert_eq!(account["metadata"]["name"], "web-istio");
    assert_eq!(
        account["metadata"]["labels"],
        json!({"team": "a", "gateway.istio.io/managed": "istio.io-gateway-controller"})
    );
    assert_eq!(seen, None);
}

#[test]
fn version_is_written_unless_it_is_there_and_a_newer_one_is_left_alone() {
    let annotated = "gateway.istio.io/controller-version: '5'";
    let version = |with: &str| planned(TEMPLATE, &GATEWAY.replace(annotated, with)).writes;
    let writes = version("");
    let Change::ApplyPart { fields, manager, subresource } = &writes[0].change else { panic!("{writes:?}") };
    assert_eq!((&**manager, *subresource), ("istio.io/gateway-controller", ""));
    assert_eq!(fields["metadata"]["annotations"], json!({"gateway.istio.io/controller-version": "5"}));
    assert_eq!(version("gateway.istio.io/controller-version: '4'").len(), 3);
    for newer in ["'6'", "next"] {
        assert_eq!(version(&format!("gateway.istio.io/controller-version: {newer}")), []);
    }
}

#[test]
fn nothing_is_deployed_when_the_gateway_names_its_service_or_is_of_another_revision() {
    let with = |line: &str| {
        planned(TEMPLATE, &GATEWAY.replace("spec: {", &format!("spec: {{{line}, "))).writes.len()
    };
    assert_eq!(with("addresses: [{type: Hostname, value: own}]"), 0);
    assert_eq!(with("addresses: [{type: IPAddress, value: 192.0.2.1}]"), 2);
    let labelled = GATEWAY.replace("labels: {team: a}", "labels: {istio.io/rev: other}");
    assert_eq!(planned(TEMPLATE, &labelled).writes, []);
    let remote = GATEWAY.replace("gatewayClassName: istio", "gatewayClassName: istio-remote");
    assert_eq!(planned(TEMPLATE, &remote).writes, []);
}

#[test]
fn overlays_of_class_and_gateway_are_merged_by_container() {
    let documents = format!(
        "{}
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: defaults, namespace: istio-system, labels: {{gateway.istio.io/defaults-for-class: istio}}}}
data:
  horizontalPodAutoscaler: 'spec: {{minReplicas: 2}}'
  deployment: 'spec: {{replicas: 3}}'
---
apiVersion: v1
kind: ConfigMap
metadata: {{name: own, namespace: shop}}
data:
  deployment: 'spec: {{template: {{spec: {{containers: [{{name: istio-proxy, tty: true}}]}}}}}}'
",
        GATEWAY.replace(
            "spec: {",
            "spec: {infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: own}}, "
        )
    );
    let plan = planned(TEMPLATE, &documents);
    assert_eq!(plan.faults, BTreeMap::new());
    let (deployment, _) = managed(&plan, Kind::Deployment).unwrap();
    assert_eq!(deployment["spec"]["replicas"], 3);
    let container = json!([{"name": "istio-proxy", "image": "hub/proxyv2:tag", "tty": true}]);
    assert_eq!(deployment["spec"]["template"]["spec"]["containers"], container);
    let (autoscaler, _) = managed(&plan, Kind::HorizontalPodAutoscaler).unwrap();
    assert_eq!(autoscaler["spec"], json!({"maxReplicas": 1, "minReplicas": 2}));
}

#[test]
fn fault_names_what_to_change_and_nothing_is_deployed() {
    let with_overlay = |data: &str| {
        let gateway = GATEWAY.replace(
            "spec: {",
            "spec: {infrastructure: {parametersRef: {group: '', kind: ConfigMap, name: own}}, ",
        );
        format!(
            "{gateway}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: own, namespace: shop}}\ndata: {{{data}}}\n"
        )
    };
    let cases = [
        (with_overlay("banana: 'x: y'"), "ConfigMap shop/own: key \"banana\" means nothing"),
        (with_overlay("deployment: 'metadata: {name: other}'"), "changes which Deployment it is"),
        (with_overlay("deployment: '['"), "ConfigMap shop/own: key \"deployment\": "),
        // YAML reads this as true, and labels are texts.
        (
            with_overlay("deployment: 'spec: {template: {metadata: {labels: {x: y}}}}'"),
            "spec.template.metadata.labels",
        ),
        (
            with_overlay("").replace("name: own, namespace", "name: gone, namespace"),
            "does not exist in namespace shop",
        ),
        (
            with_overlay("").replace("kind: ConfigMap, name: own", "kind: Secret, name: own"),
            "refer to a ConfigMap",
        ),
    ];
    for (documents, expected) in cases {
        let fault = fault(TEMPLATE, &documents);
        assert!(fault.contains(expected), "{fault}");
    }
    for (template, expected) in [
        ("apiVersion: v1\nkind: Secret\nmetadata: {name: web, namespace: shop}", "only these kinds"),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: web, namespace: other}", "in namespace \"other\""),
        ("apiVersion: v1\nkind: Service\nmetadata: {name: other, namespace: shop}", "called \"other\""),
        ("{{ fail \"oh\" }}", "oh"),
    ] {
        let fault = fault(template, GATEWAY);
        assert!(fault.contains(expected), "{fault}");
    }
}

fn programmed(engine: &Engine) -> String {
    let plan = plan(&crate::GatewayStatusController, engine);
    let write = plan.writes.iter().find(|write| write.target.kind == Kind::KubernetesGateway).unwrap();
    let Change::Status { status, .. } = &write.change else { panic!("{write:?}") };
    let conditions = status["conditions"].as_array().unwrap();
    let found = conditions.iter().find(|condition| condition["type"] == "Programmed").unwrap();
    found["message"].as_str().unwrap().to_owned()
}

#[test]
fn gateway_says_in_its_status_why_it_is_not_deployed() {
    assert!(!programmed(&world(TEMPLATE, GATEWAY)).contains("deployed"));
    let broken = programmed(&world("{{ fail \"oh\" }}", GATEWAY));
    assert!(broken.contains("the proxies cannot be deployed: ") && broken.contains("oh"), "{broken}");
    let engine = world(TEMPLATE, GATEWAY);
    let mut batch = Batch::new();
    let deployment = ObjectKey::new(Kind::Deployment, "shop", "web-istio");
    batch.set::<RefusedWrites>(deployment, "exceeded quota: pods".into());
    engine.apply(batch);
    let refused = programmed(&engine);
    assert!(refused.contains("cannot be deployed: Deployment web-istio: exceeded quota: pods"), "{refused}");
}

#[test]
fn state_of_an_object_is_seen_only_where_it_is_marked() {
    let account = "---\napiVersion: v1\nkind: ServiceAccount\nmetadata: {name: web-istio, namespace: shop, resourceVersion: '7', LABELS}\n";
    let seen = |labels: &str| {
        let plan = planned(TEMPLATE, &format!("{GATEWAY}{}", account.replace("LABELS", labels)));
        managed(&plan, Kind::ServiceAccount).unwrap().1
    };
    assert!(seen("labels: {gateway.istio.io/managed: x}").is_some());
    assert!(seen("labels: {}").is_none());
}
