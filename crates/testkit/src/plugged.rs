//! An authority to plug into a control plane: a root, a signing certificate under it, and their revocation lists.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CertifiedIssuer, DnType, IsCa,
    Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose, RevokedCertParams, SerialNumber, SignatureAlgorithm,
    date_time_ymd,
};

use crate::Certified;

/// The files of a `cacerts` Secret.
pub struct PluggedAuthority {
    root: CertifiedIssuer<'static, KeyPair>,
    signer: CertifiedIssuer<'static, KeyPair>,
    key: String,
}

impl PluggedAuthority {
    /// A new root with a signing certificate whose key is of this kind.
    pub fn new(algorithm: &'static SignatureAlgorithm) -> Result<Self> {
        let root = CertifiedIssuer::self_signed(params("root"), KeyPair::generate()?)?;
        let (signer, key) = signer(&root, algorithm)?;
        Ok(Self { root, signer, key })
    }

    /// Another signing certificate with another key, under the same root.
    pub fn renew(&mut self, algorithm: &'static SignatureAlgorithm) -> Result<()> {
        (self.signer, self.key) = signer(&self.root, algorithm)?;
        Ok(())
    }

    /// The root, as PEM.
    pub fn root(&self) -> String {
        self.root.pem()
    }

    /// The private key that signs, as PEM.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Writes the files, each at once.
    pub fn write(&self, directory: &Path) -> Result<()> {
        let chain = self.signer.pem() + &self.root.pem();
        for (name, text) in [
            ("root-cert.pem", self.root.pem().as_str()),
            ("cert-chain.pem", &chain),
            ("ca-key.pem", &self.key),
            ("ca-cert.pem", &self.signer.pem()),
        ] {
            replace(&directory.join(name), text)?;
        }
        Ok(())
    }

    /// A certificate that the signing one issues, and the chain to the root.
    pub fn issue(&self, params: &CertificateParams) -> Result<Certified> {
        let key = KeyPair::generate()?;
        let certificate = params.signed_by(&key, &self.signer)?.pem() + &self.signer.pem();
        Ok(Certified { certificate, key: key.serialize_pem() })
    }

    /// The same with another authority in between, which the signing one certified.
    pub fn issue_below(&self, authority: CertificateParams, params: &CertificateParams) -> Result<Certified> {
        let between = CertifiedIssuer::signed_by(authority, KeyPair::generate()?, &self.signer)?;
        let key = KeyPair::generate()?;
        let leaf = params.signed_by(&key, &between)?;
        let certificate = leaf.pem() + &between.pem() + &self.signer.pem();
        Ok(Certified { certificate, key: key.serialize_pem() })
    }

    /// The lists of both authorities as PEM. That of the signing one names these serial numbers, in hexadecimal.
    pub fn revocations(&self, serials: &[&str]) -> Result<String> {
        let own = serials.iter().map(|serial| revoked(serial)).collect::<Result<_>>()?;
        Ok(list(&self.signer, own)? + &list(&self.root, Vec::new())?)
    }
}

/// Replaces a file at once, as a mounted ConfigMap does. Its directory is made if need be.
pub(crate) fn replace(path: &Path, text: &str) -> Result<()> {
    let directory = path.parent().context("a file in a directory")?;
    fs::create_dir_all(directory)?;
    let scratch = directory.join(".scratch");
    fs::write(&scratch, text)?;
    Ok(fs::rename(scratch, path)?)
}

fn params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn signer(
    root: &Issuer<'static, KeyPair>,
    algorithm: &'static SignatureAlgorithm,
) -> Result<(CertifiedIssuer<'static, KeyPair>, String)> {
    let key = KeyPair::generate_for(algorithm)?;
    let pem = key.serialize_pem();
    Ok((CertifiedIssuer::signed_by(params("signer"), key, root)?, pem))
}

fn revoked(serial: &str) -> Result<RevokedCertParams> {
    let byte =
        |at| u8::from_str_radix(serial.get(at..at + 2).context("whole bytes")?, 16).context("hexadecimal");
    let bytes = (0..serial.len()).step_by(2).map(byte).collect::<Result<Vec<u8>>>()?;
    Ok(RevokedCertParams {
        serial_number: SerialNumber::from(bytes),
        revocation_time: date_time_ymd(2026, 1, 1),
        reason_code: None,
        invalidity_date: None,
    })
}

fn list(issuer: &Issuer<'static, KeyPair>, revoked_certs: Vec<RevokedCertParams>) -> Result<String> {
    let params = CertificateRevocationListParams {
        this_update: date_time_ymd(2026, 1, 1),
        next_update: date_time_ymd(2126, 1, 1),
        crl_number: SerialNumber::from(1),
        issuing_distribution_point: None,
        revoked_certs,
        key_identifier_method: KeyIdMethod::Sha256,
    };
    Ok(params.signed_by(issuer)?.pem()?)
}
