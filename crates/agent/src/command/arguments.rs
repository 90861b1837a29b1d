//! Arguments as manifests of other versions give them.

use std::ffi::{OsStr, OsString};

use canopus_runtime::arguments::without_unknown_flags;
use clap::Command;

/// The arguments that mean something, and the flags that do not.
///
/// Parity: a flag nobody knows is passed over together with its value, so that manifests of other versions keep working.
/// This holds for `proxy` alone, which is what manifests start.
pub(super) fn known(root: &Command, arguments: Vec<OsString>) -> (Vec<OsString>, Vec<String>) {
    let command =
        arguments.get(1).filter(|name| *name == "proxy").and_then(|name| root.find_subcommand(name));
    let Some(command) = command else { return (arguments, Vec::new()) };
    without_unknown_flags(command, arguments, is_role)
}

fn is_role(argument: &OsStr) -> bool {
    ["sidecar", "router", "waypoint"].iter().any(|role| argument == *role)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_other_versions_are_passed_over_with_their_values() {
        let given = "agent proxy --old value --gone sidecar --domain d --older=1 --concurrency 2 --log_caller=dns --vklog 2";
        let mut root = super::super::tree();
        root.build();
        let given = given.split(' ').map(OsString::from).collect();
        let (kept, unknown) = known(&root, given);
        let kept: Vec<_> = kept.iter().map(|argument| argument.to_string_lossy()).collect();
        assert_eq!(
            kept.join(" "),
            "agent proxy sidecar --domain d --concurrency 2 --log_caller=dns --vklog 2"
        );
        assert_eq!(unknown, ["old", "gone", "older"]);
    }
}
