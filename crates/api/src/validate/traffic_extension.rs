//! Filters of the user, WebAssembly or Lua.

use canopus_proto::istio::extensions::v1alpha1::traffic_extension::FilterConfig;
use canopus_proto::istio::extensions::v1alpha1::{LuaConfig, WasmConfig};

use super::code::{Fault, codes};
use super::scope::Scope;
use super::{selector, wasm_plugin};
use crate::istio::TrafficExtension;

codes! {
    NO_FILTER: error "extension-without-filter", "give either wasm or lua";
    NO_CODE: error "extension-lua-empty", "give the code";
    TOO_MUCH_CODE: error "extension-lua-too-long", "use at most 64 KiB of code";
}

const MAX_CODE: usize = 64 << 10;

/// Checks a TrafficExtension.
pub fn check(extension: &TrafficExtension, mut scope: Scope<'_>) {
    let spec = &extension.spec;
    let mut scope = scope.field("spec");
    scope.add_if(spec.filter_config.is_none(), || NO_FILTER.says("exactly one of wasm or lua must be set"));
    selector::one_way(spec.selector.as_ref(), None, &spec.target_refs, scope.again());
    scope.optional("selector", spec.selector.as_ref(), selector::workload);
    selector::target_refs(None, &spec.target_refs, scope.again());
    match &spec.filter_config {
        Some(FilterConfig::Lua(code)) => scope.field("lua").field("inlineCode").require(lua(code)),
        Some(FilterConfig::Wasm(config)) => wasm(config, scope.field("wasm")),
        None => {}
    }
    let ports = spec.r#match.iter().map(|selector| selector.ports.as_slice());
    wasm_plugin::match_ports(ports, scope.field("match"));
}

fn lua(config: &LuaConfig) -> Result<(), Fault> {
    match config.inline_code.len() {
        0 => Err(NO_CODE.says("lua.inlineCode cannot be empty")),
        1..=MAX_CODE => Ok(()),
        _ => Err(TOO_MUCH_CODE.says("lua.inlineCode exceeds maximum size of 64KB")),
    }
}

fn wasm(config: &WasmConfig, mut scope: Scope<'_>) {
    scope.field("url").require(wasm_plugin::url(&config.url));
    scope.field("sha256").require(wasm_plugin::sha256(&config.sha256));
    scope.field("imagePullSecret").require(wasm_plugin::pull_secret(&config.image_pull_secret));
    scope.field("pluginName").require(wasm_plugin::plugin_name(&config.plugin_name, 256));
    scope.optional("vmConfig", config.vm_config.as_ref(), wasm_plugin::vm_config);
}
