//! Access logs that are written to a file, and the formats of their lines.

use canopus_base::json as text_json;
use canopus_base::tree::Limits;
use canopus_proto::Any;
use canopus_proto::envoy::config::accesslog::v3::AccessLog;
use canopus_proto::envoy::config::core::v3::substitution_format_string::Format;
use canopus_proto::envoy::config::core::v3::{
    DataSource, JsonFormatOptions, SubstitutionFormatString, TypedExtensionConfig, data_source::Specifier,
};
use canopus_proto::envoy::extensions::access_loggers::file::v3::{FileAccessLog, file_access_log::AccessLogFormat};
use canopus_proto::envoy::extensions::formatter::req_without_query::v3::ReqWithoutQuery;
use canopus_proto::google::protobuf::{Struct, Value, value::Kind};
use canopus_proto::istio::mesh::v1alpha1::MeshConfig;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::AccessLogEncoding;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::EnvoyFileAccessLogProvider;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::envoy_file_access_log_provider::log_format::LogFormat;
use canopus_proto::json::{self, Unknown};

use super::log;

/// A line of text where nobody wrote a format.
pub(super) const TEXT: &str = concat!(
    "[%START_TIME%] \"%REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %PROTOCOL%\" ",
    "%RESPONSE_CODE% %RESPONSE_FLAGS% %RESPONSE_CODE_DETAILS% %CONNECTION_TERMINATION_DETAILS% ",
    "\"%UPSTREAM_TRANSPORT_FAILURE_REASON%\" %BYTES_RECEIVED% %BYTES_SENT% %DURATION% ",
    "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)% \"%REQ(X-FORWARDED-FOR)%\" \"%REQ(USER-AGENT)%\" ",
    "\"%REQ(X-REQUEST-ID)%\" \"%REQ(:AUTHORITY)%\" \"%UPSTREAM_HOST%\" %UPSTREAM_CLUSTER_RAW% ",
    "%UPSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_LOCAL_ADDRESS% %DOWNSTREAM_REMOTE_ADDRESS% ",
    "%REQUESTED_SERVER_NAME% %ROUTE_NAME%\n",
);

/// The fields of an object where nobody wrote a format.
const FIELDS: [(&str, &str); 24] = [
    ("start_time", "%START_TIME%"),
    ("route_name", "%ROUTE_NAME%"),
    ("method", "%REQ(:METHOD)%"),
    ("path", "%REQ(X-ENVOY-ORIGINAL-PATH?:PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("connection_termination_details", "%CONNECTION_TERMINATION_DETAILS%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration", "%DURATION%"),
    ("upstream_service_time", "%RESP(X-ENVOY-UPSTREAM-SERVICE-TIME)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("authority", "%REQ(:AUTHORITY)%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER_RAW%"),
    ("upstream_local_address", "%UPSTREAM_LOCAL_ADDRESS%"),
    ("downstream_local_address", "%DOWNSTREAM_LOCAL_ADDRESS%"),
    ("downstream_remote_address", "%DOWNSTREAM_REMOTE_ADDRESS%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("upstream_transport_failure_reason", "%UPSTREAM_TRANSPORT_FAILURE_REASON%"),
];

/// The operator that Envoy knows only with an extension.
const WITHOUT_QUERY: &str = "%REQ_WITHOUT_QUERY";

const STANDARD_OUTPUT: &str = "/dev/stdout";

/// A log in the format that the mesh's own fields choose.
pub(super) fn mesh_log(mesh: &MeshConfig, path: &str) -> AccessLog {
    let format = match mesh.access_log_encoding() {
        AccessLogEncoding::Text => text(&mesh.access_log_format),
        AccessLogEncoding::Json => object(fields_of(&mesh.access_log_format).unwrap_or_else(default_fields)),
    };
    to_file(path, format)
}

/// A log in the format of a provider.
pub(super) fn provider_log(provider: &EnvoyFileAccessLogProvider) -> AccessLog {
    let written = provider.log_format.as_ref().map(|format| format.log_format.clone());
    let mut format = match written {
        Some(Some(LogFormat::Labels(labels))) if labels.fields.is_empty() => Some(object(default_fields())),
        Some(Some(LogFormat::Labels(labels))) => Some(object(labels)),
        Some(Some(LogFormat::Text(written))) => Some(text(&written)),
        Some(None) => None,
        None => Some(text("")),
    };
    if let Some(format) = &mut format {
        format.omit_empty_values = provider.omit_empty_values;
    }
    let path = if provider.path.is_empty() { STANDARD_OUTPUT } else { &provider.path };
    let access_log_format = format.map(AccessLogFormat::LogFormat);
    log("envoy.access_loggers.file", &FileAccessLog { path: path.into(), access_log_format })
}

fn to_file(path: &str, format: SubstitutionFormatString) -> AccessLog {
    let access_log_format = Some(AccessLogFormat::LogFormat(format));
    log("envoy.access_loggers.file", &FileAccessLog { path: path.into(), access_log_format })
}

/// A line of text, which always ends with a line break.
fn text(written: &str) -> SubstitutionFormatString {
    let line = match written {
        "" => TEXT.to_owned(),
        written if written.ends_with('\n') => written.to_owned(),
        written => format!("{written}\n"),
    };
    let formatters = formatters(&[&line]);
    let source = DataSource { specifier: Some(Specifier::InlineString(line)), ..Default::default() };
    SubstitutionFormatString {
        format: Some(Format::TextFormatSource(source)),
        formatters,
        ..Default::default()
    }
}

fn object(fields: Struct) -> SubstitutionFormatString {
    let formatters = formatters(&texts(&fields));
    SubstitutionFormatString {
        format: Some(Format::JsonFormat(fields)),
        json_format_options: Some(JsonFormatOptions::default()),
        formatters,
        ..Default::default()
    }
}

/// The texts of an object's fields.
pub(super) fn texts(fields: &Struct) -> Vec<&str> {
    let values = fields.fields.values();
    values
        .filter_map(|value| match &value.kind {
            Some(Kind::StringValue(text)) => Some(text.as_str()),
            _ => None,
        })
        .collect()
}

/// The extensions that the operators in these texts need.
pub(super) fn formatters(texts: &[&str]) -> Vec<TypedExtensionConfig> {
    let needed = texts.iter().any(|text| text.contains(WITHOUT_QUERY));
    let formatter = || TypedExtensionConfig {
        name: "envoy.formatter.req_without_query".into(),
        typed_config: Some(Any::pack(&ReqWithoutQuery::default())),
    };
    needed.then(formatter).into_iter().collect()
}

fn default_fields() -> Struct {
    Struct { fields: FIELDS.iter().map(|(key, value)| ((*key).into(), Value::from(*value))).collect() }
}

/// The fields written in mesh configuration as a text; `None` if there are none or they cannot be read.
fn fields_of(written: &str) -> Option<Struct> {
    if written.is_empty() {
        return None;
    }
    let node = text_json::parse(written.as_bytes(), &Limits::default()).ok()?;
    json::read(&node, Unknown::Report).ok().map(|read| read.value)
}
