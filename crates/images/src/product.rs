//! The images of the project.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use canopus_parts::{Part, find, find_root};

use crate::{Compression, Image, Labels, Layer, Rootfs, Sbom};

/// User and group of proxies; packet filters tell a proxy's own traffic by it, as with Istio.
const PROXY_USER: &str = "1337:1337";

/// The libraries of the C library's package that programs load; the rest is for old or special ones.
const LIBRARIES: [&str; 10] = [
    "libc.so.6",
    "libdl.so.2",
    "libgcc_s.so.1",
    "libm.so.6",
    "libmvec.so.1",
    "libnss_dns.so.2",
    "libnss_files.so.2",
    "libpthread.so.0",
    "libresolv.so.2",
    "librt.so.1",
];

/// The programs that images are made from.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Directory with `canopusd`, `canopus-agent`, `canopus-cni` and `canopus`.
    pub directory: PathBuf,
    /// Prefix of images' names, such as `localhost/canopus`.
    pub hub: String,
    /// Tag of the images.
    pub tag: String,
    /// Labels of all images.
    pub labels: Labels,
    /// Whether layers are compressed.
    pub compression: Compression,
}

impl Programs {
    fn names(&self, names: &[&str]) -> Vec<String> {
        names.iter().map(|name| format!("{}/{name}:{}", self.hub, self.tag)).collect()
    }

    fn labels(&self, title: &str) -> Labels {
        let mut labels = self.labels.clone();
        labels.insert("org.opencontainers.image.title".to_owned(), title.to_owned());
        labels.insert("org.opencontainers.image.version".to_owned(), self.tag.clone());
        labels
    }
}

/// The lowest layer: the C library, public certificates, a user table.
pub fn runtime(compression: Compression) -> Result<Layer> {
    let root = find_root(Part::Runtime)?;
    let mut rootfs = Rootfs::default();
    rootfs
        .directory("/tmp", 0o1777)
        .directory("/proc", 0o555)
        .directory("/sys", 0o555)
        .directory("/dev", 0o755)
        .text(
            "/etc/passwd",
            "root:x:0:0:root:/:/sbin/nologin\nistio-proxy:x:1337:1337:proxy:/:/sbin/nologin\n",
        )
        .text("/etc/group", "root:x:0:\nistio-proxy:x:1337:\n")
        .text("/etc/nsswitch.conf", "hosts: files dns\n")
        .text("/etc/ssl/certs/ca-certificates.crt", certificates(&root)?);
    let libraries = libraries(&root.join("lib"))?;
    let triple = libraries.file_name().and_then(|name| name.to_str()).context("an odd library directory")?;
    for library in LIBRARIES {
        let from = libraries.join(library);
        // Some architectures have no vector library.
        if from.exists() {
            rootfs.copy(&format!("/lib/{triple}/{library}"), &from)?;
        }
    }
    // The loader is named by its path in every program.
    for directory in ["lib64", "lib"] {
        for file in files(&root.join(directory)) {
            let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if name.starts_with("ld-linux") {
                rootfs.copy(&format!("/{directory}/{name}"), &file)?;
            }
        }
    }
    add_copyrights(&mut rootfs, &root)?;
    Layer::new("C library and certificates, from Debian", &rootfs, compression)
}

/// The control plane.
pub fn canopusd(programs: &Programs, runtime: &Arc<Layer>, sbom: Option<&Sbom>) -> Result<Image> {
    let mut rootfs = Rootfs::default();
    rootfs
        .copy("/usr/local/bin/canopusd", &programs.directory.join("canopusd"))?
        .link("/usr/local/bin/pilot-discovery", "canopusd");
    add_sbom(&mut rootfs, "canopusd", sbom);
    let own = Layer::new("canopusd", &rootfs, programs.compression)?;
    Ok(Image {
        names: programs.names(&["canopusd", "pilot"]),
        layers: vec![Arc::clone(runtime), Arc::new(own)],
        entrypoint: vec!["/usr/local/bin/canopusd".to_owned()],
        user: PROXY_USER.to_owned(),
        labels: programs.labels("canopusd"),
    })
}

/// The proxy: the agent, Envoy, and the packet filters that traffic is captured with.
pub fn proxy(programs: &Programs, runtime: &Arc<Layer>, sbom: Option<&Sbom>) -> Result<Image> {
    let mut envoy = Rootfs::default();
    envoy.copy("/usr/local/bin/envoy", &find(Part::Envoy)?.join("envoy"))?;
    let mut rootfs = Rootfs::default();
    rootfs
        .copy("/usr/local/bin/canopus-agent", &programs.directory.join("canopus-agent"))?
        .link("/usr/local/bin/pilot-agent", "canopus-agent")
        .directory("/etc/istio/proxy", 0o777)
        .directory("/var/lib/istio", 0o777)
        // xtables-legacy keeps its lock here.
        .directory("/run", 0o777);
    add_sbom(&mut rootfs, "canopus-agent", sbom);
    let layers = vec![
        Arc::clone(runtime),
        Arc::new(Layer::new("iptables and nft, from Debian", &packet_filters()?, programs.compression)?),
        Arc::new(Layer::new("Envoy", &envoy, programs.compression)?),
        Arc::new(Layer::new("canopus-agent", &rootfs, programs.compression)?),
    ];
    Ok(Image {
        names: programs.names(&["proxy", "proxyv2"]),
        layers,
        // Parity: hooks and overrides of pods call the agent by this name.
        entrypoint: vec!["/usr/local/bin/pilot-agent".to_owned()],
        user: PROXY_USER.to_owned(),
        labels: programs.labels("canopus-proxy"),
    })
}

