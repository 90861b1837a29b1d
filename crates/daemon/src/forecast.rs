//! When certificates that the mesh relies on expire, before somebody finds out by an outage.
//!
//! Everything is looked at when somebody asks: the authority's own certificates, that of the TLS ports, the roots that
//! webhooks carry, the Secrets of gateways, and what workloads were given. `/debug/certificates` lists them, a gauge has the
//! time of each, diagnostics name what is due, and the log says so twice a day.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::kube::{
    MutatingWebhookConfiguration, Pod, PodPhase, Secret, ValidatingWebhookConfiguration,
};
use canopus_api::{Kind, Object, ObjectKey};
use canopus_base::spiffe::Identity;
use canopus_engine::Engine;
use canopus_identity::authority::Authority;
use canopus_identity::certificate::Certificate;
use canopus_identity::forecast::{self, Entry, Role, Verdict};
use canopus_identity::rotation::State;
use canopus_identity::store::CA_SECRET;
use canopus_mesh::diagnostic::{Diagnostic, Severity};
use canopus_mesh::world::{ObjectIndex, Objects, Origin, Settings};
use canopus_runtime::metrics::Registry;
use canopus_runtime::metrics::catalogue::CANOPUS_CERTIFICATE_EXPIRY_TIMESTAMP_SECONDS;
use rustls::pki_types::UnixTime;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, warn};

use crate::certificate_authority::IssuedCertificates;
use crate::day::day;
use crate::trust_anchors::signer_roots;

/// How often the log says what is due.
const REMINDER: Duration = Duration::from_secs(12 * 3600);

/// A workload that has not renewed for this long after its certificate ended has gone.
const FORGOTTEN: Duration = Duration::from_secs(3600);

/// The keys under which Secrets have a certificate with a key of its own.
const PAIRS: [(&str, &str); 2] = [("tls.crt", "tls.key"), ("cert", "key")];

/// Where the certificates of the mesh are.
#[derive(Clone)]
pub struct Forecast {
    engine: Engine,
    authority: Option<Arc<Authority>>,
    rotation: Option<watch::Receiver<Option<State>>>,
    server: Option<watch::Receiver<Option<Arc<Certificate>>>>,
    issued: Arc<IssuedCertificates>,
    /// The Secret that the authority is kept in, or mounted from.
    secret: &'static str,
}

/// The Secret that the certificate of the TLS ports is mounted from, where it is.
const SERVER_SECRET: &str = "istiod-tls";

/// The Secret that roots of signers elsewhere are mounted from, where they are.
const SIGNERS_SECRET: &str = "external-ca-cert";

/// How many workloads are diagnosed: those whose certificates expire first.
const MOST_WORKLOADS: usize = 1000;

impl Forecast {
    /// Looks at the Secrets and webhooks of a world alone.
    pub fn new(engine: Engine) -> Self {
        let issued = Arc::default();
        Self { engine, authority: None, rotation: None, server: None, issued, secret: CA_SECRET }
    }

    /// Looks at an authority as well, its rotation, and what it issued.
    #[must_use]
    pub fn with_authority(
        self,
        authority: Arc<Authority>,
        rotation: watch::Receiver<Option<State>>,
        issued: Arc<IssuedCertificates>,
    ) -> Self {
        Self { authority: Some(authority), rotation: Some(rotation), issued, ..self }
    }

    /// The authority is in another Secret than `istio-ca-secret`.
    #[must_use]
    pub fn with_secret(self, secret: &'static str) -> Self {
        Self { secret, ..self }
    }

    /// Looks at the certificate of the TLS ports as well.
    #[must_use]
    pub fn with_server(self, server: watch::Receiver<Option<Arc<Certificate>>>) -> Self {
        Self { server: Some(server), ..self }
    }

    /// How far the rotation of the root is; `None` if the root is not the control plane's own.
    pub fn rotation(&self) -> Option<State> {
        self.rotation.as_ref()?.borrow().clone()
    }

    /// Every certificate, the first to expire first.
    pub fn entries(&self, now: UnixTime) -> Vec<Entry> {
        let mut entries: Vec<Entry> =
            self.own(now).into_iter().chain(self.gateways(now)).map(|(_, entry)| entry).collect();
        entries.extend(self.workloads(now));
        forecast::sort(&mut entries);
        entries
    }

