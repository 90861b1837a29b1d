//! Feature flags: every environment variable there is, as one typed table, and the only place that reads them.
//!
//! Names, types and defaults are Istio's. Keys are constants named as the variables are; a binary reads all of them
//! once and passes the result down. What cannot be read is reported and replaced by its default, as in Istio.
//!
//! ```
//! use canopus_runtime::flags::{Flags, PILOT_DEBOUNCE_AFTER, PILOT_ENABLE_AMBIENT};
//! use std::time::Duration;
//!
//! let flags = Flags::read(&[("PILOT_DEBOUNCE_AFTER", "20ms"), ("PILOT_ENABLE_AMBIENT", "yes")]);
//! assert_eq!(flags.get(PILOT_DEBOUNCE_AFTER), Duration::from_millis(20));
//! assert!(!flags.get(PILOT_ENABLE_AMBIENT));
//! assert_eq!(
//!     flags.warnings()[0].to_string(),
//!     "PILOT_ENABLE_AMBIENT: \"yes\" is not valid, expected true or false; using false"
//! );
//! ```

use std::collections::BTreeMap;
use std::ops::Bound;
use std::thread;

mod kind;
mod list;
mod source;
mod spec;
mod table;
mod unread;
mod warning;

pub use kind::{FlagType, Kind, Value, types};
pub use list::{Format, Row, render};
pub use source::{ProcessEnvironment, Source};
pub use spec::{Area, Flag, Gate, Spec};
pub use table::*;
pub use warning::Warning;

/// The settings of a process.
pub struct Flags {
    /// By area, in the order of the table.
    values: [Vec<Resolved>; Area::ALL.len()],
    warnings: Vec<Warning>,
    variables: BTreeMap<String, String>,
}

struct Resolved {
    value: Value,
    default: Value,
}

impl PartialEq for Flags {
    /// Settings are equal if the same variables are set to the same texts.
    fn eq(&self, other: &Self) -> bool {
        self.variables == other.variables
    }
}

impl Flags {
    /// Reads the environment of the process.
    pub fn from_env() -> Self {
        Flags::read(&ProcessEnvironment)
    }

    /// Every flag at its default.
    pub fn defaults() -> Self {
        Flags::read(&[])
    }

    /// Reads a source.
    pub fn read(source: &dyn Source) -> Self {
        let variables = source.variables();
        let mut warnings = Vec::new();
        let mut resolve = |spec| resolve(spec, &variables, &mut warnings);
        let values = Area::ALL.map(|area| area.specs().iter().map(&mut resolve).collect());
        warnings.extend(warning::unknown(&variables));
        Flags { values, warnings, variables }
    }

    /// The value of a flag.
    pub fn get<T: FlagType>(&self, flag: Flag<T>) -> T::Output<'_> {
        let resolved = &self.values[flag.area as usize][flag.index];
        T::output(&resolved.value).expect("a key is declared with the type of its row")
    }

    /// Whether a flag is set, to whatever text.
    pub fn is_set<T: FlagType>(&self, flag: Flag<T>) -> bool {
        self.variables.contains_key(flag.spec().name)
    }

    /// What is odd about the settings, in the order of the table.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// A variable that is not a flag, such as `HOME`.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str)
    }

    /// All variables whose names begin so, such as proxy metadata, with the rest of their names.
    pub fn prefixed<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        let from = self.variables.range::<str, _>((Bound::Included(prefix), Bound::Unbounded));
        from.map_while(move |(name, value)| Some((name.strip_prefix(prefix)?, value.as_str())))
    }

    /// All flags by name.
    pub fn list(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = Area::ALL
            .into_iter()
            .zip(&self.values)
            .flat_map(|(area, values)| {
                area.specs().iter().zip(values).map(move |(spec, value)| row(area, spec, value))
            })
            .collect();
        rows.sort_by_key(|row| row.name);
        rows
    }

    /// Proxies to push to at once: what is set, or a number that fits the machine.
    pub fn push_throttle(&self) -> usize {
        usize::try_from(self.get(PILOT_PUSH_THROTTLE))
            .ok()
            .filter(|limit| *limit > 0)
            .unwrap_or_else(machine_limit)
    }

    /// New xDS streams to accept per second: what is set, or a number that fits the machine.
    pub fn request_limit(&self) -> f64 {
        let limit = self.get(PILOT_MAX_REQUESTS_PER_SECOND);
        if limit > 0.0 { limit } else { machine_limit() as f64 }
    }
}

/// 20 for one processor, 5 more for each other one, at most 100.
fn machine_limit() -> usize {
    let processors = thread::available_parallelism().map_or(1, Into::into);
    (15 + 5 * processors).min(100)
}

fn resolve(spec: &Spec, variables: &BTreeMap<String, String>, warnings: &mut Vec<Warning>) -> Resolved {
    let text = variables.get(spec.name);
    let default = match spec.gate {
        None => spec.default,
        Some(gate) if is_on(gate, variables) => gate.default,
        Some(gate) => {
            if text.is_some() {
                let requires = gate.flag.spec().name;
                warnings.push(Warning::Ignored { name: spec.name, requires });
            }
            let off = spec.declared(spec.default);
            return Resolved { value: off.clone(), default: off };
        }
    };
    let default = spec.declared(default);
    let value = match text.map(|text| (text, spec.parse(text))) {
        None => default.clone(),
        Some((_, Ok(value))) => value,
        Some((text, Err(expected))) => {
            let used = spec.stand_in(&default);
            let value = if spec.sensitive { "its value".to_owned() } else { format!("{text:?}") };
            warnings.push(Warning::Invalid { name: spec.name, value, expected, used: used.to_string() });
            used
        }
    };
    Resolved { value, default }
}

/// Whether what a flag depends on is on; its own oddities are reported when its own turn comes.
fn is_on(gate: Gate, variables: &BTreeMap<String, String>) -> bool {
    resolve(gate.flag.spec(), variables, &mut Vec::new()).value == Value::Bool(true)
}

fn row(area: Area, spec: &Spec, resolved: &Resolved) -> Row {
    let changed = resolved.value != resolved.default;
    let hidden = spec.sensitive && changed;
    Row {
        name: spec.name,
        kind: spec.kind.as_str(),
        area: area.as_str(),
        default: resolved.default.to_string(),
        value: if hidden { "(hidden)".to_owned() } else { resolved.value.to_string() },
        changed,
        read: !unread::UNREAD.contains(&spec.name),
        description: spec.description,
    }
}

#[cfg(test)]
mod tests;
