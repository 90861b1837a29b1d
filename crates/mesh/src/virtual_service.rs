//! Which VirtualServices apply where.

use canopus_api::{Kind, Object};
use canopus_engine::{Ctx, Query};

use crate::world::{Objects, Origin, Shelf};

/// The VirtualServices bound to a gateway named `namespace/name`, oldest first.
pub struct BoundTo;

impl Query for BoundTo {
    const NAME: &'static str = "virtual_services_bound_to";
    type Key = String;
    type Value = Vec<Origin>;

    fn run(ctx: &Ctx<'_>, gateway: &String) -> Self::Value {
        let mut bound = Vec::new();
        for key in ctx.members::<Objects>(&Shelf::Kind(Kind::VirtualService)).iter() {
            let Some(object) = ctx.read::<Objects>(key) else { continue };
            let Object::VirtualService(service) = object.as_ref() else { continue };
            if service.spec.gateways.iter().any(|name| qualified_gateway(name, key.namespace()) == *gateway) {
                bound.push((object.meta().creation_timestamp, key.clone()));
            }
        }
        bound.sort();
        bound.into_iter().map(|(_, key)| key).collect()
    }
}

/// `namespace/name` of a gateway as written in an object of `namespace`.
fn qualified_gateway(name: &str, namespace: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{namespace}/{name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gateways_without_namespace_are_those_of_the_object() {
        assert_eq!(qualified_gateway("g", "ns"), "ns/g");
        assert_eq!(qualified_gateway("other/g", "ns"), "other/g");
    }
}
