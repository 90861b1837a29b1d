//! Which servers a gateway proxy runs.

use std::collections::BTreeMap;

use canopus_api::{Kind, Object};
use canopus_base::protocol::Protocol;
use canopus_engine::{Ctx, Query};
use canopus_proto::istio::networking::v1alpha3::Server;

use crate::proxy::View;
use crate::world::{Objects, Origin, Shelf};

/// Everything a gateway proxy listens on, merged over all Gateway objects that select it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MergedGateway {
    /// Servers by the port they listen on.
    pub ports: BTreeMap<u32, Vec<BoundServer>>,
}

/// A server and the Gateway it belongs to.
#[derive(Clone, Debug, PartialEq)]
pub struct BoundServer {
    /// The Gateway object.
    pub gateway: Origin,
    /// The server as written.
    pub server: Server,
}

impl BoundServer {
    /// `namespace/name` of the Gateway, as VirtualServices refer to it.
    pub fn gateway_name(&self) -> String {
        format!("{}/{}", self.gateway.namespace(), self.gateway.name())
    }

    /// What is spoken on the port.
    pub fn protocol(&self) -> Protocol {
        Protocol::parse(self.server.port.as_ref().map_or("", |port| &port.protocol))
    }

    /// The port number as written in the Gateway.
    pub fn port_number(&self) -> u32 {
        self.server.port.as_ref().map_or(0, |port| port.number)
    }
}

/// The merged gateway of a view.
pub struct Merged;

impl Query for Merged {
    const NAME: &'static str = "merged_gateway";
    type Key = View;
    type Value = MergedGateway;

    fn run(ctx: &Ctx<'_>, view: &View) -> MergedGateway {
        let mut gateways = Vec::new();
        for key in ctx.members::<Objects>(&Shelf::Kind(Kind::Gateway)).iter() {
            let Some(object) = ctx.read::<Objects>(key) else { continue };
            let Object::Gateway(gateway) = object.as_ref() else { continue };
            if gateway.spec.selector.iter().all(|(key, value)| view.labels.get(key) == Some(value)) {
                gateways.push((object.meta().creation_timestamp, key.clone(), gateway.clone()));
            }
        }
        gateways.sort_by(|a, b| (&a.0, &a.1).cmp(&(&b.0, &b.1)));

        let mut merged = MergedGateway::default();
        for (_, key, gateway) in gateways {
            for server in &gateway.spec.servers {
                let bound = BoundServer { gateway: key.clone(), server: server.clone() };
                merged.ports.entry(bound.port_number()).or_default().push(bound);
            }
        }
        merged
    }
}
