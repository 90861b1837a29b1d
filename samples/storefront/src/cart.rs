//! What customers mean to buy, over gRPC.

mod wire {
    #![allow(missing_docs, unreachable_pub, unused_qualifications, clippy::all, reason = "generated")]
    tonic::include_proto!("storefront.v1");
}

use anyhow::Result;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Response, Status};

use crate::place::listen;
use wire::cart_service_client::CartServiceClient;
use wire::cart_service_server::{CartService, CartServiceServer};
use wire::{Cart, GetCartRequest, Item};

struct Carts;

#[tonic::async_trait]
impl CartService for Carts {
    async fn get_cart(&self, request: Request<GetCartRequest>) -> Result<Response<Cart>, Status> {
        let items = [("kettle", 1), ("notebook", 3)];
        let items = items.map(|(product, quantity)| Item { product: product.to_owned(), quantity });
        Ok(Response::new(Cart { customer: request.into_inner().customer, items: items.into() }))
    }
}

pub(crate) async fn serve() -> Result<()> {
    let listener = listen(9000).await?;
    let service = TowerToHyperService::new(CartServiceServer::new(Carts));
    loop {
        let (stream, _) = listener.accept().await?;
        let service = service.clone();
        tokio::spawn(async move {
            let connection = Builder::new(TokioExecutor::new()).http2_only();
            if let Err(error) = connection.serve_connection(TokioIo::new(stream), service).await {
                println!("{error}");
            }
        });
    }
}

/// Asks the cart.
#[derive(Clone)]
pub(crate) struct Client(CartServiceClient<Channel>);

impl Client {
    pub(crate) fn new(address: &str) -> Result<Self> {
        let endpoint = Endpoint::from_shared(format!("http://{address}"))?.origin("http://cart".parse()?);
        Ok(Self(CartServiceClient::new(endpoint.connect_lazy())))
    }

    /// The cart of a customer; what went wrong if it cannot be had.
    pub(crate) async fn get(&self, customer: &str) -> Result<Value, String> {
        let request = GetCartRequest { customer: customer.to_owned() };
        let cart = self.0.clone().get_cart(request).await.map_err(|status| status.to_string())?.into_inner();
        let items = cart.items.iter().map(|item| json!({"product": item.product, "quantity": item.quantity}));
        Ok(json!({"customer": cart.customer, "items": items.collect::<Vec<_>>()}))
    }
}
