//! `canopus-agent proxy`: everything together.
//!
//! It runs in two steps. [`Prepared`] is what has to be known; [`serve`] goes on from there, in a process that has forgotten
//! how it was found out.
//!
//! Order matters in two places. The sockets for Envoy are bound before Envoy starts, so that it never meets a missing one.
//! Envoy is started before there is a certificate or a control plane: it waits for both by itself, and its readiness says
//! what is missing.

mod arguments;
mod inputs;
mod prepared;
mod servers;
mod settings;

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use canopus_runtime::flags::{self, Flags};
use canopus_runtime::metrics::{Registry, catalogue, register_process};
use canopus_runtime::shutdown::Shutdown;
use canopus_runtime::tasks::{Tasks, panics};
use tokio::signal::unix::{SignalKind, signal};
use tracing::info;

pub use arguments::{ProxyArgs, Role};
pub use prepared::Prepared;
use servers::StatusSources;
use settings::Settings;

use crate::bootstrap::FILE_CREDENTIAL_SOCKET;
use crate::certificates::revocations::RevocationFile;
use crate::certificates::stored::IdentityStore;
use crate::certificates::{self, Secrets, files};
use crate::dns::NameServer;
use crate::envoy::{Admin, Control, Request, supervise};
use crate::last_good::open_or_warn;
use crate::sds::{self, Content};
use crate::xds_proxy::{LocalTypes, NameTableSink, XdsProxy, XdsProxyParts};

/// Runs until Envoy or a signal ends it. The result is the exit code.
pub async fn serve(prepared: &Prepared, flags: &Flags) -> anyhow::Result<u8> {
    let settings = Settings::new(prepared, flags)?;
    let registry = Arc::new(Registry::with_prefix("istio_agent_"));
    register_process(&registry);
    registry.collect(|collected| {
        for (task, panics) in panics() {
            collected.push(catalogue::CANOPUS_TASK_PANICS_TOTAL, [&*task], panics as f64);
        }
    });
    let control = Arc::new(Control::default());
    let shutdown = Shutdown::new();
    let tasks = Tasks::new(shutdown.clone());
    follow_signals(&control, &tasks)?;

    let secrets = Arc::new(Secrets::default());
    start_certificates(prepared, &settings, &secrets, &registry, &tasks)?;
    let names = start_names(&settings, &registry, &tasks).await?;
    let admin = prepared.envoy.is_some().then(|| Admin::new(prepared.admin));
    let readiness = servers::readiness(flags, admin, names.as_ref(), &registry);
    let state = settings.last_good.as_ref().and_then(|state| open_or_warn(state, &registry)).map(Arc::new);
    let envoy = admin.is_some().then(|| Arc::clone(&readiness));
    let parts = XdsProxyParts {
        local: LocalTypes {
            names: names.clone().map(name_table_sink),
            roots: flags.get(flags::PROXY_CONFIG_XDS_AGENT).then(|| Arc::clone(&secrets)),
        },
        wasm: servers::start_wasm(&settings, state.clone(), &registry, &tasks),
        state,
        health: servers::start_health(&prepared.readiness_probe, flags, envoy, &tasks)?,
    };
    let xds = XdsProxy::new(settings.xds.clone(), parts, &registry);
    let listener = sds::bind(&settings.xds.socket)
        .with_context(|| format!("cannot serve xDS on {}", settings.xds.socket.display()))?;
    tasks.spawn("xDS for Envoy", Arc::clone(&xds).serve(listener));
    servers::follow_root(&settings, &xds, &tasks);

    let status =
        StatusSources { admin, names, readiness, xds: Arc::clone(&xds), control: Arc::clone(&control) };
    servers::start_status(prepared, flags, status, &registry, &tasks).await?;
    servers::start_token_exchange(prepared.sts_port, flags, &tasks).await?;
    let code = tokio::select! {
        code = run_envoy(prepared, &control) => code?,
        never = terminate_on_failure(&shutdown, &control) => match never {},
    };
    // Only a task without which the agent is of no use stops it this way.
    Ok(if shutdown.is_stopping() { code.max(1) } else { code })
}

