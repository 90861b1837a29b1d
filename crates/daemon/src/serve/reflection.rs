//! `grpc.reflection`, by which tools such as `grpcurl` learn what the server speaks.
//!
//! Both versions have the same messages. What is described is the pool of descriptors that the process has anyway; it is
//! unpacked when somebody asks. By hand, as `tonic-reflection` keeps a second copy of all descriptors for each version, made at
//! the start, and answers nothing about extensions.

use std::collections::BTreeSet;

use axum::http::{Request, Response};
use bytes::Bytes;
use canopus_proto::grpc::reflection::v1::server_reflection_request::MessageRequest;
use canopus_proto::grpc::reflection::v1::server_reflection_response::MessageResponse;
use canopus_proto::grpc::reflection::v1::{
    ErrorResponse, ExtensionNumberResponse, ExtensionRequest, FileDescriptorResponse, ListServiceResponse,
    ServerReflectionRequest, ServerReflectionResponse, ServiceResponse,
};
use canopus_proto::{Message as _, descriptors};
use tonic::body::Body;
use tonic::{Code, Status, Streaming};

use super::call::{self, Answers};

/// The method of each version.
const METHODS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// What its methods start with.
pub(super) const PREFIX: &str = "/grpc.reflection.";

/// The services that can be called.
const SERVICES: [&str; 1] = ["envoy.service.discovery.v3.AggregatedDiscoveryService"];

/// Answers questions about what the server speaks.
pub(super) async fn answer(request: Request<Body>) -> Response<Body> {
    if !METHODS.contains(&request.uri().path()) {
        return Status::unimplemented("there is no such method").into_http();
    }
    call::answer(request, talk).await
}

async fn talk(mut questions: Streaming<Bytes>, answers: Answers) {
    loop {
        let answer = match questions.message().await {
            Ok(Some(question)) => reply(question),
            Ok(None) => return,
            Err(status) => Err(status),
        };
        let ended = answer.is_err();
        if answers.send(answer).await.is_err() || ended {
            return;
        }
    }
}

/// The answer to one question. That something is not known is an answer too.
fn reply(question: Bytes) -> Result<Bytes, Status> {
    let asked = ServerReflectionRequest::decode(question)
        .map_err(|error| Status::invalid_argument(format!("the question cannot be read: {error}")))?;
    let found = match &asked.message_request {
        None => return Err(Status::invalid_argument("nothing is asked")),
        Some(MessageRequest::FileByFilename(name)) => file(name),
        Some(MessageRequest::FileContainingSymbol(name)) => symbol(name),
        Some(MessageRequest::FileContainingExtension(extension)) => file_of_extension(extension),
        Some(MessageRequest::AllExtensionNumbersOfType(name)) => extension_numbers(name),
        Some(MessageRequest::ListServices(_)) => Some(services()),
    };
    let answer = ServerReflectionResponse {
        valid_host: asked.host.clone(),
        message_response: Some(found.unwrap_or_else(not_found)),
        original_request: Some(asked),
    };
    Ok(answer.encode_to_vec().into())
}

fn services() -> MessageResponse {
    let service = SERVICES.into_iter().map(|name| ServiceResponse { name: name.to_owned() }).collect();
    MessageResponse::ListServicesResponse(ListServiceResponse { service })
}

fn not_found() -> MessageResponse {
    let error_message = "it is not known here".to_owned();
    MessageResponse::ErrorResponse(ErrorResponse { error_code: Code::NotFound as i32, error_message })
}

fn files(encoded: Vec<Bytes>) -> MessageResponse {
    MessageResponse::FileDescriptorResponse(FileDescriptorResponse { file_descriptor_proto: encoded })
}

fn file(name: &str) -> Option<MessageResponse> {
    let file = descriptors::pool().get_file_by_name(name)?;
    Some(files(vec![file.encode_to_vec().into()]))
}

