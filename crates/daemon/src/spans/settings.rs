//! Where spans go, by OpenTelemetry's own environment variables.

use std::time::Duration;

use canopus_runtime::flags::Flags;
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Uri};

/// The longest time one export may take, if nobody says otherwise.
const TIMEOUT: Duration = Duration::from_secs(10);

/// How long spans gather before they are exported, if nobody says otherwise.
const DELAY: Duration = Duration::from_secs(5);

/// How spans are exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Grpc,
    Http,
}

/// Where and how spans go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    pub(super) protocol: Protocol,
    pub(super) endpoint: Uri,
    pub(super) headers: HeaderMap,
    pub(super) timeout: Duration,
    pub(super) delay: Duration,
    /// What is said of the process.
    pub(super) resource: Vec<(String, String)>,
}

/// Why the settings cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SettingsError {
    #[error("the OTLP protocol {0:?} is not supported; there are grpc and http/protobuf")]
    Protocol(String),
    #[error("{0:?} is not an http or https address to export spans to")]
    Endpoint(String),
    #[error("spans cannot be exported over grpc with TLS; use the protocol http/protobuf for {0}")]
    SecureGrpc(Uri),
}

impl Settings {
    /// What the environment says; `None` if it asks for no spans.
    pub(super) fn read(flags: &Flags) -> Result<Option<Self>, SettingsError> {
        let variable = |name: &str| flags.variable(name).filter(|text| !text.is_empty());
        // What is said of traces counts before what is said of all signals.
        let either = |name: &str| {
            let own = variable(&format!("OTEL_EXPORTER_OTLP_TRACES_{name}"));
            own.or_else(|| variable(&format!("OTEL_EXPORTER_OTLP_{name}")))
        };
        let is_off = variable("OTEL_SDK_DISABLED").is_some_and(|text| text.eq_ignore_ascii_case("true"));
        if is_off || (variable("OTEL_TRACES_EXPORTER") != Some("otlp") && either("ENDPOINT").is_none()) {
            return Ok(None);
        }
        let protocol = match either("PROTOCOL") {
            None | Some("grpc") => Protocol::Grpc,
            Some("http/protobuf") => Protocol::Http,
            Some(other) => return Err(SettingsError::Protocol(other.to_owned())),
        };
        let endpoint = match (variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), protocol) {
            (Some(own), _) => own.to_owned(),
            (None, Protocol::Grpc) => either("ENDPOINT").unwrap_or("http://localhost:4317").to_owned(),
            (None, Protocol::Http) => {
                let base = either("ENDPOINT").unwrap_or("http://localhost:4318");
                format!("{}/v1/traces", base.trim_end_matches('/'))
            }
        };
        let milliseconds = |text: &str| text.parse().ok().map(Duration::from_millis);
        Ok(Some(Self {
            protocol,
            endpoint: address(&endpoint, protocol)?,
            headers: either("HEADERS").map(headers).unwrap_or_default(),
            timeout: either("TIMEOUT").and_then(milliseconds).unwrap_or(TIMEOUT),
            delay: variable("OTEL_BSP_SCHEDULE_DELAY").and_then(milliseconds).unwrap_or(DELAY),
            resource: resource(variable("OTEL_SERVICE_NAME"), variable("OTEL_RESOURCE_ATTRIBUTES")),
        }))
    }
}

fn address(text: &str, protocol: Protocol) -> Result<Uri, SettingsError> {
    let wrong = || SettingsError::Endpoint(text.to_owned());
    let uri: Uri = text.parse().map_err(|_| wrong())?;
    match (uri.scheme_str(), protocol) {
        _ if uri.host().is_none() => Err(wrong()),
        (Some("https"), Protocol::Grpc) => Err(SettingsError::SecureGrpc(uri)),
        (Some("http" | "https"), _) => Ok(uri),
        _ => Err(wrong()),
    }
}

/// `key=value` pairs, separated by commas. What is none is passed over.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let pairs = text.split(',').filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim()))
}

fn headers(text: &str) -> HeaderMap {
    let pairs = pairs(text).filter_map(|(key, value)| {
        let name = HeaderName::from_bytes(key.as_bytes()).ok()?;
        let mut value = HeaderValue::from_str(&value.replace("%20", " ")).ok()?;
        value.set_sensitive(true);
        Some((name, value))
    });
    pairs.collect()
}

fn resource(service: Option<&str>, attributes: Option<&str>) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> = pairs(attributes.unwrap_or_default())
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect();
    let named = all.iter().any(|(key, _)| key == "service.name");
    if let Some(name) = service.or((!named).then_some("canopusd")) {
        all.retain(|(key, _)| key != "service.name");
        all.push(("service.name".to_owned(), name.to_owned()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<const N: usize>(variables: [(&str, &str); N]) -> Result<Option<Settings>, SettingsError> {
        Settings::read(&Flags::read(&variables))
    }

    fn endpoint<const N: usize>(variables: [(&str, &str); N]) -> String {
        read(variables).unwrap().unwrap().endpoint.to_string()
    }

    #[test]
    fn nothing_is_exported_unless_asked_for() {
        assert_eq!(read([]), Ok(None));
        assert_eq!(read([("OTEL_TRACES_EXPORTER", "none")]), Ok(None));
        assert_eq!(read([("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_SDK_DISABLED", "true")]), Ok(None));
    }

    #[test]
    fn endpoint_is_that_of_traces_then_the_common_one_then_the_usual_one() {
        assert_eq!(endpoint([("OTEL_TRACES_EXPORTER", "otlp")]), "http://localhost:4317/");
        let http = ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf");
        assert_eq!(endpoint([("OTEL_TRACES_EXPORTER", "otlp"), http]), "http://localhost:4318/v1/traces");
        let common = ("OTEL_EXPORTER_OTLP_ENDPOINT", "https://collector/otlp/");
        assert_eq!(endpoint([common, http]), "https://collector/otlp/v1/traces");
        let own = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://traces:1/spans");
        assert_eq!(endpoint([common, own, http]), "http://traces:1/spans");
    }

    #[test]
    fn what_cannot_be_used_is_an_error() {
        let to = |endpoint| read([("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint)]);
        assert_eq!(to("collector"), Err(SettingsError::Endpoint("collector".to_owned())));
        assert!(matches!(to("https://collector"), Err(SettingsError::SecureGrpc(_))));
        let json = read([("OTEL_TRACES_EXPORTER", "otlp"), ("OTEL_EXPORTER_OTLP_PROTOCOL", "http/json")]);
        assert_eq!(json, Err(SettingsError::Protocol("http/json".to_owned())));
    }

    #[test]
    fn headers_and_attributes_are_lists_of_pairs() {
        let settings = read([
            ("OTEL_TRACES_EXPORTER", "otlp"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x, bad header=1,none"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,zone=a"),
            ("OTEL_SERVICE_NAME", "mesh"),
            ("OTEL_EXPORTER_OTLP_TIMEOUT", "250"),
        ]);
        let settings = settings.unwrap().unwrap();
        assert_eq!(settings.headers.len(), 1);
        assert_eq!(settings.headers["authorization"], "Bearer x");
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(settings.resource, [pair("zone", "a"), pair("service.name", "mesh")]);
        assert_eq!(settings.timeout, Duration::from_millis(250));
    }
}
