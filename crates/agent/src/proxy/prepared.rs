//! The beginning of `canopus-agent proxy`, which ends when all is known that has to be served.
//!
//! Whoever starts reads a command line, YAML, files of the pod and answers of a cloud, and writes a bootstrap. What that takes
//! (code, tables of descriptors, a heap with holes) is of no use afterwards, and would be held for the life of the pod. So the
//! process becomes itself anew, with the result as its standard input: it has the same id, and only what serving takes.

use std::fs;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, ffi::OsStr};

use anyhow::Context as _;
use canopus_proto::google;
use canopus_proto::istio::mesh::v1alpha1::AuthenticationPolicy;
use canopus_runtime::flags::{self, Flags};
use canopus_runtime::log::LogFlags;
use canopus_runtime::version::BuildInfo;
use nix::sys::memfd::{MFdFlags, memfd_create};
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use super::arguments::{ProxyArgs, Role};
use super::inputs;
use super::settings::identity_socket;
use crate::bootstrap::{
    BootstrapSettings, CertificateDirectory, grpc_bootstrap, is_yaml, overrides, render, render_template,
};
use crate::envoy::command_line::{LaunchSettings, arguments as envoy_arguments};
use crate::envoy::{SupervisorSettings, drain};
use crate::node::Node;
use crate::sds;

/// The last argument of a process that is to go on.
const ARGUMENT: &str = "--prepared";
/// The user Envoy runs as where the agent is root and serves names.
const PROXY_USER: u32 = 1337;
/// Bound on the file; what is written here is far smaller.
const MAX_BYTES: u64 = 64 << 20;

/// What serving needs to know, beside variables.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Prepared {
    /// How the log is written.
    pub log: LogFlags,
    pub(super) role: Role,
    /// The id of the proxy.
    pub(super) node: String,
    pub(super) discovery_address: String,
    /// Whether the control plane is reached without TLS.
    pub(super) plaintext: bool,
    /// The socket for Envoy's streams.
    pub(super) xds_socket: PathBuf,
    /// Whether another process, such as a SPIFFE agent, has the workload's certificate.
    pub(super) identity_is_served: bool,
    pub(super) admin: SocketAddr,
    pub(super) status_port: u16,
    pub(super) prometheus_port: u16,
    pub(super) sts_port: u16,
    /// The encoded `ReadinessProbe` of the proxy configuration; empty if there is none.
    pub(super) readiness_probe: Vec<u8>,
    /// How Envoy is run, if it is.
    pub(super) envoy: Option<SupervisorSettings>,
}

impl Prepared {
    /// Finds out all that is needed, and writes the bootstrap.
    pub async fn new(args: &ProxyArgs, flags: &Flags) -> anyhow::Result<Self> {
        info!("version {}", BuildInfo::current().long_form());
        let identity_is_served = sds::is_served(&identity_socket(flags)).await;
        let node = inputs::collect(args, flags, identity_is_served).await?;
        info!("proxy: {}", node.id);
        let config = &node.config.message;
        let localhost: IpAddr =
            if is_v6_only(&node) { [0, 0, 0, 0, 0, 0, 0, 1].into() } else { [127, 0, 0, 1].into() };
        let admin = SocketAddr::new(localhost, u16::try_from(config.proxy_admin_port)?);
        let xds_socket = Path::new(&config.config_path).join("XDS");
        // Parity: beside an Envoy as well, for applications that speak xDS themselves.
        write_grpc_bootstrap(&node, &xds_socket, flags)?;
        let envoy = if flags.get(flags::DISABLE_ENVOY) {
            None
        } else {
            let user = proxy_user(flags);
            let bootstrap = write_bootstrap(&node, args, user, flags)?;
            Some(supervisor(&node, args, admin, user, flags, bootstrap))
        };
        Ok(Self {
            log: args.log.clone(),
            role: args.role,
            node: node.id.clone(),
            discovery_address: config.discovery_address.clone(),
            plaintext: config.control_plane_auth_policy == AuthenticationPolicy::None as i32,
            xds_socket,
            identity_is_served,
            admin,
            status_port: u16::try_from(config.status_port)?,
            prometheus_port: node.metadata.envoy_prometheus_port,
            sts_port: args.sts_port,
            readiness_probe: config
                .readiness_probe
                .as_ref()
                .map(canopus_proto::Message::encode_to_vec)
                .unwrap_or_default(),
            envoy,
        })
    }

