//! Which iptables to use: there are two, and rules belong where the namespace already has some.

use super::command::{CommandError, Invocation, Runner};
use super::{ApplyError, VariantChoice};
use crate::config::Family;
use crate::iptables::SavedState;

/// Major, minor and patch.
pub type Version = (u32, u32, u32);

/// Since then `iptables-restore` takes the lock, and can wait for it.
const LOCKS: Version = (1, 6, 2);

/// One iptables with its companions `-save` and `-restore`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variant {
    binary: &'static str,
    is_legacy: bool,
    version: Version,
}

/// The programs of both families.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Tools {
    /// For IPv4.
    pub v4: Variant,
    /// For IPv6; `None` where there is none.
    pub v6: Option<Variant>,
}

/// The names of a family's variants.
struct Names {
    plain: &'static str,
    legacy: &'static str,
    nft: &'static str,
}

const fn names(family: Family) -> Names {
    match family {
        Family::V4 => Names { plain: "iptables", legacy: "iptables-legacy", nft: "iptables-nft" },
        Family::V6 => Names { plain: "ip6tables", legacy: "ip6tables-legacy", nft: "ip6tables-nft" },
    }
}

/// A rule that matches nothing: 255 is no protocol.
const NO_RULE: [&str; 5] = ["INPUT", "-p", "255", "-j", "RETURN"];

impl Tools {
    /// The programs under their plain names, for dry runs.
    pub fn plain() -> Self {
        let variant = |family| Variant { binary: names(family).plain, is_legacy: false, version: (0, 0, 0) };
        Self { v4: variant(Family::V4), v6: Some(variant(Family::V6)) }
    }

