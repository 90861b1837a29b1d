//! Responses with extension configurations, whose Wasm modules the agent fetches for Envoy.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use canopus_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use canopus_proto::google::rpc::Status;
use canopus_proto::{Any, Message as _};
use canopus_xds::types;
use tracing::warn;

use super::frame::Message;
use crate::wasm::WasmModules;

/// The response with local modules, or the rejection to send to the control plane.
pub(super) async fn rewrite(
    wasm: &Arc<WasmModules>,
    message: Message,
    delta: bool,
) -> Result<Message, Message> {
    let mut body = message.body();
    let bytes = body.copy_to_bytes(body.remaining());
    if delta { rewrite_delta(wasm, message, bytes).await } else { rewrite_sotw(wasm, message, bytes).await }
}

async fn rewrite_delta(wasm: &Arc<WasmModules>, message: Message, bytes: Bytes) -> Result<Message, Message> {
    // What cannot be read is Envoy's to reject.
    let Ok(mut response) = DeltaDiscoveryResponse::decode(bytes) else { return Ok(message) };
    let resources: Vec<Any> =
        response.resources.iter().map(|resource| resource.resource.clone().unwrap_or_default()).collect();
    match wasm.localise(resources).await {
        Ok(resources) => {
            for (resource, localised) in response.resources.iter_mut().zip(resources) {
                resource.resource = Some(localised);
            }
            Ok(Message::new(&response.encode_to_vec()))
        }
        Err(problem) => {
            let request = DeltaDiscoveryRequest {
                type_url: types::EXTENSION.to_owned(),
                response_nonce: response.nonce,
                error_detail: Some(rejection(problem)),
                ..Default::default()
            };
            Err(Message::new(&request.encode_to_vec()))
        }
    }
}

async fn rewrite_sotw(wasm: &Arc<WasmModules>, message: Message, bytes: Bytes) -> Result<Message, Message> {
    let Ok(mut response) = DiscoveryResponse::decode(bytes) else { return Ok(message) };
    match wasm.localise(std::mem::take(&mut response.resources)).await {
        Ok(resources) => {
            response.resources = resources;
            Ok(Message::new(&response.encode_to_vec()))
        }
        Err(problem) => {
            let request = DiscoveryRequest {
                type_url: types::EXTENSION.to_owned(),
                response_nonce: response.nonce,
                error_detail: Some(rejection(problem)),
                ..Default::default()
            };
            Err(Message::new(&request.encode_to_vec()))
        }
    }
}

fn rejection(problem: String) -> Status {
    warn!(target: "wasm", "extensions are rejected: {problem}");
    Status { code: 13, message: problem, ..Default::default() }
}
