//! Revision tags: names for revisions that namespaces are labelled with, so that moving many namespaces is moving one tag.
//!
//! A tag is a webhook configuration of its own that sends pods of namespaces with the tag to the revision's injector.

use canopus_api::labels;
use serde_json::{Map, Value as Json, json};

use super::object::ObjectId;
use super::{ClusterError, FIELD_MANAGER, Installer, asking, refusal};
use canopus_sources::kubernetes::ApplyOptions;

const ADMISSION: &str = "admissionregistration.k8s.io/v1";
const MUTATING: &str = "MutatingWebhookConfiguration";
const VALIDATING: &str = "ValidatingWebhookConfiguration";
const DEFAULT: &str = "default";

/// Namespaces whose pods need no proxy, label or not.
const SYSTEM_NAMESPACES: [&str; 4] = ["kube-system", "kube-public", "kube-node-lease", "local-path-storage"];

/// A tag and what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The tag.
    pub name: String,
    /// The revision it stands for.
    pub revision: String,
    /// The namespaces that name it.
    pub namespaces: Vec<String>,
}

/// What the webhooks of a tag are to be like.
#[derive(Clone, Copy, Debug, Default)]
pub struct TagShape<'a> {
    /// Whether those of the default tag also inject pods without any label in namespaces without any.
    pub injects_unlabelled: bool,
    /// The name of their configuration, if it is not to be made from that of the tag.
    pub name: Option<&'a str>,
}

impl Installer {
    /// Whether there is a Service.
    pub async fn service_exists(&mut self, namespace: &str, name: &str) -> Result<bool, ClusterError> {
        let all = ObjectId::new("v1", "Service", namespace, "");
        let Some(path) = self.path(&all).await? else { return Ok(false) };
        let services = self.cluster.list_at(&path, "").await.map_err(|error| asking("services", error))?;
        Ok(services.iter().any(|service| {
            service["metadata"]["name"] == name && service["metadata"]["namespace"] == namespace
        }))
    }

    /// The tags of the cluster.
    pub async fn tags(&mut self) -> Result<Vec<Tag>, ClusterError> {
        let mut tags = Vec::new();
        for item in self.configurations(labels::TAG.name).await? {
            let name = label(&item, labels::TAG.name);
            let namespaces = self.namespaces_of(&name).await?;
            tags.push(Tag { name, revision: label(&item, labels::REVISION.name), namespaces });
        }
        tags.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(tags)
    }

