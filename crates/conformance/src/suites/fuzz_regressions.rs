//! Inputs that once crashed a fuzzer: whatever reads bytes from outside must survive them.

use canopus_api::node::{NodeId, NodeMetadata, Version};
use canopus_api::security::jwks::JwksServer;
use canopus_api::{Kind, Object, Options, credential, jwt};
use canopus_base::duration::Duration;
use canopus_base::labels::Selector;
use canopus_base::protocol::Protocol;
use canopus_base::quantity::Quantity;
use canopus_base::spiffe::Identity;
use canopus_base::tree::{Limits, Node};
use canopus_base::{host, json as base_json, net, yaml};
use canopus_proto::descriptors::{self, DynamicMessage};
use canopus_proto::json::{self, Unknown};

use super::Suite;
use crate::case::{Case, Outcome};
use crate::dump::Dump;

pub(super) struct FuzzRegressions;

impl Suite for FuzzRegressions {
    fn name(&self) -> &str {
        "fuzz-regressions"
    }

    /// A panic is the only way to fail: what the readers make of the bytes does not matter.
    fn run(&self, case: &Case, _: &Dump) -> Outcome {
        match case.corpus.bytes(&case.path(&case.file)) {
            Ok(bytes) => feed(&bytes),
            Err(error) => return Outcome::error(error),
        }
        Outcome::Pass
    }
}

/// Messages that arrive as bytes.
const WIRE_MESSAGES: [&str; 4] = [
    "envoy.config.cluster.v3.Cluster",
    "envoy.service.discovery.v3.DiscoveryRequest",
    "envoy.service.discovery.v3.DeltaDiscoveryRequest",
    "istio.v1.auth.IstioCertificateRequest",
];

/// Messages that arrive as JSON.
const JSON_MESSAGES: [&str; 6] = [
    "istio.mesh.v1alpha1.MeshConfig",
    "istio.networking.v1alpha3.VirtualService",
    "istio.networking.v1alpha3.Gateway",
    "istio.networking.v1alpha3.EnvoyFilter",
    "istio.security.v1beta1.AuthorizationPolicy",
    "envoy.config.bootstrap.v3.Bootstrap",
];

fn feed(bytes: &[u8]) {
    for descriptor in WIRE_MESSAGES.iter().filter_map(|name| descriptors::message(name)) {
        if let Ok(message) = DynamicMessage::decode(descriptor, bytes) {
            json::write_dynamic(&message);
        }
    }
    let text = String::from_utf8_lossy(bytes);
    feed_words(&text);
    let limits = Limits::default();
    for document in yaml::parse_all(bytes, &limits).into_iter().flatten() {
        feed_tree(&document.node);
    }
    if let Ok(node) = base_json::parse(bytes, &limits) {
        feed_tree(&node);
    }
}

fn feed_tree(node: &Node) {
    for options in [Options::strict(), Options::watch()] {
        _ = Object::decode(node, options);
        for kind in Kind::ALL {
            _ = Object::decode_as(*kind, node, options);
        }
    }
    for descriptor in JSON_MESSAGES.iter().filter_map(|name| descriptors::message(name)) {
        if let Ok(read) = json::read_dynamic(&descriptor, node, Unknown::Report) {
            json::write_dynamic(&read.value);
        }
    }
    _ = NodeMetadata::from_tree(node.clone());
}

fn feed_words(text: &str) {
    let words = text.split_whitespace().chain([text]);
    for word in words.take(1000) {
        host::matches(word, "*.com");
        host::matches("*", word);
        Protocol::from_port(80, word, "TCP", Some(word));
        _ = word.parse::<Identity>();
        _ = net::parse_prefix_or_ip(word);
        _ = Selector::parse(word);
        _ = word.parse::<Duration>();
        _ = word.parse::<Quantity>();
        _ = JwksServer::parse(word);
        _ = NodeId::parse(word, &NodeMetadata::default());
        _ = credential::Credential::parse(word, "default");
        jwt::routing_claim(word);
        Version::parse(word);
    }
}
