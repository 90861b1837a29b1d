//! Types the agent asks for itself: the name table, and roots of other trust domains.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use canopus_proto::Message as _;
use canopus_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use canopus_proto::google::rpc::Status;
use canopus_proto::istio::mesh::v1alpha1::ProxyConfig;
use canopus_xds::types;
use tracing::warn;

use super::frame::Message;
use crate::certificates::Secrets;
use crate::last_good::LastGood;
use crate::xds_proxy::HealthReport;

/// Takes an encoded name table; the reason if it cannot be used.
pub type NameTableSink = Arc<dyn Fn(Bytes) -> Result<(), String> + Send + Sync>;

/// Which part of the agent takes which xDS type. Types without a taker are not requested.
#[derive(Default)]
pub struct LocalTypes {
    /// Takes name tables.
    pub names: Option<NameTableSink>,
    /// Takes additional roots.
    pub roots: Option<Arc<Secrets>>,
}

/// What matters of a response, in both variants.
struct Response {
    type_url: String,
    version: String,
    nonce: String,
    body: Option<canopus_proto::Any>,
}

impl LocalTypes {
    fn types(&self) -> impl Iterator<Item = &'static str> {
        let names = self.names.is_some().then_some(types::NAME_TABLE);
        let roots = self.roots.is_some().then_some(types::PROXY_CONFIG);
        names.into_iter().chain(roots)
    }

    /// The requests with which the agent subscribes.
    pub(super) fn first_requests(&self, delta: bool) -> Vec<Message> {
        self.types()
            .map(|type_url| {
                let response = Response {
                    type_url: type_url.into(),
                    version: String::new(),
                    nonce: String::new(),
                    body: None,
                };
                request(&response, delta, None)
            })
            .collect()
    }

    /// Takes a response and gives the acknowledgement; `None` if it is not for the agent.
    pub(super) fn take(&self, type_url: &str, message: &Message, delta: bool) -> Option<Message> {
        if type_url != types::NAME_TABLE && type_url != types::PROXY_CONFIG {
            return None;
        }
        let mut body = message.body();
        let bytes = body.copy_to_bytes(body.remaining());
        let response = match decode(bytes, delta) {
            Ok(response) => response,
            Err(error) => {
                warn!(target: "xdsproxy", "a response of the type {type_url} cannot be read: {error}");
                let unread = Response {
                    type_url: type_url.into(),
                    version: String::new(),
                    nonce: String::new(),
                    body: None,
                };
                return Some(request(&unread, delta, Some(error.to_string())));
            }
        };
        let problem = self.apply(&response).err();
        if let Some(problem) = &problem {
            warn!(target: "xdsproxy", "a response of the type {type_url} is rejected: {problem}");
        }
        Some(request(&response, delta, problem))
    }

    /// Takes what is stored of the agent's own types, unless something newer came before.
    pub(super) fn restore(&self, state: &LastGood) {
        for type_url in self.types() {
            let stored = state.single(type_url).and_then(|body| canopus_proto::Any::decode(body).ok());
            let Some(body) = stored else { continue };
            let response = Response {
                type_url: type_url.to_owned(),
                version: String::new(),
                nonce: String::new(),
                body: Some(body),
            };
            if let Err(problem) = self.apply(&response) {
                warn!(target: "xdsproxy", "a stored resource of the type {type_url} cannot be used: {problem}");
            }
        }
    }

    fn apply(&self, response: &Response) -> Result<(), String> {
        let Some(body) = &response.body else { return Ok(()) };
        let unreadable = |error: canopus_proto::DecodeError| error.to_string();
        if response.type_url == types::NAME_TABLE {
            if let Some(names) = &self.names {
                names(body.value.clone())?;
            }
        } else if let Some(secrets) = &self.roots {
            let config = ProxyConfig::decode(body.value.clone()).map_err(unreadable)?;
            secrets.set_additional_roots(config.ca_certificates_pem);
        }
        Ok(())
    }
}

fn decode(bytes: Bytes, delta: bool) -> Result<Response, canopus_proto::DecodeError> {
    if delta {
        let response = DeltaDiscoveryResponse::decode(bytes)?;
        let body = response.resources.into_iter().next().and_then(|resource| resource.resource);
        let (type_url, version) = (response.type_url, response.system_version_info);
        return Ok(Response { type_url, version, nonce: response.nonce, body });
    }
    let response = DiscoveryResponse::decode(bytes)?;
    let body = response.resources.into_iter().next();
    Ok(Response { type_url: response.type_url, version: response.version_info, nonce: response.nonce, body })
}

/// A subscription, an acknowledgement, or with a problem a rejection.
fn request(response: &Response, delta: bool, problem: Option<String>) -> Message {
    let error_detail = problem.map(|message| Status { code: 13, message, ..Default::default() });
    let (type_url, response_nonce) = (response.type_url.clone(), response.nonce.clone());
    let bytes = if delta {
        DeltaDiscoveryRequest { type_url, response_nonce, error_detail, ..Default::default() }.encode_to_vec()
    } else {
        let version_info = if error_detail.is_some() { String::new() } else { response.version.clone() };
        DiscoveryRequest { version_info, type_url, response_nonce, error_detail, ..Default::default() }
            .encode_to_vec()
    };
    Message::new(&bytes)
}

/// A request that tells how the application is: an error means that it is not well.
pub(super) fn health_request(report: &HealthReport, delta: bool) -> Message {
    let response = Response {
        type_url: types::HEALTH.to_owned(),
        version: String::new(),
        nonce: String::new(),
        body: None,
    };
    request(&response, delta, report.problem.clone())
}