    /// The objects that make a tag stand for a revision.
    pub async fn tag_objects(
        &mut self,
        tag: &str,
        revision: &str,
        namespace: &str,
        shape: TagShape<'_>,
    ) -> Result<Vec<Json>, ClusterError> {
        let selector = format!("{}={revision},!{}", labels::REVISION.name, labels::TAG.name);
        let injectors = self.configurations(&selector).await?;
        let injector = injectors.iter().find(|item| label(item, "app") == "sidecar-injector");
        let Some(injector) = injector else {
            let known = self.revisions().await?;
            return Err(ClusterError::Conflict(format!(
                "no injector of revision {revision:?} is installed; there are: {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )));
        };
        let client = injector.pointer("/webhooks/0/clientConfig").cloned().unwrap_or_default();
        let belonging = belonging(injector);
        let mut objects = vec![tag_webhooks(tag, revision, namespace, &client, &belonging, shape)];
        if tag == DEFAULT {
            objects.push(default_validator(revision, &client, &belonging));
        }
        objects.push(tag_service(tag, revision, namespace, &belonging));
        Ok(objects)
    }

    /// Makes a tag stand for a revision. One that stands for another is moved only with `overwrite`.
    pub async fn set_tag(
        &mut self,
        tag: &str,
        revision: &str,
        namespace: &str,
        overwrite: bool,
        shape: TagShape<'_>,
    ) -> Result<(), ClusterError> {
        let existing = self.tags().await?.into_iter().find(|existing| existing.name == tag);
        if let Some(existing) = existing
            && existing.revision != revision
            && !overwrite
        {
            return Err(ClusterError::Conflict(format!(
                "the tag {tag} stands for revision {}; move it with --overwrite",
                existing.revision
            )));
        }
        for mut fields in self.tag_objects(tag, revision, namespace, shape).await? {
            let webhooks = fields.get_mut("webhooks").and_then(Json::as_array_mut);
            for webhook in webhooks.into_iter().flatten() {
                // The control plane puts its roots there and keeps them current.
                if let Some(client) = webhook["clientConfig"].as_object_mut() {
                    client.remove("caBundle");
                }
            }
            let text = |key: &str| fields[key].as_str().unwrap_or_default();
            let object = ObjectId::from_list_item(text("apiVersion"), text("kind"), &fields);
            let Some(path) = self.path(&object).await? else {
                return Err(ClusterError::UnknownKind { object });
            };
            let options =
                ApplyOptions { manager: FIELD_MANAGER, subresource: "", force: true, dry_run: false };
            let applied = self.cluster.apply_at(&path, &fields, options).await;
            applied.map_err(|error| refusal(&object, "apply", error))?;
        }
        Ok(())
    }

    /// Removes a tag. Namespaces that name it are not injected any more, so there must be none unless `force` is set.
    pub async fn remove_tag(&mut self, tag: &str, force: bool) -> Result<(), ClusterError> {
        let found = self.tags().await?.into_iter().find(|found| found.name == tag);
        let Some(found) = found else { return Err(ClusterError::Conflict(format!("there is no tag {tag}"))) };
        if !found.namespaces.is_empty() && !force {
            return Err(ClusterError::Conflict(format!(
                "the tag {tag} is named by the namespaces {}; relabel them first, or say --skip-confirmation",
                found.namespaces.join(", ")
            )));
        }
        let selector = format!("{}={tag}", labels::TAG.name);
        for item in self.configurations(&selector).await? {
            let object = ObjectId::from_list_item(ADMISSION, MUTATING, &item);
            self.delete(&object).await?;
        }
        if let Some(path) = self.path(&ObjectId::new("v1", "Service", "", "")).await? {
            let services = self.cluster.list_at(&path, &selector).await;
            for item in services.map_err(|error| asking("services", error))? {
                self.delete(&ObjectId::from_list_item("v1", "Service", &item)).await?;
            }
        }
        Ok(())
    }

    /// The revisions that are installed.
    pub async fn revisions(&mut self) -> Result<Vec<String>, ClusterError> {
        let selector = format!("{},!{}", labels::REVISION.name, labels::TAG.name);
        let items = self.configurations(&selector).await?;
        let mut revisions: Vec<String> =
            items.iter().map(|item| label(item, labels::REVISION.name)).collect();
        revisions.sort();
        revisions.dedup();
        Ok(revisions)
    }

    /// The namespaces that a revision or tag looks after by their labels.
    pub async fn namespaces_of(&mut self, name: &str) -> Result<Vec<String>, ClusterError> {
        let all = ObjectId::new("v1", "Namespace", "", "");
        let Some(path) = self.path(&all).await? else { return Ok(Vec::new()) };
        let mut selectors = vec![format!("{}={name}", labels::REVISION.name)];
        if name == DEFAULT {
            selectors.push("istio-injection=enabled".to_owned());
        }
        let mut names = Vec::new();
        for selector in selectors {
            let items = self.cluster.list_at(&path, &selector).await;
            for item in items.map_err(|error| asking("namespaces", error))? {
                names.push(item["metadata"]["name"].as_str().unwrap_or_default().to_owned());
            }
        }
        names.sort();
        names.dedup();
        Ok(names)
    }

    async fn configurations(&mut self, selector: &str) -> Result<Vec<Json>, ClusterError> {
        let all = ObjectId::new(ADMISSION, MUTATING, "", "");
        let Some(path) = self.path(&all).await? else { return Ok(Vec::new()) };
        self.cluster.list_at(&path, selector).await.map_err(|error| asking("webhooks", error))
    }
}

fn label(object: &Json, name: &str) -> String {
    object["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned()
}

/// The labels by which an injector belongs to an installation: whoever removes that removes its tags, too. The one that says
/// that manifests are what decides is left out, so that an upgrade does not prune what no manifest has.
fn belonging(injector: &Json) -> Map<String, Json> {
    let own = ["app", labels::REVISION.name, labels::TAG.name, labels::OPERATOR_MANAGED.name];
    let all = injector.pointer("/metadata/labels").and_then(Json::as_object).cloned().unwrap_or_default();
    all.into_iter().filter(|(name, _)| !own.contains(&name.as_str())).collect()
}

fn with_labels(belonging: &Map<String, Json>, labels: Json) -> Json {
    let mut all = belonging.clone();
    all.extend(labels.as_object().cloned().unwrap_or_default());
    Json::Object(all)
}

/// The Service by which machines and remote clusters reach the control plane that a tag stands for.
fn tag_service(tag: &str, revision: &str, namespace: &str, belonging: &Map<String, Json>) -> Json {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": format!("istiod-revision-tag-{tag}"),
            "namespace": namespace,
            "labels": with_labels(belonging, json!({
                "app": "istiod",
                "istio": "pilot",
                labels::TAG.name: tag,
                labels::REVISION.name: revision,
            })),
        },
        "spec": {
            "ports": [
                {"name": "grpc-xds", "port": 15010, "protocol": "TCP"},
                {"name": "https-dns", "port": 15012, "protocol": "TCP"},
                {"name": "https-webhook", "port": 443, "protocol": "TCP", "targetPort": 15017},
                {"name": "http-monitoring", "port": 15014, "protocol": "TCP"},
            ],
            "selector": {"app": "istiod", labels::REVISION.name: revision},
        },
    })
}

/// The webhooks of a tag. They ask the revision's injector.
fn tag_webhooks(
    tag: &str,
    revision: &str,
    namespace: &str,
    client: &Json,
    belonging: &Map<String, Json>,
    shape: TagShape<'_>,
) -> Json {
    let requirement = |key: &str, operator: &str, values: &[&str]| match values {
        [] => json!({"key": key, "operator": operator}),
        values => json!({"key": key, "operator": operator, "values": values}),
    };
    let (rev, injection, inject) = (labels::REVISION.name, "istio-injection", labels::SIDECAR_INJECT.name);
    let webhook = |prefix: &str, namespaces: Vec<Json>, objects: Vec<Json>| {
        json!({
            "name": format!("{prefix}sidecar-injector.istio.io"),
            "clientConfig": client,
            "sideEffects": "None",
            "rules": [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}],
            "failurePolicy": "Fail",
            "reinvocationPolicy": "Never",
            "admissionReviewVersions": ["v1"],
            "namespaceSelector": {"matchExpressions": namespaces},
            "objectSelector": {"matchExpressions": objects},
        })
    };
    let mut webhooks = vec![
        webhook(
            "rev.namespace.",
            vec![requirement(rev, "In", &[tag]), requirement(injection, "DoesNotExist", &[])],
            vec![requirement(inject, "NotIn", &["false"])],
        ),
        webhook(
            "rev.object.",
            vec![requirement(rev, "DoesNotExist", &[]), requirement(injection, "DoesNotExist", &[])],
            vec![requirement(inject, "NotIn", &["false"]), requirement(rev, "In", &[tag])],
        ),
    ];
    if tag == DEFAULT {
        webhooks.push(webhook(
            "namespace.",
            vec![requirement(injection, "In", &["enabled"])],
            vec![requirement(inject, "NotIn", &["false"])],
        ));
        webhooks.push(webhook(
            "object.",
            vec![requirement(injection, "DoesNotExist", &[]), requirement(rev, "DoesNotExist", &[])],
            vec![requirement(inject, "In", &["true"]), requirement(rev, "DoesNotExist", &[])],
        ));
    }
    if tag == DEFAULT && shape.injects_unlabelled {
        webhooks.push(webhook(
            "auto.",
            vec![
                requirement(injection, "DoesNotExist", &[]),
                requirement(rev, "DoesNotExist", &[]),
                requirement("kubernetes.io/metadata.name", "NotIn", &SYSTEM_NAMESPACES),
            ],
            vec![requirement(inject, "DoesNotExist", &[]), requirement(rev, "DoesNotExist", &[])],
        ));
    }
    let name = match (shape.name, namespace) {
        (Some(name), _) => name.to_owned(),
        (None, "istio-system") => format!("istio-revision-tag-{tag}"),
        (None, namespace) => format!("istio-revision-tag-{tag}-{namespace}"),
    };
    json!({
        "apiVersion": ADMISSION,
        "kind": MUTATING,
        "metadata": {
            "name": name,
            "labels": with_labels(belonging, json!({
                "app": "sidecar-injector",
                labels::TAG.name: tag,
                rev: revision,
            })),
        },
        "webhooks": webhooks,
    })
}

