//! `canopus-agent proxy`: everything together.
//!
//! Order matters in two places. The sockets for Envoy are bound before Envoy starts, so that it never meets a missing one.
//! Envoy is started before there is a certificate or a control plane: it waits for both by itself, and its readiness says
//! what is missing.

mod arguments;
mod servers;
mod settings;

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use std::{fs, io};

use anyhow::Context as _;
use canopus_runtime::flags::{self, Flags};
use canopus_runtime::metrics::{Registry, catalogue, register_process};
use canopus_runtime::version::BuildInfo;
use tokio::signal::unix::{SignalKind, signal};
use tracing::{info, warn};

pub use arguments::{ProxyArgs, Role};
use servers::StatusSources;
use settings::Settings;

use crate::bootstrap::{
    BootstrapSettings, CertificateDirectory, grpc_bootstrap, is_yaml, overrides, render, render_template,
};
use crate::certificates::stored::IdentityStore;
use crate::certificates::{self, Secrets, files};
use crate::dns::NameServer;
use crate::envoy::command_line::{LaunchSettings, arguments as envoy_arguments};
use crate::envoy::{Admin, Control, Request, SupervisorSettings, drain, supervise};
use crate::last_good::open_or_warn;
use crate::sds;
use crate::xds_proxy::{LocalTypes, NameTableSink, XdsProxy, XdsProxyParts};

/// Runs until Envoy or a signal ends it. The result is the exit code.
pub async fn run(args: &ProxyArgs, flags: &Flags) -> anyhow::Result<u8> {
    info!("version {}", BuildInfo::current().long_form());
    let settings = Settings::read(args, flags).await?;
    let registry = Arc::new(Registry::with_prefix("istio_agent_"));
    register_process(&registry);
    let control = Arc::new(Control::default());
    follow_signals(&control)?;

    let secrets = Arc::new(Secrets::default());
    start_certificates(&settings, &secrets, &registry).await?;
    let names = start_names(&settings, &registry).await?;
    let admin = (!settings.without_envoy).then(|| Admin::new(settings.admin));
    let readiness = servers::readiness(admin, names.as_ref(), &registry);
    let parts = XdsProxyParts {
        local: LocalTypes {
            names: names.clone().map(name_table_sink),
            roots: flags.get(flags::PROXY_CONFIG_XDS_AGENT).then(|| Arc::clone(&secrets)),
        },
        state: settings.last_good.as_ref().and_then(|state| open_or_warn(state, &registry)).map(Arc::new),
        wasm: servers::start_wasm(&settings, &registry),
        health: servers::start_health(&settings, flags, admin.is_some().then(|| Arc::clone(&readiness)))?,
    };
    let xds = XdsProxy::new(settings.xds.clone(), parts, &registry);
    let listener = sds::bind(&settings.xds.socket)
        .with_context(|| format!("cannot serve xDS on {}", settings.xds.socket.display()))?;
    tokio::spawn(Arc::clone(&xds).serve(listener));
    servers::follow_root(&settings, &xds);

    let status =
        StatusSources { admin, names, readiness, xds: Arc::clone(&xds), control: Arc::clone(&control) };
    servers::start_status(&settings, flags, status, &registry).await?;
    servers::start_token_exchange(args.sts_port, flags).await?;
    if settings.without_envoy {
        write_grpc_bootstrap(&settings, flags)?;
        info!("there is no Envoy to run; serving until a signal comes");
        control.ending().await;
        return Ok(0);
    }
    let bootstrap = write_bootstrap(&settings, flags)?;
    let supervisor = supervisor(&settings, flags, bootstrap)?;
    supervise(&supervisor, &Admin::new(settings.admin), &control)
        .await
        .with_context(|| format!("cannot start Envoy ({})", supervisor.binary))
}

fn follow_signals(control: &Arc<Control>) -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let control = Arc::clone(control);
        tokio::spawn(async move {
            while signals.recv().await.is_some() {
                info!("a signal asks to terminate");
                control.ask(Request::Terminate);
            }
        });
    }
    Ok(())
}

/// Serves names, if queries of the workload come here.
async fn start_names(settings: &Settings, registry: &Registry) -> anyhow::Result<Option<Arc<NameServer>>> {
    match &settings.dns {
        Some(dns) => Ok(Some(NameServer::start(dns, registry).await?)),
        None => Ok(None),
    }
}

fn name_table_sink(names: Arc<NameServer>) -> NameTableSink {
    Arc::new(move |table| names.set_table(table))
}

/// Serves the workload's certificate, unless another process does.
async fn start_certificates(
    settings: &Settings,
    secrets: &Arc<Secrets>,
    registry: &Arc<Registry>,
) -> anyhow::Result<()> {
    if sds::is_served(&settings.sds_socket).await {
        info!("{} is served by another process; its certificates are used", settings.sds_socket.display());
        return Ok(());
    }
    if let Some(mounted) = settings.mounted.clone() {
        tokio::spawn(files::follow(mounted, settings.file_quiet, Arc::clone(secrets)));
    } else {
        let expiry = registry.family(catalogue::CERT_EXPIRY_SECONDS).with(["default"]);
        let stored = settings
            .last_good
            .as_ref()
            .map(|state| IdentityStore::new(&state.directory, &settings.renewal.identity));
        let renewal = certificates::renew(
            settings.authority.clone(),
            settings.renewal.clone(),
            stored,
            Arc::clone(secrets),
            expiry,
            Arc::new(SystemTime::now),
        );
        tokio::spawn(renewal);
    }
    let listener = sds::bind(&settings.sds_socket)
        .with_context(|| format!("cannot serve certificates on {}", settings.sds_socket.display()))?;
    tokio::spawn(sds::serve(listener, Arc::clone(secrets)));
    Ok(())
}

