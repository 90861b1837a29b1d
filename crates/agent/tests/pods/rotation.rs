//! Certificates and roots that change under load.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use canopus_identity::Certificate;
use canopus_identity::rotation::{self, Phase, Policy, State};
use canopus_identity::store::DirectoryStore;
use rustls::pki_types::UnixTime;

use crate::pod::Pod;
use crate::world::{HANDSHAKE_EACH, World};

/// The serial numbers of the workload certificates that Envoy has.
fn serials(pod: &Pod) -> Result<BTreeSet<String>> {
    let page: serde_json::Value = serde_json::from_str(&pod.admin("/certs")?)?;
    let certificates = page["certificates"].as_array().cloned().unwrap_or_default();
    let chains =
        certificates.iter().flat_map(|entry| entry["cert_chain"].as_array().cloned().unwrap_or_default());
    Ok(chains.filter_map(|chain| chain["serial_number"].as_str().map(str::to_owned)).collect())
}

/// Certificates that live for a few seconds are replaced several times.
pub(crate) fn certificates() -> Result<()> {
    let world = World::start("", &[], &[("SECRET_TTL", "6s")])?;
    let (seen, load) = world.under_load(|| {
        let mut seen = BTreeSet::new();
        for _ in 0..20 {
            seen.extend(serials(&world.server)?);
            std::thread::sleep(Duration::from_millis(500));
        }
        Ok(seen)
    })?;
    load.check(1500)?;
    ensure!(seen.len() >= 3, "Envoy had {} certificates", seen.len());
    Ok(())
}

/// So short that a rotation is seen to its end, as far as the bounds of the parts go.
const HASTE: [(&str, &str); 5] = [
    ("CANOPUS_ROOT_STALENESS", "20s"),
    ("CANOPUS_ROOT_PROPAGATION", "5s"),
    ("DEFAULT_WORKLOAD_CERT_TTL", "20s"),
    ("MAX_WORKLOAD_CERT_TTL", "20s"),
    ("CITADEL_SELF_SIGNED_ROOT_CERT_CHECK_INTERVAL", "10s"),
];

/// How long a rotation with these may take: 40 s until the new root issues, 160 s until the old one goes, and time to look.
const ROTATION: Duration = Duration::from_secs(300);

/// An operator asks for a new root, and the control plane replaces its own: the new root is handed out, it issues, the old one
/// goes. Every request has handshakes of its own, and not one fails.
pub(crate) fn own_root() -> Result<()> {
    let world = World::start(HANDSHAKE_EACH, &HASTE, &[("SECRET_TTL", "20s"), ("OUTPUT_CERTS", "./out")])?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let store = DirectoryStore::open(&world.plane.authority())?;
    let policy = Policy::default();
    let state = || -> Result<State> {
        let stored = runtime.block_on(rotation::inspect(&store, &policy, UnixTime::now()))?;
        Ok(stored.context("there is no root")?.state)
    };
    let pods = [&world.client, &world.server];
    let first = state()?;
    let (phases, load) = world.under_load_of(Duration::from_millis(20), || {
        ensure!(runtime.block_on(rotation::request(&store, &policy, UnixTime::now()))?, "somebody has asked");
        let (mut phases, deadline) = (Vec::new(), Instant::now() + ROTATION);
        loop {
            // What a kubelet does with the ConfigMap of the roots.
            let roots = fs::read(world.plane.root())?;
            for pod in pods {
                let mounted = pod.directory().join("var/run/secrets/istio/root-cert.pem");
                if fs::read(&mounted)? != roots {
                    fs::write(&mounted, &roots)?;
                }
            }
            let state = state()?;
            if phases.last() != Some(&state.phase.label()) {
                phases.push(state.phase.label());
            }
            let is_old = |pod: &&Pod| roots_of(pod).is_ok_and(|roots| roots != [state.issuer.clone()]);
            if state.issuer != first.issuer && state.phase == Phase::Stable && !pods.iter().any(is_old) {
                break;
            }
            ensure!(Instant::now() < deadline, "{state:?} after {phases:?}:\n{}", world.plane.log());
            std::thread::sleep(Duration::from_millis(500));
        }
        // Envoy gets roots over a socket right after they are written.
        std::thread::sleep(Duration::from_secs(2));
        Ok(phases)
    })?;
    ensure!(phases.ends_with(&["distributing", "retiring", "stable"]), "{phases:?}");
    load.check(4000)
}