/// The file in which something is defined, with all that it rests on: most tools ask for those next.
fn symbol(name: &str) -> Option<MessageResponse> {
    let pool = descriptors::pool();
    // Methods, fields and values are found by what they belong to.
    let owner = name.rsplit_once('.').map_or(name, |(owner, _)| owner);
    let place = [name, owner].into_iter().find_map(|name| {
        let message = pool.get_message_by_name(name).map(|found| found.parent_file());
        let message = message.or_else(|| pool.get_service_by_name(name).map(|found| found.parent_file()));
        let message = message.or_else(|| pool.get_enum_by_name(name).map(|found| found.parent_file()));
        message.or_else(|| pool.get_extension_by_name(name).map(|found| found.parent_file()))
    })?;
    let (mut seen, mut waiting, mut encoded) = (BTreeSet::new(), vec![place], Vec::new());
    while let Some(file) = waiting.pop() {
        if seen.insert(file.name().to_owned()) {
            encoded.push(file.encode_to_vec().into());
            waiting.extend(file.dependencies());
        }
    }
    Some(files(encoded))
}

/// The file that extends a type by a field of a number.
fn file_of_extension(asked: &ExtensionRequest) -> Option<MessageResponse> {
    let number = u32::try_from(asked.extension_number).ok()?;
    let extension = descriptors::message(&asked.containing_type)?.get_extension(number)?;
    file(extension.parent_file().name())
}

fn extension_numbers(name: &str) -> Option<MessageResponse> {
    let extensions = descriptors::message(name)?;
    let numbers = extensions.extensions().filter_map(|extension| i32::try_from(extension.number()).ok());
    Some(MessageResponse::AllExtensionNumbersResponse(ExtensionNumberResponse {
        base_type_name: name.to_owned(),
        extension_number: numbers.collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADS: &str = SERVICES[0];

    fn ask(asked: MessageRequest) -> MessageResponse {
        let question = ServerReflectionRequest { host: "host".into(), message_request: Some(asked) };
        let answer = reply(question.encode_to_vec().into()).unwrap();
        let answer = ServerReflectionResponse::decode(answer).unwrap();
        assert_eq!((answer.valid_host.as_str(), answer.original_request), ("host", Some(question)));
        answer.message_response.unwrap()
    }

    /// How many files answer a question.
    fn files(asked: MessageRequest) -> Vec<Bytes> {
        let MessageResponse::FileDescriptorResponse(found) = ask(asked) else { panic!("no files") };
        found.file_descriptor_proto
    }

    #[test]
    fn services_can_be_listed_and_described() {
        let MessageResponse::ListServicesResponse(listed) = ask(MessageRequest::ListServices("*".into()))
        else {
            panic!("no services")
        };
        assert_eq!(listed.service[0].name, ADS);
        let encoded = |name: &str| descriptors::pool().get_file_by_name(name).unwrap().encode_to_vec();
        let ads = encoded("envoy/service/discovery/v3/ads.proto");
        let discovery = encoded("envoy/service/discovery/v3/discovery.proto");
        for symbol in [ADS.to_owned(), format!("{ADS}.StreamAggregatedResources")] {
            let files = files(MessageRequest::FileContainingSymbol(symbol));
            assert_eq!(files[0], ads);
            assert!(files.iter().any(|file| *file == discovery), "{} files", files.len());
        }
        let file = files(MessageRequest::FileByFilename("envoy/service/discovery/v3/ads.proto".into()));
        assert_eq!(file, [ads]);
    }

    #[test]
    fn what_is_not_known_is_an_answer() {
        let extension = ExtensionRequest { containing_type: "none.Such".into(), extension_number: 7 };
        for asked in [
            MessageRequest::FileByFilename("none".into()),
            MessageRequest::FileContainingSymbol("none.Such".into()),
            MessageRequest::FileContainingExtension(extension),
        ] {
            let answer = ask(asked);
            assert!(matches!(answer, MessageResponse::ErrorResponse(_)), "{answer:?}");
        }
    }

    #[test]
    fn nonsense_ends_the_call() {
        for question in [&b""[..], b"\xff", b"\x18\x01", b"\x22\x01\xff"] {
            let status = reply(Bytes::from_static(question)).unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{question:?}");
        }
    }
}
