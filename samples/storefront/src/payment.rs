//! A payment service of somebody else, outside the mesh.

use anyhow::Result;
use axum::routing::get;
use axum::{Json, Router};
use serde_json::json;

use crate::place::listen;

pub(crate) async fn serve() -> Result<()> {
    let charged = || async { Json(json!({"charged": true, "provider": "payments.example.com"})) };
    let router = Router::new().route("/charge", get(charged));
    Ok(axum::serve(listen(8080).await?, router).await?)
}
