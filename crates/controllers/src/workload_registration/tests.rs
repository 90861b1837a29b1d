use canopus_engine::{Batch, Engine};
use canopus_proto::envoy::config::core::v3::Node;
use canopus_proto::google::protobuf::{Struct, Value as Field};

use super::*;
use crate::testing::{plan, world};

const GROUP: &str = "
apiVersion: networking.istio.io/v1
kind: WorkloadGroup
metadata: {name: vms, namespace: shop, uid: u1}
spec:
  metadata: {annotations: {proxy.istio.io/health-checks-enabled: 'true'}}
  template: {serviceAccount: vm, ports: {http: 8080}}
";

fn proxy(identity: Option<&str>) -> Proxy {
    let fields = [("NAMESPACE", "shop"), ("AUTO_REGISTER_GROUP", "vms")];
    let fields = fields.map(|(name, value)| (name.to_owned(), Field::from(value)));
    let id = "sidecar~192.0.2.1~vm-1.shop~shop.svc.cluster.local".to_owned();
    let node = Node { id, metadata: Some(Struct { fields: fields.into() }), ..Default::default() };
    Proxy::new(&node, identity.map(|text| text.parse().unwrap())).unwrap()
}

fn time(minute: u32) -> Timestamp {
    format!("2026-01-01T12:{minute:02}:00Z").parse().unwrap()
}

fn machine() -> Machine {
    Machine {
        proxy: proxy(Some("spiffe://cluster.local/ns/shop/sa/vm")),
        connected: time(10),
        disconnected: None,
        health: None,
    }
}

fn key() -> ObjectKey {
    ObjectKey::new(Kind::WorkloadEntry, "shop", "vms-192.0.2.1")
}

fn entry(annotations: &str, status: &str) -> String {
    format!(
        "{GROUP}---\napiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{name: vms-192.0.2.1, namespace: shop, \
         resourceVersion: '7', annotations: {{proxy.istio.io/health-checks-enabled: 'true', {annotations}}}}}\n\
         spec: {{address: 192.0.2.1, serviceAccount: vm}}\nstatus: {{{status}}}\n"
    )
}

fn planned(documents: &str, machine: Machine) -> Plan {
    let engine: Engine = world(documents);
    let mut batch = Batch::new();
    batch.set::<Machines>(key(), machine);
    engine.apply(batch);
    plan(&WorkloadRegistrationController { replica: "one".to_owned() }, &engine)
}

fn change(plan: &Plan) -> Option<&Change> {
    assert_eq!(plan.faults.len(), 0, "{plan:?}");
    plan.writes.first().map(|write| &write.change)
}

#[test]
fn machine_gets_an_entry_from_its_group() {
    let plan = planned(GROUP, machine());
    let Some(Change::Create { object }) = change(&plan) else { panic!("{plan:?}") };
    assert_eq!(object["metadata"]["name"], "vms-192.0.2.1");
    assert_eq!(object["metadata"]["annotations"]["istio.io/workloadController"], "one");
    assert_eq!(object["metadata"]["annotations"]["istio.io/connectedAt"], "2026-01-01T12:10:00Z");
    assert_eq!(object["metadata"]["annotations"]["istio.io/autoRegistrationGroup"], "vms");
    assert_eq!(object["metadata"]["ownerReferences"][0]["name"], "vms");
    assert_eq!(
        (&object["spec"]["address"], &object["spec"]["ports"]["http"]),
        (&json!("192.0.2.1"), &json!(8080))
    );
    let gone = Machine { disconnected: Some(time(11)), ..machine() };
    assert_eq!(planned(GROUP, gone).writes, [], "nobody needs an entry that is gone");
}

#[test]
fn machine_without_a_group_or_a_proof_is_not_registered() {
    let fault = |documents: &str, proxy| {
        let plan = planned(documents, Machine { proxy, ..machine() });
        assert_eq!(plan.writes, []);
        plan.faults.into_values().next().unwrap()
    };
    assert!(fault("", machine().proxy).contains("WorkloadGroup shop/vms, which does not exist"));
    assert!(fault(GROUP, proxy(None)).contains("has not proved who it is"));
    for other in ["spiffe://cluster.local/ns/shop/sa/other", "spiffe://cluster.local/ns/pay/sa/vm"] {
        assert!(fault(GROUP, proxy(Some(other))).contains("and not vm of namespace shop"));
        assert!(fault(&entry("", ""), proxy(Some(other))).contains("and not vm of namespace shop"));
    }
}

