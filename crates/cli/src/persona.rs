//! Which tool the program acts as.

use std::ffi::OsStr;
use std::path::Path;

/// The tool whose output the program prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Persona {
    Canopus,
    Istioctl,
}

impl Persona {
    /// The name that users type.
    pub(crate) fn program(self) -> &'static str {
        match self {
            Self::Canopus => "canopus",
            Self::Istioctl => "istioctl",
        }
    }

    /// Chooses by the name that the program was called by.
    pub(crate) fn from_program(program: Option<&OsStr>) -> Self {
        match program.and_then(|program| Path::new(program).file_stem()) {
            Some(name) if name == "istioctl" => Self::Istioctl,
            _ => Self::Canopus,
        }
    }
}