    /// The authority's, the server's, and those that webhooks carry, with the object that holds each.
    fn own(&self, now: UnixTime) -> Vec<(Origin, Entry)> {
        let bundle = self.authority.as_ref().and_then(|authority| authority.bundle());
        let authority = bundle.map(|bundle| forecast::forecast_bundle(&bundle, now)).unwrap_or_default();
        let leaf = self.server.as_ref().and_then(|server| server.borrow().clone());
        let server = leaf.map(|leaf| Entry::new(Role::Server, "TLS ports of the control plane", &leaf, now));
        let settings = self.engine.read::<Settings>(&()).unwrap_or_default();
        let held = |secret: &str, entries: Vec<Entry>| {
            let key = ObjectKey::new(Kind::Secret, &settings.system_namespace, secret);
            let origin = Origin::new(settings.cluster.clone(), key);
            entries.into_iter().map(move |entry| (origin.clone(), entry))
        };
        held(self.secret, authority)
            .chain(held(SIGNERS_SECRET, self.signers(now)))
            .chain(held(SERVER_SECRET, server.into_iter().collect()))
            .chain(self.webhooks(now))
            .collect()
    }

    /// The roots of signers elsewhere.
    fn signers(&self, now: UnixTime) -> Vec<Entry> {
        let roots = signer_roots(&self.engine).concat();
        let roots = Certificate::all_from_pem(roots.as_bytes()).unwrap_or_default();
        roots.iter().map(|root| Entry::new(Role::Root, &root.subject_text(), root, now)).collect()
    }

    fn webhooks(&self, now: UnixTime) -> Vec<(Origin, Entry)> {
        let mut entries = Vec::new();
        for kind in [Kind::MutatingWebhookConfiguration, Kind::ValidatingWebhookConfiguration] {
            for origin in self.engine.members::<Objects>(&ObjectIndex::Kind(kind)).iter() {
                let Some(object) = self.engine.read::<Objects>(origin) else { continue };
                let webhooks = object
                    .get::<MutatingWebhookConfiguration>()
                    .map(|configuration| &configuration.spec.webhooks)
                    .or_else(|| {
                        object
                            .get::<ValidatingWebhookConfiguration>()
                            .map(|configuration| &configuration.spec.webhooks)
                    });
                // Webhooks of others are their owners' concern.
                let own = webhooks.into_iter().flatten().filter(|webhook| webhook.name.ends_with("istio.io"));
                for webhook in own {
                    let roots =
                        Certificate::all_from_pem(&webhook.client_config.ca_bundle.0).unwrap_or_default();
                    // A root that is still valid is enough for the API server.
                    let last = roots.iter().max_by_key(|root| root.not_after().as_secs());
                    let holder = format!("{} {}", origin.key, webhook.name);
                    let entry = last.map(|root| Entry::new(Role::Webhook, &holder, root, now));
                    entries.extend(entry.map(|entry| (origin.clone(), entry)));
                }
            }
        }
        entries
    }

    /// The certificates of Secrets, with where they are.
    fn gateways(&self, now: UnixTime) -> Vec<(Origin, Entry)> {
        let origins = self.engine.members::<Objects>(&ObjectIndex::Kind(Kind::Secret));
        let entry = |origin: &Origin| {
            let object = self.engine.read::<Objects>(origin)?;
            let secret = object.get::<Secret>()?;
            let (certificate, _) =
                PAIRS.iter().find_map(|(own, key)| Some((secret.spec.get(own)?, secret.spec.get(key)?)))?;
            let certificate = Certificate::from_pem(certificate).ok()?;
            Some((origin.clone(), Entry::new(Role::Gateway, &origin.key.to_string(), &certificate, now)))
        };
        origins.iter().filter_map(entry).collect()
    }

    fn workloads(&self, now: UnixTime) -> Vec<Entry> {
        let issued = self.issued.all(now.as_secs(), FORGOTTEN);
        issued.iter().map(|(identity, one)| Entry::issued(identity, one.from, one.expires, now)).collect()
    }

