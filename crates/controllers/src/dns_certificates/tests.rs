use canopus_engine::{Batch, Engine};
use canopus_identity::authority::Lifetimes;
use canopus_identity::bundle::Parts;
use canopus_identity::key::KeyKind;
use canopus_identity::self_signed::Profile;
use canopus_proto::istio::mesh::v1alpha1::Certificate as Listed;

use super::*;
use crate::testing::{objects, world};

fn bundle() -> Arc<Bundle> {
    let profile = Profile { key: KeyKind::P256, ..Profile::default() };
    let (certificate, key) = profile.create(UnixTime::now()).unwrap();
    let certificate = certificate.to_pem().unwrap().into_bytes();
    let key = key.to_pem().unwrap().as_bytes().to_vec().into();
    let parts = Parts { roots: certificate.clone(), certificate, key, ..Parts::default() };
    Arc::new(Bundle::new(&parts, UnixTime::now()).unwrap())
}

#[expect(deprecated, reason = "it is the field that this controller is for")]
fn list(engine: &Engine, secret: &str, names: &[&str]) {
    let mut settings = MeshSettings::default();
    let dns_names = names.iter().map(|name| (*name).to_owned()).collect();
    settings.mesh.certificates = vec![Listed { secret_name: secret.to_owned(), dns_names }];
    let mut batch = Batch::new();
    batch.set::<Settings>((), settings);
    engine.apply(batch);
}

/// The controller, a world that lists one certificate, and what is planned at first.
fn setting() -> (DnsCertificateController, Arc<Authority>, Engine) {
    let engine = world("");
    list(&engine, "dns.galley", &["galley.istio-system.svc", "galley.istio-system"]);
    let authority = Arc::new(Authority::with_bundle(Lifetimes::default(), bundle()));
    (DnsCertificateController::new(Arc::clone(&authority)), authority, engine)
}

fn planned(controller: &DnsCertificateController, engine: &Engine, days: i64) -> Vec<Arc<Write>> {
    let now = Timestamp::now() + jiff::SignedDuration::from_hours(24 * days);
    controller.plan(&engine.snapshot(), now).unwrap().writes
}

/// Puts what was planned into the world, as the watch would.
fn store(engine: &Engine, write: &Write) {
    let Change::Apply { fields, .. } = &write.change else { panic!("{write:?}") };
    engine.apply(objects(&fields.to_string()));
}

#[test]
fn listed_secret_is_issued_once_and_is_then_as_it_should_be() {
    let (controller, _, engine) = setting();
    let first = planned(&controller, &engine, 0);
    assert_eq!(first.len(), 1);
    assert_eq!(planned(&controller, &engine, 0), first, "the same key until the watch shows it");
    store(&engine, &first[0]);
    assert!(planned(&controller, &engine, 0).is_empty());
    assert!(planned(&controller, &engine, 70).is_empty());
}

#[test]
fn secret_is_issued_again_when_it_is_due_deleted_renamed_or_the_authority_changes() {
    let (controller, authority, engine) = setting();
    let first = planned(&controller, &engine, 0).remove(0);
    store(&engine, &first);
    assert!(planned(&controller, &engine, 0).is_empty());

    assert_eq!(planned(&controller, &engine, 75).len(), 1, "the last fifth has begun");
    let (controller, engine_of) = (DnsCertificateController::new(Arc::clone(&authority)), &engine);
    list(engine_of, "dns.galley", &["galley.istio-system.svc"]);
    assert_eq!(planned(&controller, engine_of, 0).len(), 1, "other names");
    list(engine_of, "dns.galley", &["galley.istio-system", "galley.istio-system.svc"]);
    assert!(planned(&controller, engine_of, 0).is_empty(), "the order does not count");

    authority.replace(Some(bundle()));
    let other = planned(&controller, engine_of, 0);
    assert_eq!(other.len(), 1, "another authority");
    assert_ne!(other[0], first);

    let mut batch = Batch::new();
    batch.remove::<Objects>(&Origin::new("Kubernetes", first.target.clone()));
    engine.apply(batch);
    assert_eq!(planned(&controller, &engine, 0).len(), 1, "deleted");
}

#[test]
fn secret_of_another_type_is_left_alone() {
    let (controller, _, engine) = setting();
    engine.apply(objects(
        "{apiVersion: v1, kind: Secret, metadata: {name: dns.galley, namespace: istio-system}, type: Opaque}",
    ));
    assert!(planned(&controller, &engine, 0).is_empty());
}

#[test]
fn keys_are_not_shown() {
    let (controller, _, engine) = setting();
    let text = format!("{:?}", planned(&controller, &engine, 0));
    assert_eq!(text, "[apply Secret istio-system/dns.galley]");
}
