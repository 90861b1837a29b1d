//! OpenSSL's command: makes requests and hierarchies, and judges what is issued.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rustls_pki_types::UnixTime;
use tempfile::TempDir;

/// Keys that requests come with.
pub(crate) const ALGORITHMS: [&str; 7] =
    ["RSA-1024", "RSA-2048", "RSA-4096", "P-256", "P-384", "P-521", "ED25519"];

/// The time, in whole seconds.
pub(crate) fn now() -> UnixTime {
    UnixTime::since_unix_epoch(Duration::from_secs(UnixTime::now().as_secs()))
}

/// A workshop for files.
pub(crate) struct OpenSsl {
    directory: TempDir,
    count: AtomicUsize,
}

/// A root, intermediates under it, and the key of the last of them.
pub(crate) struct Hierarchy {
    pub(crate) root: String,
    /// The signing certificate first.
    pub(crate) intermediates: Vec<String>,
    pub(crate) signing: String,
    pub(crate) key: String,
    pub(crate) root_key: String,
}

impl OpenSsl {
    pub(crate) fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap(), count: AtomicUsize::new(0) }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join(self.count.fetch_add(1, Ordering::Relaxed).to_string())
    }

    fn file(&self, text: &str) -> String {
        let path = self.path();
        fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("openssl").args(arguments).output().expect("openssl is installed");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "openssl {arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    pub(crate) fn key(&self, algorithm: &str) -> String {
        let path = self.path().display().to_string();
        let option = match algorithm.split_once('-') {
            Some(("RSA", bits)) => format!("rsa_keygen_bits:{bits}"),
            _ => format!("ec_paramgen_curve:{algorithm}"),
        };
        let kind = algorithm.split('-').next().unwrap();
        match kind {
            "RSA" => self.run(&["genpkey", "-algorithm", "RSA", "-pkeyopt", &option, "-out", &path]),
            "P" => self.run(&["genpkey", "-algorithm", "EC", "-pkeyopt", &option, "-out", &path]),
            other => self.run(&["genpkey", "-algorithm", other, "-out", &path]),
        };
        fs::read_to_string(path).unwrap()
    }

    /// A request with a new key.
    pub(crate) fn request(&self, algorithm: &str, subject: &str, extensions: &[&str]) -> String {
        self.request_with(algorithm, subject, extensions, &[])
    }

    pub(crate) fn request_with(
        &self,
        algorithm: &str,
        subject: &str,
        extensions: &[&str],
        more: &[&str],
    ) -> String {
        let key = self.file(&self.key(algorithm));
        let mut arguments = vec!["req", "-new", "-key", &key, "-subj", subject];
        for extension in extensions {
            arguments.extend(["-addext", extension]);
        }
        arguments.extend(more);
        self.run(&arguments)
    }

    /// Fails unless the first certificate of a chain leads to one of the last text.
    pub(crate) fn verify(&self, chain: &[String]) {
        let (leaf, rest) = chain.split_first().unwrap();
        let (roots, intermediates) = rest.split_last().unwrap();
        let (leaf, roots) = (self.file(leaf), self.file(roots));
        let intermediates = self.file(&intermediates.concat());
        // RSA keys of 1024 bits are below the level that is the default.
        let mut arguments = vec!["verify", "-x509_strict", "-auth_level", "1", "-purpose", "sslserver"];
        arguments.extend(["-CAfile", &roots]);
        if !fs::read(&intermediates).unwrap().is_empty() {
            arguments.extend(["-untrusted", &intermediates]);
        }
        arguments.push(&leaf);
        self.run(&arguments);
    }

    /// A certificate in words.
    pub(crate) fn text(&self, certificate: &str) -> String {
        self.run(&["x509", "-noout", "-text", "-in", &self.file(certificate)])
    }

    /// A root with so many intermediates under it, each under the one before.
    pub(crate) fn hierarchy(&self, algorithm: &str, depth: usize) -> Hierarchy {
        self.hierarchy_with(algorithm, &vec!["basicConstraints=critical,CA:TRUE"; depth])
    }

    /// The same, with these constraints.
    pub(crate) fn hierarchy_with(&self, algorithm: &str, constraints: &[&str]) -> Hierarchy {
        let name = format!("/O=Example Corp/CN=Root {}", self.count.load(Ordering::Relaxed));
        let mut key = self.key(algorithm);
        let root = self.certify(&key, &name, None, &["basicConstraints=critical,CA:TRUE", CA_USAGE]);
        let root_key = key.clone();
        let (mut intermediates, mut signing) = (Vec::new(), root.clone());
        for (level, constraint) in constraints.iter().enumerate() {
            let next = self.key(algorithm);
            let name = format!("/O=Example Corp/CN=Intermediate CA {level}");
            signing = self.certify(&next, &name, Some((&signing, &key)), &[constraint, CA_USAGE]);
            key = next;
            intermediates.insert(0, signing.clone());
        }
        Hierarchy { root, intermediates, signing, key, root_key }
    }

    /// A root and a certificate under it that may not sign.
    pub(crate) fn end_entity(&self, algorithm: &str) -> Hierarchy {
        self.hierarchy_with(algorithm, &["basicConstraints=critical,CA:FALSE"])
    }

    /// The revocation list of an authority, which names these serial numbers, whether or not the authority may sign lists.
    pub(crate) fn list(&self, authority: &str, key: &str, serials: &[&str]) -> String {
        let gone = |serial: &&str| format!("R\t360101000000Z\t260101000000Z\t{serial}\tunknown\t/CN=gone\n");
        let (database, number) =
            (self.file(&serials.iter().map(gone).collect::<String>()), self.file("01\n"));
        let config = self.file(&format!(
            "[ca]\ndefault_ca=own\n[own]\ndatabase={database}\ncrlnumber={number}\ndefault_md=sha256\n\
             default_crl_days=30\n"
        ));
        let (authority, key) = (self.file(authority), self.file(key));
        self.run(&["ca", "-gencrl", "-config", &config, "-cert", &authority, "-keyfile", &key])
    }

    /// The lists of both authorities of a hierarchy; that of the signing one names these serial numbers.
    pub(crate) fn lists(&self, pki: &Hierarchy, serials: &[&str]) -> String {
        self.list(&pki.signing, &pki.key, serials) + &self.list(&pki.root, &pki.root_key, &[])
    }

    /// A certificate of a key, by itself or by an issuer and its key.
    pub(crate) fn certify(
        &self,
        key: &str,
        subject: &str,
        issuer: Option<(&str, &str)>,
        extensions: &[&str],
    ) -> String {
        let key = self.file(key);
        let mut arguments = vec!["req", "-x509", "-new", "-key", &key, "-subj", subject, "-days", "365"];
        for extension in extensions {
            arguments.extend(["-addext", extension]);
        }
        let issuer = issuer.map(|(certificate, key)| (self.file(certificate), self.file(key)));
        if let Some((certificate, key)) = &issuer {
            arguments.extend(["-CA", certificate, "-CAkey", key]);
        }
        let config = self.file("[req]\ndistinguished_name=name\n[name]\n");
        arguments.extend(["-config", &config, "-addext", "subjectKeyIdentifier=hash"]);
        self.run(&arguments)
    }
}

const CA_USAGE: &str = "keyUsage=critical,digitalSignature,keyCertSign,cRLSign";

/// The same request, with a bit of its signature the other way round.
pub(crate) fn flip_last_byte(pem: &str) -> String {
    use rustls_pki_types::CertificateSigningRequestDer;
    use rustls_pki_types::pem::PemObject as _;
    let der = CertificateSigningRequestDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut bytes = der.as_ref().to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    canopus_identity::pem::encode("CERTIFICATE REQUEST", &bytes).unwrap()
}
