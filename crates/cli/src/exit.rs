//! Exit codes, which are istioctl's.

use std::process::ExitCode;

/// The command failed, or an object is invalid.
pub(crate) const FAILURE: ExitCode = ExitCode::FAILURE;

/// The command line makes no sense.
pub(crate) fn usage() -> ExitCode {
    ExitCode::from(64)
}
