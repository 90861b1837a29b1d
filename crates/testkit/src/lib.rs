//! Real components in tests: started on loopback with ports of their own, gone when the test ends, however it ends.
//!
//! Owns starting, waiting for and asking Envoy, a Kubernetes API server alone or with a node that runs Pods, Consul, Helm and
//! a gRPC client, an HTTP upstream that echoes what reached it, and the small tools such tests need ([`eventually`], [`free_port`], [`http`]). The
//! components come from `canopus-parts`; one that is not installed makes the test fail with the command that installs it.
//!
//! Must not know how Canopus works: it serves the tests of every crate, so it depends on none of them.

mod call;
mod consul;
mod echo;
mod envoy;
mod eventually;
mod grpc;
mod helm;
pub mod http;
mod key_traces;
mod kube;
mod memory;
mod mtls;
mod plugged;
mod ports;
mod process;
mod relay;
mod tool;
mod wasm;

pub use call::grpc_call;
pub use consul::Consul;
pub use echo::{Echo, Echoed};
pub use envoy::Envoy;
pub use eventually::eventually;
pub use grpc::{Called, GRPC_METHOD, GrpcCaller};
pub use helm::helm;
pub use key_traces::KeyTraces;
pub use kube::{CniDirectories, KubeApi, KubeCluster, KubeProxy};
pub use memory::KeyForm;
pub use mtls::{Authority, Certified, channel};
pub use plugged::PluggedAuthority;
pub use ports::free_port;
pub use process::Process;
pub use relay::Relay;
pub use wasm::wasm_module;
