//! When certificates that the mesh relies on expire, before somebody finds out by an outage.
//!
//! Everything is looked at when somebody asks: the authority's own certificates, that of the TLS ports, the roots that
//! webhooks carry, the Secrets of gateways, and what workloads were given. `/debug/certificates` lists them, a gauge has the
//! time of each, diagnostics name what is due, and the log says so twice a day.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use canopus_api::Kind;
use canopus_api::kube::{MutatingWebhookConfiguration, Secret, ValidatingWebhookConfiguration};
use canopus_base::spiffe::Identity;
use canopus_engine::Engine;
use canopus_identity::authority::Authority;
use canopus_identity::certificate::Certificate;
use canopus_identity::forecast::{self, Entry, Role, Verdict};
use canopus_identity::rotation::State;
use canopus_mesh::diagnostic::{Diagnostic, Severity};
use canopus_mesh::world::{ObjectIndex, Objects, Origin};
use canopus_runtime::metrics::Registry;
use canopus_runtime::metrics::catalogue::CANOPUS_CERTIFICATE_EXPIRY_TIMESTAMP_SECONDS;
use rustls::pki_types::UnixTime;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, warn};

use crate::certificate_authority::IssuedCertificates;
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
}

impl Forecast {
    /// Looks at the Secrets and webhooks of a world alone.
    pub fn new(engine: Engine) -> Self {
        Self { engine, authority: None, rotation: None, server: None, issued: Arc::default() }
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
        let mut entries = self.own(now);
        entries.extend(self.gateways(now).into_iter().map(|(_, entry)| entry));
        entries.extend(self.workloads(now));
        forecast::sort(&mut entries);
        entries
    }

    /// The authority's, the server's, and those that webhooks carry.
    fn own(&self, now: UnixTime) -> Vec<Entry> {
        let bundle = self.authority.as_ref().and_then(|authority| authority.bundle());
        let mut entries = bundle.map(|bundle| forecast::forecast_bundle(&bundle, now)).unwrap_or_default();
        entries.extend(self.signers(now));
        if let Some(leaf) = self.server.as_ref().and_then(|server| server.borrow().clone()) {
            entries.push(Entry::new(Role::Server, "TLS ports of the control plane", &leaf, now));
        }
        entries.extend(self.webhooks(now));
        entries
    }

    /// The roots of signers elsewhere.
    fn signers(&self, now: UnixTime) -> Vec<Entry> {
        let roots = signer_roots(&self.engine).concat();
        let roots = Certificate::all_from_pem(roots.as_bytes()).unwrap_or_default();
        roots.iter().map(|root| Entry::new(Role::Root, &root.subject_text(), root, now)).collect()
    }

    fn webhooks(&self, now: UnixTime) -> Vec<Entry> {
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
                    // One root that is still valid is enough for the API server.
                    let last = roots.iter().max_by_key(|root| root.not_after().as_secs());
                    let holder = format!("{} {}", origin.key, webhook.name);
                    entries.extend(last.map(|root| Entry::new(Role::Webhook, &holder, root, now)));
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

    /// What is wrong with Secrets whose certificate is due or over.
    pub(crate) fn diagnostics(&self, now: UnixTime) -> Vec<Diagnostic> {
        let wrong = self.gateways(now).into_iter().filter(|(_, entry)| entry.verdict != Verdict::Fine);
        wrong.map(|(origin, entry)| diagnose(&origin, &entry)).collect()
    }

    /// Has a registry tell when each certificate expires. Workloads are many, so of each namespace only the first.
    pub(crate) fn register(&self, registry: &Registry) {
        let this = self.clone();
        registry.collect(move |collected| {
            let now = UnixTime::now();
            let mut all = this.own(now);
            all.extend(this.gateways(now).into_iter().map(|(_, entry)| entry));
            let mut latest: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
            for entry in all {
                // Several roots have one subject; the first that expires counts.
                let known = latest.entry((entry.role.label(), entry.holder)).or_insert(entry.expires);
                *known = entry.expires.min(*known);
            }
            for entry in this.workloads(now) {
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
            for entry in self.own(now) {
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
        Verdict::Expired => {
            (Severity::Error, format!("its certificate has expired on {}", day(entry.expires)))
        }
        Verdict::NotYetValid => (Severity::Error, "its certificate is not valid yet".to_owned()),
        _ => (Severity::Warning, format!("its certificate expires on {}", day(entry.expires))),
    };
    Diagnostic {
        object: origin.into(),
        severity,
        code: "CAN0601",
        field: "data".into(),
        message: format!("{message}: {}", entry.role.consequence()),
        remedy: "Renew the certificate, or have a tool renew it before four fifths of its life are over."
            .to_owned(),
    }
}

/// The day of a time in seconds since 1970.
pub(crate) fn day(seconds: u64) -> String {
    let time = i64::try_from(seconds).ok().and_then(|seconds| jiff::Timestamp::from_second(seconds).ok());
    time.map_or_else(|| "a day far away".to_owned(), |time| time.strftime("%Y-%m-%d %H:%M UTC").to_string())
}

#[cfg(test)]
mod tests {
    use canopus_api::{Object, Options, decode_documents};
    use canopus_base::tree::Limits;
    use canopus_engine::Batch;
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
    fn metric_has_the_time_of_each_certificate() {
        let registry = Registry::new();
        Forecast::new(world()).register(&registry);
        let text = registry.encode();
        let line = r#"canopus_certificate_expiry_timestamp_seconds{holder="Secret edge/shop",role="gateway"} 1.7986752e+09"#;
        assert!(text.contains(line), "{text}");
    }
}
