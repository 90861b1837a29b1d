//! Files the agent writes or reads beside the bootstrap: that of proxyless gRPC, and overrides.

use anyhow::{Context, bail};
use canopus_agent::bootstrap::{CertificateDirectory, grpc_bootstrap, overrides};
use canopus_agent::node::{Node as ProxyNode, NodeSources};
use canopus_agent::proxy_config::{EffectiveConfig, Layers};
use canopus_base::tree::Node;

use super::Suite;
use crate::case::{Case, Outcome};
use crate::compare::Difference;
use crate::compare::tree::{self, Rules};
use crate::dump::Dump;

pub(super) struct Agent;

impl Suite for Agent {
    fn name(&self) -> &str {
        "agent"
    }

    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        let differences = match case.text("input") {
            Some(input) => override_difference(case, input),
            None => grpc_difference(case),
        };
        differences.into()
    }
}

fn override_difference(case: &Case, input: &str) -> anyhow::Result<Vec<Difference>> {
    let text = String::from_utf8(case.corpus.bytes(&case.path(input))?)?;
    let host = case.entry.pointer("/env/HOST_IP").and_then(Node::as_str).context("no HOST_IP")?;
    let expected: serde_json::Value =
        serde_json::from_str(case.text("expected").context("nothing expected")?)?;
    let got: serde_json::Value = serde_json::from_str(&overrides::to_json(&text, host)?)?;
    Ok(tree::difference(&expected.into(), &got.into(), &Rules::default()))
}

fn grpc_difference(case: &Case) -> anyhow::Result<Vec<Difference>> {
    let golden = case.corpus.document(&case.path(case.text("golden").context("nothing is expected")?))?;
    // The driver's own proxy, which the data describes by its outcome only.
    let sources = NodeSources {
        id: "sidecar~127.0.0.1~pod1.fake-namespace~fake-namespace.svc.cluster.local".to_owned(),
        addresses: vec!["127.0.0.1".to_owned()],
        version: "version".to_owned(),
        control_plane_names: vec!["istiod.istio-system.svc".to_owned()],
        identity_socket: "socket".to_owned(),
        ..Default::default()
    };
    let node = ProxyNode::collect(&sources, EffectiveConfig::resolve(&Layers::default())?)?;
    let certificates = CertificateDirectory("/cert/path".to_owned());
    let mut bootstrap = grpc_bootstrap(&node, "/etc/istio/XDS", Some(&certificates));
    let Some(metadata) = bootstrap.pointer_mut("/node/metadata").and_then(|node| node.as_object_mut()) else {
        bail!("the bootstrap has no metadata");
    };
    metadata.remove("PROV_CERT");
    metadata.remove("PROXY_CONFIG");
    Ok(tree::difference(&golden, &bootstrap.into(), &Rules::default()))
}
