use std::path::PathBuf;

use clap::{Parser, ValueEnum};

use crate::fixture::{Fixture, FleetKind};
use crate::scenario::Scenario;
use crate::subject::Subject;

/// Races canopusd against a peer that takes the same flags, such as istiod's `pilot-discovery`.
///
/// Starts a real Kubernetes API server, fills it with services, and plays each scenario against each subject in turn with
/// scripted proxies over real gRPC. Figures are taken from the outside. Without a peer there are figures of canopusd alone.
#[derive(Parser, Debug)]
#[command(
    name = "canopus-bench",
    max_term_width = 110,
    after_help = "\
Examples:
  canopus-bench --quick                                          canopusd alone, in minutes
  canopus-bench --peer ./pilot-discovery --rounds 3 -o markdown  both, three times in turn
  canopus-bench --scenario s4,s6 --proxies 100                   some scenarios, few proxies
  canopus-bench --fleet uniform                                  proxies that all say the same of themselves
  canopus-bench --break-point --proxies 5000                     how large a fleet can be"
)]
pub struct Options {
    /// Subjects to measure; both if there is a peer.
    #[arg(long, value_enum, value_name = "WHO", value_delimiter = ',')]
    pub(crate) subject: Vec<Who>,

    /// The program of canopusd; without, the one beside this program.
    #[arg(long, value_name = "PATH")]
    pub(crate) canopusd: Option<PathBuf>,

    /// The program of the peer.
    #[arg(long, value_name = "PATH")]
    pub(crate) peer: Option<PathBuf>,

    /// Gives the peer the settings that make it quickest: no limit of new streams, more pushes at once, hardly any debounce.
    #[arg(long)]
    pub(crate) tuned: bool,

    /// Which proxies there are: of many workloads with gateways and waypoints, or all alike.
    #[arg(long, value_enum, default_value_t)]
    pub(crate) fleet: FleetKind,

    /// Proxies, of which one in a hundred sees little.
    #[arg(long, value_name = "N")]
    pub(crate) proxies: Option<usize>,

    /// Services; every tenth has a VirtualService.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) services: usize,

    /// Namespaces over which services and proxies are spread; without, one for a real fleet and ten for a uniform one.
    #[arg(long, value_name = "N")]
    pub(crate) namespaces: Option<usize>,

    /// Workloads that sidecars are of, in a real fleet; without, up to 200, with at least four pods each.
    #[arg(long, value_name = "N")]
    pub(crate) workloads: Option<usize>,

    /// Kubernetes nodes that pods are on, in a real fleet.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) nodes: usize,

    /// Scenarios to play; all when none is named.
    #[arg(long, value_enum, ignore_case = true, value_name = "NAME", value_delimiter = ',')]
    pub(crate) scenario: Vec<Scenario>,

    /// How often everything is done; subjects take turns.
    #[arg(long, value_name = "N")]
    pub(crate) rounds: Option<usize>,

    /// Proxies speak the state-of-the-world variant of xDS instead of delta.
    #[arg(long)]
    pub(crate) sotw: bool,

    /// Proxies come with TLS and show a certificate.
    #[arg(long)]
    pub(crate) tls: bool,

    /// Fewer proxies and events: minutes instead of an hour.
    #[arg(long)]
    pub(crate) quick: bool,

    /// How figures are shown.
    #[arg(short, long, value_enum, default_value_t = Output::Table)]
    pub(crate) output: Output,

    /// Also writes the figures, as JSON, to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Option<PathBuf>,

    /// Also draws the figures, as SVG, to this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) plot: Option<PathBuf>,

    /// Looks for the largest fleet whose last proxy acknowledges a changed endpoint within a second (p99), with 16 GiB for the
    /// subject at the most: twice as many proxies until it fails, beginning with --proxies.
    #[arg(long)]
    pub(crate) break_point: bool,

    /// Writes what the floor is measured with: the port to connect to, connections, bytes to each.
    #[arg(long, hide = true, num_args = 3, value_name = "N")]
    pub(crate) floor_writer: Option<Vec<usize>>,

    /// Plays nothing: shows the figures of a file that was saved before.
    #[arg(long, value_name = "FILE")]
    pub(crate) show: Option<PathBuf>,
}

/// The subjects to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Who {
    /// Ours.
    Canopusd,
    /// The other.
    Peer,
    /// Both subjects in turn.
    Both,
}

/// How figures are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For a terminal.
    Table,
    /// For a document.
    Markdown,
    /// For programs.
    Json,
}

impl Options {
    /// Subjects to measure, in order.
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        let chosen = |who: Who| self.subject.contains(&who) || self.subject.contains(&Who::Both);
        let unsaid = self.subject.is_empty();
        let ours = (unsaid || chosen(Who::Canopusd)).then_some(Subject::Canopusd);
        let peer = ((unsaid && self.peer.is_some()) || chosen(Who::Peer)).then_some(Subject::Peer);
        ours.into_iter().chain(peer).collect()
    }

    /// The mesh to measure with.
    pub(crate) fn fixture(&self) -> Fixture {
        self.fixture_of(self.proxies.unwrap_or(if self.quick { 200 } else { 1000 }))
    }

    /// The mesh to measure with, for so many proxies.
    pub(crate) fn fixture_of(&self, proxies: usize) -> Fixture {
        let services = self.services.max(1);
        let usual = if self.fleet == FleetKind::Real { 1 } else { 10 };
        let mut fixture = Fixture {
            fleet: self.fleet,
            services,
            namespaces: self.namespaces.unwrap_or(usual).clamp(1, services),
            proxies: proxies.max(2),
            workloads: 0,
            nodes: self.nodes.max(1),
        };
        if fixture.is_real() {
            let sidecars = fixture.wide_sidecars();
            let workloads = self.workloads.unwrap_or((sidecars / 4).min(200));
            fixture.workloads = workloads.clamp(1, services.min(sidecars).max(1));
        }
        fixture
    }

    /// The scenarios to play, in order.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let wanted = |scenario: &Scenario| self.scenario.is_empty() || self.scenario.contains(scenario);
        let possible = |scenario: &Scenario| self.fleet == FleetKind::Real || !scenario.needs_pods();
        Scenario::ALL.into_iter().filter(wanted).filter(possible).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(arguments: &[&str]) -> Options {
        Options::parse_from(["canopus-bench"].iter().chain(arguments))
    }

    #[test]
    fn peer_takes_part_when_there_is_one() {
        assert_eq!(options(&[]).subjects(), [Subject::Canopusd]);
        assert_eq!(options(&["--peer", "p"]).subjects(), [Subject::Canopusd, Subject::Peer]);
        assert_eq!(options(&["--peer", "p", "--subject", "peer"]).subjects(), [Subject::Peer]);
        assert_eq!(options(&["--subject", "both"]).subjects(), [Subject::Canopusd, Subject::Peer]);
    }

    #[test]
    fn scenarios_are_played_in_their_order() {
        assert_eq!(options(&["--scenario", "S4,s2"]).scenarios(), [Scenario::S2, Scenario::S4]);
        assert_eq!(options(&[]).scenarios().len(), 15);
        assert_eq!(options(&["--fleet", "uniform"]).scenarios().len(), 12);
    }
}
