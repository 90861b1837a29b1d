//! Objects in, what the control plane writes back out: statuses, and objects it makes.
//!
//! The real controllers run against a cluster in memory that does what an API server does to such objects, until nobody has
//! anything to write any more. Real API servers are for the tests of the daemon: here hundreds of states are compared.

mod cluster;

use std::sync::{Arc, OnceLock};

use anyhow::Context;
use canopus_api::{Kind, ObjectKey, builtin};
use canopus_base::tree::Node;
use serde_json::{Value as Json, json};

use self::cluster::Cluster;
use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;

#[derive(Default)]
pub(super) struct LiveStatus {
    injector: OnceLock<Result<Arc<canopus_admission::injection::Injector>, String>>,
}

impl Suite for LiveStatus {
    fn name(&self) -> &str {
        "live-status"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        self.judge(case).unwrap_or_else(|error| Outcome::error(format_args!("{error:#}")))
    }
}

impl LiveStatus {
    fn judge(&self, case: &Case) -> anyhow::Result<Outcome> {
        let entry = case.corpus.document(&case.path(&case.file))?;
        if let Some(steps) = entry.get("steps").and_then(Node::as_list) {
            if steps.iter().any(|step| step.get("workloadEntries").is_some()) {
                return Ok(Outcome::Skipped("workloads that register themselves"));
            }
            return Ok(self.drift(&Case { entry: entry.clone(), ..case.clone() }, steps)?.into());
        }
        Ok(self.compare(&Case { entry, ..case.clone() })?.into())
    }

    fn compare(&self, case: &Case) -> anyhow::Result<Vec<Difference>> {
        let mut cluster = self.settled(case)?;
        if case.id.contains("-ready-") {
            cluster.make_gateways_ready();
            cluster.settle()?;
        }
        let mut found = Vec::new();
        for after in case.entry.get("after").and_then(Node::as_list).context("nothing is expected")? {
            found.extend(compare_object(&cluster, &after.to_json()));
        }
        if let Some(created) = case.entry.get("created").and_then(Node::as_list) {
            found.extend(compare_created(&cluster, created));
        }
        Ok(found)
    }

    /// The cluster of a case when nobody has anything to write any more.
    fn settled(&self, case: &Case) -> anyhow::Result<Cluster> {
        let injector =
            self.injector.get_or_init(|| cluster::injector(case).map_err(|error| format!("{error:#}")));
        let injector = injector.as_ref().map_err(|error| anyhow::anyhow!("{error}"))?;
        let mut cluster = Cluster::new(case, Arc::clone(injector))?;
        for document in input(case)? {
            cluster.create(document.to_json());
        }
        cluster.settle()?;
        Ok(cluster)
    }

    /// What becomes of a Deployment that somebody deletes or changes.
    fn drift(&self, case: &Case, steps: &[Node]) -> anyhow::Result<Vec<Difference>> {
        let mut cluster = self.settled(case)?;
        let mut found = Vec::new();
        for step in steps {
            let label = step.get("step").and_then(Node::as_str).unwrap_or_default();
            if step.get("recreatedWithin2s").is_some() {
                cluster.change_deployment(None)?;
                cluster.settle()?;
                if cluster.deployment().is_none() {
                    found.push(Difference::new(label, "a Deployment", "none"));
                }
            }
            if let Some(replicas) = step.get("replicasAfter").map(Node::to_json) {
                let change =
                    json!({"metadata": {"labels": {"user": "label"}}, "spec": {"replicas": replicas}});
                cluster.change_deployment(Some(&change))?;
                cluster.settle()?;
                let after = cluster.deployment().cloned().unwrap_or_default();
                if after["spec"]["replicas"] != replicas || after["metadata"]["labels"]["user"] != "label" {
                    found.push(Difference::new(label, change, &after["spec"]["replicas"]));
                }
            }
        }
        Ok(found)
    }
}

/// The objects of a case; one that goes on from another has the objects of that.
fn input(case: &Case) -> anyhow::Result<Vec<Node>> {
    if let Some(input) = case.entry.get("input").and_then(Node::as_list) {
        return Ok(input.to_vec());
    }
    let earlier = case.id.strip_suffix("-lb-assigned").map(str::to_owned);
    let earlier = earlier.or_else(|| Some(format!("{}-basic", case.id.strip_suffix("-deployment-drift")?)));
    let Some(earlier) = earlier else { return Ok(Vec::new()) };
    let document = case.corpus.document(&case.path(format!("{earlier}.yaml")))?;
    Ok(document.get("input").and_then(Node::as_list).unwrap_or_default().to_vec())
}

fn compare_object(cluster: &Cluster, after: &Json) -> Vec<Difference> {
    let text =
        |field: &str| after[field].as_str().or_else(|| after["metadata"][field].as_str()).unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let label = format!("{kind}/{name}");
    let Some(object) = cluster.find(kind, name) else {
        return vec![Difference::new(label, "an object", "none")];
    };
    let (mut expected, mut got) = (after["status"].clone(), object["status"].clone());
    // Istio does not say in statuses which features its gateways have.
    if let Some(status) = got.as_object_mut() {
        status.remove("supportedFeatures");
    }
    if let Some(spec) = after.get("spec") {
        expected = json!({"spec": spec, "status": expected});
        got = json!({"spec": object["spec"], "status": got});
    }
    let (expected, got) = (Node::from(comparable(expected)), Node::from(comparable(got)));
    let differences = tree::difference(&expected, &got, &Rules::default());
    differences.into_iter().map(|d| Difference { path: format!("{label}{}", d.path), ..d }).collect()
}

/// A status without times, with lists in the order of what identifies their items, and without what is empty.
fn comparable(mut status: Json) -> Json {
    normalize(&mut status);
    if is_empty(&status) { Json::Null } else { status }
}

