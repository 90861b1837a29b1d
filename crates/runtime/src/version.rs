//! Which build this is, and how `version` prints it.

use std::fmt;

use canopus_base::yaml;
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

/// A build, of this process or of one that answered over the network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildInfo {
    /// Release, such as `1.2.3`.
    pub version: String,
    /// Commit.
    pub revision: String,
    /// Compiler.
    // Parity: the key is Istio's, whose clients decode it; the value says which compiler it really was.
    #[serde(rename = "golang_version")]
    pub compiler: String,
    /// Whether the commit was built as it is: `Clean` or `Modified`.
    pub status: String,
    /// Name of the commit in the repository's history.
    pub tag: String,
}

impl BuildInfo {
    /// The build of this program.
    pub fn current() -> Self {
        BuildInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            revision: env!("CANOPUS_GIT_REVISION").to_owned(),
            compiler: env!("CANOPUS_RUST_VERSION").to_owned(),
            status: env!("CANOPUS_GIT_STATUS").to_owned(),
            tag: env!("CANOPUS_GIT_TAG").to_owned(),
        }
    }

    /// The build on one line, as `version --short=false` prints it.
    // Parity: this is how Go prints the struct.
    pub fn long_form(&self) -> String {
        format!(
            "version.BuildInfo{{Version:{:?}, GitRevision:{:?}, GolangVersion:{:?}, BuildStatus:{:?}, GitTag:{:?}}}",
            self.version, self.revision, self.compiler, self.status, self.tag
        )
    }
}

/// Version, commit and status, as `pilot_info` and start-up messages name a build.
impl fmt::Display for BuildInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.version, self.revision, self.status)
    }
}

/// A format for machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Flags of a `version` command.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct VersionFlags {
    /// Print the version number alone
    #[arg(
        short = 's',
        long = "short",
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_value_t = false,
        default_missing_value = "true",
        action = clap::ArgAction::Set
    )]
    pub short: bool,

    /// Print for machines
    #[arg(short = 'o', long = "output", value_name = "FORMAT")]
    pub output: Option<Format>,
}

/// What `version` prints about this build alone.
pub fn render(build: &BuildInfo, flags: VersionFlags) -> String {
    match flags.output {
        Some(Format::Json) => json(build),
        Some(Format::Yaml) => yaml(build),
        None if flags.short => format!("client version: {}\n", build.version),
        None => format!("client version: {}\n", build.long_form()),
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Report<'a> {
    client_version: &'a BuildInfo,
}

fn json(build: &BuildInfo) -> String {
    let report = Report { client_version: build };
    let text = serde_json::to_string_pretty(&report).expect("strings are always JSON");
    text + "\n"
}

fn yaml(build: &BuildInfo) -> String {
    let report = Report { client_version: build };
    let text = yaml::to_string(&report).expect("strings are always YAML");
    // Parity: the command ends its YAML with an empty line.
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build() -> BuildInfo {
        BuildInfo {
            version: "1.2.3".to_owned(),
            revision: "0123abc".to_owned(),
            compiler: "rustc 1.95.0".to_owned(),
            status: "Clean".to_owned(),
            tag: "v1.2.3".to_owned(),
        }
    }

    #[test]
    fn short_form_is_the_version() {
        let flags = VersionFlags { short: true, output: None };
        assert_eq!(render(&build(), flags), "client version: 1.2.3\n");
    }

    #[test]
    fn long_form_names_every_field() {
        assert_eq!(
            render(&build(), VersionFlags::default()),
            "client version: version.BuildInfo{Version:\"1.2.3\", GitRevision:\"0123abc\", \
             GolangVersion:\"rustc 1.95.0\", BuildStatus:\"Clean\", GitTag:\"v1.2.3\"}\n"
        );
    }

    #[test]
    fn json_has_istio_keys_in_order() {
        let expected = r#"{
  "clientVersion": {
    "version": "1.2.3",
    "revision": "0123abc",
    "golang_version": "rustc 1.95.0",
    "status": "Clean",
    "tag": "v1.2.3"
  }
}
"#;
        let flags = VersionFlags { short: false, output: Some(Format::Json) };
        assert_eq!(render(&build(), flags), expected);
    }

    #[test]
    fn yaml_has_istio_keys_sorted() {
        let expected = "clientVersion:\n  golang_version: rustc 1.95.0\n  revision: 0123abc\n  \
                        status: Clean\n  tag: v1.2.3\n  version: 1.2.3\n\n";
        let flags = VersionFlags { short: false, output: Some(Format::Yaml) };
        assert_eq!(render(&build(), flags), expected);
    }

    #[test]
    fn display_joins_version_revision_and_status() {
        assert_eq!(build().to_string(), "1.2.3-0123abc-Clean");
    }

    #[test]
    fn this_build_is_described() {
        let build = BuildInfo::current();
        assert!(build.compiler.starts_with("rustc 1."), "{build:?}");
        assert!(["Clean", "Modified", "unknown"].contains(&build.status.as_str()), "{build:?}");
    }
}
