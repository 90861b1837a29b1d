//! Answers that the proxy gives itself.

use canopus_proto::envoy::config::core::v3::{DataSource, data_source};
use canopus_proto::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use canopus_proto::envoy::config::route::v3::{DirectResponseAction, RedirectAction};
use canopus_proto::istio::networking::v1alpha3::http_body::Specifier;
use canopus_proto::istio::networking::v1alpha3::http_redirect::{RedirectPort, RedirectPortSelection};
use canopus_proto::istio::networking::v1alpha3::{HttpDirectResponse, HttpRedirect};

/// Sends the client elsewhere; a route with a code that Envoy does not have does nothing.
pub(super) fn redirect(to: &HttpRedirect, port: u32, tls: bool) -> Option<RedirectAction> {
    let code = match to.redirect_code {
        0 | 301 => RedirectResponseCode::MovedPermanently,
        302 => RedirectResponseCode::Found,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => return None,
    };
    let path = if to.prefix_rewrite.is_empty() {
        PathRewriteSpecifier::PathRedirect(to.uri.clone())
    } else {
        PathRewriteSpecifier::PrefixRewrite(to.prefix_rewrite.clone())
    };
    Some(RedirectAction {
        host_redirect: to.authority.clone(),
        port_redirect: redirect_port(to, port, tls),
        response_code: code as i32,
        scheme_rewrite_specifier: (!to.scheme.is_empty())
            .then(|| SchemeRewriteSpecifier::SchemeRedirect(to.scheme.clone())),
        path_rewrite_specifier: Some(path),
        ..Default::default()
    })
}

/// The port to write in the redirect; 0 if it is the default of the scheme.
fn redirect_port(to: &HttpRedirect, port: u32, tls: bool) -> u32 {
    let wanted = match to.redirect_port {
        Some(RedirectPort::Port(port)) => port,
        Some(RedirectPort::DerivePort(from)) if from == RedirectPortSelection::FromRequestPort as i32 => port,
        _ => 0,
    };
    let scheme = match to.scheme.as_str() {
        "" if tls => "https",
        "" => "http",
        scheme => scheme,
    };
    if matches!((wanted, scheme), (80, "http") | (443, "https")) { 0 } else { wanted }
}

/// Answers with a status and maybe a body.
pub(super) fn direct_response(response: &HttpDirectResponse) -> DirectResponseAction {
    let body = response.body.as_ref().and_then(|body| body.specifier.as_ref()).map(|body| match body {
        Specifier::String(text) => data_source::Specifier::InlineString(text.clone()),
        Specifier::Bytes(bytes) => data_source::Specifier::InlineBytes(bytes.clone()),
    });
    DirectResponseAction {
        status: response.status,
        body: body.map(|specifier| DataSource { specifier: Some(specifier), ..Default::default() }),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_is_named_unless_the_scheme_implies_it() {
        let derived = Some(RedirectPort::DerivePort(RedirectPortSelection::FromRequestPort as i32));
        let named = |port, scheme: &str, request_port, tls| {
            let to = HttpRedirect { scheme: scheme.into(), redirect_port: port, ..Default::default() };
            redirect_port(&to, request_port, tls)
        };
        assert_eq!(named(None, "", 8080, false), 0);
        assert_eq!(named(derived, "", 8080, false), 8080);
        assert_eq!(named(derived, "", 80, false), 0);
        assert_eq!(named(derived, "", 80, true), 80);
        assert_eq!(named(Some(RedirectPort::Port(443)), "https", 80, false), 0);
        assert_eq!(named(Some(RedirectPort::Port(443)), "http", 80, false), 443);
    }

    #[test]
    fn unknown_code_does_nothing() {
        let to = |redirect_code| HttpRedirect { redirect_code, ..Default::default() };
        assert!(redirect(&to(0), 80, false).is_some() && redirect(&to(308), 80, false).is_some());
        assert_eq!(redirect(&to(304), 80, false), None);
    }
}
