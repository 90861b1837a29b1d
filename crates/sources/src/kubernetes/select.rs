//! Which objects the mesh may see.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use canopus_api::registry::Category;
use canopus_api::{Kind, Object, labels};
use canopus_base::labels::{Labels, Selector};

/// The namespaces whose objects are seen: those that any of the selectors selects; all, if there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    selectors: Arc<[Selector]>,
}

impl Selection {
    /// What any of these selects.
    pub fn new(selectors: Vec<Selector>) -> Self {
        Self { selectors: selectors.into() }
    }

    /// Whether every namespace is seen.
    pub fn is_everything(&self) -> bool {
        self.selectors.is_empty()
    }

    fn selects(&self, labels: &Labels) -> bool {
        self.is_everything() || self.selectors.iter().any(|selector| selector.matches(labels))
    }
}

/// Namespaces that came into sight or went out of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct NamespaceChange {
    /// Kinds of which objects were turned away that may be seen now.
    pub(super) relist: BTreeSet<Kind>,
    /// Namespaces whose objects may not be seen any more.
    pub(super) deselected: Vec<Box<str>>,
}

/// Decides which objects are seen. It remembers what it turned away only by namespace, not the objects.
#[derive(Debug)]
pub(super) struct Filter {
    selection: Selection,
    revision: Box<str>,
    /// Every namespace, and whether it is seen.
    namespaces: BTreeMap<Box<str>, (Labels, bool)>,
    /// The kinds of which objects were turned away, by namespace.
    refused: BTreeMap<Box<str>, BTreeSet<Kind>>,
}

impl Filter {
    pub(super) fn new(selection: Selection, revision: Box<str>) -> Self {
        Self { selection, revision, namespaces: BTreeMap::new(), refused: BTreeMap::new() }
    }

    /// Whether an object may be seen.
    pub(super) fn admits(&mut self, object: &Object) -> bool {
        let (kind, meta) = (object.kind(), object.meta());
        if !in_revision(kind, meta.label(labels::REVISION.name), &self.revision) {
            return false;
        }
        if meta.namespace.is_empty() || self.selection.is_everything() {
            return true;
        }
        let seen = self.namespaces.get(&meta.namespace).is_some_and(|(_, seen)| *seen);
        if !seen {
            self.refused.entry(meta.namespace.clone()).or_default().insert(kind);
        }
        seen
    }

    /// A namespace has these labels now.
    pub(super) fn namespace(&mut self, name: &str, labels: &Labels) -> NamespaceChange {
        let mut change = NamespaceChange::default();
        let seen = self.selection.selects(labels);
        let before = self.namespaces.insert(name.into(), (labels.clone(), seen));
        let was_seen = before.map(|(_, seen)| seen);
        self.note(name, was_seen, seen, &mut change);
        change
    }

    /// A namespace is gone. Its objects go one by one.
    pub(super) fn forget(&mut self, name: &str) {
        self.namespaces.remove(name);
        self.refused.remove(name);
    }

    /// The names of all namespaces.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.namespaces.keys().map(|name| &**name)
    }

    /// Replaces the selection of namespaces.
    pub(super) fn select(&mut self, selection: Selection) -> NamespaceChange {
        let mut change = NamespaceChange::default();
        self.selection = selection;
        let mut namespaces = std::mem::take(&mut self.namespaces);
        for (name, (labels, seen)) in &mut namespaces {
            let was_seen = std::mem::replace(seen, self.selection.selects(labels));
            self.note(name, Some(was_seen), *seen, &mut change);
        }
        self.namespaces = namespaces;
        if self.selection.is_everything() {
            // Objects of namespaces nobody has heard of may be seen too.
            change.relist.extend(std::mem::take(&mut self.refused).into_values().flatten());
        }
        change
    }

    fn note(&mut self, name: &str, was_seen: Option<bool>, seen: bool, change: &mut NamespaceChange) {
        match (was_seen, seen) {
            (_, true) => change.relist.extend(self.refused.remove(name).into_iter().flatten()),
            (Some(true), false) => {
                change.deselected.push(name.into());
                // What goes now was never turned away, and has to come back all the same.
                let namespaced = Kind::ALL.iter().copied().filter(|kind| kind.info().is_namespaced());
                self.refused.insert(name.into(), namespaced.collect());
            }
            _ => {}
        }
    }
}

