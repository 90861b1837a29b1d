//! Semantic versions and constraints on them, as the Masterminds library reads them.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::sync::LazyLock;

use regex::Regex;

use crate::error::CallError;
use crate::gofmt::quote;
use crate::value::{Function, Functions, Object, UintKind, Value};

pub(super) fn add_to(functions: &mut Functions) {
    functions.add("semver", |text: String| Version::parse(&text).map(Value::object)).add(
        "semverCompare",
        |constraint: String, version: String| {
            let constraint = Constraints::parse(&constraint)?;
            Ok::<_, CallError>(constraint.check(&Version::parse(&version)?))
        },
    );
}

const ANY: &str = r"[0-9|xX*]+";
const OPERATORS: &str = r"=||!=|>|<|>=|=>|<=|=<|~|~>|\^";

static VERSION: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let extra = r"[0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*";
    Regex::new(&format!(r"^v?([0-9]+)(?:\.([0-9]+))?(?:\.([0-9]+))?(?:-({extra}))?(?:\+({extra}))?$")).ok()
});

/// A version in a constraint, where `x` and `*` stand for any number. Six groups.
fn loose() -> String {
    let extra = r"[0-9A-Za-z\-]+(?:\.[0-9A-Za-z\-]+)*";
    format!(r"v?({ANY})(\.{ANY})?(\.{ANY})?(-{extra})?(\+{extra})?")
}

/// The expressions that take constraints apart.
struct Syntax {
    one: Regex,
    range: Regex,
    find: Regex,
    valid: Regex,
}

static SYNTAX: LazyLock<Option<Syntax>> = LazyLock::new(|| {
    let loose = loose();
    Some(Syntax {
        one: Regex::new(&format!(r"^\s*({OPERATORS})\s*({loose})\s*$")).ok()?,
        range: Regex::new(&format!(r"\s*({loose})\s+-\s+({loose})\s*")).ok()?,
        find: Regex::new(&format!(r"(?:{OPERATORS})\s*(?:{loose})")).ok()?,
        valid: Regex::new(&format!(
            r"^(\s*(?:{OPERATORS})\s*(?:{loose})\s*)((?:\s+|,\s*)(?:{OPERATORS})\s*(?:{loose})\s*)*$"
        ))
        .ok()?,
    })
});

#[derive(Clone, Debug)]
struct Version {
    major: u64,
    minor: u64,
    patch: u64,
    pre: String,
    metadata: String,
    original: String,
}

