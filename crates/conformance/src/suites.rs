//! The suites: which adapter runs which directory of the corpus.

mod agent;
mod ambient_authz;
mod analyzers;
mod authz;
mod authz_envoy;
mod bootstrap;
mod bug_report;
mod capture;
mod check_inject;
mod cluster_stage;
mod cni;
mod compare_dumps;
mod crd_validation;
mod defaults;
mod derived;
mod describe;
mod fuzz_regressions;
mod gateway_api;
mod gateway_deployment;
mod helm_render;
mod ingress;
mod inject;
mod kube_inject;
mod live;
mod live_admission;
mod live_ca;
mod live_debug;
mod live_flags;
mod live_istioctl;
mod live_metrics;
mod live_status;
mod objects;
mod operator_manifest;
mod primitives;
mod proto_json;
mod proxy_config;
mod proxy_status;
mod rendered;
mod stock_envoy;
mod tables_simulation;
mod tables_validation;
mod unadapted;
mod validation_samples;
mod waypoint;
mod workload;
mod xds;
mod ztunnel_config;

use std::path::Path;

use crate::case::{Case, Outcome};
use crate::corpus::Corpus;
use crate::dump::Dump;
use crate::layout::Layout;

/// Outcome of a case that nothing can run yet.
pub(crate) const NO_ADAPTER: &str = "no adapter yet";

/// A line of the scoreboard.
pub(crate) trait Suite: Send + Sync {
    /// The directory of the corpus, or the name of an extra line.
    fn name(&self) -> &str;

    /// The cases in the data.
    fn cases(&self, corpus: &Corpus) -> anyhow::Result<Vec<Case>> {
        Layout::detect(self.name(), corpus).cases(self.name(), corpus)
    }

    /// Runs one case.
    fn run(&self, case: &Case, dump: &Dump) -> Outcome;

    /// What to say beside the counts.
    fn note(&self) -> String {
        String::new()
    }

    /// Whether this is no directory of the corpus but a check across it.
    fn is_extra(&self) -> bool {
        false
    }
}

/// Every directory of the corpus, and the checks across it.
pub(crate) fn all(corpus: &Corpus) -> anyhow::Result<Vec<Box<dyn Suite>>> {
    let mut suites = Vec::new();
    for name in corpus.suites()? {
        suites.push(adapter(name, corpus)?);
    }
    suites.push(Box::new(objects::Objects));
    suites.push(Box::new(stock_envoy::StockEnvoy::default()));
    suites.push(Box::new(proto_json::ProtoJson));
    Ok(suites)
}

fn adapter(name: String, corpus: &Corpus) -> anyhow::Result<Box<dyn Suite>> {
    Ok(match name.as_str() {
        "agent" => Box::new(agent::Agent),
        "analyzers" => Box::new(analyzers::Analyzers),
        "ambient-authz" => Box::new(ambient_authz::AmbientAuthz),
        "authz-envoy" => Box::new(authz_envoy::AuthzEnvoy),
        "bootstrap" => Box::new(bootstrap::Bootstrap),
        "cni-install" => Box::new(cni::Install),
        "cni-iptables-ambient" => Box::new(capture::Ambient::iptables()),
        "cni-nftables-ambient" => Box::new(capture::Ambient::nftables()),
        "cni-nodeagent" => Box::new(cni::NodeAgent),
        "cni-plugin-iptables" => Box::new(capture::Plugin),
        "crd-validation" => Box::<crd_validation::CrdValidation>::default(),
        "defaults" => Box::new(defaults::Defaults),
        "fuzz-regressions" => Box::new(fuzz_regressions::FuzzRegressions),
        "gateway-api" => Box::new(gateway_api::GatewayApi),
        "gateway-deployment" => Box::new(gateway_deployment::GatewayDeployment),
        "helm-render" => Box::new(helm_render::HelmRender),
        "ingress" => Box::new(ingress::Ingress),
        "inject" => Box::<inject::Inject>::default(),
        "iptables-builder" => Box::new(capture::IptablesBuilder),
        "iptables-sidecar" => Box::new(capture::Sidecar::iptables()),
        "istioctl-authz" => Box::new(authz::Authz),
        "istioctl-bug-report" => Box::new(bug_report::BugReport),
        "istioctl-check-inject" => Box::new(check_inject::CheckInject),
        "istioctl-compare" => Box::new(compare_dumps::CompareDumps),
        "istioctl-describe" => Box::new(describe::Describe),
        "istioctl-kube-inject" => Box::new(kube_inject::KubeInject),
        "istioctl-proxy-config" => Box::new(proxy_config::ProxyConfig),
        "istioctl-proxy-status" => Box::new(proxy_status::ProxyStatus),
        "istioctl-waypoint" => Box::<waypoint::Waypoint>::default(),
        "istioctl-workload" => Box::<workload::Workload>::default(),
        "istioctl-ztunnel-config" => Box::new(ztunnel_config::ZtunnelConfig),
        "live-admission" => Box::new(live_admission::LiveAdmission),
        "live-ca" => Box::<live_ca::LiveCa>::default(),
        "live-debug" => Box::<live_debug::LiveDebug>::default(),
        "live-flags" => Box::new(live_flags::LiveFlags),
        "live-istioctl" => Box::<live_istioctl::LiveIstioctl>::default(),
        "live-metrics" => Box::<live_metrics::LiveMetrics>::default(),
        "live-status" => Box::<live_status::LiveStatus>::default(),
        "nftables-builder" => Box::new(capture::NftablesBuilder),
        "nftables-sidecar" => Box::new(capture::Sidecar::nftables()),
        "operator-manifest" => Box::new(operator_manifest::OperatorManifest),
        "tables-primitives" => Box::new(primitives::Primitives),
        "tables-simulation" => Box::new(tables_simulation::TablesSimulation),
        "tables-validation" => Box::new(tables_validation::TablesValidation),
        "xds" => Box::new(xds::Xds::default()),
        "validation-samples" => Box::new(validation_samples::ValidationSamples),
        _ if Layout::detect(&name, corpus) == Layout::Inputs => {
            let files = corpus.files(Path::new(&name))?.len();
            Box::new(unadapted::Inputs { name, files })
        }
        _ => Box::new(unadapted::Unadapted { name }),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn every_directory_has_a_line_even_when_nobody_knows_it() {
        let root = tempfile::tempdir().unwrap();
        for directory in ["unheard-of", "tables-primitives", ".git"] {
            fs::create_dir(root.path().join(directory)).unwrap();
        }
        fs::write(root.path().join("README.md"), "").unwrap();
        let suites = all(&Corpus::open(root.path()).unwrap()).unwrap();
        let names: Vec<_> = suites.iter().map(|suite| suite.name()).collect();
        assert_eq!(names, ["tables-primitives", "unheard-of", "objects", "stock-envoy", "proto-json"]);
    }
}