    /// Workloads whose next certificate nobody here knows of. Of several replicas each knows what it issued itself: a workload that
    /// looks late may have renewed with another one, as most have. So only a replica that is alone calls it late.
    fn known_workloads(&self, now: UnixTime) -> Vec<Entry> {
        let mut workloads = self.workloads(now);
        if !self.is_alone() {
            workloads.retain(|entry| entry.verdict == Verdict::Fine);
        }
        workloads
    }

    /// Whether this is the only replica of the control plane, as far as its cluster says.
    fn is_alone(&self) -> bool {
        let settings = self.engine.read::<Settings>(&()).unwrap_or_default();
        let (cluster, namespace) = (settings.cluster.clone(), settings.system_namespace.as_ref().into());
        let pods = self.engine.members::<Objects>(&ObjectIndex::InCluster(Kind::Pod, cluster, namespace));
        let is_replica = |origin: &&Origin| {
            let object = self.engine.read::<Objects>(origin);
            object.as_deref().and_then(Object::get::<Pod>).is_some_and(|pod| {
                pod.meta.labels.get("app") == Some("istiod") && pod.status.phase == PodPhase::Running
            })
        };
        pods.iter().filter(is_replica).count() <= 1
    }

    /// What is wrong with those who rely on a certificate that is due or over.
    pub(crate) fn diagnostics(&self, now: UnixTime) -> Vec<Diagnostic> {
        let is_wrong = |entry: &Entry| entry.verdict != Verdict::Fine;
        let held = self.own(now).into_iter().chain(self.gateways(now)).filter(|(_, entry)| is_wrong(entry));
        let mut wrong: Vec<Diagnostic> = held.map(|(origin, entry)| diagnose(&origin, &entry)).collect();
        let settings = self.engine.read::<Settings>(&()).unwrap_or_default();
        let mut workloads: Vec<Entry> = self.known_workloads(now).into_iter().filter(is_wrong).collect();
        forecast::sort(&mut workloads);
        wrong.extend(workloads.iter().take(MOST_WORKLOADS).filter_map(|entry| {
            let identity: Identity = entry.holder.parse().ok()?;
            let key = ObjectKey::new(Kind::ServiceAccount, &identity.namespace, &identity.service_account);
            Some(diagnose(&Origin::new(settings.cluster.clone(), key), entry))
        }));
        wrong
    }

    /// Registers the expiry time of each certificate. Of the workloads in a namespace only the first to expire is listed, as
    /// there are many.
    pub(crate) fn register(&self, registry: &Registry) {
        let this = self.clone();
        registry.collect(move |collected| {
            let now = UnixTime::now();
            let mut latest: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
            for (_, entry) in this.own(now).into_iter().chain(this.gateways(now)) {
                // Several roots have one subject; the first that expires counts.
                let known = latest.entry((entry.role.label(), entry.holder)).or_insert(entry.expires);
                *known = entry.expires.min(*known);
            }
            for entry in this.known_workloads(now) {
                let namespace =
                    entry.holder.parse::<Identity>().map(|identity| identity.namespace.to_string());
                let Ok(namespace) = namespace else { continue };
                let known = latest.entry((Role::Workload.label(), namespace)).or_insert(entry.expires);
                *known = entry.expires.min(*known);
            }
            for ((role, holder), expires) in latest {
                collected.push(CANOPUS_CERTIFICATE_EXPIRY_TIMESTAMP_SECONDS, [&holder, role], expires as f64);
            }
        });
    }

    /// Says what is due, now and then, for ever.
    pub(crate) async fn remind(self) {
        loop {
            let now = UnixTime::now();
            for (_, entry) in self.own(now) {
                let Entry { role, holder, expires, verdict } = entry;
                let (role, consequence) = (role.label(), role.consequence());
                match verdict {
                    Verdict::Fine | Verdict::NotYetValid => {}
                    Verdict::Due => {
                        warn!(role, holder, day = day(expires), "certificate expires: then {consequence}");
                    }
                    Verdict::Expired => {
                        error!(role, holder, day = day(expires), "certificate has expired: {consequence}");
                    }
                }
            }
            sleep(REMINDER).await;
        }
    }
}