/// The fingerprints of the roots that a pod's certificate came with.
fn roots_of(pod: &Pod) -> Result<Vec<String>> {
    let text = fs::read(pod.directory().join("out/root-cert.pem"))?;
    Ok(Certificate::all_from_pem(&text)?.iter().map(Certificate::fingerprint).collect())
}

/// A root that signs for itself, and its key.
struct Root {
    certificate: String,
    key: String,
}

impl Root {
    fn new(name: &str) -> Result<Self> {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.key_usages = vec![rcgen::KeyUsagePurpose::KeyCertSign, rcgen::KeyUsagePurpose::CrlSign];
        let key = rcgen::KeyPair::generate()?;
        Ok(Self { certificate: params.self_signed(&key)?.pem(), key: key.serialize_pem() })
    }
}

/// Plugs a signing certificate and a bundle of roots into the control plane.
fn plug(directory: &Path, signer: &Root, bundle: &str) -> Result<()> {
    for (name, text) in [
        ("ca-cert.pem", signer.certificate.as_str()),
        ("ca-key.pem", &signer.key),
        ("cert-chain.pem", &signer.certificate),
        ("root-cert.pem", bundle),
    ] {
        let scratch = directory.join("scratch");
        fs::write(&scratch, text)?;
        fs::rename(scratch, directory.join(name))?;
    }
    Ok(())
}

/// The authority gets another root: first both are trusted, then the new one signs, then the old one goes.
pub(crate) fn roots() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let (first, second) = (Root::new("first")?, Root::new("second")?);
    plug(directory.path(), &first, &first.certificate)?;
    let path = directory.path().to_str().unwrap();
    let world = World::start(
        "",
        &[("ROOT_CA_DIR", path), ("ISTIO_MULTIROOT_MESH", "true")],
        &[("SECRET_TTL", "6s"), ("OUTPUT_CERTS", "./out")],
    )?;
    let both = format!("{}{}", first.certificate, second.certificate);
    let pods = [&world.client, &world.server];
    // The roots that a pod's certificate came with, by the number of them.
    let has = |pod: &Pod, roots: &[&Root]| -> Result<bool> {
        let text = fs::read_to_string(pod.directory().join("out/root-cert.pem"))?;
        let squeeze = |text: &str| text.split_whitespace().collect::<String>();
        let all = roots.iter().all(|root| squeeze(&text).contains(&squeeze(&root.certificate)));
        Ok(all && text.matches("BEGIN CERTIFICATE").count() == roots.len())
    };
    let wait = |roots: &[&Root]| -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(30);
        while !(has(pods[0], roots)? && has(pods[1], roots)?) {
            ensure!(Instant::now() < deadline, "the roots did not arrive:\n{}", world.plane.log());
            std::thread::sleep(Duration::from_millis(200));
        }
        // Envoy gets them over a socket right after they are written.
        std::thread::sleep(Duration::from_secs(1));
        Ok(())
    };
    let ((), load) = world.under_load(|| {
        for pod in pods {
            fs::write(pod.directory().join("var/run/secrets/istio/root-cert.pem"), &both)?;
        }
        plug(directory.path(), &first, &both)?;
        wait(&[&first, &second])?;
        plug(directory.path(), &second, &both)?;
        // Every certificate of the first root has been replaced after this.
        std::thread::sleep(Duration::from_secs(8));
        plug(directory.path(), &second, &second.certificate)?;
        wait(&[&second])
    })?;
    load.check(2000)
}
