//! TokenReviews: which service account a token belongs to.

use serde_json::{Value, json};

use super::server::{Cluster, Failure};

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";

/// Answers are short, though they repeat the token.
const MAX_BYTES: usize = 256 << 10;

/// The group of all service accounts.
const SERVICE_ACCOUNTS: &str = "system:serviceaccounts";

/// The service account a token was issued to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOwner {
    /// The namespace of the account.
    pub namespace: Box<str>,
    /// The name of the account.
    pub service_account: Box<str>,
    /// The pod the token is bound to, if any.
    pub pod: Option<TokenPod>,
}

/// The pod a token is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenPod {
    /// Name of the pod.
    pub name: Box<str>,
    /// UID of the pod.
    pub uid: Box<str>,
}

/// Why a token proves nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The API server does not take it: it is expired, meant for others, or no token at all.
    #[error("the API server refuses the token: {0}")]
    Refused(String),
    /// The token does not belong to a service account.
    #[error("the token is not that of a service account")]
    NotAServiceAccount,
    /// The API server could not be asked.
    #[error("the API server does not say whose token it is: {0}")]
    Unanswered(String),
}

impl Cluster {
    /// The owner of a token that is meant for one of `audiences`.
    pub async fn owner_of_token(&self, token: &str, audiences: &[String]) -> Result<TokenOwner, TokenError> {
        let review = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences},
        });
        let fail = |failure: Failure| TokenError::Unanswered(failure.to_string());
        let answer = self.post(PATH, review.to_string(), MAX_BYTES).await.map_err(fail)?;
        let answer = serde_json::from_slice(&answer);
        owner(&answer.map_err(|error| TokenError::Unanswered(error.to_string()))?, audiences)
    }
}

/// The owner that the answer to a review names.
fn owner(review: &Value, audiences: &[String]) -> Result<TokenOwner, TokenError> {
    let status = &review["status"];
    if let Some(error) = status["error"].as_str().filter(|error| !error.is_empty()) {
        return Err(TokenError::Refused(error.to_owned()));
    }
    if status["authenticated"] != true {
        return Err(TokenError::Refused("it is not authenticated".to_owned()));
    }
    // An API server whose authenticators know nothing of audiences names none, and has checked none.
    let confirmed = status["audiences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let is_ours = |audience: &Value| audiences.iter().any(|own| *audience == **own);
    if !audiences.is_empty() && !confirmed.iter().any(is_ours) {
        return Err(TokenError::Refused(
            "the API server has not confirmed that it is meant for us".to_owned(),
        ));
    }
    let groups = status["user"]["groups"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !groups.iter().any(|group| group == SERVICE_ACCOUNTS) {
        return Err(TokenError::NotAServiceAccount);
    }
    let name = status["user"]["username"].as_str().unwrap_or_default();
    let owner = service_account(name).ok_or(TokenError::NotAServiceAccount)?;
    Ok(TokenOwner { pod: pod(&status["user"]["extra"]), ..owner })
}

/// The pod that the answer to a review names.
fn pod(extra: &Value) -> Option<TokenPod> {
    let text = |key: &str| extra[key][0].as_str().filter(|text| !text.is_empty());
    let name = text("authentication.kubernetes.io/pod-name")?.into();
    Some(TokenPod { name, uid: text("authentication.kubernetes.io/pod-uid")?.into() })
}

/// The account behind the name of a user.
fn service_account(user: &str) -> Option<TokenOwner> {
    let (namespace, account) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
    let is_name = |text: &str| !text.is_empty() && !text.contains(':');
    let owner = || TokenOwner { namespace: namespace.into(), service_account: account.into(), pod: None };
    (is_name(namespace) && is_name(account)).then(owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review(status: Value) -> Result<TokenOwner, TokenError> {
        owner(&json!({ "status": status }), &[])
    }

    fn user(name: &str, groups: &[&str]) -> Result<TokenOwner, TokenError> {
        review(json!({"authenticated": true, "user": {"username": name, "groups": groups}}))
    }

    #[test]
    fn owner_is_the_service_account_that_was_authenticated() {
        let owner = user("system:serviceaccount:shop:cart", &["system:authenticated", SERVICE_ACCOUNTS]);
        assert_eq!(
            owner,
            Ok(TokenOwner { namespace: "shop".into(), service_account: "cart".into(), pod: None })
        );
    }

    #[test]
    fn owner_runs_in_the_pod_its_token_is_bound_to() {
        let user = json!({
            "username": "system:serviceaccount:shop:cart",
            "groups": [SERVICE_ACCOUNTS],
            "extra": {
                "authentication.kubernetes.io/pod-name": ["cart-1"],
                "authentication.kubernetes.io/pod-uid": ["7f"],
            },
        });
        let owner = review(json!({"authenticated": true, "user": user})).unwrap();
        assert_eq!(owner.pod, Some(TokenPod { name: "cart-1".into(), uid: "7f".into() }));
    }

    #[test]
    fn users_that_are_no_service_accounts_own_nothing() {
        for (name, groups) in [
            ("system:serviceaccount:shop:cart", &[][..]),
            ("admin", &[SERVICE_ACCOUNTS]),
            ("system:serviceaccount:shop", &[SERVICE_ACCOUNTS]),
            ("system:serviceaccount:shop:cart:more", &[SERVICE_ACCOUNTS]),
            ("system:serviceaccount::cart", &[SERVICE_ACCOUNTS]),
        ] {
            assert_eq!(user(name, groups), Err(TokenError::NotAServiceAccount), "{name}");
        }
    }

    #[test]
    fn audience_has_to_be_confirmed() {
        let asked = ["istio-ca".to_owned()];
        let user = json!({"username": "system:serviceaccount:shop:cart", "groups": [SERVICE_ACCOUNTS]});
        for (confirmed, accepted) in [
            (json!(["istio-ca"]), true),
            (json!(["other", "istio-ca"]), true),
            (json!(["other"]), false),
            (json!([]), false),
            (Value::Null, false),
        ] {
            let review = json!({"status": {"authenticated": true, "audiences": confirmed, "user": user}});
            assert_eq!(owner(&review, &asked).is_ok(), accepted, "{confirmed}");
            assert!(owner(&review, &[]).is_ok(), "nothing was asked");
        }
    }

    #[test]
    fn tokens_that_are_refused_say_why() {
        let refused = |text: &str| Err(TokenError::Refused(text.to_owned()));
        assert_eq!(review(json!({"error": "expired"})), refused("expired"));
        assert_eq!(review(json!({"authenticated": false})), refused("it is not authenticated"));
        assert_eq!(review(json!({})), refused("it is not authenticated"));
    }
}
