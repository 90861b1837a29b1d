//! DestinationRules: whether their hosts exist.

use canopus_api::istio::DestinationRule;
use canopus_base::host;
use canopus_engine::Ctx;

use super::{Findings, Problem, Severity};
use crate::service::{AllServices, ServicesByHost};
use crate::world::{qualified_host, settings};

const NO_SUCH_HOST: Problem =
    ("IST0174", Severity::Warning, "define the host with a Service or a ServiceEntry, or correct it");

pub(super) fn check(ctx: &Ctx<'_>, rule: &DestinationRule, findings: &mut Findings<'_>) {
    let name = qualified_host(&rule.spec.host, findings.origin.namespace(), &settings(ctx).domain);
    let exists = if host::is_wildcard(&name) {
        ctx.get::<AllServices>(&()).iter().any(|service| host::matches(&name, &service.host))
    } else {
        !ctx.get::<ServicesByHost>(&name.as_str().into()).is_empty()
    };
    if !exists {
        findings.add(
            NO_SUCH_HOST,
            "spec.host",
            format!("nothing in the mesh is called {name}: the rule has no effect"),
        );
    }
}
