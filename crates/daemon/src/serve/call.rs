//! Calls of services that are answered message by message, without a generated server.

use std::future::{Ready, ready};

use axum::http::{Request, Response};
use bytes::{Buf as _, BufMut as _, Bytes};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::server::{Grpc, StreamingService};
use tonic::{Status, Streaming};

/// The longest message that is read.
const LONGEST: usize = 64 << 10;

/// Answers that wait to be sent.
const WAITING: usize = 4;

/// Where the answers of a call go. It is closed when the caller is gone.
pub(super) type Answers = mpsc::Sender<Result<Bytes, Status>>;

/// Has `talk` answer a call, in a task of its own. Calls with one message in either direction are not told apart from
/// those with many: on the wire there is no difference.
pub(super) async fn answer<T, F>(request: Request<Body>, talk: T) -> Response<Body>
where
    T: FnOnce(Streaming<Bytes>, Answers) -> F + Send,
    F: Future<Output = ()> + Send + 'static,
{
    let mut grpc = Grpc::new(ByteCodec).max_decoding_message_size(LONGEST);
    grpc.streaming(Call(Some(talk)), request).await
}

struct Call<T>(Option<T>);

impl<T, F> StreamingService<Bytes> for Call<T>
where
    T: FnOnce(Streaming<Bytes>, Answers) -> F + Send,
    F: Future<Output = ()> + Send + 'static,
{
    type Response = Bytes;
    type ResponseStream = ReceiverStream<Result<Bytes, Status>>;
    type Future = Ready<Result<tonic::Response<Self::ResponseStream>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<Bytes>>) -> Self::Future {
        let (answers, sent) = mpsc::channel(WAITING);
        if let Some(talk) = self.0.take() {
            tokio::spawn(talk(request.into_inner(), answers));
        }
        ready(Ok(tonic::Response::new(ReceiverStream::new(sent))))
    }
}

/// Messages as bytes.
#[derive(Clone, Copy, Debug)]
struct ByteCodec;

impl Codec for ByteCodec {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }

    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for ByteCodec {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for ByteCodec {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
