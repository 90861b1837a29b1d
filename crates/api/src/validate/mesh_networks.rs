//! The networks of a mesh: which endpoints are in them, and through which gateways they are reached.

use canopus_base::labels::is_dns_label;
use canopus_proto::istio::mesh::v1alpha1::network::IstioNetworkGateway;
use canopus_proto::istio::mesh::v1alpha1::network::istio_network_gateway::Gw;
use canopus_proto::istio::mesh::v1alpha1::network::network_endpoints::Ne;
use canopus_proto::istio::mesh::v1alpha1::{MeshNetworks, Network};

use super::code::{Fault, codes};
use super::scope::Scope;
use super::{address, host, port};

codes! {
    BAD_REGISTRY: error "network-registry-invalid", "give the name of a cluster: letters, digits and dashes";
    NAME_NOT_RESOLVED: error "network-gateway-name-unresolved",
        "give an IP address, or let the control plane resolve names with RESOLVE_HOSTNAME_GATEWAYS";
    BAD_GATEWAY: error "network-gateway-invalid", "give an IP address or a host name";
}

/// Checks the networks of a mesh.
pub fn check(networks: &MeshNetworks, mut scope: Scope<'_>) {
    scope.each_entry("networks", &networks.networks, |name, network, mut scope| {
        scope.prefixed(
            || format!("invalid network {name}:"),
            |mut scope| scope.listed(|scope| self::network(network, scope)),
        );
    });
}

fn network(network: &Network, mut scope: Scope<'_>) {
    scope.each("endpoints", &network.endpoints, |endpoints, mut scope| match &endpoints.ne {
        Some(Ne::FromCidr(subnet)) => scope.field("fromCidr").require(address::subnet(subnet)),
        Some(Ne::FromRegistry(registry)) => {
            scope.field("fromRegistry").add_if(!is_dns_label(registry), || {
                BAD_REGISTRY.says(format!("invalid registry name: {registry}")).with_value(registry)
            });
        }
        None => {}
    });
    scope.each("gateways", &network.gateways, |IstioNetworkGateway { gw, port, .. }, mut scope| {
        match gw {
            Some(Gw::RegistryServiceName(name)) => {
                scope.field("registryServiceName").require(host::fqdn(name));
            }
            Some(Gw::Address(address)) => {
                let resolves = scope.settings().resolves_gateway_names;
                scope.field("address").require(gateway(address, resolves));
            }
            None => {}
        }
        scope.field("port").require(port::number(*port));
    });
}

/// The address of a gateway: a name only if somebody resolves it.
fn gateway(text: &str, resolves: bool) -> Result<(), Fault> {
    let Err(not_an_ip) = address::ip(text) else { return Ok(()) };
    if !resolves {
        let message = format!("{not_an_ip} (hostname is allowed if RESOLVE_HOSTNAME_GATEWAYS is enabled)");
        return Err(NAME_NOT_RESOLVED.says(message).with_value(text));
    }
    host::fqdn(text).map_err(|_| {
        BAD_GATEWAY.says(format!("{text} is not a valid IP address or DNS name")).with_value(text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateway_may_be_a_name_only_when_names_are_resolved() {
        assert!(gateway("gateway.example", true).is_ok());
        assert_eq!(
            gateway("gateway.example", false).unwrap_err().to_string(),
            "gateway.example is not a valid IP (hostname is allowed if RESOLVE_HOSTNAME_GATEWAYS is enabled)"
        );
        assert_eq!(
            gateway("a_b", true).unwrap_err().to_string(),
            "a_b is not a valid IP address or DNS name"
        );
    }
}
