//! Request authentication: which tokens are accepted, and where they are looked for.

mod jwks;

use canopus_proto::istio::security::v1beta1::{ClaimToHeader, JwtRule};

use super::code::{Fault, codes};
use super::scope::Scope;
use super::{duration, header, selector};
use crate::istio::RequestAuthentication;
use crate::security::jwks::JwksServer;

codes! {
    EMPTY_AUDIENCE: error "jwt-audience-empty", "remove the empty audience";
    NO_ISSUER: error "jwt-without-issuer", "give issuer, jwksUri, or both";
    BAD_JWKS_URI: error "jwt-jwks-uri-invalid", "give an http or https url";
    BAD_JWKS: error "jwt-jwks-invalid", "give a JSON Web Key Set";
    PRIVATE_KEY: warning "jwt-jwks-private-key", "keep only the public part of the key: anyone who reads the object has it";
    EMPTY_HEADER: error "jwt-header-empty", "name the header, or remove it";
    EMPTY_PARAMETER: error "jwt-parameter-empty", "name the parameter, or remove it";
    EMPTY_COOKIE: error "jwt-cookie-empty", "name the cookie, or remove it";
    EMPTY_OUTPUT: error "jwt-output-incomplete", "give both claim and header";
}

/// Checks a RequestAuthentication.
pub fn check(policy: &RequestAuthentication, mut scope: Scope<'_>) {
    let spec = &policy.spec;
    let mut scope = scope.field("spec");
    let (selector, target) = (spec.selector.as_ref(), spec.target_ref.as_ref());
    selector::one_way(selector, target, &spec.target_refs, scope.again());
    scope.optional("selector", selector, selector::workload);
    selector::target_refs(target, &spec.target_refs, scope.again());
    scope.each("jwtRules", &spec.jwt_rules, |rule, mut scope| {
        scope.listed(|scope| jwt_rule(rule, scope));
    });
}

fn jwt_rule(rule: &JwtRule, mut scope: Scope<'_>) {
    scope.each("audiences", &rule.audiences, |audience, mut scope| {
        scope.add_if(audience.is_empty(), || EMPTY_AUDIENCE.says("audience must be non-empty string"));
    });
    scope.add_if(rule.issuer.is_empty() && rule.jwks_uri.is_empty(), || {
        NO_ISSUER.says("issuer or jwksUri must be non-empty string")
    });
    if !rule.jwks_uri.is_empty() {
        scope.field("jwksUri").require(jwks_uri(&rule.jwks_uri));
    }
    if !rule.jwks.is_empty() {
        jwks(&rule.jwks, scope.field("jwks"));
    }
    scope.each("fromHeaders", &rule.from_headers, |location, mut scope| {
        scope.field("name").add_if(location.name.is_empty(), || {
            EMPTY_HEADER.says("location header name must be non-empty string")
        });
    });
    scope.each("fromParams", &rule.from_params, |parameter, mut scope| {
        scope
            .add_if(parameter.is_empty(), || EMPTY_PARAMETER.says("location query must be non-empty string"));
    });
    scope.each("fromCookies", &rule.from_cookies, |cookie, mut scope| {
        scope.add_if(cookie.is_empty(), || EMPTY_COOKIE.says("cookie name must be non-empty string"));
    });
    scope.each("outputClaimToHeaders", &rule.output_claim_to_headers, output);
    duration::optional(rule.timeout.as_ref(), scope.field("timeout"));
}

fn jwks_uri(uri: &str) -> Result<(), Fault> {
    JwksServer::parse(uri).map(drop).map_err(|error| BAD_JWKS_URI.says(error.to_string()).with_value(uri))
}

/// Keys in the object itself. They are never part of a message: some might be secret.
fn jwks(text: &str, mut scope: Scope<'_>) {
    match jwks::parse(text) {
        Err(error) => scope.add(BAD_JWKS.says(format!("jwks parse error: {error}"))),
        Ok(keys) => {
            for (at, _) in keys.iter().enumerate().filter(|(_, key)| key.private) {
                scope.add(PRIVATE_KEY.says(format!(
                    "jwks key at index {at} contains private key material; only public keys are used for verification"
                )));
            }
        }
    }
}

fn output(output: &ClaimToHeader, mut scope: Scope<'_>) {
    if output.claim.is_empty() || output.header.is_empty() {
        let message = "outputClaimToHeaders header and claim value must be non-empty string";
        return scope.add(EMPTY_OUTPUT.says(message));
    }
    scope.field("header").require(header::strict_name(&output.header));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::validate::fragment;

    fn said(rule: &JwtRule) -> String {
        fragment(|mut scope| scope.listed(|scope| jwt_rule(rule, scope))).error_text().unwrap_or_default()
    }

    fn rule() -> JwtRule {
        JwtRule { issuer: "a".into(), ..JwtRule::default() }
    }

    #[test]
    fn everything_wrong_with_a_rule_is_listed() {
        assert_eq!(said(&rule()), "");
        let broken = JwtRule {
            audiences: vec!["a".into(), String::new()],
            from_params: vec![String::new()],
            ..rule()
        };
        assert_eq!(
            said(&broken),
            "2 errors occurred:\n\t* audience must be non-empty string\n\t* location query must be non-empty string\n\n"
        );
    }

    #[test]
    fn addresses_of_keys_are_refused_in_go_words() {
        let at = |uri: &str| said(&JwtRule { jwks_uri: uri.into(), ..rule() });
        assert_eq!(at("https://a.example/keys"), "");
        assert_eq!(
            at("https://a.example:x"),
            "1 error occurred:\n\t* parse \"https://a.example:x\": invalid port \":x\" after host\n\n"
        );
        assert_eq!(at("ftp://a"), "1 error occurred:\n\t* URI scheme \"ftp\" is not supported\n\n");
    }

    #[test]
    fn private_keys_are_warned_of_and_never_shown() {
        let text = r#"{"keys":[{"kty":"oct","k":"c2VjcmV0"},{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}]}"#;
        let report = fragment(|scope| jwks(text, scope));
        assert!(report.is_valid());
        assert_eq!(
            report.warning_text().unwrap(),
            "jwks key at index 0 contains private key material; only public keys are used for verification"
        );
        let broken = fragment(|scope| jwks(r#"{"keys":[{"kty":"oct","k":"c2VjcmV0!"}]}"#, scope));
        let text = broken.error_text().unwrap();
        assert!(text.starts_with("jwks parse error: ") && !text.contains("c2Vj"), "{text}");
    }
}
