//! Google Cloud Platform: values that were given, else the metadata server.

use std::collections::BTreeMap;

use super::{MetadataServer, Platform, PlatformSettings};
use crate::locality::Locality;

const FLAVOUR: [(&str, &str); 1] = [("metadata-flavor", "Google")];

/// The keys of `GCP_METADATA`, in its order.
const GIVEN: [&str; 4] = ["gcp_project", "gcp_project_number", "gcp_gke_cluster_name", "gcp_location"];
/// The keys that the server is asked for.
const ASKED: [(&str, &str); 7] = [
    ("gcp_project", "project/project-id"),
    ("gcp_project_number", "project/numeric-project-id"),
    ("gcp_gke_cluster_name", "instance/attributes/cluster-name"),
    ("gcp_gce_instance", "instance/name"),
    ("gcp_gce_instance_id", "instance/id"),
    ("gcp_gce_instance_template", "instance/attributes/instance-template"),
    ("gcp_gce_instance_created_by", "instance/attributes/created-by"),
];

async fn get(server: &MetadataServer, path: &str) -> Option<String> {
    server.text(&format!("/computeMetadata/v1/{path}"), &FLAVOUR).await
}

/// Whether the metadata service is that of Google Cloud, which marks its answers.
pub(super) async fn is_here(server: &MetadataServer) -> bool {
    let answer = server.ask("GET", "/computeMetadata/v1/instance/id", &FLAVOUR).await;
    answer
        .is_some_and(|(headers, _)| headers.get("metadata-flavor").is_some_and(|flavour| flavour == "Google"))
}

pub(super) async fn platform(settings: &PlatformSettings, server: &MetadataServer) -> Platform {
    let mut metadata = given(settings);
    // Parity: whoever gives values does so because the server is not to be relied on.
    if metadata.is_empty() {
        for (key, path) in ASKED {
            metadata.extend(get(server, path).await.map(|value| (key.to_owned(), value)));
        }
        let location = match get(server, "instance/attributes/cluster-location").await {
            Some(location) => Some(location),
            None => zone(server).await,
        };
        metadata.extend(location.map(|location| ("gcp_location".to_owned(), location)));
    }
    let url = match (
        metadata.get("gcp_project"),
        metadata.get("gcp_location"),
        metadata.get("gcp_gke_cluster_name"),
    ) {
        (Some(project), Some(location), Some(cluster)) => Some(format!(
            "https://container.googleapis.com/v1/projects/{project}/locations/{location}/clusters/{cluster}"
        )),
        _ => None,
    };
    metadata.extend(url.map(|url| ("gcp_gke_cluster_url".to_owned(), url)));
    let zone = if settings.gcp_zone.is_empty() {
        match zone_of_resolv_conf(&std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default()) {
            Some(zone) => zone,
            None => zone(server).await.unwrap_or_default(),
        }
    } else {
        settings.gcp_zone.clone()
    };
    let locality = match region(&zone) {
        Some(region) => Locality { region, zone, sub_zone: String::new() },
        None => Locality::default(),
    };
    Platform { metadata, locality }
}

/// The server answers with `projects/NUMBER/zones/ZONE`.
async fn zone(server: &MetadataServer) -> Option<String> {
    get(server, "instance/zone").await.and_then(|path| path.rsplit('/').next().map(str::to_owned))
}

fn given(settings: &PlatformSettings) -> BTreeMap<String, String> {
    let parts: Vec<&str> = settings.gcp_metadata.split('|').collect();
    let mut metadata = BTreeMap::new();
    if settings.gcp_metadata.is_empty() {
        return metadata;
    }
    if parts.len() == GIVEN.len() {
        metadata.extend(GIVEN.iter().zip(parts).map(|(&key, value)| (key.to_owned(), value.to_owned())));
    }
    for (key, value) in [("gcp_quota_project", &settings.gcp_quota_project), ("gcp_zone", &settings.gcp_zone)]
    {
        if !value.is_empty() {
            metadata.insert(key.to_owned(), value.clone());
        }
    }
    metadata
}

/// The region of a zone such as `us-central1-f`.
fn region(zone: &str) -> Option<String> {
    let mut parts = zone.split('-');
    let (country, name, letter) = (parts.next()?, parts.next()?, parts.next()?);
    let is_zone = ![country, name, letter].contains(&"") && parts.next().is_none();
    is_zone.then(|| format!("{country}-{name}"))
}

/// The zone in a search domain such as `us-central1-f.c.PROJECT.internal`.
fn zone_of_resolv_conf(text: &str) -> Option<String> {
    let domains = text.lines().filter_map(|line| line.strip_prefix("search")).flat_map(str::split_whitespace);
    domains
        .filter_map(|domain| {
            let (zone, rest) = domain.split_once(".c.")?;
            let project = rest.strip_suffix(".internal")?;
            (!project.contains('.') && region(zone).is_some()).then(|| zone.to_owned())
        })
        .next_back()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_regions_are_taken_apart() {
        assert_eq!(region("us-central1-f").as_deref(), Some("us-central1"));
        for none in ["us-central1", "us-central1-f-x", "--", ""] {
            assert_eq!(region(none), None, "{none}");
        }
        let text = "nameserver 10.0.0.1\nsearch a.svc.cluster.local us-central1-f.c.test-proj.internal c.test-proj.internal google.internal\n";
        assert_eq!(zone_of_resolv_conf(text).as_deref(), Some("us-central1-f"));
        assert_eq!(zone_of_resolv_conf("search a.b\n"), None);
    }

    #[test]
    fn given_values_have_four_parts() {
        let settings = |text: &str| PlatformSettings {
            gcp_metadata: text.into(),
            gcp_zone: "z".into(),
            ..Default::default()
        };
        assert_eq!(given(&settings("p|1|c|l"))["gcp_gke_cluster_name"], "c");
        assert!(!given(&settings("p|1")).contains_key("gcp_project"));
        assert!(given(&PlatformSettings::default()).is_empty());
    }
}
