//! Resources in the shape of Envoy's `/config_dump`, which other tools read.

use canopus_base::tree::{Map, Node, Value};
use canopus_proto::envoy::config::core::v3::Node as Proxy;
use canopus_proto::json;

use super::render::sort_keys;
use super::resource::{Printed, Resources, Type};

/// The whole dump.
pub(super) fn tree(proxy: &Proxy, resources: Resources, canonical: bool) -> Node {
    let dumps = resources.into_iter().filter_map(|(kind, mut printed)| {
        if canonical {
            printed.sort_by(|a, b| a.name.cmp(&b.name));
        }
        dump(kind, printed)
    });
    // Who the proxy is stands in its bootstrap.
    let bootstrap = mapping([
        ("@type", text("type.googleapis.com/envoy.admin.v3.BootstrapConfigDump".to_owned())),
        ("bootstrap", mapping([("node", json::write(proxy))])),
    ]);
    let dumps = std::iter::once(bootstrap).chain(dumps);
    let mut tree = mapping([("configs", Value::List(dumps.collect()).into())]);
    if canonical {
        sort_keys(&mut tree);
    }
    tree
}

/// The part of one type; `None` for types that Envoy does not know.
fn dump(kind: Type, printed: Vec<Printed>) -> Option<Node> {
    let (name, list) = match kind {
        Type::Cds => ("ClustersConfigDump", "dynamicActiveClusters"),
        Type::Eds => ("EndpointsConfigDump", "dynamicEndpointConfigs"),
        Type::Lds => ("ListenersConfigDump", "dynamicListeners"),
        Type::Rds => ("RoutesConfigDump", "dynamicRouteConfigs"),
        Type::Sds => ("SecretsConfigDump", "dynamicActiveSecrets"),
        Type::Ecds => ("EcdsConfigDump", "ecdsFilters"),
        Type::Nds => return None,
    };
    let entries = printed.into_iter().map(|one| entry(kind, one)).collect();
    Some(mapping([
        ("@type", text(format!("type.googleapis.com/envoy.admin.v3.{name}"))),
        (list, Value::List(entries).into()),
    ]))
}

fn entry(kind: Type, one: Printed) -> Node {
    let version = ("versionInfo", text(one.version));
    match kind {
        Type::Cds => mapping([version, ("cluster", one.body)]),
        Type::Eds => mapping([version, ("endpointConfig", one.body)]),
        Type::Ecds => mapping([version, ("ecdsFilter", one.body)]),
        Type::Rds => mapping([version, ("routeConfig", one.body)]),
        Type::Lds => {
            let active = mapping([version, ("listener", one.body)]);
            mapping([("name", text(one.name)), ("activeState", active)])
        }
        Type::Sds | Type::Nds => mapping([("name", text(one.name)), version, ("secret", one.body)]),
    }
}

fn text(text: String) -> Node {
    Value::from(text).into()
}

fn mapping<const N: usize>(fields: [(&str, Node); N]) -> Node {
    Value::Map(fields.into_iter().collect::<Map>()).into()
}
