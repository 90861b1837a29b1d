//! Envoy as a child: started, watched, drained and ended.
//!
//! The agent ends with its Envoy, whoever ends first: Envoy's end is the agent's (kubelet or systemd start both again, with
//! their back-off), and the kernel kills an Envoy whose agent is gone ([`launch`]).
//!
//! ```text
//!  SIGTERM, SIGINT ──► drain listeners ──► wait ──► kill       /quitquitquit ──► kill
//!  /drain          ──► drain listeners ... SIGTERM ──► kill    Envoy ends    ──► the agent ends
//! ```

pub mod admin;
pub mod command_line;
pub mod drain;
pub mod launch;
mod output;

use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;
use std::{env, io};

use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};
use tokio::sync::{oneshot, watch};
use tracing::{error, info, warn};

pub use admin::Admin;
use drain::wait_for_connections;
use output::LastLines;

use crate::backoff::Backoff;

/// How long what Envoy has written is waited for after its end.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What the supervisor has to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SupervisorSettings {
    /// The binary.
    pub binary: String,
    /// Command line arguments for Envoy.
    pub arguments: Vec<String>,
    /// Whether only inbound listeners are drained, as for sidecars.
    pub inbound_only: bool,
    /// How long to wait after listeners began to drain.
    pub drain: Duration,
    /// `EXIT_ON_ZERO_ACTIVE_CONNECTIONS` and `MINIMUM_DRAIN_DURATION`.
    pub until_idle: Option<Duration>,
    /// Listeners that do not count when connections are counted, by prefix of their statistics.
    pub own_listeners: Vec<String>,
    /// The user Envoy runs as, if it is not the agent's.
    pub user: Option<u32>,
    /// How often a crashed Envoy is started again before the agent ends with it.
    pub restarts: u32,
}

/// What may be asked of the supervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Request {
    /// Go on.
    #[default]
    Run,
    /// Drain, wait, and end.
    Terminate,
    /// End now.
    Quit,
}

/// The supervisor's ear: requests, and whether listeners were drained before.
#[derive(Debug, Default)]
pub struct Control {
    request: watch::Sender<Request>,
    drained: watch::Sender<bool>,
}

impl Control {
    /// Asks for something. The more urgent of two requests counts.
    pub fn ask(&self, request: Request) {
        self.request.send_if_modified(|current| {
            let urgent = request == Request::Quit || *current == Request::Run;
            if urgent {
                *current = request;
            }
            urgent
        });
    }

    /// Whether the agent is about to end.
    pub fn is_ending(&self) -> bool {
        *self.request.borrow() != Request::Run
    }

    /// Listeners are drained already; the next request to terminate ends Envoy at once.
    pub fn set_drained(&self) {
        self.drained.send_replace(true);
    }

    /// Waits until the agent is to end.
    pub async fn ending(&self) {
        // The sender lives as long as this.
        let _ = self.request.subscribe().wait_for(|request| *request != Request::Run).await;
    }

    async fn quitting(&self) {
        let _ = self.request.subscribe().wait_for(|request| *request == Request::Quit).await;
    }
}

/// Runs Envoy until it ends or is to end. The result is the exit code for the agent.
pub async fn supervise(
    settings: &SupervisorSettings,
    admin: &Admin,
    control: &Arc<Control>,
) -> io::Result<u8> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
    let mut restarts = settings.restarts;
    loop {
        let (mut child, lines, output) = start(settings)?;
        tokio::select! {
            status = child.wait() => {
                let status = status?;
                // Envoy's last words are still on their way. Whatever it started may hold its output open for longer.
                if let Some(output) = output {
                    let _ = tokio::time::timeout(LAST_WORDS, output).await;
                }
                report(status, &lines);
                if status.success() || restarts == 0 {
                    return Ok(exit_code(status));
                }
            }
            () = control.ending() => {
                terminate(settings, admin, control, &mut child).await;
                return Ok(0);
            }
        }
        restarts -= 1;
        let wait = backoff.wait();
        warn!("Envoy is started again in {wait:.1?}; {restarts} more starts are left");
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = control.ending() => return Ok(0),
        }
    }
}

fn start(settings: &SupervisorSettings) -> io::Result<(Child, LastLines, Option<oneshot::Receiver<()>>)> {
    let mut command = Command::new(env::current_exe()?);
    command.arg(launch::SUBCOMMAND).arg(std::process::id().to_string());
    command.arg(settings.user.map_or("-".to_owned(), |user| user.to_string()));
    command.arg(&settings.binary).args(&settings.arguments);
    info!("Envoy command: {} {}", settings.binary, settings.arguments.join(" "));
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
    let lines = LastLines::default();
    let output = child.stderr.take().map(|stderr| lines.follow(stderr));
    Ok((child, lines, output))
}

fn report(status: ExitStatus, lines: &LastLines) {
    use std::os::unix::process::ExitStatusExt as _;
    if status.success() {
        return info!("Envoy exited normally");
    }
    if status.signal() == Some(9) {
        warn!("Envoy was killed; if memory ran out, check its use and limits");
    }
    error!("Envoy exited: {status}; the last lines it wrote:");
    for line in lines.text().lines() {
        error!("  {line}");
    }
}

fn exit_code(status: ExitStatus) -> u8 {
    status.code().map_or(1, |code| u8::try_from(code).unwrap_or(1))
}

async fn terminate(settings: &SupervisorSettings, admin: &Admin, control: &Control, child: &mut Child) {
    let is_quit = *control.request.borrow() == Request::Quit;
    if is_quit || *control.drained.borrow() {
        info!("nothing is left to drain; Envoy ends now");
    } else {
        if let Err(error) = admin.drain(settings.inbound_only, false).await {
            warn!("listeners cannot be drained: {error}");
        }
        let waiting = async {
            match settings.until_idle {
                Some(least) => {
                    info!("draining for {least:?}, then until connections end");
                    tokio::time::sleep(least).await;
                    wait_for_connections(admin, &settings.own_listeners).await;
                }
                None => {
                    info!("draining for {:?}", settings.drain);
                    tokio::time::sleep(settings.drain).await;
                }
            }
        };
        tokio::select! {
            () = waiting => {}
            () = control.quitting() => info!("asked to quit while draining"),
            status = child.wait() => {
                return info!("Envoy ended while draining: {}", status.map_or_else(|error| error.to_string(), |status| status.to_string()));
            }
        }
    }
    if let Err(error) = child.kill().await {
        warn!("Envoy cannot be killed: {error}");
    }
    info!("Envoy has ended");
}