/// The webhook that checks objects which name no revision.
fn default_validator(revision: &str, client: &Json, belonging: &Map<String, Json>) -> Json {
    let mut client = client.clone();
    if let Some(service) = client.get_mut("service") {
        service["path"] = json!("/validate");
    }
    let groups = ["security.istio.io", "networking.istio.io", "telemetry.istio.io", "extensions.istio.io"];
    json!({
        "apiVersion": ADMISSION,
        "kind": VALIDATING,
        "metadata": {
            "name": "istiod-default-validator",
            "labels": with_labels(belonging, json!({
                "app": "istiod",
                "istio": "istiod",
                labels::REVISION.name: revision,
            })),
        },
        "webhooks": [{
            "name": "validation.istio.io",
            "clientConfig": client,
            "rules": [{"operations": ["CREATE", "UPDATE"], "apiGroups": groups, "apiVersions": ["*"], "resources": ["*"]}],
            // The control plane sets this to Fail once it has seen the webhook refuse something.
            "failurePolicy": "Ignore",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_tag_also_answers_for_namespaces_without_a_revision() {
        let names = |tag: &str| {
            let shape = TagShape::default();
            let object = tag_webhooks(tag, "canary", "istio-system", &json!({}), &Map::new(), shape);
            let webhooks = object["webhooks"].as_array().unwrap().clone();
            webhooks.iter().map(|webhook| webhook["name"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(names("prod").len(), 2);
        assert_eq!(names("default").len(), 4);
        assert!(names("default").contains(&"namespace.sidecar-injector.istio.io".to_owned()));
    }

    #[test]
    fn default_tag_may_inject_what_has_no_label_and_any_tag_have_a_name_of_its_own() {
        let shape = TagShape { injects_unlabelled: true, name: Some("my-hook") };
        let webhooks = |tag: &str| {
            let object = tag_webhooks(tag, "canary", "istio-system", &json!({}), &Map::new(), shape);
            assert_eq!(object["metadata"]["name"], "my-hook");
            object["webhooks"].as_array().map(Vec::len)
        };
        assert_eq!((webhooks("prod"), webhooks("default")), (Some(2), Some(5)));
    }

    #[test]
    fn tags_belong_to_the_installation_of_their_injector() {
        let injector = json!({"metadata": {"labels": {
            "app": "sidecar-injector", "istio.io/rev": "canary", "operator.istio.io/component": "Pilot", "operator.istio.io/managed": "Reconcile"
        }}});
        let service = tag_service("prod", "canary", "istio-system", &belonging(&injector));
        let labels = &service["metadata"]["labels"];
        assert_eq!(labels["operator.istio.io/component"], "Pilot");
        assert!(labels["operator.istio.io/managed"].is_null(), "no upgrade prunes it: {labels}");
        assert_eq!((&labels["app"], &labels["istio.io/tag"]), (&json!("istiod"), &json!("prod")));
    }

    #[test]
    fn tag_outside_of_the_usual_namespace_is_named_for_it() {
        let object = tag_webhooks("prod", "canary", "mesh", &json!({}), &Map::new(), TagShape::default());
        assert_eq!(object["metadata"]["name"], "istio-revision-tag-prod-mesh");
        assert_eq!(object["metadata"]["labels"]["istio.io/rev"], "canary");
    }
}
