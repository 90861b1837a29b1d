//! A control plane asked over its discovery port: as a proxy connects, with a token or certificate, where no debug port is open.
//!
//! A question is one request on a stream of its own; the answer is the first response. The messages are those of Istio's
//! tools, so any control plane of Istio's protocol answers.

mod connect;
mod tls;

use std::time::Duration;

use anyhow::{Context as _, bail};
use canopus_base::tree::Node;
use canopus_proto::envoy::config::core::v3::Node as ProxyNode;
use canopus_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use canopus_proto::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use canopus_proto::json::{self, Unknown};
use serde_json::json;
use tokio_stream::StreamExt as _;
use tonic::{Code, Status};

use crate::blocking::block_on;
use crate::cluster::{Cluster, KubeArguments, object_path};
use crate::global::Global;
use crate::input::go_duration;
use canopus_api::Kind;
use connect::Target;

/// How far each proxy is.
pub(crate) const SYNCZ: &str = "istio.io/debug/syncz";

/// A debug page, named as the resource.
const DEBUG: &str = "istio.io/debug";

/// The account in the control plane's namespace that a token is made for, its audience, and its life in seconds.
const ACCOUNT: &str = "default";
const AUDIENCE: &str = "istio-ca";
const TOKEN_SECONDS: u32 = 3600;

/// How a control plane is reached over its discovery port.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct XdsArguments {
    /// Address of a control plane's discovery port, such as istiod.example.com:15012.
    #[arg(long, value_name = "HOST:PORT", default_value = "", hide_default_value = true)]
    pub(crate) xds_address: String,
    /// Port of --xds-address, if that names none.
    #[arg(long, value_name = "PORT", default_value_t = 15012)]
    pub(crate) xds_port: u16,
    /// Labels of the control plane's pods, where none is named by its address.
    #[arg(long, value_name = "SELECTOR", default_value = "", hide_default_value = true)]
    pub(crate) xds_label: String,
    /// Name that the control plane's certificate must have, such as istiod.istio-system.svc.
    #[arg(long, value_name = "NAME", default_value = "", hide_default_value = true)]
    pub(crate) authority: String,
    /// Directory with the certificate to present: cert-chain.pem, key.pem and root-cert.pem.
    #[arg(long, value_name = "DIR", default_value = "", hide_default_value = true)]
    pub(crate) cert_dir: String,
    /// Take any certificate of the control plane.
    #[arg(long)]
    pub(crate) insecure: bool,
    /// Speak without TLS, and present nothing.
    #[arg(long)]
    pub(crate) plaintext: bool,
    /// Revision of the control plane, where it is not named by its address.
    #[arg(short, long, value_name = "REVISION", default_value = "", hide_default_value = true)]
    pub(crate) revision: String,
    /// How long the control plane may take.
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = go_duration)]
    pub(crate) timeout: Duration,
}

/// The control plane refused to answer.
#[derive(Debug, thiserror::Error)]
#[error("rpc error: code = {code:?} desc = {message}")]
struct Refused {
    code: Code,
    message: String,
}

impl From<Status> for Refused {
    fn from(status: Status) -> Self {
        Self { code: status.code(), message: status.message().to_owned() }
    }
}

impl XdsArguments {
    /// Whether a control plane is named by its address.
    pub(crate) fn is_given(&self) -> bool {
        !self.xds_address.is_empty()
    }

    /// The labels of pods to ask, if others than usual.
    pub(crate) fn selector(&self) -> Option<&str> {
        Some(self.xds_label.as_str()).filter(|label| !label.is_empty())
    }

    /// The revision to ask, if only one is meant.
    pub(crate) fn revision(&self) -> Option<&str> {
        Some(self.revision.as_str()).filter(|revision| !revision.is_empty())
    }

    /// The response about a type, as JSON.
    pub(crate) fn ask(&self, global: &Global, kube: &KubeArguments, type_url: &str) -> anyhow::Result<Node> {
        Ok(json::write(&self.fetch(global, kube, type_url, &[])?))
    }

    /// A debug page, such as `config_dump?proxyID=cart-1.shop`.
    pub(crate) fn ask_page(
        &self,
        global: &Global,
        kube: &KubeArguments,
        page: &str,
    ) -> anyhow::Result<Vec<u8>> {
        let response = self.fetch(global, kube, DEBUG, &[page.to_owned()])?;
        let resource = response.resources.into_iter().next();
        Ok(resource
            .with_context(|| format!("the control plane answers nothing about {page}"))?
            .value
            .to_vec())
    }

