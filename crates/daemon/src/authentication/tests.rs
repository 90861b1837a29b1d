use axum::http::header;
use serde_json::json;

use super::jwt::tests::{p256, token};
use super::*;

const CART: &str = "spiffe://cluster.local/ns/shop/sa/cart";

fn authenticators<const N: usize>(variables: [(&str, &str); N]) -> Authenticators {
    Authenticators::new(Engine::new(), &Flags::read(&variables), None).unwrap()
}

async fn identities(authenticators: &Authenticators, headers: &HeaderMap) -> Result<Vec<String>, String> {
    let presented = Presented { address: None, certified: &[], headers, door: Door::Grpc };
    authenticators.identities(&presented).await.map_err(|error| error.to_string())
}

fn bearing(token: &str) -> HeaderMap {
    HeaderMap::from_iter([(header::AUTHORIZATION, format!("Bearer {token}").parse().unwrap())])
}

#[tokio::test]
async fn certificate_beats_any_token() {
    let certified = [CART.to_owned()];
    let headers = bearing("nonsense");
    let presented = Presented { address: None, certified: &certified, headers: &headers, door: Door::Grpc };
    assert_eq!(authenticators([]).identities(&presented).await.unwrap(), certified);
}

#[tokio::test]
async fn nobody_is_somebody_without_credentials() {
    let none = authenticators([]);
    let reasons = identities(&none, &HeaderMap::new()).await.unwrap_err();
    assert_eq!(reasons, "there is no client certificate; there is no authorization header");
    let reasons = identities(&none, &bearing("secret")).await.unwrap_err();
    assert_eq!(reasons, "there is no client certificate; no tokens are accepted");
}

#[tokio::test]
async fn tokens_of_the_rule_prove_the_account_of_their_subject() {
    let (key, sign) = p256("a");
    let set = json!({ "keys": [key] }).to_string();
    let rule = json!({"issuer": "i", "audiences": ["istio-ca"], "jwks": set}).to_string();
    let by_rule = authenticators([("JWT_RULE", &rule)]);
    let claims = json!({"iss": "i", "aud": "istio-ca", "exp": 32_503_680_000_u64, "sub": "system:serviceaccount:shop:cart"});
    let signed = token(&json!({"alg": "ES256"}), &claims, sign);
    assert_eq!(identities(&by_rule, &bearing(&signed)).await.unwrap(), [CART]);
    let reasons = identities(&by_rule, &bearing("secret")).await.unwrap_err();
    assert_eq!(reasons, "there is no client certificate; token of i: it is not a signed token");
    assert!(by_rule.authenticate(None, &bearing(&signed)).await.is_some());

    let open = authenticators([("JWT_RULE", &rule), ("XDS_AUTH", "false")]);
    assert!(
        open.authenticate(None, &bearing(&signed)).await.is_none(),
        "nothing is checked, so nothing counts"
    );
}

#[test]
fn rule_that_cannot_be_read_is_an_error() {
    let failed = Authenticators::new(Engine::new(), &Flags::read(&[("JWT_RULE", "{")]), None);
    assert!(format!("{:#}", failed.err().unwrap()).starts_with("JWT_RULE: it is not a JSON object"));
}
