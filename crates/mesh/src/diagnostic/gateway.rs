//! Gateways: servers that conflict with others on the same proxies.

use canopus_engine::Ctx;

use super::{Findings, Problem, Severity};
use crate::gateway::{Gateways, rejected_among};

const CONFLICT: Problem =
    ("IST0145", Severity::Error, "give the servers different ports or hosts, or merge the Gateways");

pub(super) fn check(ctx: &Ctx<'_>, findings: &mut Findings<'_>) {
    let origin = findings.origin;
    let all = ctx.get::<Gateways>(&());
    let Some(own) =
        all.iter().find(|one| *one.name == *origin.name() && *one.namespace == *origin.namespace())
    else {
        return;
    };
    let name = own.qualified_name();
    for rejection in rejected_among(ctx, own) {
        if *rejection.gateway == *name {
            findings.add(
                CONFLICT,
                format!("spec.servers[{}]", rejection.server),
                rejection.reason.to_string(),
            );
        }
    }
}
