//! Where sidecars send requests for hosts nobody knows.

use canopus_proto::envoy::config::route::v3::route::Action;
use canopus_proto::envoy::config::route::v3::route_action::ClusterSpecifier;
use canopus_proto::envoy::config::route::v3::{DirectResponseAction, Route, RouteAction, VirtualHost};
use canopus_proto::istio::mesh::v1alpha1::mesh_config::outbound_traffic_policy::Mode;
use canopus_proto::istio::networking::v1alpha3::OutboundTrafficPolicy;

use crate::names;
use crate::route::{any_path, destination};

const ALLOW_ANY: &str = "allow_any";
const ALLOW_ANY_DYNAMIC_DNS: &str = "allow_any_dynamic_dns";
const BLOCK_ALL: &str = "block_all";
const BAD_GATEWAY: u32 = 502;

/// The last virtual host of a table: lets requests through, sends them to an egress proxy, or refuses them.
pub(crate) fn virtual_host(policy: &OutboundTrafficPolicy, forwards_host: bool) -> VirtualHost {
    // The modes of Sidecars have the numbers of the mesh's, which has one more.
    match Mode::try_from(policy.mode) {
        Ok(Mode::AllowAnyDynamicDns) => {
            host(ALLOW_ANY_DYNAMIC_DNS, forward(names::ALLOW_ANY_DYNAMIC_DNS.to_owned(), forwards_host))
        }
        Ok(Mode::AllowAny) => {
            let proxy = policy.egress_proxy.as_ref();
            let cluster = proxy.map(|proxy| destination::cluster_name(proxy, None, 0));
            host(ALLOW_ANY, forward(cluster.unwrap_or_else(|| names::PASSTHROUGH.to_owned()), forwards_host))
        }
        Ok(Mode::RegistryOnly) | Err(_) => {
            let refuse = DirectResponseAction { status: BAD_GATEWAY, ..Default::default() };
            host(BLOCK_ALL, Action::DirectResponse(refuse))
        }
    }
}

fn forward(cluster: String, forwards_host: bool) -> Action {
    let mut action = RouteAction {
        cluster_specifier: Some(ClusterSpecifier::Cluster(cluster)),
        append_x_forwarded_host: forwards_host,
        ..Default::default()
    };
    destination::disable_timeout(&mut action);
    Action::Route(action)
}

fn host(name: &str, action: Action) -> VirtualHost {
    let route =
        Route { name: name.into(), r#match: Some(any_path()), action: Some(action), ..Default::default() };
    VirtualHost { name: name.into(), domains: vec!["*".into()], routes: vec![route], ..Default::default() }
}
