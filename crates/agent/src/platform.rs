//! What the cloud says about the machine: region and zone, and metadata of the instance (`PLATFORM_METADATA`).
//!
//! Clouds answer on a link-local address, in milliseconds or never, so the whole discovery is bounded by [`LIMIT`] and a
//! machine in no cloud goes on without. `CLOUD_PLATFORM` names the cloud, or says `none`; inside Kubernetes the control
//! plane knows the locality from the node, and nobody is asked unless a cloud is named.

mod aws;
mod azure;
mod gcp;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::local_http as client;
use crate::locality::Locality;

/// All questions together may take so long.
const LIMIT: Duration = Duration::from_secs(2);
/// Timeout of one question. Parity: clouds answer from the machine itself.
const QUESTION_LIMIT: Duration = Duration::from_millis(500);
const MAX_ANSWER: usize = 256 << 10;
/// Where all clouds answer.
const METADATA_SERVER: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 169, 254)), 80);

/// What is known of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    /// `PLATFORM_METADATA`.
    pub metadata: BTreeMap<String, String>,
    /// Where it is.
    pub locality: Locality,
}

/// What the discovery is told.
#[derive(Clone, Debug, Default)]
pub struct PlatformSettings {
    /// `CLOUD_PLATFORM`.
    pub cloud: String,
    /// `GCP_METADATA`.
    pub gcp_metadata: String,
    /// `GCP_QUOTA_PROJECT`.
    pub gcp_quota_project: String,
    /// `GCP_ZONE`.
    pub gcp_zone: String,
    /// Whether the agent runs in a pod.
    pub in_kubernetes: bool,
}

/// Asks the cloud; nothing if there is none.
pub async fn discover(settings: &PlatformSettings) -> Platform {
    let server = MetadataServer(METADATA_SERVER);
    let found = timeout(LIMIT, ask(settings, &server)).await;
    match found {
        Ok(Some((name, platform))) => {
            info!("the platform is {name}");
            platform
        }
        Ok(None) => Platform::default(),
        Err(_) => {
            warn!("the platform does not answer in {LIMIT:?}; set CLOUD_PLATFORM=none where there is none");
            Platform::default()
        }
    }
}

async fn ask(settings: &PlatformSettings, server: &MetadataServer) -> Option<(&'static str, Platform)> {
    match settings.cloud.to_ascii_lowercase().as_str() {
        "none" => return None,
        "aws" => return Some(("AWS", aws::platform(server).await)),
        "azure" => return Some(("Azure", azure::platform(server).await)),
        "gcp" => return Some(("GCP", gcp::platform(settings, server).await)),
        "" => {}
        other => warn!("CLOUD_PLATFORM: {other:?} is not known; use aws, azure, gcp or none"),
    }
    if !settings.gcp_metadata.is_empty() {
        return Some(("GCP", gcp::platform(settings, server).await));
    }
    if settings.in_kubernetes {
        return None;
    }
    // Each cloud is recognised by something the others do not have.
    let (is_gcp, is_aws, is_azure) =
        tokio::join!(gcp::is_here(server), aws::is_here(server), azure::is_here());
    if is_gcp {
        return Some(("GCP", gcp::platform(settings, server).await));
    }
    if is_aws {
        return Some(("AWS", aws::platform(server).await));
    }
    if is_azure {
        return Some(("Azure", azure::platform(server).await));
    }
    None
}

/// Asks the metadata server of the cloud.
struct MetadataServer(SocketAddr);

impl MetadataServer {
    /// The answer to a question; `None` if there is none.
    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&'static str, &str)],
    ) -> Option<(HeaderMap, String)> {
        let mut sent = HeaderMap::new();
        for (name, value) in headers {
            sent.insert(HeaderName::from_static(name), HeaderValue::from_str(value).ok()?);
        }
        let asking = async {
            let answer = client::send(self.0, method, path, sent, QUESTION_LIMIT).await.ok()?;
            if answer.status() != StatusCode::OK {
                return None;
            }
            let received = answer.headers().clone();
            let body = canopus_http::read(answer.into_body(), MAX_ANSWER).await.ok()?;
            Some((received, String::from_utf8(body.to_vec()).ok()?.trim().to_owned()))
        };
        let answer = timeout(QUESTION_LIMIT, asking).await.ok().flatten();
        debug!("metadata {path}: {}", if answer.is_some() { "answered" } else { "no answer" });
        answer
    }

    async fn text(&self, path: &str, headers: &[(&'static str, &str)]) -> Option<String> {
        self.ask("GET", path, headers).await.map(|(_, text)| text).filter(|text| !text.is_empty())
    }
}

#[cfg(test)]
mod tests;
