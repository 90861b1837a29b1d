mod bill;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use canopus_images::{Compression, Image, Labels, Programs, canopusd, cni, proxy, runtime, storefront};
use canopus_parts::{Part, ensure as install};

use crate::shell::{cargo, root, run, succeeds};

/// The hub of images that are in no registry, as other tools that build locally name it.
const HUB: &str = "localhost/canopus";

/// Builds container images without a container engine, as OCI archives.
///
/// `canopusd.tar` is the control plane; `proxy.tar` is the agent with Envoy; `cni.tar` is the CNI plugin with its agent; `storefront.tar` is
/// the sample. Each also goes by the name Istio's charts have for it (`pilot`, `proxyv2`, `install-cni`). The same sources give the same
/// bytes. A bill of materials in SPDX is inside each image and beside it.
#[derive(clap::Args)]
#[command(after_help = "\
Examples:
  cargo xtask images                                  release builds, in target/images
  cargo xtask images --profile dev --load kind        quickly, into a local kind cluster
  cargo xtask images --hub registry.example.com/mesh --tag 1.2.3
  skopeo copy oci-archive:target/images/canopusd.tar docker://registry.example.com/mesh/canopusd:1.2.3")]
pub(crate) struct Arguments {
    /// Prefix of the images' names.
    #[arg(long, default_value = HUB)]
    hub: String,

    /// Tag of the images.
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    tag: String,

    /// Cargo profile that programs are built with.
    #[arg(long, default_value = "release")]
    profile: String,

    /// Directory to write to.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,

    /// Also put the images into a local containerd (its namespace k8s.io), kind or k3d.
    #[arg(long, value_enum, value_name = "WHERE")]
    load: Option<Destination>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Destination {
    Containerd,
    Kind,
    K3d,
}

pub(crate) fn run_it(arguments: &Arguments) -> Result<()> {
    install(&[Part::Runtime, Part::Iptables, Part::Envoy])?;
    run(cargo().args(["build", "--locked", "--profile", &arguments.profile]).args([
        "--package=canopus-daemon",
        "--package=canopus-cni",
        "--package=canopus-storefront",
        "--bin=canopusd",
        "--bin=canopus-cni",
        "--bin=storefront",
    ]))?;
    let agent = build_agent(&arguments.profile)?;
    let output = arguments.output.clone().unwrap_or_else(|| root().join("target/images"));
    fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
    let stripped = tempfile::tempdir()?;
    for program in ["canopusd", "canopus-cni", "storefront"] {
        strip(&built(&arguments.profile).join(program), &stripped.path().join(program))?;
    }
    strip(&agent, &stripped.path().join("canopus-agent"))?;
    let programs = Programs {
        directory: stripped.path().to_owned(),
        hub: arguments.hub.clone(),
        tag: arguments.tag.clone(),
        labels: labels(),
        compression: Compression::Gzip,
    };
    let base = Arc::new(runtime(programs.compression)?);
    let bills = bill::all(&arguments.tag)?;
    let images = [
        ("canopusd", canopusd(&programs, &base, Some(&bills.canopusd))?, &bills.canopusd),
        ("proxy", proxy(&programs, &base, Some(&bills.proxy))?, &bills.proxy),
        ("cni", cni(&programs, &base, Some(&bills.cni))?, &bills.cni),
        ("storefront", storefront(&programs, &base, Some(&bills.storefront))?, &bills.storefront),
    ];
    for (name, image, bill) in &images {
        let archive = output.join(format!("{name}.tar"));
        image.write(&archive)?;
        fs::write(output.join(format!("{name}.spdx.json")), bill.to_json())?;
        report(&archive, image)?;
        if let Some(destination) = arguments.load {
            load(destination, &archive)?;
        }
    }
    Ok(())
}

fn report(archive: &Path, image: &Image) -> Result<()> {
    let size = fs::metadata(archive)?.len();
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    let megabytes = size as f64 / 1e6;
    println!("{} ({megabytes:.1} MB): {}", archive.display(), image.names.join(", "));
    Ok(())
}

/// Builds the agent: as it is released, unless a quicker profile is wanted.
///
/// It runs beside every workload, so its memory counts. A static program needs no tables that are rewritten at the start and no
/// libraries of its own copy; with musl it also runs wherever there is a kernel. (A static glibc would load modules of the
/// machine's name service, and crash in those of another version.)
pub(crate) fn build_agent(profile: &str) -> Result<PathBuf> {
    if profile != "release" {
        let program = ["--package=canopus-agent", "--bin=canopus-agent"];
        run(cargo().args(["build", "--locked", "--profile", profile]).args(program))?;
        return Ok(built(profile).join("canopus-agent"));
    }
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let link = ["-C", "relocation-model=static", "-C", "link-arg=-Wl,-T,crates/agent/cold.ld"];
    run(cargo().args(["build-agent", "--target", &target, "--"]).args(link)).with_context(|| {
        format!(
            "building the agent for {target}, which needs the target (`rustup target add {target}`) and musl-gcc \
             (package musl-tools)"
        )
    })?;
    Ok(root().join("target").join(target).join("agent/canopus-agent"))
}

/// Where cargo puts the programs of a profile.
fn built(profile: &str) -> PathBuf {
    let directory = if profile == "dev" { "debug" } else { profile };
    root().join("target").join(directory)
}

/// Copies a program without what only debuggers read, and without the paths of this machine in it.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("strip");
    run(command.arg("--strip-debug").arg("-o").arg(to).arg(from))
}

/// Labels that tell where an image is from.
fn labels() -> Labels {
    let mut labels = Labels::new();
    let mut set =
        |name: &str, value: String| labels.insert(format!("org.opencontainers.image.{name}"), value);
    set("licenses", "Apache-2.0".to_owned());
    set("vendor", "Canopus".to_owned());
    let output = Command::new("git").args(["rev-parse", "HEAD"]).current_dir(root()).output();
    if let Ok(output) = output
        && output.status.success()
    {
        set("revision", String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    labels
}

fn load(destination: Destination, archive: &Path) -> Result<()> {
    let (tool, arguments): (&str, &[&str]) = match destination {
        Destination::Containerd => ("ctr", &["--namespace=k8s.io", "images", "import"]),
        Destination::Kind => ("kind", &["load", "image-archive"]),
        Destination::K3d => ("k3d", &["image", "import"]),
    };
    ensure!(
        succeeds(Command::new(tool).arg("version")),
        "`{tool}` is not on PATH, or its daemon cannot be reached"
    );
    run(Command::new(tool).args(arguments).arg(archive))
}
