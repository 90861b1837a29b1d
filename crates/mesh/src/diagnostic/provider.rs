//! Extension providers that are not in the mesh config.

use canopus_api::istio::{AuthorizationPolicy, Telemetry};
use canopus_engine::Ctx;
use canopus_proto::istio::security::v1beta1::authorization_policy::{Action, ActionDetail};

use super::{Findings, Problem, Severity};
use crate::world::settings;

const NO_SUCH_AUTHORIZER: Problem = (
    "CAN0301",
    Severity::Error,
    "add the provider to extensionProviders of the mesh config, or correct its name",
);
const NO_SUCH_PROVIDER: Problem = (
    "CAN0302",
    Severity::Warning,
    "add the provider to extensionProviders of the mesh config, or correct its name",
);

pub(super) fn check_policy(ctx: &Ctx<'_>, policy: &AuthorizationPolicy, findings: &mut Findings<'_>) {
    if policy.spec.action() != Action::Custom {
        return;
    }
    let Some(ActionDetail::Provider(provider)) = &policy.spec.action_detail else { return };
    if !is_known(ctx, &provider.name) {
        let message = format!(
            "there is no extension provider {}: all requests the policy is about are denied",
            provider.name
        );
        findings.add(NO_SUCH_AUTHORIZER, "spec.provider.name", message);
    }
}

pub(super) fn check_telemetry(ctx: &Ctx<'_>, telemetry: &Telemetry, findings: &mut Findings<'_>) {
    let spec = &telemetry.spec;
    let metrics = spec.metrics.iter().map(|metrics| &metrics.providers);
    let tracing = spec.tracing.iter().map(|tracing| &tracing.providers);
    let logging = spec.access_logging.iter().map(|logging| &logging.providers);
    let lists = [
        ("metrics", metrics.collect::<Vec<_>>()),
        ("tracing", tracing.collect()),
        ("accessLogging", logging.collect()),
    ];
    for (field, lists) in lists {
        for (at, providers) in lists.into_iter().enumerate() {
            for (of, provider) in
                providers.iter().enumerate().filter(|(_, provider)| !is_known(ctx, &provider.name))
            {
                let field = format!("spec.{field}[{at}].providers[{of}].name");
                findings.add(
                    NO_SUCH_PROVIDER,
                    field,
                    format!("there is no extension provider {}", provider.name),
                );
            }
        }
    }
}

fn is_known(ctx: &Ctx<'_>, name: &str) -> bool {
    settings(ctx).mesh.extension_providers.iter().any(|provider| provider.name.eq_ignore_ascii_case(name))
}
