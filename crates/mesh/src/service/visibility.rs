//! How far ServiceEntries can be seen, by `serviceEntryVisibility` of the mesh config.

use std::collections::BTreeSet;

use canopus_api::kube::Namespace;
use canopus_api::visibility::Visibility;
use canopus_api::{Kind, ObjectKey};
use canopus_base::labels::Labels;
use canopus_engine::EagerCtx;
use canopus_proto::istio::mesh::v1alpha1::service_entry_visibility::match_rule::Matcher;
use canopus_proto::istio::mesh::v1alpha1::service_entry_visibility::{
    MatchRule, Policy, Visibility as Written,
};

use crate::world::{Origin, label_selector, object, settings};

/// How far the mesh lets a ServiceEntry be seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EntryVisibility {
    /// Visible where its `exportTo` says.
    #[default]
    Public,
    /// In its own namespace at most.
    Namespace,
    /// Nowhere.
    None,
}

impl From<Written> for EntryVisibility {
    fn from(written: Written) -> Self {
        match written {
            Written::Unspecified | Written::Public => Self::Public,
            Written::Namespace => Self::Namespace,
            Written::None => Self::None,
        }
    }
}

/// How far the mesh lets a ServiceEntry be seen: the first policy whose rules all match its namespace decides.
pub fn entry_visibility(ctx: &EagerCtx<'_>, entry: &Origin) -> EntryVisibility {
    let settings = settings(ctx);
    let Some(written) = &settings.mesh.service_entry_visibility else { return EntryVisibility::Public };
    let home = Origin::new(entry.cluster.clone(), ObjectKey::new(Kind::Namespace, "", entry.namespace()));
    let labels = object::<Namespace>(ctx, &home).map(|home| home.meta.labels.clone()).unwrap_or_default();
    let decides = written
        .policies
        .iter()
        .find(|policy| policy.matching_rules.iter().all(|rule| matches(rule, &labels)));
    decides.map_or_else(|| written.default_visibility(), Policy::visibility).into()
}

/// A rule that says nothing, or nothing that can be read, does not match: more would be seen than is meant otherwise.
fn matches(rule: &MatchRule, namespace: &Labels) -> bool {
    match &rule.matcher {
        Some(Matcher::NamespaceSelector(selector)) => {
            label_selector(selector).is_ok_and(|selector| selector.matches(namespace))
        }
        None => false,
    }
}

/// The `exportTo` of a ServiceEntry for sidecars and gateways, which the mesh may narrow.
pub(super) fn exported(ctx: &EagerCtx<'_>, entry: &Origin, export_to: &[String]) -> BTreeSet<Visibility> {
    let settings = settings(ctx);
    let parsed = |entries: &[String]| entries.iter().map(|entry| Visibility::parse(entry)).collect();
    let written: BTreeSet<_> = parsed(export_to);
    if !settings.mesh.service_entry_visibility.as_ref().is_some_and(|mesh| mesh.apply_to_sidecars) {
        return written;
    }
    let default = &settings.mesh.default_service_export_to;
    let effective = if written.is_empty() { parsed(default) } else { written.clone() };
    let home = Visibility::Namespace(entry.namespace().into());
    let is_seen_at_home = effective.is_empty()
        || effective.contains(&Visibility::Public)
        || effective.contains(&Visibility::Private)
        || effective.contains(&home);
    match entry_visibility(ctx, entry) {
        EntryVisibility::Public => written,
        EntryVisibility::Namespace if is_seen_at_home => BTreeSet::from([Visibility::Private]),
        EntryVisibility::Namespace | EntryVisibility::None => BTreeSet::from([Visibility::None]),
    }
}

#[cfg(test)]
mod tests {
    use canopus_proto::istio::mesh::v1alpha1::{LabelSelector, ServiceEntryVisibility};

    use crate::service::ServicesVisibleTo;
    use crate::testing;
    use crate::world::MeshSettings;

    use super::*;

    const WORLD: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: open, labels: {seen: everywhere}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shut, labels: {seen: nowhere}}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: a, namespace: open},
 spec: {hosts: [a.com], ports: [{number: 80, name: http, protocol: HTTP}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: b, namespace: shut},
 spec: {hosts: [b.com], ports: [{number: 80, name: http, protocol: HTTP}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: c, namespace: other},
 spec: {hosts: [c.com], ports: [{number: 80, name: http, protocol: HTTP}]}}
---
{apiVersion: networking.istio.io/v1, kind: ServiceEntry, metadata: {name: d, namespace: other},
 spec: {hosts: [d.com], exportTo: [open], ports: [{number: 80, name: http, protocol: HTTP}]}}
";

    fn policy(label: &str, visibility: Written) -> Policy {
        let match_labels = [("seen".to_owned(), label.to_owned())].into();
        let selector = LabelSelector { match_labels, ..Default::default() };
        let rule = MatchRule { matcher: Some(Matcher::NamespaceSelector(selector)) };
        Policy { visibility: visibility as i32, matching_rules: vec![rule] }
    }

    /// Which entries proxies of these namespaces see: `host@namespace`.
    fn seen(apply_to_sidecars: bool) -> Vec<String> {
        let mut settings = MeshSettings::default();
        settings.mesh.service_entry_visibility = Some(ServiceEntryVisibility {
            default_visibility: Written::Namespace as i32,
            apply_to_sidecars,
            policies: vec![policy("everywhere", Written::Public), policy("nowhere", Written::None)],
        });
        let engine = testing::world(settings, WORLD);
        let mut found = Vec::new();
        for namespace in ["open", "shut", "other"] {
            let services = engine.snapshot().get::<ServicesVisibleTo>(&namespace.into()).unwrap();
            found.extend(services.iter().map(|service| format!("{}@{namespace}", service.host)));
        }
        found.sort_unstable();
        found
    }

    #[test]
    fn policy_of_the_mesh_narrows_what_sidecars_see() {
        assert_eq!(seen(true), ["a.com@open", "a.com@other", "a.com@shut", "c.com@other"]);
    }

    #[test]
    fn sidecars_see_everything_when_the_policy_is_not_for_them() {
        assert_eq!(seen(false).len(), 10);
    }
}
