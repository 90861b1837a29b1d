//! `canopus up`.

use std::io::{self, BufRead as _, BufReader, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context as _, Result, bail};
use canopus_local::state::State;
use canopus_local::supervisor::{self, Front, Options};
use canopus_local::{control, picture, view};

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
    #[arg(long, conflicts_with_all = ["detach", "tour", "no_view"])]
    attach: bool,
    /// Run in the background, and return when everything is ready.
    #[arg(long, short, conflicts_with = "tour")]
    detach: bool,
    /// Tell what happens line by line instead of showing the live view.
    #[arg(long)]
    no_view: bool,
    /// Take the mesh's tour, tell it line by line, and end.
    #[arg(long)]
    tour: bool,
    /// Write the live view of a mesh that runs as a picture (SVG), and end.
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
    /// Leave the session of the terminal.
    #[arg(long, hide = true)]
    new_session: bool,
}

pub(crate) fn run(arguments: &Arguments) -> ExitCode {
    let done = if arguments.attach {
        attach(arguments)
    } else if arguments.detach {
        detach(arguments)
    } else {
        supervise(arguments)
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
            let text = picture::draw_mesh(&control::settled_snapshot(&state)?);
            std::fs::write(path, text).with_context(|| path.display().to_string())
        }
        None if io::stdout().is_terminal() => view::run(&state, false),
        None => bail!("the live view needs a terminal; `canopus status` prints how the mesh is"),
    }
}

fn supervise(arguments: &Arguments) -> Result<()> {
    if arguments.new_session {
        nix::unistd::setsid().context("a session of its own")?;
    }
    let options = Options {
        directory: arguments.directory.clone(),
        state: arguments.state.clone(),
        envoy: arguments.envoy.clone(),
        loopback: arguments.loopback,
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

/// Whoever reads the lines may have gone away.
fn tell(line: &str) {
    let _ = writeln!(io::stdout().lock(), "{line}");
}

/// Starts another process for the mesh, and passes its lines on until it is ready.
fn detach(arguments: &Arguments) -> Result<()> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["up", "--no-view", "--new-session"]).arg(&arguments.directory);
    for (flag, value) in [("--envoy", &arguments.envoy), ("--state", &arguments.state)] {
        if let Some(value) = value {
            command.arg(flag).arg(value);
        }
    }
    if arguments.loopback {
        command.arg("--loopback");
    }
    // Nothing of it may keep the streams of this process open: whoever reads them waits for their end.
    let (output, input) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(input.try_clone()?).stderr(input);
    let mut child = command.spawn().context("canopus up")?;
    drop(command);
    let lines = BufReader::new(output).lines();
    for line in lines.map_while(Result::ok) {
        tell(&line);
        if line.contains(": ready after ") {
            return Ok(());
        }
    }
    let status = child.wait()?;
    bail!("the mesh could not be started ({status})")
}
