//! HTTP headers: their names, and values with the variables a proxy fills in.

mod value;

use super::code::{Fault, codes};
use crate::jwt::routing_claim;

pub(super) use value::CODES as VALUE_CODES;
pub use value::value;

codes! {
    EMPTY_NAME: error "header-name-empty", "give the name of a header";
    BAD_NAME: error "header-name-invalid", "use letters, digits and dashes";
    HOST_OPERATION: error "header-operation-on-host", "rewrite the authority instead";
    PSEUDO_OPERATION: error "header-operation-on-pseudo-header", "pseudo headers cannot be changed; rewrite the request";
}

fn named(name: &str) -> Result<(), Fault> {
    if name.is_empty() { Err(EMPTY_NAME.says("header name cannot be empty")) } else { Ok(()) }
}

fn made_of(name: &str, allowed: impl Fn(u8) -> bool) -> Result<(), Fault> {
    if name.bytes().all(allowed) {
        return Ok(());
    }
    Err(BAD_NAME.says(format!("header name {name} is not a valid header name")).with_value(name))
}

/// The characters RFC 7230 allows in names.
const fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#'
                | b'$'
                | b'%'
                | b'&'
                | b'\''
                | b'*'
                | b'+'
                | b'-'
                | b'.'
                | b'^'
                | b'_'
                | b'`'
                | b'|'
                | b'~'
        )
}

/// A name of letters, digits, dashes and underscores.
pub fn strict_name(name: &str) -> Result<(), Fault> {
    named(name)?;
    made_of(name, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// A name as Kubernetes takes it in probes: letters, digits and dashes.
pub fn probe_name(name: &str) -> Result<(), Fault> {
    named(name)?;
    made_of(name, |byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

/// A name as CORS lists it: any that HTTP allows, or `*`.
pub fn cors_name(name: &str) -> Result<(), Fault> {
    named(name)?;
    made_of(name, is_token)
}

/// A name to match on: any that HTTP allows, a pseudo header, or a claim of a token.
pub fn match_name(name: &str) -> Result<(), Fault> {
    named(name)?;
    let is_pseudo = matches!(name, ":method" | ":scheme" | ":authority" | ":path" | ":status");
    if is_pseudo || routing_claim(name).is_some() {
        return Ok(());
    }
    made_of(name, is_token)
}

/// A header that requests may be given: not a pseudo header, except for the authority.
pub fn settable_on_request(name: &str) -> Result<(), Fault> {
    named(name)?;
    if is_internal(name) && !is_authority(name) { Err(pseudo(name)) } else { Ok(()) }
}

/// A header that may be taken from requests, and given to or taken from responses.
pub fn changeable(name: &str) -> Result<(), Fault> {
    named(name)?;
    if name.eq_ignore_ascii_case("host") {
        let message = format!("invalid header {}: cannot set Host header", crate::text::quoted(name));
        return Err(HOST_OPERATION.says(message).with_value(name));
    }
    if is_internal(name) { Err(pseudo(name)) } else { Ok(()) }
}

fn pseudo(name: &str) -> Fault {
    let quoted = crate::text::quoted(name);
    PSEUDO_OPERATION
        .says(format!(r#"invalid header {quoted}: header cannot have ":" prefix"#))
        .with_value(name)
}

/// Whether a proxy keeps the header to itself.
fn is_internal(name: &str) -> bool {
    name.starts_with(':') || name.eq_ignore_ascii_case("host")
}

/// Whether a header is the authority of a request, by either name.
pub fn is_authority(name: &str) -> bool {
    name.eq_ignore_ascii_case(":authority") || name.eq_ignore_ascii_case("host")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn authority_can_be_set_but_other_pseudo_headers_cannot() {
        for name in [":authority", "Host", "x-a"] {
            assert!(settable_on_request(name).is_ok(), "{name}");
        }
        let fault = settable_on_request(":path").unwrap_err();
        assert_eq!(fault.to_string(), r#"invalid header ":path": header cannot have ":" prefix"#);
        assert_eq!(
            changeable("HOST").unwrap_err().to_string(),
            r#"invalid header "HOST": cannot set Host header"#
        );
    }

    #[test]
    fn claim_of_a_token_is_a_name_to_match_on() {
        assert!(match_name("@request.auth.claims.sub").is_ok());
        assert!(match_name("@request.auth.claims").is_err());
        assert!(cors_name("*").is_ok() && strict_name("*").is_err() && probe_name("a_b").is_err());
    }
}