#[test]
fn entry_is_taken_over_by_the_replica_with_the_latest_connection() {
    let operations = |annotations: &str| match change(&planned(&entry(annotations, ""), machine())) {
        Some(Change::Patch { operations }) => operations.to_string(),
        None => String::new(),
        Some(_) => panic!("no patch"),
    };
    let older = operations("istio.io/workloadController: two, istio.io/connectedAt: '2026-01-01T12:09:00Z'");
    assert!(
        older.contains(r#""path":"/metadata/annotations/istio.io~1workloadController","value":"one""#),
        "{older}"
    );
    assert!(older.contains(r#"{"op":"test","path":"/metadata/resourceVersion","value":"7"}"#), "{older}");
    let newer = operations("istio.io/workloadController: two, istio.io/connectedAt: '2026-01-01T12:11:00Z'");
    assert_eq!(newer, "", "the machine has moved on");
    let returned =
        operations("istio.io/workloadController: one, istio.io/disconnectedAt: '2026-01-01T12:09:00Z'");
    assert!(returned.contains(r#"{"op":"remove","path":"/metadata/annotations/istio.io~1disconnectedAt"}"#));
    let gone =
        operations("istio.io/workloadController: one, istio.io/disconnectedAt: '2026-01-01T12:11:00Z'");
    assert_eq!(gone, "", "what is known of the connection is old");
    let ours = operations("istio.io/workloadController: one, istio.io/connectedAt: '2026-01-01T12:10:00Z'");
    assert_eq!(ours, "", "all is as it should be");
}

#[test]
fn entry_says_that_its_machine_is_gone_if_it_was_ours() {
    let released = |annotations: &str| {
        let gone = Machine { disconnected: Some(time(12)), ..machine() };
        change(&planned(&entry(annotations, ""), gone)).is_some()
    };
    assert!(released("istio.io/workloadController: one, istio.io/connectedAt: '2026-01-01T12:10:00Z'"));
    assert!(!released("istio.io/workloadController: two, istio.io/connectedAt: '2026-01-01T12:10:00Z'"));
    assert!(!released("istio.io/workloadController: one, istio.io/connectedAt: '2026-01-01T12:11:00Z'"));
    assert!(!released("istio.io/workloadController: one, istio.io/disconnectedAt: '2026-01-01T12:12:00Z'"));
}

#[test]
fn health_becomes_a_condition_that_keeps_its_time_until_it_turns() {
    let ours = "istio.io/workloadController: one, istio.io/connectedAt: '2026-01-01T12:10:00Z'";
    let condition = |status: &str, fault: Option<&str>, minute| {
        let health = Some(Health { fault: fault.map(str::to_owned), time: time(minute) });
        match change(&planned(&entry(ours, status), Machine { health, ..machine() })) {
            Some(Change::Status { status, .. }) => status["conditions"][0].clone(),
            None => Value::Null,
            Some(_) => panic!("no status"),
        }
    };
    let well = condition("", None, 20);
    assert_eq!((&well["type"], &well["status"]), (&json!("Healthy"), &json!("True")));
    assert_eq!(well["lastTransitionTime"], "2026-01-01T12:20:00Z");
    let written = "conditions: [{type: Healthy, status: 'True', lastProbeTime: '2026-01-01T12:20:00Z', \
                   lastTransitionTime: '2026-01-01T12:20:00Z'}]";
    assert_eq!(condition(written, None, 20), Value::Null, "nothing is written twice");
    assert_eq!(condition(written, None, 21)["lastTransitionTime"], "2026-01-01T12:20:00Z");
    let unwell = condition(written, Some("connection refused"), 22);
    assert_eq!((&unwell["status"], &unwell["message"]), (&json!("False"), &json!("connection refused")));
    assert_eq!(unwell["lastTransitionTime"], "2026-01-01T12:22:00Z");
    assert_eq!(condition(written, Some("late news"), 19), Value::Null);
}

#[test]
fn entry_that_somebody_wrote_is_annotated_if_its_health_is_watched() {
    let written = |health: &str| {
        format!(
            "apiVersion: networking.istio.io/v1\nkind: WorkloadEntry\nmetadata: {{name: vms-192.0.2.1, namespace: shop, \
             resourceVersion: '7'{health}}}\nspec: {{address: 192.0.2.1, serviceAccount: vm}}\n"
        )
    };
    let fields = [("NAMESPACE", "shop"), ("WORKLOAD_ENTRY", "vms-192.0.2.1")];
    let fields = fields.map(|(name, value)| (name.to_owned(), Field::from(value)));
    let id = "sidecar~192.0.2.1~vm-1.shop~shop.svc.cluster.local".to_owned();
    let node = Node { id, metadata: Some(Struct { fields: fields.into() }), ..Default::default() };
    let proxy = Proxy::new(&node, Some("spiffe://cluster.local/ns/shop/sa/vm".parse().unwrap())).unwrap();
    let machine = Machine { proxy, ..machine() };
    let watched = written(", annotations: {proxy.istio.io/health-checks-enabled: 'true'}");
    assert!(matches!(change(&planned(&watched, machine.clone())), Some(Change::Patch { .. })));
    assert_eq!(planned(&written(""), machine.clone()).writes, []);
    assert!(
        planned("", machine).faults[&key()]
            .contains("WorkloadEntry shop/vms-192.0.2.1, which does not exist")
    );
}
