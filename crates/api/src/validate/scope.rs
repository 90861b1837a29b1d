//! Where in an object a check is, and where its findings go.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use super::Settings;
use super::code::{Fault, Severity};
use super::report::{Finding, MAX_FINDINGS, Report};
use crate::text::quoted;

/// A place in an object, and the report of what is wrong there.
///
/// A scope for a part is made from the scope of the whole and borrows it; nothing is allocated until something is found.
pub struct Scope<'a> {
    report: &'a mut Report,
    settings: &'a Settings,
    path: Path<'a>,
    ours: Ours,
}

/// Which findings Istio would not have.
#[derive(Clone, Copy, Default)]
struct Ours {
    errors: bool,
    warnings: bool,
}

#[derive(Clone, Copy)]
struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    segment: Segment<'a>,
}

#[derive(Clone, Copy)]
enum Segment<'a> {
    Root,
    Field(&'static str),
    Index(usize),
    Key(&'a str),
    Path(&'a str),
}

impl<'a> Scope<'a> {
    pub(super) fn new(report: &'a mut Report, settings: &'a Settings) -> Self {
        Self { report, settings, path: Path { parent: None, segment: Segment::Root }, ours: Ours::default() }
    }

    /// The features of the control plane.
    pub const fn settings(&self) -> &'a Settings {
        self.settings
    }

    fn part<'b>(&'b mut self, segment: Segment<'b>) -> Scope<'b> {
        Scope {
            report: self.report,
            settings: self.settings,
            path: Path { parent: Some(&self.path), segment },
            ours: self.ours,
        }
    }

    /// The same place once more.
    pub fn again(&mut self) -> Scope<'_> {
        Scope { report: self.report, settings: self.settings, path: self.path, ours: self.ours }
    }

    /// A field, by its name in JSON.
    pub fn field(&mut self, name: &'static str) -> Scope<'_> {
        self.part(Segment::Field(name))
    }

    /// An item of a list.
    pub fn item(&mut self, index: usize) -> Scope<'_> {
        self.part(Segment::Index(index))
    }

    /// An entry of a map.
    pub fn entry<'b>(&'b mut self, key: &'b str) -> Scope<'b> {
        self.part(Segment::Key(key))
    }

    /// A place further inside, by a path that was found some other way; empty for this very place.
    pub fn at<'b>(&'b mut self, path: &'b str) -> Scope<'b> {
        self.part(Segment::Path(path))
    }

    /// Checks each item of a list that is a field.
    pub fn each<'t, T>(
        &mut self,
        name: &'static str,
        items: &'t [T],
        mut check: impl FnMut(&'t T, Scope<'_>),
    ) {
        let mut list = self.field(name);
        for (index, item) in items.iter().enumerate() {
            check(item, list.item(index));
        }
    }

    /// Checks each entry of a map that is a field, in the order of keys.
    pub fn each_entry<'t, T>(
        &mut self,
        name: &'static str,
        entries: &'t BTreeMap<String, T>,
        mut check: impl FnMut(&'t str, &'t T, Scope<'_>),
    ) {
        let mut map = self.field(name);
        for (key, value) in entries {
            check(key, value, map.entry(key));
        }
    }

    /// Checks a field that may be absent, if it is there.
    pub fn optional<T>(&mut self, name: &'static str, value: Option<&T>, check: impl FnOnce(&T, Scope<'_>)) {
        if let Some(value) = value {
            check(value, self.field(name));
        }
    }

    /// The same place, where Istio says nothing any more because of an earlier finding.
    #[must_use]
    pub fn ours(mut self) -> Self {
        self.ours = Ours { errors: true, warnings: true };
        self
    }

    /// The same place, where Istio drops warnings.
    #[must_use]
    pub fn without_warnings(mut self) -> Self {
        self.ours.warnings = true;
        self
    }

    /// Reports a fault, as bad as its rule says.
    pub fn add(&mut self, fault: Fault) {
        let severity = fault.code.severity;
        self.add_as(severity, fault);
    }

    /// Reports a fault, as bad as is said here.
    pub fn add_as(&mut self, severity: Severity, fault: Fault) {
        let (findings, ours) = match severity {
            Severity::Error => (&mut self.report.errors, self.ours.errors),
            Severity::Warning => (&mut self.report.warnings, self.ours.warnings),
        };
        if findings.len() >= MAX_FINDINGS {
            return;
        }
        findings.push(Finding {
            code: fault.code,
            path: self.path.to_string(),
            value: fault.value,
            message: fault.message,
            listed: fault.listed,
            ours,
            arguments: fault.arguments,
        });
    }

    /// Reports a fault if `broken`.
    pub fn add_if(&mut self, broken: bool, fault: impl FnOnce() -> Fault) {
        if broken {
            self.add(fault());
        }
    }

    /// Reports what a check found.
    pub fn require(&mut self, checked: Result<(), Fault>) {
        if let Err(fault) = checked {
            self.add(fault);
        }
    }

    /// Reports what a check found as a warning.
    pub fn advise(&mut self, checked: Result<(), Fault>) {
        if let Err(fault) = checked {
            self.add_as(Severity::Warning, fault);
        }
    }

    /// Runs a check and tells whether it found errors.
    pub fn fails(&mut self, check: impl FnOnce(Scope<'_>)) -> bool {
        let before = self.report.errors.len();
        check(self.again());
        self.report.errors.len() > before
    }

    /// Runs a check whose errors Istio words with something in front of each.
    pub fn prefixed(&mut self, prefix: impl FnOnce() -> String, check: impl FnOnce(Scope<'_>)) {
        let before = self.report.errors.len();
        check(self.again());
        let found = &mut self.report.errors[before..];
        if !found.is_empty() {
            let prefix = prefix();
            for finding in found {
                finding.message = format!("{prefix} {}", finding.message).into();
            }
        }
    }

    /// Runs a check whose errors Istio words as a list, even one alone.
    pub fn listed(&mut self, check: impl FnOnce(Scope<'_>)) {
        let before = self.report.errors.len();
        check(self.again());
        for finding in &mut self.report.errors[before..] {
            finding.listed = true;
        }
    }

    /// Runs a check whose errors keep nobody from using the object: Istio writes them to its log only.
    pub fn logged(&mut self, check: impl FnOnce(Scope<'_>)) {
        let before = self.report.errors.len();
        check(self.again());
        let found = self.report.errors.drain(before..);
        self.report.warnings.extend(found.map(|finding| Finding { ours: true, ..finding }));
    }

    /// Runs checks of which Istio reports only the first error.
    pub fn first_only(&mut self, checks: impl FnOnce(Scope<'_>)) {
        let before = self.report.errors.len();
        checks(self.again());
        for finding in self.report.errors.iter_mut().skip(before + 1) {
            finding.ours = true;
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.segment {
            Segment::Root => Ok(()),
            Segment::Field(name) => {
                let first = self.parent.is_none_or(|parent| matches!(parent.segment, Segment::Root));
                if first { f.write_str(name) } else { write!(f, ".{name}") }
            }
            Segment::Path(path) if path.is_empty() || path.starts_with('[') => f.write_str(path),
            Segment::Path(path) => {
                let first = self.parent.is_none_or(|parent| matches!(parent.segment, Segment::Root));
                if first { f.write_str(path) } else { write!(f, ".{path}") }
            }
            Segment::Index(index) => write!(f, "[{index}]"),
            Segment::Key(key) => {
                f.write_char('[')?;
                f.write_str(&quoted(key))?;
                f.write_char(']')
            }
        }
    }
}
