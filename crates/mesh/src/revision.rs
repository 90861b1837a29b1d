//! Revisions and their tags: which control plane of a cluster an object is for.
//!
//! A tag is another name of a revision. MutatingWebhookConfigurations, and Services beside the control plane, say which
//! revision a tag means by their labels `istio.io/tag` and `istio.io/rev`.

use std::collections::BTreeSet;
use std::sync::Arc;

use canopus_api::{Kind, Meta, Object, ObjectKey, labels};
use canopus_engine::{Ctx, Query};

use crate::world::{ObjectIndex, Objects, Origin, namespace, settings};

/// The webhook of the tag that pods and gateways get which name no revision.
const DEFAULT_TAG_WEBHOOK: &str = "istio-revision-tag-default";

/// The webhook whose label says which revision is the default one.
const DEFAULT_REVISION_WEBHOOK: &str = "istiod-default-validator";

const DEFAULT: &str = "default";

/// Whether an object of the control plane's own cluster is for this revision: its label or, without one, that of its
/// namespace names the revision or a tag of it, or neither names anything and this is the default revision.
pub fn is_for_this_revision(ctx: &Ctx<'_>, meta: &Meta) -> bool {
    let named = match meta.label(labels::REVISION.name) {
        Some(named) => named.to_owned(),
        None => match namespace(ctx, &settings(ctx).cluster, &meta.namespace) {
            // Parity: a namespace that was not read yet says nothing against it.
            None => return true,
            Some(namespace) => namespace.meta.label(labels::REVISION.name).unwrap_or_default().to_owned(),
        },
    };
    let own = ctx.get::<OwnTags>(&());
    own.tags.contains(&named) || named.is_empty() && own.is_default
}

#[derive(Clone, Debug, PartialEq)]
struct Tags {
    /// The revision itself and its tags.
    tags: BTreeSet<String>,
    /// Whether what names no revision is for this one.
    is_default: bool,
}

/// The names of this revision.
struct OwnTags;

impl Query for OwnTags {
    const NAME: &'static str = "own_tags";
    type Key = ();
    type Value = Tags;

    fn run(ctx: &Ctx<'_>, (): &()) -> Tags {
        let settings = settings(ctx);
        let in_cluster = |kind, namespace: &str| {
            let index = ObjectIndex::InCluster(kind, Arc::clone(&settings.cluster), namespace.into());
            let origins = ctx.members::<Objects>(&index);
            origins.iter().filter_map(|origin| ctx.read::<Objects>(origin)).collect::<Vec<_>>()
        };
        let tag_of = |object: &Arc<Object>| {
            let is_own = object.meta().label(labels::REVISION.name) == Some(&*settings.revision);
            object.meta().label(labels::TAG.name).filter(|_| is_own).map(str::to_owned)
        };
        let mut tags = BTreeSet::from([settings.revision.to_string()]);
        tags.extend(in_cluster(Kind::MutatingWebhookConfiguration, "").iter().filter_map(tag_of));
        tags.extend(in_cluster(Kind::Service, &settings.system_namespace).iter().filter_map(tag_of));
        let webhook = |kind, name: &str| {
            ctx.read::<Objects>(&Origin::new(Arc::clone(&settings.cluster), ObjectKey::new(kind, "", name)))
        };
        let is_default_revision = || {
            let validator = webhook(Kind::ValidatingWebhookConfiguration, DEFAULT_REVISION_WEBHOOK);
            let named =
                validator.and_then(|webhook| webhook.meta().label(labels::REVISION.name).map(str::to_owned));
            // A tag goes before the default revision where they differ.
            named.as_deref() == Some(&*settings.revision)
                && webhook(Kind::MutatingWebhookConfiguration, DEFAULT_TAG_WEBHOOK).is_none()
        };
        let is_default = tags.contains(DEFAULT) || is_default_revision();
        Tags { tags, is_default }
    }
}

#[cfg(test)]
mod tests {
    use canopus_api::{Options, decode_documents};
    use canopus_base::tree::Limits;
    use canopus_engine::{Batch, Engine};

    use super::*;
    use crate::world::{MeshSettings, Settings};

    struct IsOurs;

    impl Query for IsOurs {
        const NAME: &'static str = "is_ours";
        /// The label of the object and its namespace.
        type Key = (Option<&'static str>, &'static str);
        type Value = bool;

        fn run(ctx: &Ctx<'_>, (label, namespace): &Self::Key) -> bool {
            let mut meta = Meta::new(namespace, "web");
            if let Some(label) = label {
                meta.labels.insert(labels::REVISION.name, *label);
            }
            is_for_this_revision(ctx, &meta)
        }
    }

    fn world(revision: &str, more: &str) -> Engine {
        let documents = format!(
            "apiVersion: v1\nkind: Namespace\nmetadata: {{name: plain}}\n---\n\
             apiVersion: v1\nkind: Namespace\nmetadata: {{name: canary, labels: {{istio.io/rev: canary}}}}\n---\n{more}"
        );
        let settings = MeshSettings { revision: revision.into(), ..MeshSettings::default() };
        let mut batch = Batch::new();
        for object in decode_documents(&documents, &Limits::default(), Options::watch()) {
            let object = object.unwrap().value;
            batch.set::<Objects>(Origin::new(Arc::clone(&settings.cluster), object.key()), object);
        }
        batch.set::<Settings>((), settings);
        let engine = Engine::new();
        engine.apply(batch);
        engine
    }

    fn is_ours(engine: &Engine, label: Option<&'static str>, namespace: &'static str) -> bool {
        *engine.snapshot().get::<IsOurs>(&(label, namespace)).unwrap()
    }

    #[test]
    fn label_of_the_object_goes_before_that_of_its_namespace() {
        let engine = world("default", "");
        assert!(is_ours(&engine, None, "plain"));
        assert!(!is_ours(&engine, None, "canary"));
        assert!(is_ours(&engine, Some("default"), "canary"));
        assert!(is_ours(&engine, None, "unknown"));
    }

    #[test]
    fn tag_of_the_revision_counts_as_the_revision() {
        let tag = "apiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n\
                   metadata: {name: istio-revision-tag-TAG, labels: {istio.io/rev: canary, istio.io/tag: TAG}}";
        let engine = world("canary", &tag.replace("TAG", "prod"));
        assert!(is_ours(&engine, Some("prod"), "plain") && is_ours(&engine, None, "canary"));
        assert!(!is_ours(&engine, None, "plain"));
        assert!(is_ours(&world("canary", &tag.replace("TAG", "default")), None, "plain"));
    }

    #[test]
    fn default_revision_gets_what_names_none_unless_a_tag_says_otherwise() {
        let validator = "apiVersion: admissionregistration.k8s.io/v1\nkind: ValidatingWebhookConfiguration\n\
                         metadata: {name: istiod-default-validator, labels: {istio.io/rev: canary}}\n";
        assert!(is_ours(&world("canary", validator), None, "plain"));
        let tag = "---\napiVersion: admissionregistration.k8s.io/v1\nkind: MutatingWebhookConfiguration\n\
                   metadata: {name: istio-revision-tag-default, labels: {istio.io/rev: old, istio.io/tag: default}}";
        assert!(!is_ours(&world("canary", &format!("{validator}{tag}")), None, "plain"));
    }
}
