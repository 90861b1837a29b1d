//! What a row of the table says about a flag, and the typed key to its value.

use std::fmt;
use std::marker::PhantomData;

use super::kind::{FlagType, Kind, Value, types};
use super::table;

/// Part of the system a flag belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Area {
    /// Amounts and delays.
    Tuning,
    /// Shape of generated configuration.
    Xds,
    /// Gateways.
    Gateway,
    /// Ambient mode.
    Ambient,
    /// Certificates, identities, access.
    Security,
    /// Metrics and traces.
    Telemetry,
    /// Sources and controllers.
    Registry,
    /// Admission webhooks.
    Injection,
    /// The agent beside a proxy.
    Agent,
    /// Traffic capture.
    Cni,
    /// Command line and installer.
    Cli,
    /// Where the process runs.
    Pod,
}

impl Area {
    /// All areas, in order.
    pub const ALL: [Area; 12] = [
        Area::Tuning,
        Area::Xds,
        Area::Gateway,
        Area::Ambient,
        Area::Security,
        Area::Telemetry,
        Area::Registry,
        Area::Injection,
        Area::Agent,
        Area::Cni,
        Area::Cli,
        Area::Pod,
    ];

    /// The flags of the area.
    pub const fn specs(self) -> &'static [Spec] {
        table::specs(self)
    }

    /// The word used in listings.
    pub const fn as_str(self) -> &'static str {
        match self {
            Area::Tuning => "tuning",
            Area::Xds => "xds",
            Area::Gateway => "gateway",
            Area::Ambient => "ambient",
            Area::Security => "security",
            Area::Telemetry => "telemetry",
            Area::Registry => "registry",
            Area::Injection => "injection",
            Area::Agent => "agent",
            Area::Cni => "cni",
            Area::Cli => "cli",
            Area::Pod => "pod",
        }
    }
}

/// Key to the value of a flag of type `T`.
#[derive(Debug)]
pub struct Flag<T> {
    pub(super) area: Area,
    pub(super) index: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T: FlagType> Flag<T> {
    pub(super) const fn new(area: Area, index: usize) -> Self {
        Flag { area, index, kind: PhantomData }
    }

    /// The row of the table.
    pub fn spec(self) -> &'static Spec {
        &self.area.specs()[self.index]
    }
}

impl<T> Clone for Flag<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Flag<T> {}

impl<T: FlagType> fmt::Display for Flag<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.spec().name)
    }
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Spec {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Type.
    pub kind: Kind,
    /// One sentence on what it is for.
    pub description: &'static str,
    /// Value if it is not set, in the notation in which it could be.
    pub default: &'static str,
    /// What must be on for the flag to count.
    pub gate: Option<Gate>,
    choices: &'static [&'static str],
    otherwise: Option<&'static str>,
    bounds: Option<(f64, f64)>,
    pub(super) sensitive: bool,
}

/// A flag that another depends on.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// The flag that must be on.
    pub flag: Flag<types::Bool>,
    /// Value of the dependent flag if it is not set and the other is on.
    pub default: &'static str,
}

impl Spec {
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        default: &'static str,
        description: &'static str,
    ) -> Spec {
        Spec {
            name,
            kind,
            // Doc comments keep the space after their slashes.
            description: description.trim_ascii(),
            default,
            gate: None,
            choices: &[],
            otherwise: None,
            bounds: None,
            sensitive: false,
        }
    }

    /// Restricts a number, or a duration in seconds.
    pub(super) const fn within(mut self, low: f64, high: f64) -> Spec {
        self.bounds = Some((low, high));
        self
    }

    /// Makes the flag count only while another is on, and gives its default then.
    pub(super) const fn when(mut self, flag: Flag<types::Bool>, default: &'static str) -> Spec {
        self.gate = Some(Gate { flag, default });
        self
    }

    /// Gives the words of a choice.
    pub(super) const fn one_of(mut self, choices: &'static [&'static str]) -> Spec {
        self.choices = choices;
        self
    }

    /// Gives the value that stands in for an invalid one, if it is not the default.
    pub(super) const fn otherwise(mut self, value: &'static str) -> Spec {
        self.otherwise = Some(value);
        self
    }

    /// Keeps the value out of listings and messages.
    pub(super) const fn sensitive(mut self) -> Spec {
        self.sensitive = true;
        self
    }

    /// Reads a value; the error says what was expected.
    pub(super) fn parse(&self, text: &str) -> Result<Value, String> {
        let value = Value::parse(self.kind, self.choices, text)?;
        match (self.bounds, value.magnitude()) {
            (Some((low, high)), Some(number)) if !(low..=high).contains(&number) => {
                Err(self.expected_bounds(low, high))
            }
            _ => Ok(value),
        }
    }

    fn expected_bounds(&self, low: f64, high: f64) -> String {
        let unit = if self.kind == Kind::Duration { "s" } else { "" };
        if high.is_finite() {
            format!("a value from {low}{unit} to {high}{unit}")
        } else {
            format!("a value of at least {low}{unit}")
        }
    }

    /// Reads a text of the table itself.
    pub(super) fn declared(&self, text: &'static str) -> Value {
        self.parse(text).expect("values in the table are valid, which a test checks")
    }

    /// The value that stands in for an invalid one.
    pub(super) fn stand_in(&self, default: &Value) -> Value {
        self.otherwise.map_or_else(|| default.clone(), |text| self.declared(text))
    }
}
