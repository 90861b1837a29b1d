//! Finding a kind by name.

use super::Kind;

/// Why an `apiVersion` and `kind` name nothing that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupError {
    /// The group has no such kind.
    UnknownKind,
    /// The kind exists in other versions only.
    UnknownVersion(Kind),
}

impl Kind {
    /// The kind that an object with this `apiVersion` and `kind` has. Every served version is the same kind.
    pub fn lookup(api_version: &str, kind: &str) -> Result<Self, LookupError> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let found = Self::in_group(group, kind).ok_or(LookupError::UnknownKind)?;
        if found.info().versions.contains(&version) {
            Ok(found)
        } else {
            Err(LookupError::UnknownVersion(found))
        }
    }

    /// The kind of this name in a group, in whatever version.
    pub fn in_group(group: &str, kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|candidate| {
            let info = candidate.info();
            info.kind == kind && info.group == group
        })
    }

    /// The kind with this plural in a group, as URLs and RBAC rules name it.
    pub fn by_resource(group: &str, plural: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|candidate| {
            let info = candidate.info();
            info.plural == plural && info.group == group
        })
    }

    /// The kinds that a word on a command line may mean: a kind, plural or short name in any letter case, optionally with
    /// its group (`gateway.networking.istio.io`). The first is what the word means if nothing else decides.
    pub fn named(word: &str) -> Vec<Self> {
        let (name, group) = word.split_once('.').map_or((word, None), |(name, group)| (name, Some(group)));
        let matches = |candidate: &Self| {
            let info = candidate.info();
            let names = info.short_names.iter().chain([&info.kind, &info.plural]);
            names.into_iter().any(|known| known.eq_ignore_ascii_case(name))
                && group.is_none_or(|group| info.group.eq_ignore_ascii_case(group))
        };
        Self::ALL.iter().copied().filter(matches).collect()
    }
}
