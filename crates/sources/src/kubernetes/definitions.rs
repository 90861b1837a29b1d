//! Which kinds a cluster has been taught.

use std::collections::{BTreeMap, BTreeSet};

use canopus_api::Kind;
use canopus_base::tree::Node;

use super::resource::is_defined;
use super::watch::WatchEvent;

/// Says which release of its project a definition comes from.
const BUNDLE_VERSION: &str = "gateway.networking.k8s.io/bundle-version";

/// The definitions of a cluster.
#[derive(Debug)]
pub(super) struct Definitions {
    /// Kinds of interest, by the name of their definition.
    wanted: BTreeMap<String, Kind>,
    /// Definitions that are there, with what they say of their release.
    found: BTreeMap<Kind, Option<Box<str>>>,
    /// What a listing that has not ended has named.
    listed: Option<BTreeSet<Kind>>,
}

impl Definitions {
    /// Looks for the definitions of these kinds.
    pub(super) fn new(kinds: &BTreeSet<Kind>) -> Self {
        let wanted = kinds.iter().filter(|kind| is_defined(**kind));
        let wanted = wanted.map(|kind| (kind.info().resource(), *kind)).collect();
        Self { wanted, found: BTreeMap::new(), listed: None }
    }

    /// Takes what is told of definitions.
    pub(super) fn take(&mut self, told: &WatchEvent) {
        match told {
            WatchEvent::Begin => self.listed = Some(BTreeSet::new()),
            WatchEvent::End => {
                if let Some(listed) = self.listed.take() {
                    self.found.retain(|kind, _| listed.contains(kind));
                }
            }
            WatchEvent::Object(definition) => {
                let Some(kind) = self.kind(definition) else { return };
                let annotations = definition.pointer("/metadata/annotations");
                let version = annotations.and_then(|annotations| annotations.get(BUNDLE_VERSION));
                self.found.insert(kind, version.and_then(Node::as_str).map(Box::from));
                if let Some(listed) = &mut self.listed {
                    listed.insert(kind);
                }
            }
            WatchEvent::Gone(definition) => {
                if let Some(kind) = self.kind(definition) {
                    self.found.remove(&kind);
                }
            }
            // The definition still exists, with the version that is known of it.
            WatchEvent::Unread(unread) => {
                let kind = self.wanted.get(&*unread.name).filter(|kind| self.found.contains_key(kind));
                if let (Some(listed), Some(kind)) = (&mut self.listed, kind) {
                    listed.insert(*kind);
                }
            }
            // A listing that ends so had something that cannot be read: what it did not name may be there all the same.
            WatchEvent::Live => self.listed = None,
            WatchEvent::Lost(_) | WatchEvent::Absent(_) | WatchEvent::Problem(_) => {}
        }
    }

    /// Whether no listing is under way: what is known is all there is.
    pub(super) fn is_listed(&self) -> bool {
        self.listed.is_none()
    }

    /// The kinds that can be followed.
    pub(super) fn kinds(&self) -> BTreeSet<Kind> {
        let accepted =
            self.found.iter().filter(|(kind, version)| kind.info().accepts_bundle(version.as_deref()));
        accepted.map(|(kind, _)| *kind).collect()
    }

    fn kind(&self, definition: &Node) -> Option<Kind> {
        let name = definition.pointer("/metadata/name").and_then(Node::as_str)?;
        self.wanted.get(name).copied()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::resource::all_kinds;
    use super::*;

    fn definition(name: &str, version: Option<&str>) -> Node {
        json!({"metadata": {"name": name, "annotations": {BUNDLE_VERSION: version}}}).into()
    }

    #[test]
    fn known_kinds_come_and_go_with_their_definitions() {
        let mut definitions = Definitions::new(&all_kinds());
        for told in [
            WatchEvent::Begin,
            WatchEvent::Object(definition("virtualservices.networking.istio.io", None)),
            WatchEvent::Object(definition("cakes.example.com", None)),
            WatchEvent::Object(definition("services", None)),
            WatchEvent::End,
        ] {
            definitions.take(&told);
        }
        assert_eq!(definitions.kinds(), BTreeSet::from([Kind::VirtualService]));

        definitions.take(&WatchEvent::Object(definition("gateways.networking.istio.io", None)));
        definitions.take(&WatchEvent::Gone(definition("virtualservices.networking.istio.io", None)));
        assert_eq!(definitions.kinds(), BTreeSet::from([Kind::Gateway]));
        definitions.take(&WatchEvent::Begin);
        definitions.take(&WatchEvent::Lost("no route".to_owned()));
        assert_eq!(definitions.kinds(), BTreeSet::from([Kind::Gateway]));
        definitions.take(&WatchEvent::Begin);
        definitions.take(&WatchEvent::End);
        assert_eq!(definitions.kinds(), BTreeSet::new());
    }

    #[test]
    fn definition_that_cannot_be_read_hides_no_other() {
        let mut definitions = Definitions::new(&all_kinds());
        definitions.take(&WatchEvent::Begin);
        definitions.take(&WatchEvent::Object(definition("gateways.networking.istio.io", None)));
        definitions.take(&WatchEvent::Problem("too large".to_owned()));
        definitions.take(&WatchEvent::Live);
        assert!(definitions.is_listed());
        assert_eq!(definitions.kinds(), BTreeSet::from([Kind::Gateway]));
    }

    #[test]
    fn definitions_of_old_releases_are_not_followed() {
        let mut definitions = Definitions::new(&all_kinds());
        let name = "tlsroutes.gateway.networking.k8s.io";
        for (version, followed) in [(None, false), (Some("v1.4.0"), false), (Some("v1.5.1"), true)] {
            definitions.take(&WatchEvent::Object(definition(name, version)));
            assert_eq!(definitions.kinds().contains(&Kind::TlsRoute), followed, "{version:?}");
        }
    }
}
