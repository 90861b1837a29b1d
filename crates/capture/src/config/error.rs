/// Why a setting cannot be used. The setting is named by its flag, or by its variable where it has no flag.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ConfigError {
    /// A value is not of the setting's form.
    #[error("{setting}: {reason}")]
    Invalid {
        /// The flag or variable.
        setting: &'static str,
        /// What is wrong, and what is expected.
        reason: String,
    },
    /// `*` where excluding everything makes no sense.
    #[error("{setting}: \"*\" would exclude everything; list prefixes, or leave --istio-service-cidr empty")]
    ExcludesAll {
        /// The flag.
        setting: &'static str,
    },
    /// Too many groups: one rule has to name every group, and the kernel bounds the matches of a rule.
    #[error(
        "{setting}: {count} groups are more than the {limit} that fit in one rule; list fewer, or use \"*\" with exclusions"
    )]
    TooManyGroups {
        /// The variable.
        setting: &'static str,
        /// How many there are.
        count: usize,
        /// How many may be.
        limit: usize,
    },
    /// The machine has no address to tell its family by.
    #[error(
        "no local IP address other than loopback and link-local ones: capture cannot tell whether IPv6 is in use; set up the network first"
    )]
    NoLocalAddress,
}

impl ConfigError {
    pub(crate) fn invalid(setting: &'static str, reason: impl ToString) -> Self {
        Self::Invalid { setting, reason: reason.to_string() }
    }
}
