use sha2::{Digest, Sha256};

/// The list of unpacked packages with their versions, beside the directory of executables.
pub(crate) const LISTING: &str = "packages";

/// One row of the table of parts.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    pub(crate) purpose: &'static str,
    pub(crate) programs: &'static [&'static str],
    pub(crate) recipe: Recipe,
}

/// How a part comes to the machine.
pub(crate) enum Recipe {
    Wheel(Wheel),
    Go(GoBuild),
    Cargo(CargoBuild),
    Debian(Debian),
}

/// Packages of the distribution, which are unpacked but not installed. Their versions are the distribution's.
pub(crate) struct Debian {
    pub(crate) packages: &'static [&'static str],
}

/// A Python package that is only a box around an executable.
pub(crate) struct Wheel {
    pub(crate) package: &'static str,
    pub(crate) files: &'static [WheelFile],
    /// Where the executable lies in the box.
    pub(crate) executable: &'static str,
}

/// The checksum of the package for one platform; its name is pip's business.
pub(crate) struct WheelFile {
    pub(crate) os: &'static str,
    pub(crate) arch: &'static str,
    pub(crate) sha256: &'static str,
}

/// An executable compiled from a Go module of ours, whose go.sum pins every source.
pub(crate) struct GoBuild {
    pub(crate) sources: &'static [SourceFile],
    pub(crate) package: &'static str,
    /// Linker arguments beyond those every build gets.
    pub(crate) link: &'static [&'static str],
    /// Files of modules that are kept beside the executables.
    pub(crate) files: &'static [ModuleFiles],
    /// What it takes, for people deciding whether to wait.
    pub(crate) cost: &'static str,
}

/// A directory of a Go module whose files the part brings along.
pub(crate) struct ModuleFiles {
    pub(crate) module: &'static str,
    /// The directory in the module.
    pub(crate) directory: &'static str,
    /// The directory in the part, beside `bin`.
    pub(crate) into: &'static str,
}

/// An executable compiled from a published crate.
pub(crate) struct CargoBuild {
    pub(crate) package: &'static str,
    /// What it takes, for people deciding whether to wait.
    pub(crate) cost: &'static str,
}

/// One embedded source file.
pub(crate) struct SourceFile {
    pub(crate) path: &'static str,
    pub(crate) text: &'static str,
}

impl Entry {
    /// The directory of this part in the cache. It changes with anything that could change the executable, so an altered
    /// recipe is a new part rather than a stale one.
    pub(crate) fn directory_name(&self) -> String {
        let fingerprint: String =
            self.recipe_hash().iter().take(6).map(|byte| format!("{byte:02x}")).collect();
        format!("{}-{}-{fingerprint}", self.name, self.version)
    }

    fn recipe_hash(&self) -> Vec<u8> {
        let mut hash = Sha256::new();
        let mut add = |text: &str| {
            hash.update(text.len().to_le_bytes());
            hash.update(text.as_bytes());
        };
        self.programs.iter().for_each(|program| add(program));
        match &self.recipe {
            Recipe::Wheel(wheel) => {
                add(wheel.package);
                add(wheel.executable);
                wheel.files.iter().for_each(|file| add(file.sha256));
            }
            Recipe::Debian(recipe) => {
                add(LISTING);
                recipe.packages.iter().for_each(|package| add(package));
            }
            Recipe::Cargo(build) => add(build.package),
            Recipe::Go(build) => {
                add(build.package);
                build.link.iter().for_each(|argument| add(argument));
                for files in build.files {
                    [files.module, files.directory, files.into].into_iter().for_each(&mut add);
                }
                for file in build.sources {
                    add(file.path);
                    add(file.text);
                }
            }
        }
        hash.finalize().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    fn entry(link: &'static [&'static str]) -> Entry {
        Entry {
            name: "thing",
            version: "1.0.0",
            purpose: "",
            programs: &["thing"],
            recipe: Recipe::Go(GoBuild { sources: &[], package: ".", link, files: &[], cost: "" }),
        }
    }

    #[test]
    fn directory_changes_when_the_recipe_does() {
        assert_eq!(entry(&[]).directory_name(), entry(&[]).directory_name());
        assert_ne!(entry(&[]).directory_name(), entry(&["-X a=b"]).directory_name());
    }

    #[test]
    fn directory_names_the_part_and_its_version() {
        assert!(Part::Envoy.entry().directory_name().starts_with("envoy-1.40.0-"));
    }
}
