//! What holds when nobody says otherwise.

use canopus_proto::google::protobuf::Duration;
use canopus_proto::istio::mesh::v1alpha1::mesh_config::extension_provider::{
    EnvoyFileAccessLogProvider, PrometheusMetricsProvider, Provider, StackdriverProvider,
};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::{
    DefaultProviders, ExtensionProvider, InboundTrafficPolicy, IngressControllerMode, OutboundTrafficPolicy,
    inbound_traffic_policy, outbound_traffic_policy,
};
use canopus_proto::istio::mesh::v1alpha1::proxy_config::ClusterName;
use canopus_proto::istio::mesh::v1alpha1::{AuthenticationPolicy, MeshConfig, MeshNetworks, ProxyConfig};
use canopus_proto::istio::networking::v1alpha3::LocalityLoadBalancerSetting;

/// The proxy's settings when nobody says otherwise.
pub fn default_proxy_config() -> ProxyConfig {
    ProxyConfig {
        config_path: "./etc/istio/proxy".into(),
        binary_path: "/usr/local/bin/envoy".into(),
        cluster_name: Some(ClusterName::ServiceCluster("istio-proxy".into())),
        drain_duration: Some(Duration::from_secs(45)),
        termination_drain_duration: Some(Duration::from_secs(5)),
        proxy_admin_port: 15000,
        control_plane_auth_policy: AuthenticationPolicy::MutualTls.into(),
        discovery_address: "istiod.istio-system.svc:15012".into(),
        stat_name_length: 189,
        status_port: 15020,
        ..ProxyConfig::default()
    }
}

/// The mesh's settings when nobody says otherwise.
pub fn default_mesh_config() -> MeshConfig {
    let everywhere = || vec!["*".to_owned()];
    MeshConfig {
        enable_tracing: true,
        protocol_detection_timeout: Some(Duration::default()),
        ingress_service: "istio-ingressgateway".into(),
        ingress_controller_mode: IngressControllerMode::Strict.into(),
        ingress_class: "istio".into(),
        trust_domain: "cluster.local".into(),
        enable_auto_mtls: Some(true.into()),
        outbound_traffic_policy: Some(OutboundTrafficPolicy {
            mode: outbound_traffic_policy::Mode::AllowAny.into(),
            ..OutboundTrafficPolicy::default()
        }),
        inbound_traffic_policy: Some(InboundTrafficPolicy {
            mode: inbound_traffic_policy::Mode::Passthrough.into(),
        }),
        locality_lb_setting: Some(LocalityLoadBalancerSetting {
            enabled: Some(true.into()),
            ..LocalityLoadBalancerSetting::default()
        }),
        default_config: Some(default_proxy_config()),
        root_namespace: "istio-system".into(),
        proxy_listen_port: 15001,
        proxy_inbound_listen_port: 15006,
        connect_timeout: Some(Duration::from_secs(10)),
        default_service_export_to: everywhere(),
        default_virtual_service_export_to: everywhere(),
        default_destination_rule_export_to: everywhere(),
        dns_refresh_rate: Some(Duration::from_secs(60)),
        enable_prometheus_merge: Some(true.into()),
        default_providers: Some(DefaultProviders::default()),
        extension_providers: vec![
            provider("prometheus", Provider::Prometheus(PrometheusMetricsProvider::default())),
            provider("stackdriver", Provider::Stackdriver(StackdriverProvider::default())),
            provider(
                "envoy",
                Provider::EnvoyFileAccessLog(EnvoyFileAccessLogProvider {
                    path: "/dev/stdout".into(),
                    ..EnvoyFileAccessLogProvider::default()
                }),
            ),
        ],
        ..MeshConfig::default()
    }
}

/// The networks when nobody says otherwise: none.
pub fn default_networks() -> MeshNetworks {
    MeshNetworks::default()
}

fn provider(name: &str, provider: Provider) -> ExtensionProvider {
    ExtensionProvider { name: name.into(), provider: Some(provider) }
}
