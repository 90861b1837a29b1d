//! A plugged-in authority: the files of a `cacerts` Secret in a directory (`ROOT_CA_DIR`).
//!
//! Two layouts exist, and a file named `tls.crt` decides for the second:
//!
//! | part | `cacerts` | `kubernetes.io/tls` |
//! |---|---|---|
//! | signing certificate | `ca-cert.pem` | `tls.crt` |
//! | private key | `ca-key.pem` | `tls.key` |
//! | roots | `root-cert.pem` | `ca.crt` |
//! | chain | `cert-chain.pem` | `tls.crt`, then `ca.crt` |
//! | revocation lists, optional | `ca-crl.pem` | none |

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::bundle::{Bundle, Parts};
use crate::pem::LARGEST_FILE;
use crate::store::Record;

/// The signing certificate.
pub const CA_CERT: &str = "ca-cert.pem";
/// File name of the signing certificate's private key.
pub const CA_KEY: &str = "ca-key.pem";
/// The roots.
pub const ROOT_CERT: &str = "root-cert.pem";
/// The certificates between leaves and roots.
pub const CERT_CHAIN: &str = "cert-chain.pem";
/// The revocation lists.
pub const CA_CRL: &str = "ca-crl.pem";
/// The mark of a `cacerts` Secret that a control plane wrote itself.
pub const ISTIO_GENERATED: &str = "istio-generated";

const TLS_CERT: &str = "tls.crt";
const TLS_KEY: &str = "tls.key";
const TLS_ROOT: &str = "ca.crt";

/// Why the files of a directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum PluggedError {
    /// A file cannot be read.
    #[error("{}: {error}", .path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is larger than any sensible one.
    #[error("{}: more than {LARGEST_FILE} bytes; this is no file of certificates", .0.display())]
    TooLarge(PathBuf),
    /// Some files exist, but not all.
    #[error("incomplete signing CA bundle detected: {} lacks {}; add what is missing, or remove the rest", .directory.display(), .missing.join(", "))]
    Incomplete {
        /// The directory.
        directory: PathBuf,
        /// The names of the files that are not there.
        missing: Vec<String>,
    },
}

/// The files of a complete authority.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    certificate: PathBuf,
    key: PathBuf,
    roots: PathBuf,
    chain: Vec<PathBuf>,
    crl: Option<PathBuf>,
    generated: bool,
}

impl Files {
    /// Looks for the files of an authority; `None` if there is not a single one. Revocation lists count only if asked for.
    pub fn find(directory: &Path, with_crl: bool) -> Result<Option<Self>, PluggedError> {
        let files = match exists(&directory.join(TLS_CERT))? {
            true => Self::named(directory, TLS_CERT, TLS_KEY, TLS_ROOT, &[TLS_CERT, TLS_ROOT]),
            false => Self {
                crl: Some(directory.join(CA_CRL)),
                ..Self::named(directory, CA_CERT, CA_KEY, ROOT_CERT, &[CERT_CHAIN])
            },
        };
        files.complete(directory, with_crl)
    }

    fn named(directory: &Path, certificate: &str, key: &str, roots: &str, chain: &[&str]) -> Self {
        Self {
            certificate: directory.join(certificate),
            key: directory.join(key),
            roots: directory.join(roots),
            chain: chain.iter().map(|name| directory.join(name)).collect(),
            crl: None,
            generated: false,
        }
    }

    fn complete(mut self, directory: &Path, with_crl: bool) -> Result<Option<Self>, PluggedError> {
        let mut missing = Vec::new();
        let mut wanted: Vec<&PathBuf> = vec![&self.certificate, &self.key, &self.roots];
        wanted.extend(&self.chain);
        wanted.sort();
        wanted.dedup();
        let count = wanted.len();
        for path in wanted {
            if !exists(path)? {
                let name = path.file_name().unwrap_or_default();
                missing.push(name.to_string_lossy().into_owned());
            }
        }
        if missing.len() == count {
            return Ok(None);
        }
        if !missing.is_empty() {
            return Err(PluggedError::Incomplete { directory: directory.to_owned(), missing });
        }
        let crl = self.crl.take().filter(|_| with_crl);
        self.crl = match crl {
            Some(path) if exists(&path)? => Some(path),
            _ => None,
        };
        self.generated = exists(&directory.join(ISTIO_GENERATED))?;
        Ok(Some(self))
    }

