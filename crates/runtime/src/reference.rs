//! Reference pages of a program: every command with its usage, flags, examples and exit codes, as Markdown, manual pages,
//! HTML and YAML.
//!
//! Pages are made from the table that parses the command line, so they say what the program does; a test of each program
//! with pages in the repository holds them to it. [`Page::from_command`] reads the table, the modules below write one format each.

mod html;
mod man;
mod markdown;

use std::fs;
use std::io;
use std::path::PathBuf;

use canopus_base::yaml;
use clap::{Arg, ArgAction, Args, Command};
use serde::Serialize;

use crate::completion::{self, Shell, Words};

/// A command as its page describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Page {
    /// The words that lead to it, such as `canopus proxy-config`.
    pub command: String,
    /// Other names of it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// What it does, in one line.
    pub about: String,
    /// What it does, at length.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// How it is called.
    pub usage: String,
    /// Positional arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<Entry>,
    /// Flags of this command alone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flags: Vec<Entry>,
    /// Flags that all commands below it have, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inherited: Vec<Entry>,
    /// Examples, exit codes and whatever else there is to say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sections: Vec<Section>,
    /// The commands below it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<Page>,
}

/// A flag or a word.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Entry {
    /// How it is written, such as `-o, --output FORMAT`.
    pub name: String,
    /// What it means, with its default.
    pub help: String,
}

/// A part of a page with a title.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Section {
    /// Such as `Examples`.
    pub title: String,
    /// The text.
    pub text: String,
    /// Whether lines stay as they are.
    pub verbatim: bool,
}

/// A file of the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct File {
    /// The name, without a directory.
    pub name: String,
    /// The content.
    pub text: String,
}

impl Page {
    /// The page of a program, with those of its commands below it. Hidden commands and flags have none.
    pub fn from_command(root: &Command) -> Self {
        let mut root = root.clone();
        // Usage lines name the whole way to a command only now.
        root.build();
        page(&root, root.get_name())
    }

    /// A page of Markdown per command, and `README.md` that lists them.
    pub fn markdown(&self) -> Vec<File> {
        markdown::files(self)
    }

    /// A page for `man` per command.
    pub fn man(&self) -> Vec<File> {
        man::files(self)
    }

    /// The last word of the command.
    fn name(&self) -> &str {
        self.command.rsplit(' ').next().unwrap_or_default()
    }
}

fn page(command: &Command, path: &str) -> Page {
    let text = |text: Option<&clap::builder::StyledStr>| text.map(ToString::to_string).unwrap_or_default();
    let about = text(command.get_about());
    let description = text(command.get_long_about());
    let usage = command.clone().render_usage().to_string();
    let usage = usage.strip_prefix("Usage: ").unwrap_or(&usage).trim();
    let shown = |arg: &&Arg| !arg.is_hide_set() && !is_builtin(arg);
    let entries = |is_meant: &dyn Fn(&Arg) -> bool| {
        command.get_arguments().filter(shown).filter(|arg| is_meant(arg)).map(entry).collect::<Vec<_>>()
    };
    let is_top = !path.contains(' ');
    // clap adds `help` to whatever has commands.
    let children =
        command.get_subcommands().filter(|child| !child.is_hide_set() && child.get_name() != "help");
    let mut commands: Vec<Page> =
        children.map(|child| page(child, &format!("{path} {}", child.get_name()))).collect();
    commands.sort_by(|a, b| a.command.cmp(&b.command));
    let sections = text(command.get_after_long_help().or_else(|| command.get_after_help()));
    Page {
        command: path.to_owned(),
        aliases: command.get_visible_aliases().map(str::to_owned).collect(),
        description: if description == about { String::new() } else { description },
        about,
        usage: usage.to_owned(),
        arguments: entries(&Arg::is_positional),
        flags: entries(&|arg| !arg.is_positional() && !arg.is_global_set()),
        // Said once, where all pages are listed.
        inherited: if is_top {
            entries(&|arg| !arg.is_positional() && arg.is_global_set())
        } else {
            Vec::new()
        },
        sections: split(&sections),
        commands,
    }
}

/// What every command has without saying so.
fn is_builtin(arg: &Arg) -> bool {
    matches!(
        arg.get_action(),
        ArgAction::Help | ArgAction::HelpLong | ArgAction::HelpShort | ArgAction::Version
    )
}

fn entry(arg: &Arg) -> Entry {
    let values: Vec<String> =
        arg.get_value_names().into_iter().flatten().map(|name| name.to_uppercase()).collect();
    let value = if arg.get_action().takes_values() { values.join(" ") } else { String::new() };
    let is_repeated = matches!(arg.get_action(), ArgAction::Append);
    let name = match (arg.get_short(), arg.get_long()) {
        (None, None) => format!("{value}{}", if is_repeated { "…" } else { "" }),
        (short, long) => {
            let short = short.map(|short| format!("-{short}"));
            let long = long.map(|long| format!("--{long}"));
            let names: Vec<String> = short.into_iter().chain(long).collect();
            let separator = if arg.is_require_equals_set() { "=" } else { " " };
            let value = if value.is_empty() { value } else { format!("{separator}{value}") };
            format!("{}{value}", names.join(", "))
        }
    };
    Entry { name, help: help(arg) }
}