    /// Begins this process anew, to go on from here; returns only if that fails.
    pub fn hand_over(&self) -> io::Error {
        let Err(error) = self.become_prepared() else { return io::ErrorKind::Other.into() };
        error
    }

    fn become_prepared(&self) -> io::Result<()> {
        let mut file = fs::File::from(memfd_create(c"prepared", MFdFlags::empty())?);
        file.write_all(&serde_json::to_vec(self)?)?;
        file.rewind()?;
        let mut arguments = env::args_os();
        let mut command = Command::new(env::current_exe()?);
        if let Some(name) = arguments.next() {
            command.arg0(name);
        }
        Err(command.args(arguments).arg(ARGUMENT).stdin(Stdio::from(file)).exec())
    }

    /// Whether a process with this last argument is to go on.
    pub fn is_announced_by(argument: Option<&OsStr>) -> bool {
        argument.is_some_and(|argument| argument == ARGUMENT)
    }

    /// What the process before has found out.
    pub fn take_over() -> anyhow::Result<Self> {
        let mut text = Vec::new();
        io::stdin().lock().take(MAX_BYTES).read_to_end(&mut text)?;
        serde_json::from_slice(&text).with_context(|| {
            format!("{ARGUMENT} is for the agent's own use, with settings as standard input")
        })
    }
}

fn is_v6_only(node: &Node) -> bool {
    let is_v6 = |address: &String| address.parse().is_ok_and(|address: IpAddr| address.is_ipv6());
    let addresses = &node.metadata.instance_ips.0;
    !addresses.is_empty() && addresses.iter().all(is_v6)
}

/// Parity: a root agent that serves names on port 53 leaves Envoy its usual user.
fn proxy_user(flags: &Flags) -> Option<u32> {
    let on_port_53 = flags.get(flags::DNS_PROXY_ADDR).ends_with(":53");
    (nix::unistd::geteuid().is_root() && on_port_53).then_some(PROXY_USER)
}

fn write_bootstrap(
    node: &Node,
    args: &ProxyArgs,
    user: Option<u32>,
    flags: &Flags,
) -> anyhow::Result<String> {
    let directory = &node.config.message.config_path;
    fs::create_dir_all(directory).with_context(|| format!("configPath: {directory}"))?;
    let bootstrap = bootstrap_settings(flags, args.log.log_as_json);
    let rendered = render(node, &bootstrap)?;
    if let Some((path, token)) = &rendered.token_file {
        crate::files::write_private(Path::new(path), token.as_bytes()).with_context(|| path.clone())?;
    }
    let (name, text) = bootstrap_text(node, args, flags, &bootstrap, &rendered.bootstrap)?;
    let path = format!("{directory}/{name}");
    crate::files::write_private(Path::new(&path), &text)
        .with_context(|| format!("the bootstrap cannot be written to {path}"))?;
    if user.is_some() {
        std::os::unix::fs::chown(&path, user, user).with_context(|| path.clone())?;
    }
    Ok(path)
}

/// The template to render in the place of the built-in bootstrap, and where it is named. Parity: the variable wins.
fn template_path(node: &Node, args: &ProxyArgs, flags: &Flags) -> Option<(&'static str, String)> {
    let config = &node.config.message;
    let named = [
        ("ISTIO_BOOTSTRAP", flags.get(flags::ISTIO_BOOTSTRAP)),
        ("customConfigFile", config.custom_config_file.as_str()),
        ("--templateFile", args.template_file.as_str()),
        ("proxyBootstrapTemplatePath", config.proxy_bootstrap_template_path.as_str()),
    ];
    named.into_iter().find(|(_, path)| !path.is_empty()).map(|(source, path)| (source, path.to_owned()))
}

/// The bootstrap and the name of its file, by whose ending Envoy knows the format.
fn bootstrap_text(
    node: &Node,
    args: &ProxyArgs,
    flags: &Flags,
    bootstrap: &BootstrapSettings,
    built_in: &serde_json::Value,
) -> anyhow::Result<(&'static str, Vec<u8>)> {
    let Some((source, path)) = template_path(node, args, flags) else {
        return Ok(("envoy-rev.json", serde_json::to_vec(built_in)?));
    };
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{source}: bootstrap template {path}: mount it, or unset {source}"))?;
    let rendered = render_template(&path, &text, node, bootstrap)?;
    info!("the bootstrap is rendered from {path} ({source})");
    Ok((if is_yaml(&path) { "envoy-rev.yaml" } else { "envoy-rev.json" }, rendered))
}

