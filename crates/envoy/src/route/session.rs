//! Sessions that stay with one endpoint.

use canopus_mesh::service::Service;
use canopus_mesh::world::MeshSettings;
use canopus_proto::Any;
use canopus_proto::envoy::config::core::v3::TypedExtensionConfig;
use canopus_proto::envoy::extensions::filters::http::stateful_session::v3::stateful_session_per_route::Override;
use canopus_proto::envoy::extensions::filters::http::stateful_session::v3::{
    StatefulSession, StatefulSessionPerRoute,
};
use canopus_proto::envoy::extensions::http::stateful_session::cookie::v3::CookieBasedSessionState;
use canopus_proto::envoy::extensions::http::stateful_session::header::v3::HeaderBasedSessionState;
use canopus_proto::envoy::r#type::http::v3::Cookie;
use canopus_runtime::flags::{
    PILOT_ENABLE_PERSISTENT_SESSION_FILTER, PILOT_PERSISTENT_SESSION_HEADER_LABEL,
    PILOT_PERSISTENT_SESSION_LABEL,
};

use super::Known;

/// The filter's name.
pub(crate) const FILTER: &str = "envoy.filters.http.stateful_session";

/// Whether there are sessions at all.
pub(crate) fn are_kept(settings: &MeshSettings) -> bool {
    settings.flags.get(PILOT_ENABLE_PERSISTENT_SESSION_FILTER)
}

/// The session of a service whose labels ask for one.
fn service_session(settings: &MeshSettings, service: &Service) -> Option<StatefulSession> {
    if !are_kept(settings) {
        return None;
    }
    let flags = &settings.flags;
    let label = |key: &str| service.labels.get(key).filter(|value| !value.is_empty());
    let state = if let Some(cookie) = label(flags.get(PILOT_PERSISTENT_SESSION_LABEL)) {
        let (name, path) = cookie.split_once(':').unwrap_or((cookie, "/"));
        // No lifetime: the cookie ends with the client's session.
        let cookie = Cookie { name: name.into(), path: path.into(), ..Default::default() };
        let config = CookieBasedSessionState { cookie: Some(cookie) };
        TypedExtensionConfig {
            name: "envoy.http.stateful_session.cookie".into(),
            typed_config: Some(Any::pack(&config)),
        }
    } else {
        let name = label(flags.get(PILOT_PERSISTENT_SESSION_HEADER_LABEL))?;
        TypedExtensionConfig {
            name: "envoy.http.stateful_session.header".into(),
            typed_config: Some(Any::pack(&HeaderBasedSessionState { name: name.into() })),
        }
    };
    Some(StatefulSession { session_state: Some(state), ..Default::default() })
}

/// The session filter's configuration for the routes or hosts of a service.
pub(crate) fn per_route(settings: &MeshSettings, service: &Service) -> Option<Any> {
    service_session(settings, service).map(wrap)
}

/// The session filter's configuration for a route to several services.
pub(super) fn destinations_config(settings: &MeshSettings, destinations: &[Option<Known>]) -> Option<Any> {
    let mut chosen = None;
    for known in destinations {
        let session = known.as_ref().and_then(|known| service_session(settings, &known.service));
        if chosen.is_some() && session.is_some() {
            break;
        }
        // Parity: a later service without a session takes away that of an earlier one.
        chosen = session;
    }
    chosen.map(wrap)
}

fn wrap(session: StatefulSession) -> Any {
    Any::pack(&StatefulSessionPerRoute { r#override: Some(Override::StatefulSession(session)) })
}
