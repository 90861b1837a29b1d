//! `canopusd completion`: what a shell needs to complete commands and flags.

use std::fmt::Write as _;

use clap::{Command, ValueEnum};

/// The shells that can be taught.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Shell {
    Bash,
    Fish,
    Zsh,
}

/// A script that teaches a shell.
pub(super) fn script(root: &Command, shell: Shell) -> String {
    match shell {
        Shell::Bash => bash(root),
        Shell::Fish => fish(root),
        // It understands what bash does, if asked to.
        Shell::Zsh => format!("autoload -U +X bashcompinit && bashcompinit\n{}", bash(root)),
    }
}

/// The commands people type.
fn commands(root: &Command) -> impl Iterator<Item = &Command> {
    root.get_subcommands().filter(|command| !command.is_hide_set())
}

/// The long flags of a command.
fn flags(command: &Command) -> impl Iterator<Item = &str> {
    let given = command.get_arguments().filter(|argument| !argument.is_hide_set());
    given.filter_map(clap::Arg::get_long).chain(["help"])
}

fn bash(root: &Command) -> String {
    let name = root.get_name();
    let names: Vec<&str> = commands(root).map(Command::get_name).collect();
    let mut cases = String::new();
    for command in commands(root) {
        let flags: Vec<String> = flags(command).map(|flag| format!("--{flag}")).collect();
        let _ = writeln!(cases, "    {}) words=\"{}\" ;;", command.get_name(), flags.join(" "));
    }
    let names = names.join(" ");
    format!(
        "_{name}() {{\n  local words current=\"${{COMP_WORDS[COMP_CWORD]}}\"\n  case \"${{COMP_WORDS[1]}}\" in\n{cases}    \
         *) words=\"{names}\" ;;\n  esac\n  [ \"$COMP_CWORD\" -eq 1 ] && words=\"{names}\"\n  \
         COMPREPLY=($(compgen -W \"$words\" -- \"$current\"))\n}}\ncomplete -o default -F _{name} {name}\n"
    )
}

fn fish(root: &Command) -> String {
    let name = root.get_name();
    let mut script = String::new();
    for command in commands(root) {
        let about = quoted(&command.get_about().map(ToString::to_string).unwrap_or_default());
        let own = command.get_name();
        let _ = writeln!(script, "complete -c {name} -n __fish_use_subcommand -f -a {own} -d {about}");
        for flag in flags(command) {
            let _ = writeln!(script, "complete -c {name} -n '__fish_seen_subcommand_from {own}' -l {flag}");
        }
    }
    script
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::command::Cli;

    #[test]
    fn every_shell_learns_commands_and_flags() {
        let bash = script(&Cli::command(), Shell::Bash);
        assert!(bash.contains("discovery) words=\"") && bash.contains(" --meshConfig "), "{bash}");
        assert!(bash.contains("*) words=\"discovery operator request "), "{bash}");
        assert!(script(&Cli::command(), Shell::Zsh).ends_with(&bash));
        let fish = script(&Cli::command(), Shell::Fish);
        assert!(fish.contains("-n '__fish_seen_subcommand_from discovery' -l meshConfig\n"), "{fish}");
    }

    #[test]
    fn script_is_one_that_bash_understands() {
        let checked =
            std::process::Command::new("bash").arg("-nc").arg(script(&Cli::command(), Shell::Bash)).status();
        // Where there is no bash there is nobody to ask.
        assert!(checked.map_or(true, |status| status.success()));
    }
}
