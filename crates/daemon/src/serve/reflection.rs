//! `grpc.reflection`, by which tools such as `grpcurl` learn what the server speaks.
//!
//! Both versions have the same messages. What is described is the pool of descriptors that the process has anyway; it is
//! unpacked when somebody asks. By hand, as `tonic-reflection` keeps a second copy of all descriptors for each version, made at
//! the start, answers nothing about extensions, and would bring `prost` in here.

use std::collections::BTreeSet;

use axum::http::{Request, Response};
use bytes::Bytes;
use canopus_proto::descriptors;
use tonic::body::Body;
use tonic::{Code, Status, Streaming};

use super::call::{self, Answers};
use crate::wire::{self, Value, Writer};

/// The method of each version.
const METHODS: [&str; 2] = [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
];

/// What its methods start with.
pub(super) const PREFIX: &str = "/grpc.reflection.";

/// The services that can be called.
const SERVICES: [&str; 1] = ["envoy.service.discovery.v3.AggregatedDiscoveryService"];

/// Fields of a question.
mod asked {
    pub(super) const FILE: u32 = 3;
    pub(super) const SYMBOL: u32 = 4;
    pub(super) const EXTENSION: u32 = 5;
    pub(super) const EXTENSION_NUMBERS: u32 = 6;
    pub(super) const SERVICES: u32 = 7;
}

/// Fields of an answer.
mod answered {
    pub(super) const HOST: u32 = 1;
    pub(super) const QUESTION: u32 = 2;
    pub(super) const FILES: u32 = 4;
    pub(super) const EXTENSION_NUMBERS: u32 = 5;
    pub(super) const SERVICES: u32 = 6;
    pub(super) const ERROR: u32 = 7;
}

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
    let unreadable = || Status::invalid_argument("the question cannot be read");
    let fields = wire::fields(question.clone()).ok_or_else(unreadable)?;
    let host = wire::text(&fields, 1).ok_or_else(unreadable)?;
    let Some((field, value)) =
        fields.iter().rfind(|(field, _)| (asked::FILE..=asked::SERVICES).contains(field))
    else {
        return Err(Status::invalid_argument("nothing is asked"));
    };
    let Value::Bytes(bytes) = value else { return Err(unreadable()) };
    let found = match *field {
        asked::FILE => file(&utf8(bytes)?),
        asked::SYMBOL => symbol(&utf8(bytes)?),
        asked::EXTENSION => extension(bytes.clone()).ok_or_else(unreadable)?,
        asked::EXTENSION_NUMBERS => extension_numbers(&utf8(bytes)?),
        _ => Some((answered::SERVICES, services())),
    };
    let (field, content) = found.unwrap_or_else(|| (answered::ERROR, not_found()));
    let answer = Writer::new().bytes(answered::HOST, host).bytes(answered::QUESTION, question);
    Ok(answer.bytes(field, content).finish())
}

/// A field of an answer and what it holds.
type Found = Option<(u32, Bytes)>;

fn utf8(bytes: &Bytes) -> Result<String, Status> {
    String::from_utf8(bytes.to_vec()).map_err(|_| Status::invalid_argument("a name is not UTF-8"))
}

fn services() -> Bytes {
    let entry = |name| Writer::new().bytes(1, name);
    SERVICES.into_iter().fold(Writer::new(), |all, name| all.bytes(1, entry(name))).finish()
}

fn not_found() -> Bytes {
    Writer::new().number(1, Code::NotFound as u64).bytes(2, "it is not known here").finish()
}

fn file(name: &str) -> Found {
    let file = descriptors::pool().get_file_by_name(name)?;
    Some((answered::FILES, Writer::new().bytes(1, file.encode_to_vec()).finish()))
}

