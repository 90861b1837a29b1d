//! What customers think, in three versions: without stars, with black ones and with red ones.

use anyhow::Result;
use axum::http::{HeaderName, HeaderValue};
use axum::routing::get;
use axum::{Json, Router};
use serde_json::{Value, json};

use crate::place::{listen, version};

pub(crate) async fn serve() -> Result<()> {
    let version = version();
    let header = HeaderValue::from_str(&version)?;
    let reviews = reviews(&version);
    let answer = move || async move { ([(HeaderName::from_static("x-version"), header)], Json(reviews)) };
    let router = Router::new().route("/reviews", get(answer));
    Ok(axum::serve(listen(8080).await?, router).await?)
}

fn reviews(version: &str) -> Value {
    let color = match version {
        "v1" => None,
        "v2" => Some("black"),
        _ => Some("red"),
    };
    let review = |text: &str, stars: u8| match color {
        Some(color) => json!({"text": text, "stars": stars, "color": color}),
        None => json!({"text": text}),
    };
    json!({"version": version, "reviews": [review("Boils water.", 5), review("A bit loud.", 4)]})
}
