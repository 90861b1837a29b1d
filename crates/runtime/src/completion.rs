//! Scripts that teach a shell the commands and flags of a program: bash, fish, PowerShell and zsh.
//!
//! They are made from the program's own table of commands, so they know whatever the program knows.

use std::fmt::Write as _;

use clap::{Arg, Args, Command, Subcommand};

/// The arguments of a `completion` command.
#[derive(Args, Clone, Copy, Debug)]
pub struct CompletionFlags {
    #[command(subcommand)]
    shell: Shell,
}

/// The shells that can be taught.
#[derive(Clone, Copy, Debug, Subcommand)]
pub enum Shell {
    /// A script for bash.
    Bash(Words),
    /// A script for fish.
    Fish(Words),
    /// A script for PowerShell.
    Powershell(Words),
    /// A script for zsh.
    Zsh(Words),
}

/// What a script says beside the words themselves.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct Words {
    /// Leave out descriptions.
    #[arg(long)]
    pub no_descriptions: bool,
}

/// The script for the shell that was asked for. `program` is the name that users type.
pub fn render(root: &Command, program: &str, flags: CompletionFlags) -> String {
    script(root, program, flags.shell)
}

/// The script for a shell.
pub fn script(root: &Command, program: &str, shell: Shell) -> String {
    let (Shell::Bash(words) | Shell::Fish(words) | Shell::Powershell(words) | Shell::Zsh(words)) = shell;
    let mut root = root.clone();
    // Flags of every command are known to each of them only now.
    root.build();
    let table = table(&root, !words.no_descriptions);
    match shell {
        Shell::Bash(_) => bash(program, &table),
        // zsh reads bash's completions after `bashcompinit`.
        Shell::Zsh(_) => format!(
            "#compdef {program}\nautoload -U +X bashcompinit && bashcompinit\n{}",
            bash(program, &table)
        ),
        Shell::Fish(_) => fish(program, &table),
        Shell::Powershell(_) => powershell(program, &table),
    }
}

/// What can follow a command.
struct Entry {
    /// The commands so far, without the program: `proxy-config cluster`.
    path: String,
    words: Vec<(String, String)>,
}

/// Every command with its subcommands and long flags.
fn table(root: &Command, with_descriptions: bool) -> Vec<Entry> {
    let mut entries = Vec::new();
    let mut open = vec![(String::new(), root)];
    while let Some((path, command)) = open.pop() {
        let describe = |text: Option<String>| {
            let line = text.unwrap_or_default();
            if with_descriptions { line.lines().next().unwrap_or_default().to_owned() } else { String::new() }
        };
        let commands: Vec<&Command> =
            command.get_subcommands().filter(|command| !command.is_hide_set()).collect();
        let flags = command.get_arguments().filter(|flag| !flag.is_hide_set());
        let flag = |flag: &Arg| {
            Some((format!("--{}", flag.get_long()?), describe(flag.get_help().map(ToString::to_string))))
        };
        let mut words: Vec<(String, String)> = commands
            .iter()
            .map(|command| {
                (command.get_name().to_owned(), describe(command.get_about().map(ToString::to_string)))
            })
            .collect();
        words.extend(flags.filter_map(flag));
        open.extend(
            commands
                .into_iter()
                .map(|command| (format!("{path} {}", command.get_name()).trim().to_owned(), command)),
        );
        entries.push(Entry { path, words });
    }
    entries.sort_by(|a, b| a.path.cmp(&b.path));
    entries
}

fn bash(program: &str, table: &[Entry]) -> String {
    let function = format!("__{}_complete", program.replace('-', "_"));
    let mut cases = String::new();
    for entry in table {
        let words: Vec<&str> = entry.words.iter().map(|(word, _)| word.as_str()).collect();
        let _ = writeln!(cases, "    \"{}\") words=\"{}\" ;;", entry.path, words.join(" "));
    }
    format!(
        r#"{function}() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" path="" words="" word
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    [[ "$word" == -* ]] || path="${{path:+$path }}$word"
  done
  while :; do
    case "$path" in
{cases}    esac
    [[ -n "$words" || -z "$path" ]] && break
    [[ "$path" == *" "* ]] && path="${{path% *}}" || path=""
  done
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -o default -F {function} {program}
"#
    )
}

