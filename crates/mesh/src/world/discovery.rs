//! Discovery selectors: which namespaces are part of the mesh.

use std::sync::Arc;

use canopus_api::{Kind, Object, ObjectKey};
use canopus_base::labels::selector::SelectorError;
use canopus_base::labels::{Labels, Selector};
use canopus_engine::{EagerCtx, EagerQuery};
use canopus_proto::istio::mesh::v1alpha1::LabelSelector;

use super::{Objects, Origin, settings};

/// Whether an object is part of the mesh: discovery selectors match its namespace, or it is cluster-scoped.
pub(crate) fn is_discovered(ctx: &EagerCtx<'_>, origin: &Origin) -> bool {
    let namespace = origin.namespace();
    namespace.is_empty() || is_namespace_discovered(ctx, &origin.cluster, namespace)
}

/// Whether a namespace of a cluster is looked at.
pub fn is_namespace_discovered(ctx: &EagerCtx<'_>, cluster: &Arc<str>, namespace: &str) -> bool {
    settings(ctx).mesh.discovery_selectors.is_empty()
        || *ctx.get::<NamespaceDiscovered>(&(cluster.clone(), namespace.into()))
}

/// Whether discovery selectors match a namespace of a cluster.
struct NamespaceDiscovered;

impl EagerQuery for NamespaceDiscovered {
    const NAME: &'static str = "namespace_discovered";
    type Key = (Arc<str>, Box<str>);
    type Value = bool;

    fn run(ctx: &EagerCtx<'_>, (cluster, namespace): &Self::Key) -> bool {
        let settings = settings(ctx);
        let selectors: Result<Vec<_>, _> =
            settings.mesh.discovery_selectors.iter().map(label_selector).collect();
        // Parity: one invalid selector disables all of them.
        let Ok(selectors) = selectors else { return true };
        let origin = Origin::new(cluster.clone(), ObjectKey::new(Kind::Namespace, "", namespace));
        let labels = match ctx.read::<Objects>(&origin).as_deref() {
            Some(Object::Namespace(namespace)) => namespace.meta.labels.clone(),
            _ => Labels::new(),
        };
        selectors.iter().any(|selector| selector.matches(&labels))
    }
}

/// Reads a label selector of the mesh config.
pub(crate) fn label_selector(written: &LabelSelector) -> Result<Selector, SelectorError> {
    let labels = written.match_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let expressions = written.match_expressions.iter().map(|expression| {
        let values = expression.values.iter().map(String::as_str).collect();
        (expression.key.as_str(), expression.operator.as_str(), values)
    });
    Selector::from_parts(labels, expressions)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::service::AllServices;
    use crate::testing;
    use crate::world::MeshSettings;

    const WORLD: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: in, labels: {mesh: 'yes'}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: out}}
---
{apiVersion: v1, kind: Service, metadata: {name: a, namespace: in}, spec: {ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: b, namespace: out}, spec: {ports: [{port: 80}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: c, namespace: out}, spec: {hosts: [c.com]}}
";

    fn seen(selectors: Vec<LabelSelector>) -> Vec<String> {
        let mut settings = MeshSettings::default();
        settings.mesh.discovery_selectors = selectors;
        let services = testing::world(settings, WORLD).snapshot().get::<AllServices>(&()).unwrap();
        services.iter().map(|service| service.name.to_string()).collect()
    }

    #[test]
    fn namespaces_that_no_selector_picks_are_not_looked_at() {
        let mesh = LabelSelector {
            match_labels: BTreeMap::from([("mesh".to_owned(), "yes".to_owned())]),
            ..Default::default()
        };
        assert_eq!(seen(Vec::new()), ["a", "b", "c.com"]);
        assert_eq!(seen(vec![mesh.clone()]), ["a"]);
        assert_eq!(seen(vec![mesh, LabelSelector::default()]), ["a", "b", "c.com"]);
    }
}
