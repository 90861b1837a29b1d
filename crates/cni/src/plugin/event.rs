//! What the plugin tells the agent: pods of ambient mode that start, and what it logs.
//!
//! The format is Istio's, so that a plugin and an agent of different versions understand each other while one is replaced.

use std::net::IpAddr;
use std::path::Path;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use canopus_http::Version;
use http::{Request, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{Call, Failure, addresses};
use crate::pod::Pod;

/// The agent's socket, in its directory.
pub const EVENT_SOCKET: &str = "pluginevent.sock";
/// The path of events.
pub const CMD_ADD: &str = "/cmdadd";

/// How long the agent may take to enrol a pod. Runtimes wait longer than that.
const ENROLMENT: Duration = Duration::from_secs(20);

/// How long a log line may take.
const LOG: Duration = Duration::from_millis(200);

const MAX_ANSWER: usize = 1 << 20;

/// A pod that starts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AddEvent {
    /// The file of its network namespace, as the host names it.
    pub netns: String,
    /// Name of the pod.
    pub pod_name: String,
    /// Namespace of the pod.
    pub pod_namespace: String,
    /// Addresses of the pod.
    #[serde(rename = "IPs", default, deserialize_with = "or_default")]
    pub ips: Vec<AddressEvent>,
}

fn or_default<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<AddressEvent>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

/// An address of the pod.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct AddressEvent {
    /// The interface's position in the result.
    pub interface: Option<i64>,
    /// The address with its mask.
    pub address: IpNetwork,
    /// The gateway; empty if there is none.
    pub gateway: String,
}

/// An address and its mask, as Go encodes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IpNetwork {
    /// The address.
    #[serde(rename = "IP")]
    pub ip: IpAddr,
    /// The mask's bytes in base64.
    #[serde(rename = "Mask")]
    pub mask: String,
}

impl IpNetwork {
    fn new(ip: IpAddr, length: u8) -> Self {
        let bytes = if ip.is_ipv4() { 4 } else { 16 };
        let ones = |index: usize| usize::from(length).saturating_sub(index * 8).min(8);
        let mask: Vec<u8> = (0..bytes).map(|index| !(0xffu16 >> ones(index)) as u8).collect();
        Self { ip, mask: STANDARD.encode(mask) }
    }
}

/// Tells the agent of a pod and waits until it is enrolled.
pub(super) async fn push(call: &Call, pod: &Pod) -> Result<(), Failure> {
    let ips = call.previous.iter().flat_map(addresses).map(|(ip, length)| AddressEvent {
        interface: None,
        address: IpNetwork::new(ip, length),
        gateway: String::new(),
    });
    let event = AddEvent {
        netns: call.namespace.display().to_string(),
        pod_name: pod.metadata.name.clone(),
        pod_namespace: pod.metadata.namespace.clone(),
        ips: ips.collect(),
    };
    let socket = Path::new(&call.config.cni_agent_run_dir).join(EVENT_SOCKET);
    let body = serde_json::to_vec(&event).map_err(|error| Failure::other(error.to_string()))?;
    let (status, answer) = post(&socket, CMD_ADD, body, ENROLMENT).await.map_err(|reason| {
        Failure::try_later(format!(
            "pod {}: {}: {reason}; the agent enrols pods in ambient mode: is its pod running on this node?",
            pod.key(),
            socket.display()
        ))
    })?;
    if status != StatusCode::OK {
        return Err(Failure::try_later(format!("pod {}: the agent could not enrol it: {answer}", pod.key())));
    }
    Ok(())
}

/// Gives a line to the agent's log. Nobody waits for it, and nothing depends on it.
pub(super) async fn send_log(socket: &Path, level: &str, message: &str) {
    let line =
        json!({"level": level, "time": jiff::Timestamp::now().to_string(), "msg": message}).to_string();
    let body = json!([line]).to_string().into_bytes();
    if socket.exists() {
        let _ = post(socket, crate::sockets::LOG_PATH, body, LOG).await;
    }
}

async fn post(
    socket: &Path,
    path: &str,
    body: Vec<u8>,
    limit: Duration,
) -> Result<(StatusCode, String), String> {
    let request = Request::post(path)
        .header(http::header::HOST, "unix")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(Bytes::from(body))
        .map_err(|error| error.to_string())?;
    let exchange = async {
        let stream = UnixStream::connect(socket).await.map_err(|error| error.to_string())?;
        let response = canopus_http::send(stream, Version::Http1, request).await;
        let response = response.map_err(|error| error.to_string())?;
        let status = response.status();
        let body = canopus_http::read(response.into_body(), MAX_ANSWER).await.unwrap_or_default();
        Ok((status, String::from_utf8_lossy(&body).trim().to_owned()))
    };
    timeout(limit, exchange).await.unwrap_or_else(|_| Err(format!("no answer in {limit:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_written_as_go_does() {
        let network = |text: &str, length| IpNetwork::new(text.parse().unwrap(), length).mask;
        assert_eq!(network("10.0.0.1", 24), "////AA==");
        assert_eq!(network("10.0.0.1", 20), "///wAA==");
        assert_eq!(network("fd00::1", 128), "/////////////////////w==");
        let event = r#"{"Netns":"/n","PodName":"a","PodNamespace":"b","IPs":null}"#;
        assert!(serde_json::from_str::<AddEvent>(event).unwrap().ips.is_empty());
    }
}
