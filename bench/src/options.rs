use std::path::PathBuf;

use clap::{Parser, ValueEnum};

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
  canopus-bench --scenario s4,s6 --proxies 100                   some scenarios, few proxies"
)]
pub struct Options {
    /// Who is measured; both if there is a peer.
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

    /// Proxies, of which one in a hundred sees little.
    #[arg(long, value_name = "N")]
    pub(crate) proxies: Option<usize>,

    /// Services, each with two endpoints; every tenth has a VirtualService.
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub(crate) services: usize,

    /// Namespaces over which services and proxies are spread.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) namespaces: usize,

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

    /// Plays nothing: shows the figures of a file that was saved before.
    #[arg(long, value_name = "FILE")]
    pub(crate) show: Option<PathBuf>,
}

/// Who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Who {
    /// Ours.
    Canopusd,
    /// The other.
    Peer,
    /// Both in turn.
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
    /// Who is measured, in order.
    pub(crate) fn subjects(&self) -> Vec<Subject> {
        let chosen = |who: Who| self.subject.contains(&who) || self.subject.contains(&Who::Both);
        let unsaid = self.subject.is_empty();
        let ours = (unsaid || chosen(Who::Canopusd)).then_some(Subject::Canopusd);
        let peer = ((unsaid && self.peer.is_some()) || chosen(Who::Peer)).then_some(Subject::Peer);
        ours.into_iter().chain(peer).collect()
    }

    /// The scenarios to play, in order.
    pub(crate) fn scenarios(&self) -> Vec<Scenario> {
        let wanted = |scenario: &Scenario| self.scenario.is_empty() || self.scenario.contains(scenario);
        Scenario::ALL.into_iter().filter(wanted).collect()
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
        assert_eq!(options(&[]).scenarios().len(), 9);
    }
}
