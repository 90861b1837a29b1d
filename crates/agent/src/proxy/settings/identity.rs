//! How the control plane and the authority are reached, and what is asked of the authority.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use canopus_base::spiffe;
use canopus_identity::key::KeyKind;
use canopus_runtime::flags::{self, Flags};

use super::headers;
use crate::address::HostPort;
use crate::certificates::files::MountedFiles;
use crate::certificates::{AuthorityClient, RenewalSettings};
use crate::upstream::{ClientFiles, Roots, Tls, Upstream};

const TOKEN: &str = "./var/run/secrets/tokens/istio-token";
const ROOT: &str = "./var/run/secrets/istio/root-cert.pem";

/// The name in the control plane's certificate. Parity: a control plane on this machine has its usual name.
pub(in crate::proxy) fn control_plane_name(address: &str) -> String {
    let host = HostPort::parse(address).map_or_else(|| address.to_owned(), |parsed| parsed.host);
    if host == "localhost" { "istiod.istio-system.svc".to_owned() } else { host }
}

/// What connections are made from.
pub(super) struct Upstreams<'a> {
    pub(super) flags: &'a Flags,
    /// `PROV_CERT`.
    pub(super) provided: Option<PathBuf>,
    pub(super) mounted: Option<MountedFiles>,
}

impl Upstreams<'_> {
    /// How a server is reached. A join token is for the authority alone: one of a single use must not be used up for xDS.
    pub(super) fn to(&self, address: HostPort, root: &str, tls: bool, is_authority: bool) -> Upstream {
        let server_name = match self.flags.get(flags::ISTIOD_SAN) {
            "" if address.host == "localhost" => control_plane_name("localhost:0"),
            "" => address.host.clone(),
            name => name.to_owned(),
        };
        let tls = tls.then(|| Tls { server_name, roots: self.roots(root), client: self.client() });
        // Parity: whoever has mounted certificates needs no token.
        let token = match self.flags.get(flags::CANOPUS_JOIN_TOKEN_FILE) {
            _ if self.mounted.is_some() => None,
            "" => Some(PathBuf::from(TOKEN)),
            join => is_authority.then(|| PathBuf::from(join)),
        };
        Upstream { address, tls, token }
    }

    fn roots(&self, configured: &str) -> Roots {
        match configured {
            "SYSTEM" => Roots::System,
            "" => Roots::File(match (&self.provided, &self.mounted) {
                (Some(directory), _) => directory.join("root-cert.pem"),
                (_, Some(mounted)) => mounted.root.clone(),
                _ => PathBuf::from(ROOT),
            }),
            path => Roots::File(PathBuf::from(path)),
        }
    }

    fn client(&self) -> Option<ClientFiles> {
        let files = match (&self.provided, &self.mounted) {
            (Some(directory), _) => MountedFiles::within(directory),
            (_, Some(mounted)) => mounted.clone(),
            _ => return None,
        };
        Some(ClientFiles { certificate: files.certificate, key: files.key })
    }

    pub(super) fn authority(&self, discovery: HostPort) -> anyhow::Result<AuthorityClient> {
        let provider = self.flags.get(flags::CA_PROVIDER);
        if provider != "Citadel" {
            bail!(
                "CA_PROVIDER: {provider:?} is not known; use Citadel, or FILE_MOUNTED_CERTS for another authority"
            );
        }
        let fetcher = self.flags.get(flags::CREDENTIAL_FETCHER_TYPE);
        if !matches!(fetcher, "" | "JWT") {
            bail!(
                "CREDENTIAL_FETCHER_TYPE: {fetcher:?} is not supported: tokens are read from {TOKEN}; unset it and put \
                 a token there, or use CANOPUS_JOIN_TOKEN_FILE"
            );
        }
        let address = match self.flags.get(flags::CA_ADDR) {
            "" => discovery,
            text => HostPort::parse(text).with_context(|| format!("CA_ADDR: {text:?} is not HOST:PORT"))?,
        };
        let signer = self.flags.get(flags::ISTIO_META_CERT_SIGNER).to_owned();
        let cluster = self.flags.get(flags::ISTIO_META_CLUSTER_ID).to_owned();
        let upstream = self.to(address, self.flags.get(flags::CA_ROOT_CA), true, true);
        Ok(AuthorityClient::new(upstream, cluster, signer, headers(self.flags, "CA_HEADER_")))
    }
}

pub(super) fn renewal(flags: &Flags) -> anyhow::Result<RenewalSettings> {
    let or_default = |text: &'_ str| if text.is_empty() { "default".to_owned() } else { text.to_owned() };
    let namespace = or_default(flags.get(flags::POD_NAMESPACE));
    let account = or_default(flags.get(flags::SERVICE_ACCOUNT));
    let identity = spiffe::Identity::new(flags.get(flags::TRUST_DOMAIN), &namespace, &account)
        .context("TRUST_DOMAIN, POD_NAMESPACE, SERVICE_ACCOUNT")?;
    let output = flags.get(flags::OUTPUT_CERTS);
    Ok(RenewalSettings {
        key: key_kind(flags)?,
        pkcs8: flags.get(flags::PKCS8_KEY),
        identity: identity.to_string(),
        lifetime: flags.get(flags::SECRET_TTL),
        grace_ratio: flags.get(flags::SECRET_GRACE_PERIOD_RATIO),
        jitter: flags.get(flags::SECRET_GRACE_PERIOD_RATIO_JITTER),
        output: (!output.is_empty()).then(|| PathBuf::from(output)),
    })
}

fn key_kind(flags: &Flags) -> anyhow::Result<KeyKind> {
    let curve = flags.get(flags::ECC_CURVE);
    Ok(match (flags.get(flags::ECC_SIGNATURE_ALGORITHM), curve) {
        ("", _) => KeyKind::Rsa(usize::try_from(flags.get(flags::WORKLOAD_RSA_KEY_SIZE))?),
        ("ECDSA", "P256" | "") => KeyKind::P256,
        ("ECDSA", "P384") => KeyKind::P384,
        ("ECDSA", "P521") => KeyKind::P521,
        ("ECDSA", _) => bail!("ECC_CURVE: {curve:?} is not known; use P256, P384 or P521"),
        (algorithm, _) => {
            bail!("ECC_SIGNATURE_ALGORITHM: {algorithm:?} is not known; use ECDSA, or unset it for RSA")
        }
    })
}
