//! What there is to buy, over HTTP, with the stock from the inventory.

use anyhow::Result;
use axum::routing::get;
use axum::{Json, Router, http::StatusCode};
use serde_json::{Value, json};

use crate::inventory;
use crate::place::listen;

const PRODUCTS: [(&str, u32); 3] = [("kettle", 3900), ("lamp", 2450), ("notebook", 590)];

pub(crate) async fn serve() -> Result<()> {
    let router = Router::new().route("/products", get(products));
    Ok(axum::serve(listen(8080).await?, router).await?)
}

async fn products() -> (StatusCode, Json<Value>) {
    match inventory::stock(PRODUCTS.map(|(name, _)| name)).await {
        Ok(stock) => {
            let products = PRODUCTS.iter().zip(stock);
            let products =
                products.map(|((name, cents), stock)| json!({"name": name, "cents": cents, "stock": stock}));
            (StatusCode::OK, Json(products.collect()))
        }
        Err(error) => (StatusCode::BAD_GATEWAY, Json(json!({"error": format!("inventory: {error:#}")}))),
    }
}