/// Parity: the label counts for configuration alone, names one revision, and is not looked at on Kubernetes' Gateways,
/// whose revision may also be a tag.
fn in_revision(kind: Kind, label: Option<&str>, revision: &str) -> bool {
    let configuration =
        matches!(kind.info().category, Category::Istio | Category::GatewayApi | Category::Inference);
    !configuration
        || kind == Kind::KubernetesGateway
        || revision.is_empty()
        || label.is_none_or(|label| label == revision)
}

#[cfg(test)]
mod tests {
    use canopus_api::istio::VirtualService;
    use canopus_api::kube::{Namespace, Service};

    use super::*;

    fn labels(text: &[(&str, &str)]) -> Labels {
        let mut labels = Labels::default();
        for (key, value) in text {
            labels.insert(*key, *value);
        }
        labels
    }

    fn selection(texts: &[&str]) -> Selection {
        Selection::new(texts.iter().map(|text| Selector::parse(text).unwrap()).collect())
    }

    fn service(namespace: &str) -> Object {
        Service::new(namespace, "a", Default::default()).into()
    }

    #[test]
    fn any_selector_suffices_and_none_selects_everything() {
        let mut filter = Filter::new(selection(&["mesh=on", "team in (a, b)"]), Box::default());
        filter.namespace("on", &labels(&[("mesh", "on")]));
        filter.namespace("team", &labels(&[("team", "b")]));
        filter.namespace("off", &labels(&[("mesh", "off")]));
        let seen = |filter: &mut Filter| {
            ["on", "team", "off", "unheard-of"].map(|namespace| filter.admits(&service(namespace)))
        };
        assert_eq!(seen(&mut filter), [true, true, false, false]);
        assert!(filter.admits(&Namespace::new("", "off", Default::default()).into()));
        let change = filter.select(Selection::default());
        assert_eq!(change.relist, BTreeSet::from([Kind::Service]));
        assert_eq!(seen(&mut filter), [true; 4]);
    }

    #[test]
    fn namespace_that_comes_into_sight_relists_what_was_turned_away_and_nothing_else() {
        let mut filter = Filter::new(selection(&["mesh=on"]), Box::default());
        assert_eq!(filter.namespace("new", &labels(&[("mesh", "on")])), NamespaceChange::default());
        filter.namespace("shop", &labels(&[]));
        assert!(!filter.admits(&service("shop")));
        let change = filter.namespace("shop", &labels(&[("mesh", "on")]));
        assert_eq!(change, NamespaceChange { relist: BTreeSet::from([Kind::Service]), deselected: vec![] });
        assert!(filter.admits(&service("shop")));
        assert_eq!(
            filter.namespace("shop", &labels(&[("mesh", "on"), ("x", "y")])),
            NamespaceChange::default()
        );
    }

    #[test]
    fn objects_may_come_before_their_namespace() {
        let mut filter = Filter::new(selection(&["mesh=on"]), Box::default());
        assert!(!filter.admits(&service("late")));
        let change = filter.namespace("late", &labels(&[("mesh", "on")]));
        assert_eq!(change.relist, BTreeSet::from([Kind::Service]));
    }

    #[test]
    fn namespace_that_goes_out_of_sight_and_comes_back_relists_all() {
        let mut filter = Filter::new(selection(&["mesh=on"]), Box::default());
        filter.namespace("shop", &labels(&[("mesh", "on")]));
        let change = filter.namespace("shop", &labels(&[]));
        assert_eq!(change.deselected, ["shop".into()]);
        let change = filter.select(selection(&["!mesh"]));
        assert!(change.relist.contains(&Kind::Service) && change.relist.contains(&Kind::VirtualService));
        assert!(change.relist.iter().all(|kind| kind.info().is_namespaced()));
    }

    #[test]
    fn revision_counts_for_configuration_alone() {
        let labelled = |revision: &str| {
            let mut object = VirtualService::new("a", "a", Default::default());
            object.meta.labels.insert(labels::REVISION.name, revision);
            Object::from(object)
        };
        let mut filter = Filter::new(Selection::default(), "blue".into());
        assert!(filter.admits(&labelled("blue")) && !filter.admits(&labelled("green")));
        assert!(filter.admits(&VirtualService::new("a", "a", Default::default()).into()));
        let mut service = Service::new("a", "a", Default::default());
        service.meta.labels.insert(labels::REVISION.name, "green");
        assert!(filter.admits(&service.into()));
        assert!(Filter::new(Selection::default(), Box::default()).admits(&labelled("green")));
        assert!(in_revision(Kind::KubernetesGateway, Some("tag"), "blue"));
    }
}
