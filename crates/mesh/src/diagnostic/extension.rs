//! Wasm modules at blocked addresses.

use canopus_api::istio::{TrafficExtension, WasmPlugin};
use canopus_engine::Ctx;
use canopus_proto::istio::extensions::v1alpha1::traffic_extension::FilterConfig;

use super::{Findings, Problem, Severity};
use crate::extension::blocked_address;

const BLOCKED: Problem = (
    "CAN0401",
    Severity::Error,
    "serve the module from another address; BLOCKED_CIDRS_IN_WASM_FETCH adds to those that are never asked",
);

pub(super) fn check_plugin(ctx: &Ctx<'_>, plugin: &WasmPlugin, findings: &mut Findings<'_>) {
    url(ctx, "spec.url", &plugin.spec.url, findings);
}

pub(super) fn check_extension(ctx: &Ctx<'_>, extension: &TrafficExtension, findings: &mut Findings<'_>) {
    if let Some(FilterConfig::Wasm(wasm)) = &extension.spec.filter_config {
        url(ctx, "spec.wasm.url", &wasm.url, findings);
    }
}

fn url(ctx: &Ctx<'_>, field: &str, url: &str, findings: &mut Findings<'_>) {
    if let Some(address) = blocked_address(ctx, url) {
        let message = format!(
            "{address} is never fetched from: the module does not run, and its fail strategy applies"
        );
        findings.add(BLOCKED, field, message);
    }
}
