//! `canopus up`.

use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use canopus_local::state::State;
use canopus_local::supervisor::{self, Front, Options, Start};
use canopus_local::{control, picture, view};
use canopus_runtime::flags::Flags;

use crate::exit;
use crate::output::say;

/// Run a mesh on this machine: canopusd, your programs as workloads, a proxy beside each.
#[derive(clap::Args, Debug)]
#[command(after_help = "\
Examples:
  sudo canopus up                     run the mesh of ./mesh.yaml and show it; q ends it
  sudo canopus up --detach shop       run the mesh of shop/mesh.yaml in the background
  sudo canopus up --attach shop       show one that runs; q leaves it running
  sudo canopus up --tour shop         take the mesh's tour without a terminal; the status says how it went")]
pub(crate) struct Arguments {
    /// Directory with mesh.yaml.
    #[arg(value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Show a mesh that runs already.
    #[arg(long, conflicts_with_all = ["detach", "no_view"])]
    attach: bool,
    /// Run in the background, and return when everything is ready or something cannot be; the status says which.
    #[arg(long, short, conflicts_with = "tour")]
    detach: bool,
    /// Tell what happens line by line instead of showing the live view.
    #[arg(long)]
    no_view: bool,
    /// Take the mesh's tour, tell it line by line, and end.
    #[arg(long)]
    tour: bool,
    /// Write the live view of a mesh that runs as a picture (SVG), and end; with --tour a moving one of the whole tour.
    #[arg(long, value_name = "FILE", requires = "attach")]
    picture: Option<PathBuf>,
    /// Envoy, if it is not on PATH.
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
    /// Where the state is kept; DIR/.canopus if nothing is said.
    #[arg(long, value_name = "DIR")]
    state: Option<PathBuf>,
    /// Use loopback mode even where network namespaces are permitted.
    #[arg(long)]
    loopback: bool,
    /// How long the mesh may take to become ready before it is said what keeps it.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    timeout: u64,
    /// Leave the session of the terminal.
    #[arg(long, hide = true)]
    new_session: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let began = Instant::now();
    let done = if arguments.attach {
        attach(arguments)
    } else if arguments.detach {
        detach(arguments)
    } else {
        supervise(arguments, began)
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => say(&format!("Error: {error:#}\n"), exit::FAILURE),
    }
}

fn state(arguments: &Arguments) -> Result<State> {
    State::locate(&arguments.directory, arguments.state.as_deref())
}

fn attach(arguments: &Arguments) -> Result<()> {
    let state = state(arguments)?;
    match &arguments.picture {
        Some(path) => {
            let snapshots = match arguments.tour {
                true => control::record_tour(&state)?,
                false => vec![control::settled_snapshot(&state)?],
            };
            let text = picture::draw_mesh(&snapshots);
            std::fs::write(path, text).with_context(|| path.display().to_string())
        }
        None if arguments.tour => {
            bail!(
                "--attach --tour writes a picture: name its file with --picture; the keys of the view take single steps"
            )
        }
        None if io::stdout().is_terminal() => view::run(&state, false),
        None => bail!("the live view needs a terminal; `canopus status` prints how the mesh is"),
    }
}

fn supervise(arguments: &Arguments, began: Instant) -> Result<()> {
    if arguments.new_session {
        nix::unistd::setsid().context("a session of its own")?;
    }
    let options = Options {
        directory: arguments.directory.clone(),
        state: arguments.state.clone(),
        envoy: arguments.envoy.clone(),
        loopback: arguments.loopback,
        service_manager: Flags::from_env().variable("NOTIFY_SOCKET").map(str::to_owned),
        began,
        patience: Duration::from_secs(arguments.timeout),
    };
    let prepared = supervisor::prepare(&options)?;
    for note in &prepared.notes {
        tell(note);
    }
    let front = if arguments.tour {
        Front::Tour
    } else if arguments.no_view || !io::stdout().is_terminal() {
        Front::Lines
    } else {
        let state = state(arguments)?;
        Front::View(Box::new(move || view::run(&state, true)))
    };
    supervisor::run(prepared, front, &mut tell)
}

/// The reader of the lines may have closed the pipe.
fn tell(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Starts another process for the mesh, and passes its lines on until it is ready or says why it is not.
fn detach(arguments: &Arguments) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["up", "--no-view", "--new-session"]).arg(&arguments.directory);
    command.arg("--timeout").arg(arguments.timeout.to_string());
    for (flag, value) in [("--envoy", &arguments.envoy), ("--state", &arguments.state)] {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    if arguments.loopback {
        command.arg("--loopback");
    }
    // The child must not inherit the streams of this process: a reader of them waits for their end.
    let (output, input) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let mut child = command.spawn().context("canopus up")?;
    drop(command);
    let lines = BufReader::new(output).lines();
    for line in lines.map_while(Result::ok) {
        tell(&line);
        match Start::parse(&line) {
            Some(Start::Ready) => return Ok(()),
            Some(Start::NotReady) => bail!(
                "not everything is ready, and the mesh goes on trying; `canopus status` tells how it is, `canopus down` ends it"
            ),
            None => {}
        }
    }
    let status = child.wait()?;
    bail!("the mesh could not be started ({status})")
}
