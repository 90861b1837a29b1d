use proptest::prelude::*;
use serde_json::{Value as Json, json};

use super::*;

fn merged(mut object: Json, patch: Json) -> Json {
    pod().merge(&mut object, patch).unwrap();
    object
}

fn names(pod: &Json, list: &str) -> Vec<String> {
    let items = pod["spec"][list].as_array().unwrap();
    items.iter().map(|item| item["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn empty_values_are_left_out_and_structs_filled_in_when_go_does() {
    let mut pod_object = json!({
        "metadata": {"name": "a", "labels": {}, "creationTimestamp": null},
        "spec": {"containers": [{"name": "app", "env": [{"name": "X", "value": ""}], "tty": false,
            "resources": {"limits": {"cpu": "2000m", "memory": 1048576}}}], "hostNetwork": false}
    });
    pod().normalize(&mut pod_object).unwrap();
    let expected = json!({
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "app", "env": [{"name": "X"}],
            "resources": {"limits": {"cpu": "2", "memory": "1048576"}}}]},
        "status": {}
    });
    assert_eq!(pod_object, expected);
    let once = pod_object.clone();
    pod().normalize(&mut pod_object).unwrap();
    assert_eq!(pod_object, once);
}

#[test]
fn a_value_of_another_type_is_refused_by_its_path() {
    let mut object =
        json!({"spec": {"containers": [{"name": "app", "env": [{"name": "X", "value": 8080}]}]}});
    let error = pod().normalize(&mut object).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.containers[0].env[0].value: cannot unmarshal number into Go value of type string"
    );
}

#[test]
fn containers_are_merged_by_name_and_new_ones_come_first() {
    let pod = json!({"spec": {"containers": [
        {"name": "a", "image": "one"}, {"name": "istio-proxy", "image": "auto", "args": ["x"]}, {"name": "b"}]}});
    let patch = json!({"spec": {"containers": [{"name": "istio-proxy", "image": "two"}, {"name": "new"}]}});
    let merged = merged(pod, patch);
    assert_eq!(names(&merged, "containers"), ["a", "istio-proxy", "new", "b"]);
    assert_eq!(
        merged["spec"]["containers"][1],
        json!({"name": "istio-proxy", "image": "two", "args": ["x"]})
    );
}

#[test]
fn directives_delete_and_replace() {
    let pod = json!({"spec": {"containers": [{"name": "a"}, {"name": "b", "env": [{"name": "X", "value": "1"}]}],
        "nodeSelector": {"a": "b"}}});
    let patch = json!({"spec": {"containers": [{"name": "a", "$patch": "delete"},
        {"name": "b", "env": [{"name": "Y"}, {"$patch": "replace"}]}], "nodeSelector": {"$patch": "replace", "c": "d"}}});
    let expected =
        json!({"spec": {"containers": [{"name": "b", "env": [{"name": "Y"}]}], "nodeSelector": {"c": "d"}}});
    assert_eq!(merged(pod, patch), expected);
}

#[test]
fn nulls_remove_and_are_never_added() {
    let pod = json!({"spec": {"restartPolicy": "Never", "dnsPolicy": "None"}});
    let patch =
        json!({"spec": {"restartPolicy": null, "securityContext": {"fsGroup": null, "runAsUser": 1}}});
    assert_eq!(
        merged(pod, patch),
        json!({"spec": {"dnsPolicy": "None", "securityContext": {"runAsUser": 1}}})
    );
}

#[test]
fn an_item_without_its_merge_key_is_refused() {
    let mut pod_object = json!({"spec": {"containers": [{"name": "a"}]}});
    let error = pod().merge(&mut pod_object, json!({"spec": {"containers": [{"image": "x"}]}})).unwrap_err();
    assert_eq!(error.to_string(), "map: {\"image\":\"x\"} does not contain declared merge key: name");
}

#[test]
fn kinds_are_found_by_their_version() {
    assert_eq!(object_type("v1", "Pod").unwrap().name, "core/v1.Pod");
    assert_eq!(object_type("apps/v1", "Deployment").unwrap().name, "apps/v1.Deployment");
    assert_eq!(
        object_type("policy/v1", "PodDisruptionBudget").unwrap().name,
        "policy/v1.PodDisruptionBudget"
    );
    assert_eq!(
        object_type("apps.openshift.io/v1", "DeploymentConfig").unwrap().name,
        "apps.openshift.io/v1.DeploymentConfig"
    );
    assert!(object_type("apps/v1beta1", "Deployment").is_none());
}

prop_compose! {
    fn containers()(names in prop::collection::btree_set("[a-f]", 0..6), image in "[x-z]") -> Json {
        let items: Vec<Json> = names.into_iter().map(|name| json!({"name": name, "image": image})).collect();
        json!({"spec": {"containers": items}})
    }
}

proptest! {
    /// Laying the same patch over twice is laying it over once, and loses no container of either side.
    #[test]
    fn merging_is_idempotent_and_loses_nothing(object in containers(), patch in containers()) {
        let once = merged(object.clone(), patch.clone());
        prop_assert_eq!(&merged(once.clone(), patch.clone()), &once);
        let known = names(&once, "containers");
        for name in names(&object, "containers").iter().chain(&names(&patch, "containers")) {
            prop_assert!(known.contains(name));
        }
        for item in patch["spec"]["containers"].as_array().unwrap() {
            prop_assert!(once["spec"]["containers"].as_array().unwrap().contains(item));
        }
    }
}
