//! gRPC calls whose messages are bytes, for requests that no client would make.

use bytes::{Buf as _, BufMut as _, Bytes};
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Request, Status};

/// The first answer to a call with one message.
pub async fn grpc_call(channel: Channel, path: &str, message: impl Into<Bytes>) -> Result<Bytes, Status> {
    let mut client = Grpc::new(channel);
    client.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let path = path.parse().map_err(|_| Status::internal(format!("{path} is no path")))?;
    let response = client.server_streaming(Request::new(message.into()), path, Raw).await?;
    response.into_inner().message().await?.ok_or_else(|| Status::ok("the stream ended"))
}

/// Messages as bytes.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, item: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