/// The help with what clap adds to it: the values there are, and the default.
fn help(arg: &Arg) -> String {
    let text = arg.get_long_help().or_else(|| arg.get_help()).map(ToString::to_string).unwrap_or_default();
    let mut help = text.split_whitespace().collect::<Vec<_>>().join(" ");
    if !help.is_empty() && !help.ends_with(['.', '?', '!', ']', ')']) {
        help.push('.');
    }
    let values: Vec<String> = arg
        .get_possible_values()
        .iter()
        .filter(|value| !value.is_hide_set())
        .map(|value| value.get_name().to_owned())
        .collect();
    let is_flag = values == ["true", "false"];
    if arg.get_action().takes_values() && !values.is_empty() && !is_flag {
        help.push_str(&format!(" One of {}.", values.join(", ")));
    }
    let defaults: Vec<String> =
        arg.get_default_values().iter().map(|value| value.to_string_lossy().into_owned()).collect();
    let is_said = arg.is_hide_default_value_set() || !arg.get_action().takes_values();
    if !is_said && defaults.iter().any(|value| !value.is_empty()) {
        help.push_str(&format!(" Default: {}.", defaults.join(",")));
    }
    help.trim().to_owned()
}

/// Takes `Examples:` and `Exit codes:` apart. Text before any title is a section without one.
fn split(text: &str) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for paragraph in text.split("\n\n").map(|paragraph| paragraph.trim_matches('\n')) {
        let (first, rest) = paragraph.split_once('\n').unwrap_or((paragraph, ""));
        let titled = first.split_once(':').filter(|(title, _)| {
            let words = title.split(' ').count();
            words <= 3 && title.starts_with(|first: char| first.is_ascii_uppercase())
        });
        let verbatim = rest.lines().next().is_some_and(|line| line.starts_with("  "));
        match titled {
            Some((title, "")) => sections.push(Section {
                title: title.to_owned(),
                text: if verbatim { unindented(rest) } else { joined(rest) },
                verbatim,
            }),
            Some((title, said)) => sections.push(Section {
                title: title.to_owned(),
                text: joined(&format!("{}\n{rest}", said.trim())),
                verbatim: false,
            }),
            None if paragraph.is_empty() => {}
            None => sections.push(Section { title: String::new(), text: joined(paragraph), verbatim: false }),
        }
    }
    sections
}

fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn unindented(text: &str) -> String {
    text.lines().map(|line| line.strip_prefix("  ").unwrap_or(line)).collect::<Vec<_>>().join("\n")
}

/// The parts of a text: paragraphs, and what is indented and stays as it is.
fn blocks(text: &str) -> Vec<(bool, String)> {
    let mut blocks: Vec<(bool, Vec<&str>)> = Vec::new();
    for line in text.lines() {
        let is_code = line.starts_with("  ");
        match blocks.last_mut() {
            Some((last, lines)) if *last == is_code && !line.trim().is_empty() => lines.push(line),
            _ if line.trim().is_empty() => blocks.push((false, Vec::new())),
            _ => blocks.push((is_code, vec![line])),
        }
    }
    let text = |(is_code, lines): (bool, Vec<&str>)| {
        let text = if is_code { unindented(&lines.join("\n")) } else { joined(&lines.join("\n")) };
        (is_code, text)
    };
    blocks.into_iter().filter(|(_, lines)| !lines.is_empty()).map(text).collect()
}

/// The arguments of a `collateral` command, which writes what a program can say of itself. Names are those of Istio's
/// programs.
#[derive(Args, Clone, Debug)]
pub struct CollateralFlags {
    /// Where to write.
    #[arg(short, long = "outputDir", value_name = "DIR", default_value = ".")]
    output_dir: PathBuf,
    /// Write everything.
    #[arg(long)]
    all: bool,
    /// Write a page of Markdown for each command.
    #[arg(long)]
    markdown: bool,
    /// Write a manual page for each command.
    #[arg(long)]
    man: bool,
    /// Write all commands as one page of HTML for a web site.
    #[arg(long = "html_fragment_with_front_matter")]
    html: bool,
    /// Write all commands as YAML, for programs.
    #[arg(long)]
    yaml: bool,
    /// Write the completion script for bash.
    #[arg(long)]
    bash: bool,
    /// Write the completion script for zsh.
    #[arg(long)]
    zsh: bool,
}

impl CollateralFlags {
    /// The files that are asked for.
    pub fn files(&self, root: &Command) -> Vec<File> {
        let page = Page::from_command(root);
        let name = root.get_name();
        let file = |name: String, text: String| vec![File { name, text }];
        let script = |shell| completion::script(root, name, shell);
        let kinds: [(bool, &dyn Fn() -> Vec<File>); 6] = [
            (self.markdown, &|| page.markdown()),
            (self.man, &|| page.man()),
            (self.html, &|| file(format!("{name}.html"), html::fragment(&page))),
            (self.yaml, &|| {
                file(format!("{name}.yaml"), yaml::to_string(&page).expect("texts are always YAML"))
            }),
            (self.bash, &|| file(format!("{name}.bash"), script(Shell::Bash(Words::default())))),
            (self.zsh, &|| file(format!("_{name}"), script(Shell::Zsh(Words::default())))),
        ];
        kinds.into_iter().filter(|(asked, _)| *asked || self.all).flat_map(|(_, make)| make()).collect()
    }

    /// Writes the files that are asked for. Directories are made; what else is in them stays.
    pub fn write(&self, root: &Command) -> io::Result<()> {
        let described = |path: &PathBuf, error: io::Error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        };
        fs::create_dir_all(&self.output_dir).map_err(|error| described(&self.output_dir, error))?;
        for file in self.files(root) {
            let path = self.output_dir.join(&file.name);
            fs::write(&path, file.text).map_err(|error| described(&path, error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
