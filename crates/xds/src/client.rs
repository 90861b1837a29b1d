//! An ADS client, for tools and tests.
//!
//! [`AdsStream`] carries single messages and leaves the rest to its caller. [`Follower`] is what a proxy does: it
//! acknowledges, keeps what it got, and asks for what the resources it got refer to. [`AdsClient`] is both together.

mod follower;
mod message;
mod references;
mod stream;

use canopus_proto::envoy::config::core::v3::Node;
use tonic::Status;
use tonic::metadata::MetadataMap;
use tonic::transport::Channel;

pub use follower::{Follower, HeldResource};
pub use message::{Received, Update};
pub use references::references;
pub use stream::AdsStream;

use crate::session::Protocol;

/// A follower on a stream.
pub struct AdsClient {
    channel: Channel,
    headers: MetadataMap,
    follower: Follower,
    stream: Option<AdsStream>,
}

impl AdsClient {
    /// A client that says it is `node`. It opens its stream when there is something to ask.
    pub fn new(channel: Channel, protocol: Protocol, node: Node) -> Self {
        Self { channel, headers: MetadataMap::new(), follower: Follower::new(protocol, node), stream: None }
    }

    /// The same client, sending these headers with each stream it opens.
    #[must_use]
    pub fn with_headers(mut self, headers: MetadataMap) -> Self {
        self.headers = headers;
        self
    }

    /// Subscriptions and resources of the client.
    pub fn follower(&self) -> &Follower {
        &self.follower
    }

    /// Subscriptions and resources of the client, to be changed.
    pub fn follower_mut(&mut self) -> &mut Follower {
        &mut self.follower
    }

    /// Sends what there is to ask, waits for the next update and takes it in; `None` when the server ends the stream.
    pub async fn step(&mut self) -> Result<Option<Update>, Status> {
        self.flush().await?;
        let Some(stream) = &mut self.stream else {
            return Ok(None);
        };
        let Some(update) = stream.next().await? else {
            self.disconnect();
            return Ok(None);
        };
        self.follower.accept(&update);
        self.flush().await?;
        Ok(Some(update))
    }

    /// Closes the stream. The next [`step`](Self::step) opens another and says what the client has.
    pub fn disconnect(&mut self) {
        self.stream = None;
        self.follower.reconnect();
    }

    async fn flush(&mut self) -> Result<(), Status> {
        for request in self.follower.take_requests() {
            match &self.stream {
                Some(stream) => stream.send(request).await?,
                None => {
                    let protocol = self.follower.protocol();
                    let opened =
                        AdsStream::open(self.channel.clone(), protocol, self.headers.clone(), request);
                    self.stream = Some(opened.await?);
                }
            }
        }
        Ok(())
    }
}
