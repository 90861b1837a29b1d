//! What makes Prometheus see metrics under their own names.
//!
//! Envoy puts `envoy_` before every name but those in the namespace of Wasm modules, and that namespace is known only to
//! a proxy that has a module. So one comes along that does nothing and is never called.

use canopus_proto::Name as _;
use canopus_proto::envoy::config::accesslog::v3::access_log_filter::FilterSpecifier;
use canopus_proto::envoy::config::accesslog::v3::{AccessLog, AccessLogFilter, LogTypeFilter};
use canopus_proto::envoy::config::core::v3::{
    AsyncDataSource, DataSource, async_data_source, data_source::Specifier,
};
use canopus_proto::envoy::data::accesslog::v3::AccessLogType;
use canopus_proto::envoy::extensions::access_loggers::wasm::v3::WasmAccessLog;
use canopus_proto::envoy::extensions::wasm::v3::plugin_config::Vm;
use canopus_proto::envoy::extensions::wasm::v3::{FailurePolicy, PluginConfig, VmConfig};

use crate::audience::Build;
use crate::telemetry::access_log::log;

/// The namespace whose names Prometheus sees as they are.
pub(super) const UNPREFIXED: &str = "wasmcustom";

const NAME: &str = "istio_metric_names";

/// The module: memory, the marker of the interface's version, and an allocator that is never asked.
#[rustfmt::skip]
const MODULE: &[u8] = &[
    b'\0', b'a', b's', b'm', 1, 0, 0, 0,
    // Types: () -> (), (i32) -> i32.
    1, 9, 2, 0x60, 0, 0, 0x60, 1, 0x7f, 1, 0x7f,
    // One function of each.
    3, 3, 2, 0, 1,
    // A page of memory.
    5, 3, 1, 0, 1,
    // Exports.
    7, 45, 3,
    6, b'm', b'e', b'm', b'o', b'r', b'y', 2, 0,
    23, b'p', b'r', b'o', b'x', b'y', b'_', b'a', b'b', b'i', b'_', b'v', b'e', b'r', b's', b'i', b'o', b'n',
    b'_', b'0', b'_', b'2', b'_', b'1', 0, 0,
    6, b'm', b'a', b'l', b'l', b'o', b'c', 0, 1,
    // Code: nothing; the constant 0.
    10, 9, 2, 2, 0, 0x0b, 4, 0, 0x41, 0, 0x0b,
];

/// Makes the namespace known; `None` if the proxy cannot run modules.
pub(super) fn registration(build: &Build) -> Option<AccessLog> {
    if !build.has(&WasmAccessLog::full_name()) {
        return None;
    }
    let code = DataSource { specifier: Some(Specifier::InlineBytes(MODULE.into())), ..Default::default() };
    let config = PluginConfig {
        name: NAME.into(),
        failure_policy: FailurePolicy::FailOpen as i32,
        vm: Some(Vm::VmConfig(VmConfig {
            vm_id: NAME.into(),
            runtime: "envoy.wasm.runtime.v8".into(),
            code: Some(AsyncDataSource { specifier: Some(async_data_source::Specifier::Local(code)) }),
            ..Default::default()
        })),
        ..Default::default()
    };
    Some(AccessLog {
        filter: Some(never()),
        ..log("envoy.access_loggers.wasm", &WasmAccessLog { config: Some(config) })
    })
}

/// Logs nothing: neither requests nor connections end as this.
fn never() -> AccessLogFilter {
    let types = vec![AccessLogType::UdpPeriodic as i32];
    AccessLogFilter {
        filter_specifier: Some(FilterSpecifier::LogTypeFilter(LogTypeFilter { types, ..Default::default() })),
    }
}