/// The node agent, the plugin that it installs, and the packet filters that rules are made with.
pub fn cni(programs: &Programs, runtime: &Arc<Layer>, sbom: Option<&Sbom>) -> Result<Image> {
    let program = programs.directory.join("canopus-cni");
    let mut rootfs = Rootfs::default();
    rootfs
        .copy("/usr/local/bin/canopus-cni", &program)?
        .link("/usr/local/bin/install-cni", "canopus-cni")
        // The agent copies everything in this directory to the host.
        .copy("/opt/cni/bin/istio-cni", &program)?
        .directory("/run", 0o755);
    add_sbom(&mut rootfs, "canopus-cni", sbom);
    let layers = vec![
        Arc::clone(runtime),
        Arc::new(Layer::new("iptables and nft, from Debian", &packet_filters()?, programs.compression)?),
        Arc::new(Layer::new("canopus-cni", &rootfs, programs.compression)?),
    ];
    Ok(Image {
        names: programs.names(&["cni", "install-cni"]),
        layers,
        entrypoint: vec!["/usr/local/bin/install-cni".to_owned()],
        // The program enters namespaces of pods and writes to directories of the host.
        user: "0:0".to_owned(),
        labels: programs.labels("canopus-cni"),
    })
}

/// The sample, for trying the mesh of a cluster: one program, whose role is its argument.
pub fn storefront(programs: &Programs, runtime: &Arc<Layer>, sbom: Option<&Sbom>) -> Result<Image> {
    let mut rootfs = Rootfs::default();
    rootfs.copy("/usr/local/bin/storefront", &programs.directory.join("storefront"))?;
    add_sbom(&mut rootfs, "storefront", sbom);
    let own = Layer::new("storefront", &rootfs, programs.compression)?;
    Ok(Image {
        names: programs.names(&["storefront"]),
        layers: vec![Arc::clone(runtime), Arc::new(own)],
        entrypoint: vec!["/usr/local/bin/storefront".to_owned()],
        // Any user but the proxy's, whose traffic is not captured.
        user: "1000:1000".to_owned(),
        labels: programs.labels("storefront"),
    })
}

/// iptables in both variants and nft, with the extensions of the former.
fn packet_filters() -> Result<Rootfs> {
    let root = find_root(Part::Iptables)?;
    let mut rootfs = Rootfs::default();
    for file in files(&root.join("usr/sbin")) {
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        if ["iptables", "ip6tables", "xtables-", "nft"].iter().any(|prefix| name.starts_with(prefix)) {
            rootfs.copy_or_link(&format!("/usr/sbin/{name}"), &file)?;
        }
    }
    // Debian chooses between the variants when it installs the package.
    for family in ["iptables", "ip6tables"] {
        for suffix in ["", "-save", "-restore"] {
            rootfs.link(&format!("/usr/sbin/{family}{suffix}"), "xtables-nft-multi");
        }
    }
    for parent in ["lib", "usr/lib"] {
        let Ok(libraries) = libraries(&root.join(parent)) else { continue };
        for file in files(&libraries).into_iter().chain(files(&libraries.join("xtables"))) {
            let path = file.strip_prefix(&root).unwrap_or(&file).display().to_string();
            if path.contains(".so") {
                rootfs.copy_or_link(&path, &file)?;
            }
        }
    }
    add_copyrights(&mut rootfs, &root)?;
    Ok(rootfs)
}

/// The directory of libraries of this machine's architecture.
fn libraries(parent: &Path) -> Result<PathBuf> {
    let is_one = |path: &PathBuf| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.contains("-linux-"))
    };
    let found = entries(parent).into_iter().find(is_one);
    found.with_context(|| format!("{} has no libraries", parent.display()))
}

/// The certificates that Debian trusts, in one file.
fn certificates(root: &Path) -> Result<String> {
    let directory = root.join("usr/share/ca-certificates/mozilla");
    let mut bundle = String::new();
    for file in files(&directory) {
        bundle.push_str(fs::read_to_string(&file)?.trim_end());
        bundle.push('\n');
    }
    anyhow::ensure!(!bundle.is_empty(), "{} has no certificates", directory.display());
    Ok(bundle)
}

fn add_copyrights(rootfs: &mut Rootfs, root: &Path) -> Result<()> {
    for package in entries(&root.join("usr/share/doc")) {
        let file = package.join("copyright");
        let name = package.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        // Packages of one source share the file by a link to a directory.
        if file.is_file() && !package.is_symlink() && !name.is_empty() {
            rootfs.copy(&format!("/usr/share/doc/{name}/copyright"), &file)?;
        }
    }
    Ok(())
}

fn add_sbom(rootfs: &mut Rootfs, name: &str, sbom: Option<&Sbom>) {
    if let Some(sbom) = sbom {
        rootfs.text(&format!("/usr/share/sbom/{name}.spdx.json"), sbom.to_json());
    }
}

/// The entries of a directory, sorted; none if there is no such directory.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn files(directory: &Path) -> Vec<PathBuf> {
    entries(directory).into_iter().filter(|path| path.is_file()).collect()
}