    fn fetch(
        &self,
        global: &Global,
        kube: &KubeArguments,
        type_url: &str,
        names: &[String],
    ) -> anyhow::Result<DiscoveryResponse> {
        self.check()?;
        let namespace = &global.istio_namespace;
        let presents_token = !self.plaintext && self.cert_dir.is_empty();
        let cluster =
            if presents_token && kube.is_configured() { Some(Cluster::connect(kube)?) } else { None };
        let token = cluster.as_ref().map(|cluster| token(cluster, namespace)).transpose()?;
        let root = match &cluster {
            Some(cluster) if !self.insecure => root(cluster, namespace)?,
            _ => None,
        };
        let target = Target::new(self, root.as_deref(), namespace)?;
        let request = request(type_url, names, namespace)?;
        block_on(async {
            let asked = exchange(&target, token.as_deref(), request);
            let answered = tokio::time::timeout(self.timeout, asked).await;
            answered.with_context(|| format!("{target} does not answer within {:?}", self.timeout))?
        })
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.plaintext && (self.insecure || !self.cert_dir.is_empty()) {
            bail!("--plaintext speaks without TLS, so neither --insecure nor --cert-dir goes with it");
        }
        Ok(())
    }
}

/// Sends one request on a stream of its own.
async fn exchange(
    target: &Target,
    token: Option<&str>,
    request: DiscoveryRequest,
) -> anyhow::Result<DiscoveryResponse> {
    let channel = target.channel().await?;
    let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(usize::MAX);
    // A stream that ends is taken for a client that leaves, so this one stays open until there is an answer.
    let requests = tokio_stream::once(request).chain(tokio_stream::pending());
    let mut outbound = tonic::Request::new(requests);
    if let Some(token) = token {
        let bearer = format!("Bearer {token}").parse().context("the token cannot be sent")?;
        outbound.metadata_mut().insert("authorization", bearer);
    }
    let inbound = client.stream_aggregated_resources(outbound).await.map_err(Refused::from)?;
    let response = inbound.into_inner().message().await.map_err(Refused::from)?;
    response.context("the control plane ended the stream without an answer")
}

/// A version that no release has: tools understand whatever the control plane says.
const NEWEST: &str = "65536.65536.65536";

/// Parity: the node that Istio's tools say they are, which control planes leave out of what they list.
fn request(type_url: &str, names: &[String], namespace: &str) -> anyhow::Result<DiscoveryRequest> {
    let node = json!({
        "id": "sidecar~1.1.1.1~test-1.default~default.svc.cluster.local",
        "metadata": {
            "GENERATOR": "event",
            "ISTIO_VERSION": NEWEST,
            "NAMESPACE": namespace,
            "SERVICE_ACCOUNT": ACCOUNT,
        },
    });
    let node = json::read::<ProxyNode>(&Node::from(node), Unknown::Reject)?.value;
    Ok(DiscoveryRequest {
        node: Some(node),
        type_url: type_url.to_owned(),
        resource_names: names.to_vec(),
        ..DiscoveryRequest::default()
    })
}

/// A token of an account in the control plane's namespace.
fn token(cluster: &Cluster, namespace: &str) -> anyhow::Result<String> {
    let path = format!("{}/token", object_path(Kind::ServiceAccount, namespace, ACCOUNT));
    let request = json!({
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"audiences": [AUDIENCE], "expirationSeconds": TOKEN_SECONDS},
    });
    let answer = cluster.create(&path, &request).with_context(|| {
        format!("cannot make a token for service account {ACCOUNT} in {namespace:?}; present a certificate by --cert-dir")
    })?;
    let token = answer.pointer("/status/token").and_then(Node::as_str);
    Ok(token.context("the API server answered without a token")?.to_owned())
}

/// The root certificate that the control plane gives to the pods of its namespace.
fn root(cluster: &Cluster, namespace: &str) -> anyhow::Result<Option<String>> {
    let map = cluster.get(&object_path(Kind::ConfigMap, namespace, "istio-ca-root-cert"))?;
    Ok(map.and_then(|map| Some(map.get("data")?.get("root-cert.pem")?.as_str()?.to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        xds: XdsArguments,
    }

    fn parse(flags: &[&str]) -> XdsArguments {
        Line::try_parse_from(std::iter::once("x").chain(flags.iter().copied())).unwrap().xds
    }

    #[test]
    fn plaintext_goes_with_nothing_that_needs_tls() {
        assert!(parse(&["--xds-address=a:1", "--plaintext"]).check().is_ok());
        for other in ["--insecure", "--cert-dir=x"] {
            assert!(parse(&["--xds-address=a:1", "--plaintext", other]).check().is_err());
        }
    }

    #[test]
    fn refusals_read_as_those_of_istioctl() {
        let refused = Refused::from(Status::unauthenticated("authentication required"));
        assert_eq!(refused.to_string(), "rpc error: code = Unauthenticated desc = authentication required");
    }
}
