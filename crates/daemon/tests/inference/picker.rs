//! An endpoint picker: a server that gateways ask, over Envoy's external processing, which endpoint takes a request.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use axum::Router;
use bytes::BytesMut;
use canopus_proto::envoy::config::core::v3::{HeaderValue, HeaderValueOption, Metadata};
use canopus_proto::envoy::service::ext_proc::v3::body_mutation::Mutation;
use canopus_proto::envoy::service::ext_proc::v3::external_processor_server::{
    ExternalProcessor, ExternalProcessorServer,
};
use canopus_proto::envoy::service::ext_proc::v3::processing_request::Request as Asked;
use canopus_proto::envoy::service::ext_proc::v3::processing_response::Response as Answer;
use canopus_proto::envoy::service::ext_proc::v3::{
    BodyMutation, BodyResponse, CommonResponse, HeaderMutation, HeadersResponse, HttpBody, ImmediateResponse,
    ProcessingRequest, ProcessingResponse, StreamedBodyResponse, TrailersResponse,
};
use canopus_proto::envoy::r#type::v3::{HttpStatus, StatusCode};
use canopus_proto::google::protobuf::value::Kind;
use canopus_proto::google::protobuf::{Struct, Value};
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::mpsc::{self, UnboundedSender};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// The header and the key of metadata with the chosen endpoints.
const CHOSEN: &str = "x-gateway-destination-endpoint";
/// The key of metadata with the endpoint that took the request.
const SERVED: &str = "x-gateway-destination-endpoint-served";
/// The namespace of both.
const METADATA: &str = "envoy.lb";

/// A header of responses with the model that the picker read in the request's body.
pub(crate) const MODEL: &str = "x-model";

/// A running picker.
pub(crate) struct Picker {
    address: SocketAddr,
    served: Arc<Mutex<Vec<String>>>,
    server: JoinHandle<()>,
}

impl Picker {
    /// Starts a picker that knows which endpoints to name for a model, in order. Requests for other models are turned away,
    /// as those are that no endpoint has room for.
    pub(crate) async fn start(models: BTreeMap<&'static str, String>) -> Result<Self> {
        let served = Arc::<Mutex<Vec<String>>>::default();
        let service =
            ExternalProcessorServer::new(Picking { models: Arc::new(models), served: Arc::clone(&served) });
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let server = tokio::spawn(async move {
            // Serving ends with the task; there is no other way out to report.
            let _ = axum::serve(listener, Router::new().fallback_service(service)).await;
        });
        Ok(Self { address, served, server })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// The endpoints that the gateway says took a request, in the order of the responses.
    pub(crate) fn served(&self) -> Vec<String> {
        self.served.lock().clone()
    }
}

impl Drop for Picker {
    fn drop(&mut self) {
        self.server.abort();
    }
}

#[derive(Clone)]
struct Picking {
    models: Arc<BTreeMap<&'static str, String>>,
    served: Arc<Mutex<Vec<String>>>,
}

#[tonic::async_trait]
impl ExternalProcessor for Picking {
    type ProcessStream = UnboundedReceiverStream<Result<ProcessingResponse, Status>>;

