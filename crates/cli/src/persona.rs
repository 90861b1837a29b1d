//! Whose words the tool speaks.

use std::ffi::OsStr;
use std::path::Path;

/// The tool's own words, or istioctl's to the letter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persona {
    Canopus,
    Istioctl,
}

impl Persona {
    /// Chosen by the name the program was called by.
    pub(crate) fn of(program: Option<&OsStr>) -> Self {
        match program.and_then(|program| Path::new(program).file_stem()) {
            Some(name) if name == "istioctl" => Self::Istioctl,
            _ => Self::Canopus,
        }
    }
}
