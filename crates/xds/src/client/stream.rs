//! One ADS stream, message by message.

use canopus_proto::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use canopus_proto::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, DiscoveryRequest, DiscoveryResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;
use tonic::{Status, Streaming};

use super::message::{Update, to_delta, to_sotw};
use crate::session::{Protocol, Request};

/// Requests that may wait to be sent.
const QUEUE: usize = 16;

/// An open ADS stream.
pub struct AdsStream(Variant);

enum Variant {
    Sotw(mpsc::Sender<DiscoveryRequest>, Streaming<DiscoveryResponse>),
    Delta(mpsc::Sender<DeltaDiscoveryRequest>, Streaming<DeltaDiscoveryResponse>),
}

impl AdsStream {
    /// Opens a stream with its first request: some servers say nothing at all before they have one.
    pub async fn open(
        channel: Channel,
        protocol: Protocol,
        headers: MetadataMap,
        first: Request,
    ) -> Result<Self, Status> {
        Self::open_bounded(channel, protocol, headers, first, usize::MAX).await
    }

    /// As [`AdsStream::open`], for a server that is not trusted with all memory: a message of more bytes ends the stream.
    pub async fn open_bounded(
        channel: Channel,
        protocol: Protocol,
        headers: MetadataMap,
        first: Request,
        limit: usize,
    ) -> Result<Self, Status> {
        let mut client = AggregatedDiscoveryServiceClient::new(channel).max_decoding_message_size(limit);
        Ok(Self(match protocol {
            Protocol::Sotw => {
                let (requests, outbound) = queue(to_sotw(first), headers);
                let inbound = client.stream_aggregated_resources(outbound).await?;
                Variant::Sotw(requests, inbound.into_inner())
            }
            Protocol::Delta => {
                let (requests, outbound) = queue(to_delta(first), headers);
                let inbound = client.delta_aggregated_resources(outbound).await?;
                Variant::Delta(requests, inbound.into_inner())
            }
        }))
    }

    /// Sends a request.
    pub async fn send(&self, request: Request) -> Result<(), Status> {
        let sent = match &self.0 {
            Variant::Sotw(requests, _) => requests.send(to_sotw(request)).await.is_ok(),
            Variant::Delta(requests, _) => requests.send(to_delta(request)).await.is_ok(),
        };
        sent.then_some(()).ok_or_else(|| Status::unavailable("the server closed the stream"))
    }

    /// Waits for the next message; `None` when the server ended the stream in good order.
    pub async fn next(&mut self) -> Result<Option<Update>, Status> {
        Ok(match &mut self.0 {
            Variant::Sotw(_, responses) => responses.message().await?.map(Update::from),
            Variant::Delta(_, responses) => responses.message().await?.map(Update::from),
        })
    }
}

fn queue<M>(first: M, headers: MetadataMap) -> (mpsc::Sender<M>, tonic::Request<ReceiverStream<M>>) {
    let (requests, outbound) = mpsc::channel(QUEUE);
    requests.try_send(first).unwrap_or_else(|_| unreachable!("an empty queue has room"));
    let mut outbound = tonic::Request::new(ReceiverStream::new(outbound));
    *outbound.metadata_mut() = headers;
    (requests, outbound)
}
