//! The live view: a mesh on a terminal.
//!
//! It asks the mesh over its control socket like any other client, whether the mesh runs in the same process or not, so what is
//! shown is what `canopus status -o json` prints. Drawing is a pure function of a snapshot ([`draw`]), which pictures share.

mod draw;

use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};

use crate::control::{self, Command};
use crate::snapshot::Snapshot;
use crate::state::State;

pub(crate) use draw::draw;

/// How often the mesh is asked and the screen drawn.
const TICK: Duration = Duration::from_millis(500);

/// What the viewer has chosen to see.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chosen {
    /// Whether the view belongs to the mesh: leaving it ends the mesh.
    pub(crate) ends_mesh: bool,
    /// Whether the objects of the tour's step have the screen for themselves.
    pub(crate) objects_alone: bool,
    /// The answer to the last key.
    pub(crate) words: String,
}

/// Shows the mesh of a state directory until `q` is pressed or it ends.
pub fn run(state: &State, ends_mesh: bool) -> Result<()> {
    let mut terminal = ratatui::try_init().context("the terminal")?;
    let shown = show(&mut terminal, state, ends_mesh);
    ratatui::restore();
    shown
}

fn show(terminal: &mut ratatui::DefaultTerminal, state: &State, ends_mesh: bool) -> Result<()> {
    let mut chosen = Chosen { ends_mesh, ..Chosen::default() };
    let mut answers: Option<Receiver<String>> = None;
    loop {
        // A mesh that does not answer any more has ended.
        let Ok(snapshot) = control::snapshot(state) else { return Ok(()) };
        if let Some(received) = answers.as_ref().map(Receiver::try_recv) {
            match received {
                Ok(words) => chosen.words = words,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => answers = None,
            }
        }
        terminal.draw(|frame| draw(frame, &snapshot, &chosen))?;
        if !event::poll(TICK)? {
            continue;
        }
        let Event::Key(key) = event::read()? else { continue };
        if key.kind != KeyEventKind::Press {
            continue;
        }
        let is_interrupt = key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
        if is_interrupt || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc) {
            return Ok(());
        }
        if key.code == KeyCode::Char('y') {
            chosen.objects_alone = !chosen.objects_alone;
        }
        if let Some(command) = command(key.code, &snapshot) {
            answers = Some(send(state, command));
        }
    }
}

/// What a key means.
fn command(key: KeyCode, snapshot: &Snapshot) -> Option<Command> {
    match key {
        KeyCode::Char('0') => Some(Command::EndTour),
        KeyCode::Char(digit) => {
            let number = usize::try_from(digit.to_digit(10)?).ok()?;
            let step = snapshot.tour.steps.get(number.checked_sub(1)?)?;
            Some(Command::Tour { step: step.name.clone() })
        }
        _ => None,
    }
}

/// Steps take seconds, so they are waited for elsewhere.
fn send(state: &State, command: Command) -> Receiver<String> {
    let (answered, answers) = mpsc::channel();
    let state = state.clone();
    thread::spawn(move || {
        let words = control::order(&state, &command).unwrap_or_else(|error| format!("{error:#}"));
        // The view may have been left.
        let _ = answered.send(words);
    });
    answers
}