fn write_grpc_bootstrap(node: &Node, socket: &Path, flags: &Flags) -> anyhow::Result<()> {
    let path = flags.get(flags::GRPC_XDS_BOOTSTRAP);
    if path.is_empty() {
        return Ok(());
    }
    let directory = flags.get(flags::OUTPUT_CERTS);
    let certificates = (!directory.is_empty()).then(|| CertificateDirectory(directory.to_owned()));
    let socket = std::path::absolute(socket)?;
    let bootstrap = grpc_bootstrap(node, &socket.to_string_lossy(), certificates.as_ref());
    if let Some(parent) = Path::new(path).parent() {
        fs::create_dir_all(parent)?;
    }
    crate::files::write_private(Path::new(path), &serde_json::to_vec_pretty(&bootstrap)?)
        .with_context(|| format!("GRPC_XDS_BOOTSTRAP: {path}"))
}

fn supervisor(
    node: &Node,
    args: &ProxyArgs,
    admin: SocketAddr,
    user: Option<u32>,
    flags: &Flags,
    bootstrap: String,
) -> SupervisorSettings {
    let config = &node.config.message;
    let launch = LaunchSettings {
        bootstrap,
        overrides: read_override(flags),
        addresses: node.metadata.instance_ips.0.clone(),
        log_level: args.proxy_log_level.clone(),
        component_log_level: args.proxy_component_log_level.clone(),
        skip_deprecated_logs: flags.get(flags::ENVOY_SKIP_DEPRECATED_LOGS),
        core_dump: flags.get(flags::ISTIO_ENVOY_ENABLE_CORE_DUMP),
    };
    let until_idle = flags.get(flags::EXIT_ON_ZERO_ACTIVE_CONNECTIONS);
    SupervisorSettings {
        binary: config.binary_path.clone(),
        arguments: envoy_arguments(config, &launch),
        inbound_only: args.role == Role::Sidecar,
        drain: duration(config.termination_drain_duration.as_ref()),
        until_idle: until_idle.then(|| flags.get(flags::MINIMUM_DRAIN_DURATION)),
        own_listeners: drain::own_listeners(
            node.metadata.envoy_status_port,
            node.metadata.envoy_prometheus_port,
            admin.port(),
        ),
        user,
        restarts: u32::try_from(flags.get(flags::CANOPUS_ENVOY_RESTARTS)).unwrap_or_default(),
    }
}

/// Parity: an override that cannot be read is reported and left out.
fn read_override(flags: &Flags) -> Option<String> {
    let path = flags.get(flags::ISTIO_BOOTSTRAP_OVERRIDE);
    if path.is_empty() {
        return None;
    }
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => {
            warn!("ISTIO_BOOTSTRAP_OVERRIDE: {path}: {error}; it is left out");
            return None;
        }
    };
    let host = flags.variable("HOST_IP").unwrap_or_default();
    let json = overrides::to_json(&text, host);
    json.inspect_err(|error| warn!("ISTIO_BOOTSTRAP_OVERRIDE: {path}: {error}; it is left out")).ok()
}

/// The settings of the bootstrap that are variables.
fn bootstrap_settings(flags: &Flags, log_as_json: bool) -> BootstrapSettings {
    BootstrapSettings {
        delta_xds: flags.get(flags::ISTIO_DELTA_XDS),
        dual_stack: flags.get(flags::ISTIO_DUAL_STACK),
        status_proxy_protocol: flags.get(flags::ENVOY_STATUS_PORT_ENABLE_PROXY_PROTOCOL),
        strip_fragment: flags.get(flags::HTTP_STRIP_FRAGMENT_FROM_PATH_UNSAFE_IF_DISABLED),
        compliance_policy: flags.get(flags::COMPLIANCE_POLICY).to_owned(),
        log_as_json,
        host_ip: flags.variable("HOST_IP").unwrap_or_default().to_owned(),
    }
}

/// A duration of the proxy configuration.
fn duration(duration: Option<&google::protobuf::Duration>) -> Duration {
    let Some(duration) = duration else { return Duration::ZERO };
    let nanos = u32::try_from(duration.nanos).unwrap_or_default();
    Duration::new(u64::try_from(duration.seconds).unwrap_or_default(), nanos)
}