fn write_bootstrap(settings: &Settings, flags: &Flags) -> anyhow::Result<String> {
    let directory = &settings.node.config.message.config_path;
    fs::create_dir_all(directory).with_context(|| format!("configPath: {directory}"))?;
    let bootstrap = settings::bootstrap_settings(flags, settings.log_as_json);
    let rendered = render(&settings.node, &bootstrap)?;
    if let Some((path, token)) = &rendered.token_file {
        crate::files::write_private(Path::new(path), token.as_bytes()).with_context(|| path.clone())?;
    }
    let (name, text) = bootstrap_text(settings, flags, &bootstrap, &rendered.bootstrap)?;
    let path = format!("{directory}/{name}");
    crate::files::write_private(Path::new(&path), &text)
        .with_context(|| format!("the bootstrap cannot be written to {path}"))?;
    if settings.user.is_some() {
        std::os::unix::fs::chown(&path, settings.user, settings.user).with_context(|| path.clone())?;
    }
    Ok(path)
}

/// The template to render in the place of the built-in bootstrap, and where it is named. Parity: the variable wins.
fn template_path(settings: &Settings, flags: &Flags) -> Option<(&'static str, String)> {
    let config = &settings.node.config.message;
    let named = [
        ("ISTIO_BOOTSTRAP", flags.get(flags::ISTIO_BOOTSTRAP)),
        ("customConfigFile", config.custom_config_file.as_str()),
        ("proxyBootstrapTemplatePath", config.proxy_bootstrap_template_path.as_str()),
    ];
    named.into_iter().find(|(_, path)| !path.is_empty()).map(|(source, path)| (source, path.to_owned()))
}

/// The bootstrap and the name of its file, by whose ending Envoy knows the format.
fn bootstrap_text(
    settings: &Settings,
    flags: &Flags,
    bootstrap: &BootstrapSettings,
    built_in: &serde_json::Value,
) -> anyhow::Result<(&'static str, Vec<u8>)> {
    let Some((source, path)) = template_path(settings, flags) else {
        return Ok(("envoy-rev.json", serde_json::to_vec(built_in)?));
    };
    let text = fs::read_to_string(&path)
        .with_context(|| format!("{source}: bootstrap template {path}: mount it, or unset {source}"))?;
    let rendered = render_template(&path, &text, &settings.node, bootstrap)?;
    info!("the bootstrap is rendered from {path} ({source})");
    Ok((if is_yaml(&path) { "envoy-rev.yaml" } else { "envoy-rev.json" }, rendered))
}

fn write_grpc_bootstrap(settings: &Settings, flags: &Flags) -> anyhow::Result<()> {
    let path = flags.get(flags::GRPC_XDS_BOOTSTRAP);
    if path.is_empty() {
        return Ok(());
    }
    let directory = flags.get(flags::OUTPUT_CERTS);
    let certificates = (!directory.is_empty()).then(|| CertificateDirectory(directory.to_owned()));
    let socket = std::path::absolute(&settings.xds.socket)?;
    let bootstrap = grpc_bootstrap(&settings.node, &socket.to_string_lossy(), certificates.as_ref());
    if let Some(parent) = Path::new(path).parent() {
        fs::create_dir_all(parent)?;
    }
    crate::files::write_private(Path::new(path), &serde_json::to_vec_pretty(&bootstrap)?)
        .with_context(|| format!("GRPC_XDS_BOOTSTRAP: {path}"))
}

fn supervisor(settings: &Settings, flags: &Flags, bootstrap: String) -> anyhow::Result<SupervisorSettings> {
    let config = &settings.node.config.message;
    let launch = LaunchSettings {
        bootstrap,
        overrides: read_override(flags),
        addresses: settings.node.metadata.instance_ips.0.clone(),
        log_level: settings.proxy_log_level.clone(),
        component_log_level: settings.proxy_component_log_level.clone(),
        skip_deprecated_logs: flags.get(flags::ENVOY_SKIP_DEPRECATED_LOGS),
        core_dump: flags.get(flags::ISTIO_ENVOY_ENABLE_CORE_DUMP),
    };
    let until_idle = flags.get(flags::EXIT_ON_ZERO_ACTIVE_CONNECTIONS);
    Ok(SupervisorSettings {
        binary: config.binary_path.clone(),
        arguments: envoy_arguments(config, &launch),
        inbound_only: settings.role == Role::Sidecar,
        drain: settings::duration(config.termination_drain_duration.as_ref()),
        until_idle: until_idle.then(|| flags.get(flags::MINIMUM_DRAIN_DURATION)),
        own_listeners: drain::own_listeners(
            settings.node.metadata.envoy_status_port,
            settings.node.metadata.envoy_prometheus_port,
            settings.admin.port(),
        ),
        user: settings.user,
        restarts: u32::try_from(flags.get(flags::CANOPUS_ENVOY_RESTARTS)).unwrap_or_default(),
    })
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