impl Version {
    fn parse(text: &str) -> Result<Self, CallError> {
        const MAX_LENGTH: usize = 256;
        if text.len() > MAX_LENGTH {
            return Err("version string is too long".into());
        }
        let groups = VERSION.as_ref().and_then(|regex| regex.captures(text));
        let Some(groups) = groups else { return Err("invalid semantic version".into()) };
        let group = |at: usize| groups.get(at).map_or("", |group| group.as_str());
        let number = |at: usize| match group(at) {
            "" => Ok(0),
            digits => digits.parse().map_err(|_| {
                let shown = quote::quoted(digits.as_bytes());
                format!(
                    "error parsing version segment: strconv.ParseUint: parsing {shown}: value out of range"
                )
            }),
        };
        let leading_zero = |part: &str| {
            part.len() > 1 && part.starts_with('0') && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        if group(4).split('.').any(leading_zero) {
            return Err("version prerelease segment starts with 0".into());
        }
        Ok(Self {
            major: number(1)?,
            minor: number(2)?,
            patch: number(3)?,
            pre: group(4).to_owned(),
            metadata: group(5).to_owned(),
            original: text.to_owned(),
        })
    }

    fn compare(&self, other: &Self) -> Ordering {
        let numbers = |version: &Self| (version.major, version.minor, version.patch);
        numbers(self).cmp(&numbers(other)).then_with(|| compare_pre(&self.pre, &other.pre))
    }

    fn text(&self) -> String {
        let mut text = format!("{}.{}.{}", self.major, self.minor, self.patch);
        for (mark, extra) in [('-', &self.pre), ('+', &self.metadata)] {
            if !extra.is_empty() {
                text.push(mark);
                text.push_str(extra);
            }
        }
        text
    }
}

/// A release is above its pre-releases; these compare part by part.
fn compare_pre(a: &str, b: &str) -> Ordering {
    match (a.is_empty(), b.is_empty()) {
        (true, true) => return Ordering::Equal,
        (true, false) => return Ordering::Greater,
        (false, true) => return Ordering::Less,
        (false, false) => {}
    }
    let (mut a, mut b) = (a.split('.'), b.split('.'));
    loop {
        let order = match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => Ordering::Less,
            (Some(_), None) => Ordering::Greater,
            (Some(a), Some(b)) => match (a.parse::<u64>(), b.parse::<u64>()) {
                (Ok(a), Ok(b)) => a.cmp(&b),
                (Ok(_), Err(_)) => Ordering::Less,
                (Err(_), Ok(_)) => Ordering::Greater,
                (Err(_), Err(_)) => a.cmp(b),
            },
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

impl Object for Version {
    fn type_name(&self) -> Cow<'static, str> {
        "*semver.Version".into()
    }

    fn method(&self, name: &str) -> Option<Function> {
        let number = |number: u64| Function::new(move || Value::Uint(number, UintKind::Uint64));
        let text = |text: String| Function::new(move || text.clone());
        Some(match name {
            "Major" => number(self.major),
            "Minor" => number(self.minor),
            "Patch" => number(self.patch),
            "Prerelease" => text(self.pre.clone()),
            "Metadata" => text(self.metadata.clone()),
            "Original" => text(self.original.clone()),
            "String" => text(self.text()),
            _ => return None,
        })
    }

    fn print(&self) -> String {
        self.text()
    }

    fn encode(&self) -> Value {
        self.text().into()
    }
}

/// Alternatives, each a list of constraints that must all hold.
struct Constraints {
    alternatives: Vec<Vec<Constraint>>,
}

struct Constraint {
    operator: String,
    version: Version,
    /// Some number is missing or a wildcard.
    dirty: bool,
    minor_dirty: bool,
    patch_dirty: bool,
}

impl Constraints {
    fn parse(text: &str) -> Result<Self, CallError> {
        const MAX_LENGTH: usize = 512;
        const MAX_GROUPS: usize = 32;
        let Some(syntax) = SYNTAX.as_ref() else { return Err("improper constraint".into()) };
        if text.len() > MAX_LENGTH {
            return Err("constraint string is too long (max 512 bytes)".into());
        }
        let text = syntax.range.replace_all(text, ">= $1, <= $7 ");
        let alternatives: Vec<&str> = text.split("||").collect();
        if alternatives.len() > MAX_GROUPS {
            return Err("too many constraint groups (max 32)".into());
        }
        let parse_all = |alternative: &str| {
            if !syntax.valid.is_match(alternative) {
                return Err(improper(alternative));
            }
            syntax
                .find
                .find_iter(alternative)
                .map(|found| Constraint::parse(syntax, found.as_str()))
                .collect()
        };
        let alternatives = alternatives.into_iter().map(parse_all).collect::<Result<_, CallError>>()?;
        Ok(Self { alternatives })
    }

    fn check(&self, version: &Version) -> bool {
        self.alternatives.iter().any(|constraints| {
            // One constraint on a pre-release lets pre-releases in for all of the group.
            let pre_releases = constraints.iter().any(|constraint| !constraint.version.pre.is_empty());
            (version.pre.is_empty() || pre_releases)
                && constraints.iter().all(|constraint| constraint.check(version))
        })
    }
}

fn improper(text: &str) -> CallError {
    format!("improper constraint: {}", quote::quoted(text.as_bytes())).into()
}

impl Constraint {
    fn parse(syntax: &Syntax, text: &str) -> Result<Self, CallError> {
        let groups = syntax.one.captures(text).ok_or_else(|| improper(text))?;
        let group = |at: usize| groups.get(at).map_or("", |group| group.as_str());
        let is_any = |part: &str| matches!(part.trim_start_matches('.'), "" | "x" | "X" | "*");
        let (major, minor, patch, pre) = (group(3), group(4), group(5), group(6));
        let (version, dirty, minor_dirty, patch_dirty) = if is_any(major) {
            (format!("0.0.0{pre}"), true, false, false)
        } else if is_any(minor) {
            (format!("{major}.0.0{pre}"), true, true, false)
        } else if is_any(patch) {
            (format!("{major}{minor}.0{pre}"), true, false, true)
        } else {
            (group(2).to_owned(), false, false, false)
        };
        let version = Version::parse(&version).map_err(|_| CallError::from("constraint parser error"))?;
        Ok(Self { operator: group(1).to_owned(), version, dirty, minor_dirty, patch_dirty })
    }

    fn check(&self, version: &Version) -> bool {
        let order = version.compare(&self.version);
        match self.operator.as_str() {
            "" | "=" if self.dirty => self.tilde(version),
            "" | "=" => order == Ordering::Equal,
            "!=" => self.not_equal(version),
            ">" => self.greater(version),
            "<" => order == Ordering::Less,
            ">=" | "=>" => order != Ordering::Less,
            "<=" | "=<" => self.less_or_equal(version),
            "^" => self.caret(version),
            _ => self.tilde(version),
        }
    }

    fn not_equal(&self, version: &Version) -> bool {
        let own = &self.version;
        if !self.dirty
            || (!self.minor_dirty
                && !self.patch_dirty
                && own.major == version.major
                && own.minor == version.minor
                && own.patch == version.patch)
        {
            return version.compare(own) != Ordering::Equal;
        }
        if own.major != version.major {
            return true;
        }
        if self.minor_dirty {
            return false;
        }
        if own.minor != version.minor {
            return true;
        }
        if self.patch_dirty {
            let either = !version.pre.is_empty() || !own.pre.is_empty();
            return either && compare_pre(&version.pre, &own.pre) != Ordering::Equal;
        }
        true
    }

    fn greater(&self, version: &Version) -> bool {
        let own = &self.version;
        let is_greater = version.compare(own) == Ordering::Greater;
        if !self.dirty || version.major != own.major {
            return if self.dirty { version.major > own.major } else { is_greater };
        }
        // `>11` wants 12 or higher, `>11.1` wants 11.2 or higher.
        match (self.minor_dirty, self.patch_dirty) {
            (true, _) => false,
            (_, true) => version.minor > own.minor,
            _ => is_greater,
        }
    }

    fn less_or_equal(&self, version: &Version) -> bool {
        let own = &self.version;
        if !self.dirty {
            return version.compare(own) != Ordering::Greater;
        }
        version.major < own.major
            || (version.major == own.major && (version.minor <= own.minor || self.minor_dirty))
    }

    fn tilde(&self, version: &Version) -> bool {
        let own = &self.version;
        if version.compare(own) == Ordering::Less {
            return false;
        }
        // `~0.0.0` is any version.
        let any =
            own.major == 0 && own.minor == 0 && own.patch == 0 && !self.minor_dirty && !self.patch_dirty;
        any || (version.major == own.major && (version.minor == own.minor || self.minor_dirty))
    }

    fn caret(&self, version: &Version) -> bool {
        let own = &self.version;
        if version.compare(own) == Ordering::Less {
            return false;
        }
        if own.major > 0 || self.minor_dirty {
            return version.major == own.major;
        }
        if version.major > 0 {
            return false;
        }
        if own.minor > 0 || self.patch_dirty {
            return version.minor == own.minor;
        }
        version.minor == 0 && version.patch == own.patch
    }
}
