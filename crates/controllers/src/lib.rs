//! What the control plane writes to clusters.
//!
//! ```text
//!   engine ──► Controller::plan ──► writes still needed ──► Applier ──► Api (the API server)
//!     ▲            (pure)                                    ▲  │
//!     │                                      Leadership ─────┘  │
//!     └───────────────── the watch sees what was written ◄──────┘
//! ```
//!
//! A [`Controller`] is a pure function: it looks at the world as it is and says which writes would make it as it should be.
//! An object that already is as desired yields no write, so *drift repair needs no code*: when somebody changes or deletes
//! an object, the watch tells the engine, and the next plan has the write again. (Objects with fields that only the server
//! can compare are an exception, see [`Change::Manage`].) The one [`Applier`] carries plans out: only
//! while it leads, at a bounded rate, with retries, and never twice for the same cause while the watch is on its way.
//! [`election`] decides who leads among replicas, with the locks that istiod uses, so that both agree while one takes the
//! other's place.
//!
//! To add a controller: write a query for what is desired, compare it with the objects of the world, return [`Write`]s, and
//! start it in the daemon. Test it with an [`Engine`](canopus_engine::Engine) and a few objects; no cluster is needed.
//!
//! Objects are written through [`canopus_sources::kubernetes::Cluster`] rather than a client of this crate's own: one
//! connection, one set of credentials, bounded answers, and a rate limit per handle.
//!
//! Must not know sessions of proxies, xDS or Envoy.

mod ambient_conditions;
mod analysis;
pub mod api;
pub mod applier;
mod cluster_trust_bundle;
mod controller;
mod dns_certificates;
pub mod election;
mod gateway_classes;
mod gateway_deployment;
mod gateway_status;
mod inference_pools;
mod ingress_status;
mod node_untaint;
mod root_config_maps;
mod root_secret;
mod service_entry_addresses;
mod status_write;
#[cfg(test)]
mod testing;
pub mod trust;
mod webhook_roots;
mod workload_entry_cleanup;
mod workload_registration;

pub use ambient_conditions::AmbientConditionController;
pub use analysis::AnalysisController;
pub use applier::{Applier, Observer, Outcome};
pub use cluster_trust_bundle::ClusterTrustBundleController;
pub use controller::{Basis, Change, Controller, Observed, Ownership, Plan, Write};
pub use dns_certificates::DnsCertificateController;
pub use gateway_classes::GatewayClassController;
pub use gateway_deployment::{GatewayDeploymentController, Installation, InstalledTemplates, RefusedWrites};
pub use gateway_status::GatewayStatusController;
pub use inference_pools::InferencePoolController;
pub use ingress_status::IngressStatusController;
pub use node_untaint::NodeUntaintController;
pub use root_config_maps::RootConfigMapController;
pub use root_secret::SecretStore;
pub use service_entry_addresses::ServiceEntryAddressController;
pub use webhook_roots::WebhookRootsController;
pub use workload_entry_cleanup::WorkloadEntryCleanupController;
pub use workload_registration::{Health, Machine, Machines, WorkloadRegistrationController};

/// Field manager of what the control plane applies.
pub const FIELD_MANAGER: &str = "canopusd";
