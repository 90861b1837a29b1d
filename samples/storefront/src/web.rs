//! The page that customers see.

use anyhow::Result;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::cart;
use crate::client::{Answer, Service};
use crate::place::{listen, service};

/// The header that says which reviews were shown.
const REVIEWS_VERSION: &str = "x-reviews-version";

#[derive(Clone)]
struct Peers {
    catalogue: Service,
    reviews: Service,
    payment: Service,
    cart: cart::Client,
}

type Page = (StatusCode, HeaderMap, Json<Value>);

pub(crate) async fn serve() -> Result<()> {
    let peers = Peers {
        catalogue: Service::new("catalogue", service("catalogue", 8080)),
        reviews: Service::new("reviews", service("reviews", 8080)),
        payment: Service::new("payments.example.com", service("payment", 8080)),
        cart: cart::Client::new(&service("cart", 9000))?,
    };
    let router = Router::new()
        .route("/", get(home))
        .route("/reviews", get(reviews))
        .route("/checkout", get(checkout))
        .with_state(peers);
    Ok(axum::serve(listen(8080).await?, router).await?)
}

/// Everything at once; what cannot be had is shown as an error and spoils the page.
async fn home(State(peers): State<Peers>) -> Page {
    let (catalogue, reviews, cart) =
        tokio::join!(peers.catalogue.get("/products"), peers.reviews.get("/reviews"), peers.cart.get("ada"));
    let headers = reviews_version(reviews.as_ref().ok());
    let (catalogue_status, catalogue) = told(catalogue);
    let (reviews_status, reviews) = told(reviews);
    let (cart_status, cart) =
        cart.map_or_else(|error| (StatusCode::BAD_GATEWAY, error.into()), |cart| (StatusCode::OK, cart));
    let status = [catalogue_status, reviews_status, cart_status].into_iter().max().unwrap_or_default();
    (status, headers, Json(json!({"catalogue": catalogue, "reviews": reviews, "cart": cart})))
}

async fn reviews(State(peers): State<Peers>) -> Page {
    let answer = peers.reviews.get("/reviews").await;
    let headers = reviews_version(answer.as_ref().ok());
    let (status, reviews) = told(answer);
    (status, headers, Json(reviews))
}

async fn checkout(State(peers): State<Peers>) -> Page {
    let (status, payment) = told(peers.payment.get("/charge").await);
    (status, HeaderMap::new(), Json(payment))
}

fn told(answer: Result<Answer>) -> (StatusCode, Value) {
    match answer {
        Ok(answer) => (answer.status, answer.json()),
        Err(error) => (StatusCode::BAD_GATEWAY, json!({"error": format!("{error:#}")})),
    }
}

fn reviews_version(answer: Option<&Answer>) -> HeaderMap {
    let version = answer.and_then(|answer| answer.headers.get("x-version").cloned());
    let version = version.unwrap_or_else(|| HeaderValue::from_static("none"));
    HeaderMap::from_iter([(HeaderName::from_static(REVIEWS_VERSION), version)])
}
