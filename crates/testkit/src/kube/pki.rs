use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// Names and addresses an API server is called by.
const SERVER_NAMES: [&str; 4] = ["127.0.0.1", "localhost", "kubernetes.default", "kubernetes.default.svc"];

/// Writes what an API server needs to prove itself and to sign tokens: `ca.{crt,key}`, `server.{crt,key}`, `sa.{key,pub}`.
/// The server's certificate also has the names in `others`.
pub(super) fn write(directory: &Path, others: &[String]) -> Result<()> {
    let save = |name: &str, pem: String| {
        fs::write(directory.join(name), pem).with_context(|| format!("writing {name}"))
    };

    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "test-cluster-ca");
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let ca = CertifiedIssuer::self_signed(params, KeyPair::generate()?)?;
    save("ca.crt", ca.pem())?;
    save("ca.key", ca.key().serialize_pem())?;

    let names = SERVER_NAMES.map(str::to_owned).into_iter().chain(others.iter().cloned());
    let mut params = CertificateParams::new(names.collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, "kube-apiserver");
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    save("server.crt", params.signed_by(&key, &ca)?.pem())?;
    save("server.key", key.serialize_pem())?;

    let tokens = KeyPair::generate()?;
    save("sa.key", tokens.serialize_pem())?;
    save("sa.pub", tokens.public_key_pem())
}