/// Runs Envoy, if there is one, until it ends or the agent is asked to end. The result is the exit code.
async fn run_envoy(prepared: &Prepared, control: &Arc<Control>) -> anyhow::Result<u8> {
    let Some(supervisor) = &prepared.envoy else {
        info!("there is no Envoy to run; serving until a signal comes");
        control.ending().await;
        return Ok(0);
    };
    supervise(supervisor, &Admin::new(prepared.admin), control)
        .await
        .with_context(|| format!("cannot start Envoy ({})", supervisor.binary))
}

/// Ends as a signal would when a task panics that the agent cannot do without: whoever started it starts it again, whole.
async fn terminate_on_failure(shutdown: &Shutdown, control: &Control) -> Infallible {
    shutdown.requested().await;
    control.ask(Request::Terminate);
    std::future::pending().await
}

fn follow_signals(control: &Arc<Control>, tasks: &Tasks) -> io::Result<()> {
    for kind in [SignalKind::terminate(), SignalKind::interrupt()] {
        let mut signals = signal(kind)?;
        let control = Arc::clone(control);
        tasks.spawn("signals", async move {
            while signals.recv().await.is_some() {
                info!("a signal asks to terminate");
                control.ask(Request::Terminate);
            }
        });
    }
    Ok(())
}

/// Serves names, if queries of the workload come here.
async fn start_names(
    settings: &Settings,
    registry: &Registry,
    tasks: &Tasks,
) -> anyhow::Result<Option<Arc<NameServer>>> {
    match &settings.dns {
        Some(dns) => Ok(Some(NameServer::start(dns, registry, tasks).await?)),
        None => Ok(None),
    }
}

fn name_table_sink(names: Arc<NameServer>) -> NameTableSink {
    Arc::new(move |table| names.set_table(table))
}

/// Serves the workload's certificate, unless another process does. Files are the agent's in any case.
fn start_certificates(
    prepared: &Prepared,
    settings: &Settings,
    secrets: &Arc<Secrets>,
    registry: &Arc<Registry>,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let (named, quiet) = (Arc::clone(secrets), settings.file_quiet);
    tasks.supervise("files that secrets name", move || files::follow_named(Arc::clone(&named), quiet));
    register_expiry(registry, secrets);
    if prepared.identity_is_served {
        info!("{} is served by another process; its certificates are used", settings.sds_socket.display());
        return serve_secrets(Path::new(FILE_CREDENTIAL_SOCKET), secrets, Content::Files, tasks);
    }
    if let Some(path) = settings.revocations.clone() {
        let file = RevocationFile::open(path, Arc::clone(secrets));
        tasks.supervise("revocation lists", move || file.clone().follow(quiet));
    }
    if let Some(mounted) = settings.mounted.clone() {
        let secrets = Arc::clone(secrets);
        tasks.supervise("mounted certificates", move || {
            files::follow(mounted.clone(), quiet, Arc::clone(&secrets))
        });
    } else {
        let stored = settings
            .last_good
            .as_ref()
            .map(|state| IdentityStore::new(&state.directory, &settings.renewal.identity));
        let (authority, renewal) = (settings.authority.clone(), settings.renewal.clone());
        let secrets = Arc::clone(secrets);
        tasks.supervise("the workload's certificate", move || {
            certificates::renew(
                authority.clone(),
                renewal.clone(),
                stored.clone(),
                Arc::clone(&secrets),
                Arc::new(SystemTime::now),
            )
        });
    }
    serve_secrets(&settings.sds_socket, secrets, Content::Workload, tasks)
}

/// Registers how long the workload's certificate counts, which is negative once it has expired.
fn register_expiry(registry: &Registry, secrets: &Arc<Secrets>) {
    let secrets = Arc::clone(secrets);
    registry.collect(move |collected| {
        let Some(identity) = secrets.identity() else { return };
        let left = match identity.expires.duration_since(SystemTime::now()) {
            Ok(left) => left.as_secs_f64(),
            Err(expired) => -expired.duration().as_secs_f64(),
        };
        collected.push(catalogue::CERT_EXPIRY_SECONDS, ["default"], left);
    });
}

fn serve_secrets(
    socket: &Path,
    secrets: &Arc<Secrets>,
    content: Content,
    tasks: &Tasks,
) -> anyhow::Result<()> {
    let listener =
        sds::bind(socket).with_context(|| format!("cannot serve certificates on {}", socket.display()))?;
    tasks.spawn("secrets for Envoy", sds::serve(listener, Arc::clone(secrets), content));
    Ok(())
}