/// The file in which something is defined, with all that it rests on: most tools ask for those next.
fn symbol(name: &str) -> Found {
    let pool = descriptors::pool();
    // Methods, fields and values are found by what they belong to.
    let owner = name.rsplit_once('.').map_or(name, |(owner, _)| owner);
    let place = [name, owner].into_iter().find_map(|name| {
        let message = pool.get_message_by_name(name).map(|found| found.parent_file());
        let message = message.or_else(|| pool.get_service_by_name(name).map(|found| found.parent_file()));
        let message = message.or_else(|| pool.get_enum_by_name(name).map(|found| found.parent_file()));
        message.or_else(|| pool.get_extension_by_name(name).map(|found| found.parent_file()))
    })?;
    let (mut seen, mut waiting, mut files) = (BTreeSet::new(), vec![place], Writer::new());
    while let Some(file) = waiting.pop() {
        if seen.insert(file.name().to_owned()) {
            files = files.bytes(1, file.encode_to_vec());
            waiting.extend(file.dependencies());
        }
    }
    Some((answered::FILES, files.finish()))
}

/// The file that extends a type by a field of this number; the outer `None` if the question cannot be read.
fn extension(question: Bytes) -> Option<Found> {
    let fields = wire::fields(question)?;
    let name = wire::text(&fields, 1)?;
    let number = fields.iter().find_map(|(field, value)| match value {
        Value::Number(number) if *field == 2 => u32::try_from(*number).ok(),
        _ => None,
    })?;
    let extension = descriptors::message(name).and_then(|message| message.get_extension(number));
    Some(extension.and_then(|extension| file(extension.parent_file().name())))
}

fn extension_numbers(name: &str) -> Found {
    let message = descriptors::message(name)?;
    let numbers = message
        .extensions()
        .fold(Writer::new().bytes(1, name), |all, extension| all.number(2, extension.number().into()));
    Some((answered::EXTENSION_NUMBERS, numbers.finish()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADS: &str = SERVICES[0];

    fn ask(field: u32, content: impl AsRef<[u8]>) -> Vec<(u32, Value)> {
        let question = Writer::new().bytes(1, "host").bytes(field, content).finish();
        wire::fields(reply(question).unwrap()).unwrap()
    }

    /// The messages in a field of the content of an answer.
    fn content(answer: &[(u32, Value)], field: u32) -> Vec<Bytes> {
        let (_, Value::Bytes(content)) = answer.iter().find(|(own, _)| *own == field).unwrap() else {
            panic!()
        };
        let parts = wire::fields(content.clone()).unwrap().into_iter();
        parts
            .filter_map(|(_, value)| if let Value::Bytes(bytes) = value { Some(bytes) } else { None })
            .collect()
    }

    #[test]
    fn services_can_be_listed_and_described() {
        let listed = content(&ask(asked::SERVICES, "*"), answered::SERVICES);
        assert_eq!(wire::text(&wire::fields(listed[0].clone()).unwrap(), 1), Some(ADS));
        let by_method = format!("{ADS}.StreamAggregatedResources");
        for symbol in [ADS, &by_method] {
            let files = content(&ask(asked::SYMBOL, symbol), answered::FILES);
            let names: Vec<_> = files
                .iter()
                .map(|file| wire::text(&wire::fields(file.clone()).unwrap(), 1).unwrap().to_owned())
                .collect();
            assert_eq!(names[0], "envoy/service/discovery/v3/ads.proto");
            assert!(
                names.iter().any(|name| name == "envoy/service/discovery/v3/discovery.proto"),
                "{names:?}"
            );
        }
        let file = content(&ask(asked::FILE, "envoy/service/discovery/v3/ads.proto"), answered::FILES);
        assert_eq!(file.len(), 1);
    }

    #[test]
    fn what_is_not_known_is_an_answer() {
        let extension = Writer::new().bytes(1, "none.Such").number(2, 7);
        for (field, name) in [
            (asked::FILE, b"none".as_slice()),
            (asked::SYMBOL, b"none.Such"),
            (asked::EXTENSION, extension.as_ref()),
        ] {
            let answer = ask(field, name);
            assert!(answer.iter().any(|(own, _)| *own == answered::ERROR), "{answer:?}");
            assert_eq!(wire::text(&answer, answered::HOST), Some("host"));
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
