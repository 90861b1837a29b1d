//! Sidecars: several for the same workloads.

use canopus_api::Kind;
use canopus_api::istio::Sidecar;
use canopus_engine::Ctx;

use super::{Findings, Problem, Severity};
use crate::world::{ObjectIndex, Origin, indexed_objects, oldest_first};

const SEVERAL_FOR_ALL: Problem =
    ("IST0111", Severity::Error, "keep one Sidecar without a workloadSelector in the namespace");
const SAME_WORKLOADS: Problem =
    ("IST0110", Severity::Error, "give the Sidecars of a namespace selectors that no workload fits twice");

pub(super) fn check(ctx: &Ctx<'_>, sidecar: &Sidecar, findings: &mut Findings<'_>) {
    let origin = findings.origin;
    let mut all =
        indexed_objects::<Sidecar>(ctx, &ObjectIndex::Namespace(Kind::Sidecar, origin.namespace().into()));
    oldest_first(&mut all);
    let labels =
        |sidecar: &Sidecar| sidecar.spec.workload_selector.as_ref().map(|selector| selector.labels.clone());
    let own = labels(sidecar).filter(|labels| !labels.is_empty());
    let older = all.iter().take_while(|(other, _)| other != origin);
    let rival = |(_, other): &&(Origin, std::sync::Arc<Sidecar>)| {
        labels(other).filter(|labels| !labels.is_empty()) == own
    };
    let Some((first, _)) = older.clone().find(rival) else { return };
    let field = "spec.workloadSelector";
    if own.is_none() {
        let message =
            format!("{} is older and has no selector either: this one counts for nobody", first.key);
        findings.add(SEVERAL_FOR_ALL, field, message);
    } else {
        let message =
            format!("{} is older and selects the same workloads: this one counts for nobody", first.key);
        findings.add(SAME_WORKLOADS, field, message);
    }
}