    async fn process(
        &self,
        request: Request<Streaming<ProcessingRequest>>,
    ) -> Result<Response<Self::ProcessStream>, Status> {
        let (answers, sent) = mpsc::unbounded_channel();
        let mut exchange =
            Exchange { picking: self.clone(), answers, body: BytesMut::new(), model: String::new() };
        let mut asked = request.into_inner();
        tokio::spawn(async move {
            while let Ok(Some(message)) = asked.message().await {
                // The gateway ends the stream when it is done, and then nobody takes answers any more.
                if let Some(request) = message.request
                    && exchange.hear(request, message.metadata_context).is_err()
                {
                    return;
                }
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(sent)))
    }
}

/// A request and its response, as they pass.
struct Exchange {
    picking: Picking,
    answers: UnboundedSender<Result<ProcessingResponse, Status>>,
    body: BytesMut,
    model: String,
}

impl Exchange {
    fn hear(&mut self, asked: Asked, metadata: Option<Metadata>) -> Result<()> {
        match asked {
            Asked::RequestHeaders(headers) if headers.end_of_stream => self.pick(),
            // The model is in the body.
            Asked::RequestHeaders(_) => Ok(()),
            Asked::RequestBody(chunk) => {
                self.body.extend_from_slice(&chunk.body);
                if chunk.end_of_stream { self.pick() } else { Ok(()) }
            }
            Asked::RequestTrailers(_) => self.answer(Answer::RequestTrailers(TrailersResponse::default())),
            Asked::ResponseHeaders(_) => {
                self.picking.served.lock().push(served(metadata).unwrap_or_default());
                self.answer(Answer::ResponseHeaders(set_header(MODEL, &self.model)))
            }
            Asked::ResponseBody(chunk) => self.answer(Answer::ResponseBody(forward(chunk))),
            Asked::ResponseTrailers(_) => self.answer(Answer::ResponseTrailers(TrailersResponse::default())),
        }
    }

    /// Names the endpoints for the request, whose body is complete, and lets the gateway have it.
    fn pick(&mut self) -> Result<()> {
        let body = self.body.split().freeze();
        let request: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        request["model"].as_str().unwrap_or_default().clone_into(&mut self.model);
        let Some(endpoints) = self.picking.models.get(&*self.model).cloned() else {
            let full = ImmediateResponse {
                status: Some(HttpStatus { code: StatusCode::TooManyRequests as i32 }),
                body: format!("no room for {:?}", self.model).into(),
                ..Default::default()
            };
            return self.answer(Answer::ImmediateResponse(full));
        };
        let own = BTreeMap::from([(CHOSEN.to_owned(), text(&endpoints))]);
        let own = Value { kind: Some(Kind::StructValue(Struct { fields: own })) };
        let metadata = Struct { fields: [(METADATA.to_owned(), own)].into() };
        self.send(ProcessingResponse {
            dynamic_metadata: Some(metadata),
            response: Some(Answer::RequestHeaders(set_header(CHOSEN, &endpoints))),
            ..Default::default()
        })?;
        let whole = HttpBody { body, end_of_stream: true, ..Default::default() };
        self.answer(Answer::RequestBody(forward(whole)))
    }

    fn answer(&self, answer: Answer) -> Result<()> {
        self.send(ProcessingResponse { response: Some(answer), ..Default::default() })
    }

    fn send(&self, response: ProcessingResponse) -> Result<()> {
        self.answers.send(Ok(response)).context("nobody listens")
    }
}

fn set_header(name: &str, value: &str) -> HeadersResponse {
    let raw_value = value.as_bytes().to_vec().into();
    let header = HeaderValue { key: name.to_owned(), raw_value, ..Default::default() };
    let set_headers = vec![HeaderValueOption { header: Some(header), ..Default::default() }];
    let header_mutation = Some(HeaderMutation { set_headers, ..Default::default() });
    HeadersResponse { response: Some(CommonResponse { header_mutation, ..Default::default() }) }
}

/// Passes a part of a body on as it is.
fn forward(chunk: HttpBody) -> BodyResponse {
    let streamed =
        StreamedBodyResponse { body: chunk.body, end_of_stream: chunk.end_of_stream, ..Default::default() };
    let body_mutation = Some(BodyMutation { mutation: Some(Mutation::StreamedResponse(streamed)) });
    BodyResponse { response: Some(CommonResponse { body_mutation, ..Default::default() }) }
}

fn served(metadata: Option<Metadata>) -> Option<String> {
    let mut own = metadata?.filter_metadata.remove(METADATA)?;
    match own.fields.remove(SERVED)?.kind? {
        Kind::StringValue(endpoint) => Some(endpoint),
        _ => None,
    }
}

fn text(text: &str) -> Value {
    Value { kind: Some(Kind::StringValue(text.to_owned())) }
}