    /// The programs of a namespace without legacy rules, such as that of a pod that starts; `None` if there may be some.
    ///
    /// The kernel lists the tables of legacy iptables per namespace, so no program has to be run to find out. Whether the
    /// programs are installed and work shows when they are used.
    pub fn for_new_namespace(needs_v6: bool) -> Option<Self> {
        let has_no_legacy = |file: &str| match std::fs::read(format!("/proc/thread-self/net/{file}")) {
            Ok(names) => names.is_empty(),
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        let nft = |family| Variant { binary: names(family).nft, is_legacy: false, version: (0, 0, 0) };
        let is_fresh = has_no_legacy("ip_tables_names") && (!needs_v6 || has_no_legacy("ip6_tables_names"));
        is_fresh.then(|| Self { v4: nft(Family::V4), v6: needs_v6.then(|| nft(Family::V6)) })
    }

    /// Finds the programs to use in this namespace. A missing one for IPv6 matters only if IPv6 is captured.
    pub fn detect(
        runner: &mut dyn Runner,
        choice: VariantChoice,
        needs_v6: bool,
    ) -> Result<Self, ApplyError> {
        let v4 = detect(runner, choice, Family::V4)?;
        let v6 = match detect(runner, choice, Family::V6) {
            Ok(variant) => Some(variant),
            Err(error) if needs_v6 => return Err(error),
            Err(error) => {
                tracing::warn!("going on without ip6tables, because IPv6 is not captured: {error}");
                None
            }
        };
        Ok(Self { v4, v6 })
    }

    /// The program of a family.
    pub fn variant(&self, family: Family) -> Option<&Variant> {
        match family {
            Family::V4 => Some(&self.v4),
            Family::V6 => self.v6.as_ref(),
        }
    }
}

fn detect(runner: &mut dyn Runner, choice: VariantChoice, family: Family) -> Result<Variant, ApplyError> {
    let names = names(family);
    let found = match choice {
        VariantChoice::Legacy => usable(runner, names.legacy, false).map_err(|error| error.to_string()),
        VariantChoice::Nft => usable(runner, names.nft, false).map_err(|error| error.to_string()),
        VariantChoice::Detect => first_usable(runner, &names),
    };
    let variant = found.map_err(|reason| ApplyError::NoVariant { program: names.plain, reason })?;
    tracing::info!("using {} {:?}", variant.binary, variant.version);
    Ok(variant)
}

fn first_usable(runner: &mut dyn Runner, names: &Names) -> Result<Variant, String> {
    let mut reasons = Vec::new();
    for (binary, only_with_rules) in [(names.legacy, true), (names.nft, false), (names.plain, false)] {
        match usable(runner, binary, only_with_rules) {
            Ok(variant) => return Ok(variant),
            Err(error) => reasons.push(error.to_string()),
        }
    }
    Err(reasons.join("; "))
}

/// Why a variant is not used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error(transparent)]
    Command(#[from] CommandError),
    #[error("{0} has no rules here")]
    NoRules(&'static str),
}

/// Looks at one variant and proves that the kernel takes its rules.
///
/// The proof adds and deletes a rule, which makes the kernel keep the variant's table from then on. So it is left out
/// for a variant that will not be used, and a table without rules does not count as rules.
fn usable(runner: &mut dyn Runner, binary: &'static str, only_with_rules: bool) -> Result<Variant, Unusable> {
    let save = format!("{binary}-save");
    let saved = runner.run(&Invocation::new(save.as_str(), [""; 0]))?;
    if only_with_rules && !SavedState::has_rules(&saved) {
        return Err(Unusable::NoRules(binary));
    }
    // Versions before 1.6.2 do not know the flag; they are legacy.
    let text = runner.run(&Invocation::new(save.as_str(), ["--version"])).unwrap_or_default();
    let version = parse_version(&text).unwrap_or_default();
    let variant = Variant { binary, is_legacy: !text.contains("nf_tables"), version };
    for verb in ["-A", "-D"] {
        runner.run(&variant.command(&[&["-t", "nat", verb], &NO_RULE[..]].concat()))?;
    }
    Ok(variant)
}

fn parse_version(text: &str) -> Option<Version> {
    let digits = |part: &str| part.chars().take_while(char::is_ascii_digit).collect::<String>().parse().ok();
    let start = text.match_indices('v').map(|(at, _)| &text[at + 1..]);
    start.into_iter().find_map(|text| {
        let mut parts = text.split([' ', '\n']).next()?.split('.');
        Some((digits(parts.next()?)?, digits(parts.next()?)?, parts.next().and_then(digits).unwrap_or(0)))
    })
}

impl Variant {
    fn locks(&self) -> bool {
        self.is_legacy && self.version >= LOCKS
    }

    fn writing<'a>(&self, program: String, arguments: impl IntoIterator<Item = &'a str>) -> Invocation {
        // Others may hold the lock of legacy iptables; waiting is better than failing.
        let wait = self.locks().then_some("--wait=30");
        let arguments = arguments.into_iter().chain(wait);
        Invocation { takes_lock: self.locks(), ..Invocation::new(program, arguments) }
    }

    /// A single command.
    pub(crate) fn command(&self, arguments: &[impl AsRef<str>]) -> Invocation {
        self.writing(self.binary.to_owned(), arguments.iter().map(AsRef::as_ref))
    }

    /// The listing of all rules.
    pub(crate) fn save(&self) -> Invocation {
        Invocation::new(format!("{}-save", self.binary), [""; 0])
    }

    /// The addition of many rules at once; those of others stay.
    pub(crate) fn restore(&self, input: String) -> Invocation {
        let call = self.writing(format!("{}-restore", self.binary), ["--noflush"]);
        Invocation { input: Some(input), ..call }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers by program; what it does not know is not installed.
    struct Fake(&'static [(&'static str, &'static str)]);

    impl Runner for Fake {
        fn run(&mut self, call: &Invocation) -> Result<String, CommandError> {
            let base = call.program.trim_end_matches("-save");
            let Some((_, rules)) = self.0.iter().find(|(binary, _)| *binary == base) else {
                return Err(CommandError::NotFound { program: call.program.clone(), package: "iptables" });
            };
            let kind = if base.ends_with("nft") { "nf_tables" } else { "legacy" };
            Ok(match call.arguments.first().map(String::as_str) {
                Some("--version") => format!("{base}-save v1.8.9 ({kind})\n"),
                _ => (*rules).to_owned(),
            })
        }
    }

    const RULES: &str = "*nat\n:OUTPUT ACCEPT [0:0]\n-A OUTPUT -j RETURN\nCOMMIT\n";
    const TOUCHED: &str = "*nat\n:OUTPUT ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\nCOMMIT\n";

    fn chosen(programs: &'static [(&'static str, &'static str)]) -> Result<&'static str, String> {
        detect(&mut Fake(programs), VariantChoice::Detect, Family::V4)
            .map(|variant| variant.binary)
            .map_err(|error| error.to_string())
    }

    #[test]
    fn legacy_is_used_only_where_it_has_rules() {
        assert_eq!(chosen(&[("iptables-legacy", RULES), ("iptables-nft", "")]).unwrap(), "iptables-legacy");
        assert_eq!(chosen(&[("iptables-legacy", ""), ("iptables-nft", "")]).unwrap(), "iptables-nft");
        assert_eq!(chosen(&[("iptables-legacy", TOUCHED), ("iptables-nft", RULES)]).unwrap(), "iptables-nft");
        assert_eq!(chosen(&[("iptables", "")]).unwrap(), "iptables");
    }

    #[test]
    fn every_failure_is_named_when_nothing_works() {
        let message = chosen(&[]).unwrap_err();
        assert!(
            message.starts_with("no usable iptables: iptables-legacy-save is not installed"),
            "{message}"
        );
        assert!(message.contains("iptables-nft-save is not installed"), "{message}");
    }

    #[test]
    fn only_legacy_writers_wait_for_the_lock() {
        let legacy = Variant { binary: "iptables-legacy", is_legacy: true, version: (1, 8, 9) };
        assert_eq!(legacy.restore(String::new()).arguments, ["--noflush", "--wait=30"]);
        assert!(legacy.save().arguments.is_empty());
        let old = Variant { version: (1, 6, 1), ..legacy.clone() };
        assert_eq!(old.command(&["-L"]).arguments, ["-L"]);
        let nft = Variant { is_legacy: false, ..legacy };
        assert!(!nft.restore(String::new()).takes_lock);
    }

    #[test]
    fn versions_are_found_behind_any_name() {
        assert_eq!(parse_version("iptables-save v1.8.9 (legacy)\n"), Some((1, 8, 9)));
        assert_eq!(parse_version("iptables v1.8.10-3 (nf_tables)"), Some((1, 8, 10)));
        assert_eq!(parse_version("xtables-save-vx v1.4"), Some((1, 4, 0)));
        assert_eq!(parse_version("unrecognized option"), None);
    }
}
