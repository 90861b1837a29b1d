//! Keys of tokens that Envoy cannot read, for which it would refuse the whole listener.
//!
//! Istio sends them all the same, so a proxy that does not say what it was built with still gets them.

use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::{DataSource, data_source::Specifier};
use canopus_proto::envoy::extensions::filters::http::jwt_authn::v3::JwtAuthentication;
use canopus_proto::envoy::extensions::filters::http::jwt_authn::v3::jwt_provider::JwksSourceSpecifier;

use super::{UNKNOWN_KEYS, key_set};
use crate::audience::Build;

/// Keys that cannot be read are keys that nobody has: no token passes.
pub(super) fn readable_keys(build: &Build, config: Any) -> Any {
    if !build.is_known() {
        return config;
    }
    let Ok(mut filter) = config.unpack::<JwtAuthentication>() else { return config };
    let mut repaired = false;
    for provider in filter.providers.values_mut() {
        if let Some(JwksSourceSpecifier::LocalJwks(DataSource {
            specifier: Some(Specifier::InlineString(keys)),
            ..
        })) = &mut provider.jwks_source_specifier
            && !key_set::are_usable(keys)
        {
            UNKNOWN_KEYS.clone_into(keys);
            repaired = true;
        }
    }
    if repaired { Any::pack(&filter) } else { config }
}

#[cfg(test)]
mod tests {
    use super::key_set::are_usable;
    use super::*;

    #[test]
    fn keys_are_usable_if_one_of_them_is() {
        let modulus = "A".repeat(86) + "E";
        let good = format!(r#"{{"kty":"RSA","e":"AQAB","n":"{modulus}"}}"#);
        let short = r#"{"kty":"RSA","e":"AQAB","n":"abc"}"#;
        assert!(are_usable(&format!(r#"{{"keys":[{short},{good}]}}"#)));
        assert!(!are_usable(&format!(r#"{{"keys":[{short}]}}"#)));
        assert!(are_usable(UNKNOWN_KEYS));
        for useless in
            ["", "{}", r#"{"keys":[]}"#, r#"{"keys":{}}"#, r#"{"keys":[{"kty":"EC","crv":"P-1"}]}"#]
        {
            assert!(!are_usable(useless), "{useless}");
        }
    }
}