fn diagnose(origin: &Origin, entry: &Entry) -> Diagnostic {
    let (severity, message) = match entry.verdict {
        Verdict::Expired => (Severity::Error, format!("has expired on {}", day(entry.expires))),
        Verdict::NotYetValid => (Severity::Error, "is not valid yet".to_owned()),
        _ => (Severity::Warning, format!("expires on {}", day(entry.expires))),
    };
    let Advice { code, field, subject, remedy } = advice(entry.role);
    // A Secret and a service account have one certificate; an authority and a webhook configuration have several.
    let subject = match entry.role {
        Role::Gateway | Role::Workload | Role::Server => subject.to_owned(),
        _ => format!("{subject} ({})", entry.holder),
    };
    Diagnostic {
        object: origin.into(),
        severity,
        code,
        field: field.to_owned(),
        message: format!("{subject} {message}: {}", entry.role.consequence()),
        remedy: remedy.to_owned(),
    }
}

/// What is to be said of the certificates of a role.
struct Advice {
    code: &'static str,
    field: &'static str,
    subject: &'static str,
    remedy: &'static str,
}

fn advice(role: Role) -> Advice {
    let (code, field, subject, remedy) = match role {
        Role::Gateway => (
            "CAN0601",
            "data",
            "its certificate",
            "Renew the certificate, or have a tool renew it before four fifths of its life are over.",
        ),
        Role::Root | Role::Intermediate | Role::Signing => (
            "CAN0602",
            "data",
            "a certificate of the authority",
            "A self-signed root is replaced by `canopus ca rotate`; plug in another certificate where it was plugged in.",
        ),
        Role::RevocationList => (
            "CAN0606",
            "data[ca-crl.pem]",
            "a revocation list",
            "Have the authority issue the list again, and plug it in; or remove all lists, after which revoked certificates count again.",
        ),
        Role::Server => (
            "CAN0603",
            "data",
            "the certificate of the TLS ports",
            "Renew the files that --tlsCertFile and --tlsKeyFile name or that are mounted; they are taken while the process runs.",
        ),
        Role::Webhook => (
            "CAN0604",
            "webhooks[].clientConfig.caBundle",
            "the last root",
            "Remove caBundle from the manifest, so that the control plane keeps it, or put the present roots there.",
        ),
        Role::Workload => (
            "CAN0605",
            "metadata.name",
            "the certificate of a workload",
            "Look at the log of the workload's agent: it should have renewed the certificate long ago. Ignore it if the workload is gone.",
        ),
    };
    Advice { code, field, subject, remedy }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use canopus_api::{Options, decode_documents};
    use canopus_base::tree::Limits;
    use canopus_engine::Batch;
    use canopus_identity::authority::Lifetimes;
    use canopus_identity::bundle::{Bundle, Parts};
    use canopus_identity::self_signed::Profile;
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    fn at(year: i32, month: u8, day: u8) -> UnixTime {
        let time = date_time_ymd(year, month, day).unix_timestamp();
        UnixTime::since_unix_epoch(Duration::from_secs(time.try_into().unwrap()))
    }

    fn world() -> Engine {
        let mut params = CertificateParams::new(["shop.example.com".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2026, 1, 1), date_time_ymd(2026, 12, 31));
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let text = serde_json::json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
            "metadata": {"name": "shop", "namespace": "edge"},
            "stringData": {"tls.crt": pem, "tls.key": key.serialize_pem()},
        });
        let mut batch = Batch::new();
        for read in decode_documents(text.to_string(), &Limits::default(), Options::watch()) {
            let object: Object = read.unwrap().value;
            batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
        }
        let engine = Engine::new();
        engine.apply(batch);
        engine
    }

    #[test]
    fn secret_of_a_gateway_is_a_warning_long_before_and_an_error_after_its_end() {
        let forecast = Forecast::new(world());
        assert!(forecast.diagnostics(at(2026, 6, 1)).is_empty());
        let due = forecast.diagnostics(at(2026, 11, 1));
        assert_eq!((due[0].severity, due[0].code), (Severity::Warning, "CAN0601"));
        assert!(due[0].message.contains("2026-12-31"), "{}", due[0].message);
        assert_eq!(forecast.diagnostics(at(2027, 1, 1))[0].severity, Severity::Error);
    }

    #[test]
    fn whoever_relies_on_a_certificate_is_warned_long_before_its_end() {
        let profile = Profile { lifetime: Duration::from_secs(100 * 86400), ..Profile::default() };
        let (certificate, key) = profile.create(at(2026, 1, 1)).unwrap();
        let pem = certificate.to_pem().unwrap().into_bytes();
        let key = key.to_pem().unwrap().as_bytes().to_vec().into();
        let parts = Parts { certificate: pem.clone(), roots: pem.clone(), key, ..Parts::default() };
        let bundle = Arc::new(Bundle::new(&parts, at(2026, 1, 1)).unwrap());
        let lifetimes = Lifetimes { default: Duration::from_secs(60), longest: Duration::from_secs(60) };
        let authority = Arc::new(Authority::with_bundle(lifetimes, bundle));
        let issued = Arc::new(IssuedCertificates::default());
        let chain = [String::from_utf8(pem.clone()).unwrap()];
        issued.note(&["spiffe://cluster.local/ns/shop/sa/cart".to_owned()], &chain);
        let engine = Engine::new();
        let webhook = serde_json::json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "istio-validator"},
            "webhooks": [{
                "name": "rev.validation.istio.io", "sideEffects": "None", "admissionReviewVersions": ["v1"],
                "clientConfig": {"caBundle": BASE64_STANDARD.encode(&pem), "url": "https://istiod"},
            }],
        });
        let mut batch = Batch::new();
        for read in decode_documents(webhook.to_string(), &Limits::default(), Options::watch()) {
            let object: Object = read.unwrap().value;
            batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
        }
        engine.apply(batch);
        let server = watch::Sender::new(Some(Arc::new(certificate)));
        let forecast = Forecast::new(engine)
            .with_authority(authority, watch::Sender::new(None).subscribe(), issued)
            .with_secret("cacerts")
            .with_server(server.subscribe());
        let told = |now| -> Vec<(String, &str, Severity)> {
            let all = forecast.diagnostics(now);
            all.iter().map(|one| (one.object.to_string(), one.code, one.severity)).collect()
        };
        assert_eq!(told(at(2026, 2, 1)), []);
        let due = told(at(2026, 4, 1));
        for (object, code) in [
            ("Secret istio-system/cacerts", "CAN0602"),
            ("Secret istio-system/istiod-tls", "CAN0603"),
            ("ValidatingWebhookConfiguration istio-validator", "CAN0604"),
            ("ServiceAccount shop/cart", "CAN0605"),
        ] {
            assert!(due.contains(&(object.to_owned(), code, Severity::Warning)), "{object}: {due:?}");
        }
        // With a second replica, the workload may have renewed there; everything else is as it was.
        let pod = |number: u8| {
            serde_json::json!({
                "apiVersion": "v1", "kind": "Pod", "status": {"phase": "Running"},
                "metadata": {"name": format!("istiod-{number}"), "namespace": "istio-system", "labels": {"app": "istiod"}},
            })
        };
        for (number, workloads) in [(1, 1), (2, 0)] {
            let mut batch = Batch::new();
            for read in decode_documents(pod(number).to_string(), &Limits::default(), Options::watch()) {
                let object: Object = read.unwrap().value;
                batch.set::<Objects>(Origin::new("Kubernetes", object.key()), object);
            }
            forecast.engine.apply(batch);
            let now = told(at(2026, 4, 1));
            assert_eq!(now.iter().filter(|(_, code, _)| *code == "CAN0605").count(), workloads, "{number}");
            assert_eq!(now.len(), due.len() - 1 + workloads);
        }
        let message = &forecast.diagnostics(at(2026, 4, 1))[0].message;
        assert!(message.contains("O=cluster.local) expires on 2026-04-11"), "{message}");
        assert!(told(at(2026, 4, 12)).iter().all(|(_, _, severity)| *severity == Severity::Error));
    }

    #[test]
    fn metric_has_the_time_of_each_certificate() {
        let registry = Registry::new();
        Forecast::new(world()).register(&registry);
        let text = registry.encode();
        let line = r#"canopus_certificate_expiry_timestamp_seconds{holder="Secret edge/shop",role="gateway"} 1.7986752e+09"#;
        assert!(text.contains(line), "{text}");
    }
}