    /// Whether a control plane wrote the files itself, to keep its self-signed root.
    pub fn is_generated(&self) -> bool {
        self.generated
    }

    /// Reads the files.
    pub fn read(&self) -> Result<Parts, PluggedError> {
        let mut chain = Vec::new();
        for path in &self.chain {
            chain.extend(read(path)?.iter());
            chain.push(b'\n');
        }
        Ok(Parts {
            certificate: read(&self.certificate)?.to_vec(),
            key: read(&self.key)?,
            chain,
            roots: read(&self.roots)?.to_vec(),
            crl: self.crl.as_deref().map(read).transpose()?.map(|text| text.to_vec()).unwrap_or_default(),
        })
    }
}

/// The parts of an authority whose files are in a record, such as a Secret of the names that files have.
pub fn parts(record: &Record, with_crl: bool) -> Result<Parts, MissingFiles> {
    let (certificate, key, roots, chain): (_, _, _, &[&'static str]) = match record.get(TLS_CERT) {
        Some(_) => (TLS_CERT, TLS_KEY, TLS_ROOT, &[TLS_CERT, TLS_ROOT]),
        None => (CA_CERT, CA_KEY, ROOT_CERT, &[CERT_CHAIN]),
    };
    let wanted = [certificate, key, roots].into_iter().chain(chain.iter().copied());
    let mut missing: Vec<&'static str> = wanted.filter(|name| record.get(name).is_none()).collect();
    missing.dedup();
    if !missing.is_empty() {
        return Err(MissingFiles(missing));
    }
    let file = |name| record.get(name).unwrap_or_default();
    Ok(Parts {
        certificate: file(certificate).to_vec(),
        key: file(key).to_vec().into(),
        chain: chain.iter().map(|name| file(name)).collect::<Vec<_>>().join(&b'\n'),
        roots: file(roots).to_vec(),
        crl: if with_crl { file(CA_CRL).to_vec() } else { Vec::new() },
    })
}

/// A record does not have all files of an authority.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} not in it; an authority needs all of its files", .0.join(", "))]
pub struct MissingFiles(Vec<&'static str>);

/// Adds the roots of the file `root-cert.pem` of a directory, if there is one, to those of a self-signed authority.
pub fn append_roots(roots: &mut Vec<u8>, directory: &Path) -> Result<(), PluggedError> {
    let path = directory.join(ROOT_CERT);
    if exists(&path)? {
        roots.push(b'\n');
        roots.extend(read(&path)?.iter());
    }
    Ok(())
}

fn exists(path: &Path) -> Result<bool, PluggedError> {
    path.try_exists().map_err(|error| PluggedError::File { path: path.to_owned(), error })
}

fn read(path: &Path) -> Result<Zeroizing<Vec<u8>>, PluggedError> {
    let failed = |error| PluggedError::File { path: path.to_owned(), error };
    let file = File::open(path).map_err(failed)?;
    // Room for all of it, so that no half-read key is left behind in a buffer that was outgrown.
    let size = file.metadata().map_err(failed)?.len();
    if size > LARGEST_FILE as u64 {
        return Err(PluggedError::TooLarge(path.to_owned()));
    }
    let mut text = Zeroizing::new(Vec::with_capacity(usize::try_from(size).unwrap_or_default() + 1));
    file.take(LARGEST_FILE as u64 + 1).read_to_end(&mut text).map_err(failed)?;
    if text.len() > LARGEST_FILE {
        return Err(failed(ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

/// Why new files are not taken while the authority runs.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReloadRefused {
    /// The roots are others, and a mesh has one.
    #[error("the root certificates changed, which takes ISTIO_MULTIROOT_MESH=true; the old ones stay in use")]
    OneRoot,
    /// The roots were exchanged in one go.
    #[error(
        "the root certificates were exchanged; add the new root beside the old one first, and remove the old one when \
         every workload has the new one"
    )]
    Exchanged,
}

/// Whether a running authority may go on with another bundle.
///
/// A signing certificate under the same roots is always welcome. Other roots break the trust between workloads that have
/// them and those that do not, so they may only be added to, or taken from, those there are.
pub fn may_replace(current: &Bundle, next: &Bundle, multi_root: bool) -> Result<(), ReloadRefused> {
    if current.roots_pem() == next.roots_pem() {
        return Ok(());
    }
    if !multi_root {
        return Err(ReloadRefused::OneRoot);
    }
    if current.roots_overlap(next) { Ok(()) } else { Err(ReloadRefused::Exchanged) }
}