fn fish(program: &str, table: &[Entry]) -> String {
    let quoted = |text: &str| text.replace('\\', "\\\\").replace('\'', "\\'");
    let mut script = format!("complete -c {program} -f\n");
    for entry in table {
        let condition = if entry.path.is_empty() {
            "__fish_use_subcommand".to_owned()
        } else {
            let seen = entry.path.split(' ').map(|word| format!("__fish_seen_subcommand_from {word}"));
            seen.collect::<Vec<_>>().join("; and ")
        };
        for (word, about) in &entry.words {
            let word = match word.strip_prefix("--") {
                Some(flag) => format!("-l {flag}"),
                None => format!("-a {word}"),
            };
            let _ = write!(script, "complete -c {program} -n '{condition}' {word}");
            let _ =
                if about.is_empty() { writeln!(script) } else { writeln!(script, " -d '{}'", quoted(about)) };
        }
    }
    script
}

fn powershell(program: &str, table: &[Entry]) -> String {
    let mut cases = String::new();
    for entry in table {
        let words: Vec<String> = entry.words.iter().map(|(word, _)| format!("'{word}'")).collect();
        let _ = writeln!(cases, "    '{}' = @({})", entry.path, words.join(", "));
    }
    format!(
        r#"Register-ArgumentCompleter -Native -CommandName '{program}' -ScriptBlock {{
  param($wordToComplete, $commandAst, $cursorPosition)
  $table = @{{
{cases}  }}
  $path = ($commandAst.CommandElements | Select-Object -Skip 1 | ForEach-Object {{ $_.ToString() }} |
    Where-Object {{ -not $_.StartsWith('-') -and $_ -ne $wordToComplete }}) -join ' '
  while ($path -and -not $table.ContainsKey($path)) {{ $path = ($path -replace ' ?[^ ]*$', '') }}
  $table["$path"] | Where-Object {{ $_ -like "$wordToComplete*" }} |
    ForEach-Object {{ [System.Management.Automation.CompletionResult]::new($_, $_, 'ParameterValue', $_) }}
}}
"#
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::process::{Command as Process, Stdio};

    use super::*;

    /// A program with a group of commands and a flag of all of them.
    fn program() -> Command {
        let config = Arg::new("config").long("config").global(true).help("Where it is");
        let cluster = Command::new("cluster").about("Its clusters");
        let revision = Arg::new("revision").long("revision").help("Of the control plane");
        let hidden = Command::new("secret").hide(true);
        Command::new("prog")
            .arg(config)
            .subcommand(Command::new("proxy-config").about("What it's told").subcommand(cluster))
            .subcommand(
                Command::new("tag").about("Tags").subcommand(Command::new("set").about("Set").arg(revision)),
            )
            .subcommand(hidden)
    }

    fn words(no_descriptions: bool) -> Words {
        Words { no_descriptions }
    }

    #[test]
    fn bash_completes_commands_and_flags() {
        let script = script(&program(), "prog", Shell::Bash(words(true)));
        let asked = format!(
            "{script}\nCOMP_WORDS=(prog proxy-config cl); COMP_CWORD=2; __prog_complete; echo \"${{COMPREPLY[@]}}\"\n\
             COMP_WORDS=(prog tag set --rev); COMP_CWORD=3; __prog_complete; echo \"${{COMPREPLY[@]}}\"\n\
             COMP_WORDS=(prog tag set --con); COMP_CWORD=3; __prog_complete; echo \"${{COMPREPLY[@]}}\"\n"
        );
        let mut bash = Process::new("bash").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        bash.stdin.take().unwrap().write_all(asked.as_bytes()).unwrap();
        let output = bash.wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "cluster\n--revision\n--config\n");
    }

    #[test]
    fn hidden_commands_stay_hidden() {
        for shell in [Shell::Bash(words(false)), Shell::Fish(words(false)), Shell::Powershell(words(false))] {
            assert!(!script(&program(), "prog", shell).contains("secret"));
        }
    }

    #[test]
    fn descriptions_can_be_left_out() {
        let fish = |no_descriptions| script(&program(), "prog", Shell::Fish(words(no_descriptions)));
        assert!(fish(false).contains("-a proxy-config -d 'What it\\'s told'"), "{}", fish(false));
        assert!(fish(true).contains("-a proxy-config\n") && !fish(true).contains(" -d '"));
        let powershell = script(&program(), "prog", Shell::Powershell(words(true)));
        assert!(powershell.contains("'proxy-config cluster' = @("));
        assert!(script(&program(), "prog", Shell::Zsh(words(true))).starts_with("#compdef prog\n"));
    }
}
