//! What was installed before, so that one can go back to it.
//!
//! Each installation that succeeded leaves a Secret with the objects it consisted of, compressed, because a newer tool cannot render
//! an older tool's charts. The last [`KEPT`] stay. Going back is an installation like any other, of stored objects: it is planned,
//! shown, applied, waited for, and recorded in turn. Definitions of kinds are not part of it: objects may use what newer ones have.

use std::io::{Read as _, Write as _};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use canopus_api::labels;
use canopus_sources::kubernetes::ApplyOptions;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::{Value as Json, json};

use super::object::ObjectId;
use super::owner::{OWNER, OWNER_NAMESPACE};
use super::{ClusterError, FIELD_MANAGER, Installer, Owner, asking, refusal};
use crate::component::COMPONENTS;
use crate::{Generated, Manifest};

/// How many installations of a revision are remembered.
const KEPT: usize = 5;

/// The component that records belong to: none that is pruned, so that only an uninstallation takes them.
const COMPONENT: &str = "Installation";

const NUMBER: &str = "install.canopus.io/number";
const FIELD: &str = "installation";

/// Bound on what is read from a record.
const MAX_BYTES: u64 = 32 << 20;

/// An installation that succeeded.
#[derive(Clone, Debug, PartialEq)]
pub struct Installation {
    /// Number of the installation, counted from 1.
    pub number: u32,
    /// When it was recorded, in RFC 3339.
    pub time: String,
    /// The version of the tool that installed.
    pub version: String,
    /// Owner of the installed objects.
    pub owner: Owner,
    /// The objects.
    pub generated: Generated,
}

impl Installer {
    /// Remembers an installation, and forgets the oldest.
    pub async fn record(&mut self, generated: &Generated, owner: &Owner) -> Result<(), ClusterError> {
        let known = self.records(&owner.revision).await?;
        let number = known.iter().filter_map(number).max().unwrap_or_default().saturating_add(1);
        let fields = record(generated, owner, number);
        let object = ObjectId::from_list_item("v1", "Secret", &fields);
        let Some(path) = self.path(&object).await? else { return Err(ClusterError::UnknownKind { object }) };
        let options = ApplyOptions { manager: FIELD_MANAGER, subresource: "", force: true, dry_run: false };
        let applied = self.cluster.apply_at(&path, &fields, options).await;
        applied.map_err(|error| refusal(&object, "create", error))?;
        let mut old = known;
        old.sort_by_key(|item| std::cmp::Reverse(number_of(item)));
        for item in old.iter().skip(KEPT - 1) {
            self.delete(&ObjectId::from_list_item("v1", "Secret", item)).await?;
        }
        Ok(())
    }

    /// The installations of a revision that are remembered, the newest first. Records that cannot be read are left out.
    pub async fn installations(&mut self, revision: &str) -> Result<Vec<Installation>, ClusterError> {
        let records = self.records(revision).await?;
        let mut found: Vec<_> = records.iter().filter_map(|item| read(item, revision)).collect();
        found.sort_by_key(|installation| std::cmp::Reverse(installation.number));
        Ok(found)
    }

    async fn records(&mut self, revision: &str) -> Result<Vec<Json>, ClusterError> {
        let all = ObjectId::new("v1", "Secret", "", "");
        let Some(path) = self.path(&all).await? else { return Ok(Vec::new()) };
        let (component, rev) = (labels::OPERATOR_COMPONENT.name, labels::REVISION.name);
        let items = self.cluster.list_at(&path, &format!("{component}={COMPONENT},{rev}={revision}")).await;
        items.map_err(|error| asking("Secret", error))
    }
}

fn number(item: &Json) -> Option<u32> {
    item["metadata"]["labels"][NUMBER].as_str()?.parse().ok()
}

fn number_of(item: &Json) -> u32 {
    number(item).unwrap_or_default()
}

/// The Secret that remembers an installation.
fn record(generated: &Generated, owner: &Owner, number: u32) -> Json {
    let is_kept = |manifest: &&Manifest| manifest.kind() != "CustomResourceDefinition";
    let manifests = generated.manifests.iter().filter(is_kept);
    let manifests: Vec<Json> = manifests
        .map(|manifest| json!({"component": manifest.component, "object": manifest.object}))
        .collect();
    let content = json!({"version": env!("CARGO_PKG_VERSION"), "manifests": manifests}).to_string();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    // Writing to memory cannot fail.
    let _ = encoder.write_all(content.as_bytes());
    let compressed = encoder.finish().unwrap_or_default();
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "install.canopus.io/installation",
        "metadata": {
            "name": format!("canopus-installation.{}.{number}", owner.name),
            "namespace": owner.namespace,
            "labels": {
                OWNER: owner.name,
                OWNER_NAMESPACE: owner.namespace,
                labels::OPERATOR_COMPONENT.name: COMPONENT,
                labels::REVISION.name: owner.revision,
                NUMBER: number.to_string(),
            },
        },
        "data": {FIELD: STANDARD.encode(compressed)},
    })
}

fn read(item: &Json, revision: &str) -> Option<Installation> {
    let compressed = STANDARD.decode(item["data"][FIELD].as_str()?).ok()?;
    let mut content = Vec::new();
    GzDecoder::new(compressed.as_slice()).take(MAX_BYTES).read_to_end(&mut content).ok()?;
    let content: Json = serde_json::from_slice(&content).ok()?;
    let manifest = |stored: &Json| {
        let component = COMPONENTS.iter().find(|component| stored["component"] == component.name)?.name;
        Some(Manifest { object: stored["object"].clone(), component })
    };
    let manifests: Option<Vec<Manifest>> = content["manifests"].as_array()?.iter().map(manifest).collect();
    let metadata = &item["metadata"];
    let text = |value: &Json| value.as_str().unwrap_or_default().to_owned();
    Some(Installation {
        number: number(item)?,
        time: text(&metadata["creationTimestamp"]),
        version: text(&content["version"]),
        owner: Owner {
            name: text(&metadata["labels"][OWNER]),
            namespace: text(&metadata["namespace"]),
            revision: revision.to_owned(),
        },
        generated: Generated { manifests: manifests?, warnings: Vec::new() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner() -> Owner {
        Owner { name: "mesh".to_owned(), namespace: "istio-system".to_owned(), revision: "canary".to_owned() }
    }

    fn manifest(kind: &str, component: &'static str) -> Manifest {
        Manifest { object: json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}}), component }
    }

    #[test]
    fn installation_is_remembered_without_definitions() {
        let manifests = vec![manifest("CustomResourceDefinition", "Base"), manifest("ConfigMap", "Pilot")];
        let secret = record(&Generated { manifests, warnings: Vec::new() }, &owner(), 7);
        let read = read(&secret, "canary").unwrap();
        assert_eq!((read.number, &read.owner), (7, &owner()));
        assert_eq!(read.generated.manifests, [manifest("ConfigMap", "Pilot")]);
    }

    #[test]
    fn damaged_record_is_left_out() {
        let secret = record(&Generated::default(), &owner(), 1);
        assert!(read(&secret, "canary").is_some());
        for damage in [json!("AAAA"), json!("!"), Json::Null] {
            let mut damaged = secret.clone();
            damaged["data"][FIELD] = damage;
            assert_eq!(read(&damaged, "canary"), None);
        }
    }
}