fn normalize(value: &mut Json) {
    match value {
        Json::Object(fields) => {
            fields.remove("lastTransitionTime");
            fields.values_mut().for_each(normalize);
            fields.retain(|_, field| !is_empty(field));
            if let Some(Json::String(address)) = fields.get_mut("value") {
                mask_address(address);
            }
        }
        Json::Array(items) => {
            items.iter_mut().for_each(normalize);
            items.sort_by_key(identity);
        }
        _ => {}
    }
}

fn is_empty(value: &Json) -> bool {
    match value {
        Json::Null => true,
        Json::Object(fields) => fields.is_empty(),
        Json::Array(items) => items.is_empty(),
        Json::String(text) => text.is_empty(),
        _ => false,
    }
}

/// What tells the items of a list apart.
fn identity(item: &Json) -> String {
    let keys = ["type", "name", "parentRef", "ancestorRef", "host", "controllerName", "value", "kind"];
    keys.iter().filter_map(|key| item.get(key)).map(Json::to_string).collect()
}

/// Addresses of Services and allocated ones depend on everything else that was in the recorded cluster.
fn mask_address(address: &mut String) {
    for range in ["240.240.", "2001:2::", "10.117."] {
        if address.starts_with(range) {
            *address = format!("{range}*");
        }
    }
}

/// Fields that an API server fills in, and that are therefore in the recording alone.
const FILLED_IN: [&str; 29] = [
    "allocateLoadBalancerNodePorts",
    "apiVersion",
    "clusterIP",
    "clusterIPs",
    "defaultMode",
    "dnsPolicy",
    "emptyDir",
    "externalTrafficPolicy",
    "imagePullPolicy",
    "internalTrafficPolicy",
    "ipFamilies",
    "ipFamilyPolicy",
    "metrics",
    "nodePort",
    "progressDeadlineSeconds",
    "protocol",
    "replicas",
    "restartPolicy",
    "revisionHistoryLimit",
    "schedulerName",
    "securityContext",
    "serviceAccount",
    "sessionAffinity",
    "status",
    "strategy",
    "targetPort",
    "terminationGracePeriodSeconds",
    "terminationMessagePath",
    "terminationMessagePolicy",
];

fn compare_created(cluster: &Cluster, created: &[Node]) -> Vec<Difference> {
    let mut found = Vec::new();
    let mut expected_names = Vec::new();
    for expected in created {
        let mut expected = expected.to_json();
        let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&expected["kind"]), text(&expected["metadata"]["name"]));
        let label = format!("created {kind}/{name}");
        expected_names.push((kind.clone(), name.clone()));
        let Some(got) =
            cluster.managed().into_iter().find(|(key, _)| key.kind.info().kind == kind && *key.name == *name)
        else {
            found.push(Difference::new(label, "an object", "none"));
            continue;
        };
        let mut got = got.1.clone();
        if let Some(object_type) = builtin::object_type(&text(&got["apiVersion"]), &kind)
            && let Err(error) = object_type.normalize(&mut got)
        {
            found.push(Difference::new(label, "a valid object", error));
            continue;
        }
        let got = pruned(got);
        drop_filled_in(&mut expected, &got);
        let (expected, got) = (Node::from(pruned(expected)), Node::from(got));
        let differences = tree::difference(&expected, &got, &Rules::default());
        found.extend(differences.into_iter().map(|d| Difference { path: format!("{label}{}", d.path), ..d }));
    }
    for (key, _) in cluster.managed() {
        let is_expected =
            |(kind, name): &(String, String)| key.kind.info().kind == kind && *key.name == **name;
        if !expected_names.iter().any(is_expected) {
            found.push(Difference::new(format!("created {}", name_of(key)), "none", "an object"));
        }
    }
    found
}

fn name_of(key: &ObjectKey) -> String {
    format!("{}/{}", key.kind.info().kind, key.name)
}

/// Leaves out of a recorded object what the API server filled in.
fn drop_filled_in(expected: &mut Json, got: &Json) {
    match (expected, got) {
        (Json::Object(expected), got) => {
            expected.retain(|name, _| got.get(name).is_some() || !FILLED_IN.contains(&name.as_str()));
            for (name, field) in expected {
                drop_filled_in(field, got.get(name).unwrap_or(&Json::Null));
            }
        }
        (Json::Array(expected), Json::Array(got)) => {
            for (expected, got) in expected.iter_mut().zip(got) {
                drop_filled_in(expected, got);
            }
        }
        _ => {}
    }
}

/// An object without what is empty, without what the cluster of the test added, and without masked identities.
fn pruned(mut value: Json) -> Json {
    prune(&mut value);
    value
}

fn prune(value: &mut Json) {
    match value {
        Json::Object(fields) => {
            for added in ["uid", "resourceVersion", "generation", "creationTimestamp", "status"] {
                fields.remove(added);
            }
            fields.values_mut().for_each(prune);
            // Go writes a port that is not set as 0.
            fields.retain(|name, field| name != "targetPort" || *field != 0);
            // Volumes say what they are by being there.
            fields.retain(|name, field| name == "emptyDir" || !is_empty(field));
            if let Some(volume) = fields.get_mut("emptyDir").filter(|volume| volume.is_null()) {
                *volume = json!({});
            }
        }
        Json::Array(items) => items.iter_mut().for_each(prune),
        _ => {}
    }
}

/// The kind of this name.
fn kind_named(api_version: &str, kind: &str) -> Option<Kind> {
    Kind::ALL.iter().copied().find(|known| {
        let info = known.info();
        let group = api_version.rsplit_once('/').map_or("", |(group, _)| group);
        info.kind == kind && info.group == group
    })
}
