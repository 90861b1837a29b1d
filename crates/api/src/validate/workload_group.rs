//! Workload groups: a template for entries that register themselves, and how they are probed.

use canopus_proto::istio::networking::v1alpha3::readiness_probe::HealthCheckMethod;
use canopus_proto::istio::networking::v1alpha3::{HttpHealthCheckConfig, ReadinessProbe};

use super::code::codes;
use super::report;
use super::scope::Scope;
use super::{header, labels, port};
use crate::istio::WorkloadGroup;

codes! {
    NO_TEMPLATE: error "workload-group-without-template", "give a template";
    BAD_LABELS: error "workload-group-labels-invalid", "use labels that Kubernetes accepts";
    NEGATIVE: error "probe-setting-negative", "give 0 or more";
    BAD_SCHEME: error "probe-scheme-unknown", "use HTTP or HTTPS";
    NO_COMMAND: error "probe-without-command", "give the command to run";
    NO_METHOD: error "probe-without-method", "use httpGet, tcpSocket or exec";
}

/// Checks a WorkloadGroup.
pub fn check(group: &WorkloadGroup, mut scope: Scope<'_>) {
    let mut scope = scope.field("spec");
    // Parity: Istio stops at the template, then at the labels.
    scope
        .field("template")
        .add_if(group.spec.template.is_none(), || NO_TEMPLATE.says("template is required"));
    let mut scope = if group.spec.template.is_none() { scope.ours() } else { scope };
    let bad_labels = scope.fails(|mut scope| {
        scope.optional("metadata", group.spec.metadata.as_ref(), |meta, mut scope| {
            // Parity: all that is wrong with them is one error.
            let faults = meta.labels.iter().flat_map(|(key, value)| labels::faults(key, value));
            let faults: Vec<_> = faults.map(|fault| fault.to_string()).collect();
            scope.field("labels").add_if(!faults.is_empty(), || {
                BAD_LABELS
                    .says(format!("invalid labels: {}", report::list(faults.iter().map(String::as_str))))
            });
        });
    });
    let mut scope = if bad_labels { scope.ours() } else { scope };
    scope.optional("probe", group.spec.probe.as_ref(), probe);
}

fn probe(probe: &ReadinessProbe, mut scope: Scope<'_>) {
    let settings = [
        ("periodSeconds", probe.period_seconds),
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (field, value) in settings {
        scope
            .field(field)
            .add_if(value < 0, || NEGATIVE.says(format!("{field} must be non-negative")).with_value(value));
    }
    match &probe.health_check_method {
        Some(HealthCheckMethod::HttpGet(get)) => http_get(get, scope.field("httpGet")),
        Some(HealthCheckMethod::TcpSocket(socket)) => {
            scope.field("tcpSocket").field("port").require(port::number(socket.port));
        }
        Some(HealthCheckMethod::Exec(exec)) => {
            scope
                .field("exec")
                .field("command")
                .add_if(exec.command.is_empty(), || NO_COMMAND.says("exec.command is required"));
        }
        // Parity: Istio's schema has gRPC probes, its admission does not know them; the words name Go's type.
        Some(HealthCheckMethod::Grpc(_)) => {
            let message = "unknown health check method *v1alpha3.ReadinessProbe_Grpc";
            scope.field("grpc").add(NO_METHOD.says(message));
        }
        None => scope.add(NO_METHOD.says("unknown health check method <nil>")),
    }
}

fn http_get(get: &HttpHealthCheckConfig, mut scope: Scope<'_>) {
    scope.field("port").require(port::number(get.port));
    scope.field("scheme").add_if(!matches!(get.scheme.as_str(), "" | "HTTP" | "HTTPS"), || {
        BAD_SCHEME.says(r#"httpGet.scheme must be one of "HTTPS", "HTTP""#).with_value(&get.scheme)
    });
    scope.each("httpHeaders", &get.http_headers, |header, mut scope| {
        scope.field("name").require(header::probe_name(&header.name));
    });
}
