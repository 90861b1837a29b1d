//! The gRPC ports.

use std::net::SocketAddr;
use std::sync::Arc;

use canopus_xds::server::{AdsService, Options, transport};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio_stream::Stream;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Error;
use tonic::transport::server::Connected;

use super::tls::{self, Acceptor};
use crate::control_plane::Mesh;

/// Who is at the far end of a connection, as the transport knows it; one of the extensions of each request.
#[derive(Clone, Debug)]
pub struct Caller {
    /// Where it connected from.
    pub address: Option<SocketAddr>,
    /// The SPIFFE identities of its certificate; `None` on a connection without TLS.
    pub identities: Option<Vec<String>>,
}

/// The services of the gRPC ports.
#[derive(Clone)]
pub struct Grpc {
    ads: AdsService<Mesh>,
    options: Options,
}

impl Grpc {
    /// The services of a mesh.
    pub fn new(mesh: Arc<Mesh>, options: Options) -> Self {
        Self { ads: AdsService::new(mesh, options.clone()), options }
    }

    /// Serves without TLS until `shutdown`, then ends the streams and waits for them.
    pub async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        self.serve_on(TcpListenerStream::new(listener), shutdown).await
    }

    /// Serves with TLS until `shutdown`, then ends the streams and waits for them.
    pub async fn serve_tls(
        &self,
        listener: TcpListener,
        acceptor: Acceptor,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), Error> {
        self.serve_on(tls::incoming(listener, acceptor), shutdown).await
    }

    async fn serve_on<I, IO>(&self, incoming: I, shutdown: impl Future<Output = ()>) -> Result<(), Error>
    where
        I: Stream<Item = std::io::Result<IO>>,
        IO: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        let (stopping, stopped) = tokio::sync::oneshot::channel::<()>();
        let ending = async {
            shutdown.await;
            self.ads.drain();
            drop(stopping);
        };
        let serving =
            transport(&self.options).serve_with_incoming_shutdown(self.ads.clone(), incoming, ending);
        let overdue = async {
            let _ = stopped.await;
            tokio::time::sleep(self.options.drain_timeout).await;
        };
        tokio::select! {
            served = serving => served,
            () = overdue => Ok(()),
        }
    }
}
