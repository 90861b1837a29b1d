//! Rounds of scenarios.

mod break_point;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use canopus_xds::session::Protocol;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use parking_lot::Mutex;

use crate::client::Record;
use crate::figure::Figure;
use crate::fixture::FleetKind;
use crate::floor::{self, Load};
use crate::gate::Picture;
use crate::options::{Options, Output};
use crate::plot;
use crate::report::{Measurement, Report};
use crate::scale::Scale;
use crate::scenario::Scenario;
use crate::stage::{Stage, World};
use crate::subject::{Launch, Subject};

/// Settings that make istiod quickest.
const TUNED: [(&str, &str); 3] = [
    ("PILOT_MAX_REQUESTS_PER_SECOND", "10000"),
    ("PILOT_PUSH_THROTTLE", "100"),
    ("PILOT_DEBOUNCE_AFTER", "1ms"),
];

/// Settings of a mesh with waypoints that the rig itself looks after: subjects neither deploy them nor report on them.
const REAL: [(&str, &str); 4] = [
    ("PILOT_ENABLE_AMBIENT", "true"),
    ("PILOT_ENABLE_GATEWAY_API_DEPLOYMENT_CONTROLLER", "false"),
    ("PILOT_ENABLE_GATEWAY_API_GATEWAYCLASS_CONTROLLER", "false"),
    ("PILOT_ENABLE_GATEWAY_API_STATUS", "false"),
];

/// Does what the options say and shows the figures.
pub async fn run(options: &Options) -> Result<()> {
    if let Some([port, connections, bytes]) = options.floor_writer.as_deref() {
        let load = Load { connections: *connections, bytes: *bytes };
        return floor::write(u16::try_from(*port)?, load).await;
    }
    raise_file_limit()?;
    if options.break_point {
        show(&break_point::search(options).await?);
        return Ok(());
    }
    let report = match &options.show {
        Some(file) => Report::read(file)?,
        None => play(options).await?,
    };
    if let Some(file) = &options.save {
        report.write(file)?;
    }
    if let Some(file) = &options.plot {
        std::fs::write(file, plot::draw(&report)).with_context(|| format!("writing {}", file.display()))?;
    }
    show(&match options.output {
        Output::Table => report.table(),
        Output::Markdown => report.markdown(),
        Output::Json => report.json()?,
    });
    Ok(())
}

async fn play(options: &Options) -> Result<Report> {
    let fixture = options.fixture();
    let launches: Vec<Launch> =
        options.subjects().into_iter().map(|subject| launch(options, subject)).collect::<Result<_>>()?;
    tell(&format!("starting a Kubernetes API server with {} services", fixture.services));
    let world = World::start(fixture).await?;
    let rounds = options.rounds.unwrap_or(if options.quick { 1 } else { 3 });
    let mut report = Report::new(fixture, options);
    // What was learnt of resources serves all subjects and rounds.
    let record = Arc::new(Mutex::new(Record::default()));
    for launch in &launches {
        // A first start makes keys and fills caches, which is nothing to measure.
        stage(&world, launch, options, &record)?.fresh().await?;
    }
    for round in 0..rounds {
        let mut pictures: Vec<(Scenario, Subject, Picture)> = Vec::new();
        for launch in &launches {
            let mut stage = stage(&world, launch, options, &record)?;
            for scenario in options.scenarios() {
                tell(&format!("round {}: {}, {}", round + 1, launch.subject.name(), scenario.title()));
                let figures = measure(&mut stage, scenario)
                    .await
                    .with_context(|| format!("{} with {}", scenario.title(), launch.subject.name()))?;
                for figure in &figures {
                    tell(&format!("  {}: {}", figure.name, figure.shown()));
                }
                report.add(Measurement { scenario, subject: launch.subject, round, figures });
                if scenario.ends_connected() {
                    pictures.push((scenario, launch.subject, Picture::new(stage.fleet()?)));
                }
            }
        }
        for (scenario, _, theirs) in pictures.iter().filter(|(_, subject, _)| *subject == Subject::Peer) {
            let ours = pictures.iter().find(|(which, who, _)| which == scenario && *who == Subject::Canopusd);
            if let Some((_, _, ours)) = ours {
                let verdict = ours.compare(theirs);
                tell(&format!("{}: {}", scenario.title(), verdict.line()));
                report.judge(*scenario, round, verdict);
            }
        }
    }
    Ok(report)
}

/// Plays a scenario; its figures, and how often generators ran for it if the subject tells.
async fn measure(stage: &mut Stage<'_>, scenario: Scenario) -> Result<Vec<Figure>> {
    if !scenario.starts_afresh() {
        stage.connected().await?;
    }
    let before = stage.waste().await;
    let mut figures = scenario.play(stage).await?;
    if let Some((process, after)) = stage.waste().await {
        let before = before.filter(|(earlier, _)| *earlier == process).map(|(_, waste)| waste);
        figures.extend(after.since(&before.unwrap_or_default()).figures());
    }
    Ok(figures)
}

fn stage<'a>(
    world: &'a World,
    launch: &Launch,
    options: &Options,
    record: &Arc<Mutex<Record>>,
) -> Result<Stage<'a>> {
    let protocol = if options.sotw { Protocol::Sotw } else { Protocol::Delta };
    let scale = if options.quick { Scale::QUICK } else { Scale::FULL };
    Stage::new(world, launch.clone(), scale, protocol, Arc::clone(record))
}

fn launch(options: &Options, subject: Subject) -> Result<Launch> {
    let program = match subject {
        Subject::Canopusd => match &options.canopusd {
            Some(path) => path.clone(),
            None => beside()?,
        },
        Subject::Peer => options.peer.clone().context("the peer's program is given by --peer")?,
    };
    let program = std::path::absolute(&program)?;
    ensure!(program.is_file(), "{} is not there; {}", program.display(), remedy(subject));
    let real = (options.fleet == FleetKind::Real).then_some(REAL).into_iter().flatten();
    let tuned = (subject == Subject::Peer && options.tuned).then_some(TUNED).into_iter().flatten();
    let environment = real.chain(tuned).map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Ok(Launch { subject, program, environment, tls: options.tls })
}

/// The program of canopusd that was built with this one.
fn beside() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    Ok(own.parent().unwrap_or(Path::new(".")).join("canopusd"))
}

fn remedy(subject: Subject) -> &'static str {
    match subject {
        Subject::Canopusd => "`cargo build --release -p canopus-daemon` builds it, --canopusd names another",
        Subject::Peer => "--peer takes the path of a program",
    }
}

/// Lets this process and its children have as many sockets as the system allows: each proxy is one on either side.
fn raise_file_limit() -> Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).context("raising the limit of open files")
}

#[expect(clippy::print_stderr, reason = "progress of a command-line tool")]
fn tell(text: &str) {
    eprintln!("{text}");
}

#[expect(clippy::print_stdout, reason = "the result of a command-line tool")]
fn show(text: &str) {
    println!("{text}");
}
