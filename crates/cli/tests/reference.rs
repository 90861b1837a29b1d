//! Reference pages in the repository are what the table of commands says: Markdown in `docs/cli`, manual pages in
//! `packaging/man`. `UPDATE_GOLDENS=1` writes them.
#![expect(clippy::unwrap_used, reason = "tests")]
#![expect(
    clippy::disallowed_methods,
    reason = "whoever runs the test says by a variable that files are to be written"
)]

#[path = "support/gateway_report.rs"]
mod report;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use canopus_runtime::reference::{File, Page};

fn in_repository(directory: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(directory)
}

/// Holds a directory to the files that should be in it, or makes it so.
fn check(directory: &str, files: &[File]) {
    let path = in_repository(directory);
    let names: BTreeSet<String> = files.iter().map(|file| file.name.clone()).collect();
    let updates = std::env::var_os("UPDATE_GOLDENS").is_some();
    if updates {
        fs::create_dir_all(&path).unwrap();
    }
    for entry in fs::read_dir(&path).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if !names.contains(&name) {
            assert!(updates, "{directory}/{name} is about no command; run with UPDATE_GOLDENS=1");
            fs::remove_file(path.join(name)).unwrap();
        }
    }
    for file in files {
        let path = path.join(&file.name);
        if updates {
            fs::write(path, &file.text).unwrap();
            continue;
        }
        let stored = fs::read_to_string(&path).unwrap_or_default();
        assert!(
            stored == file.text,
            "{directory}/{} is not what the commands say; run `UPDATE_GOLDENS=1 cargo test -p canopus-cli --test reference`",
            file.name
        );
    }
}

#[test]
fn pages_are_current() {
    let page = Page::from_command(&canopus_cli::command::tree());
    check("docs/cli", &page.markdown());
    check("packaging/man", &page.man());
}

#[test]
fn every_command_says_what_it_does_and_every_flag_what_it_means() {
    fn walk(page: &Page, silent: &mut Vec<String>) {
        let entries = page.flags.iter().chain(&page.arguments).chain(&page.inherited);
        let undescribed = entries.filter(|entry| entry.help.is_empty());
        silent.extend(undescribed.map(|entry| format!("{} {}", page.command, entry.name)));
        if page.about.is_empty() {
            silent.push(page.command.clone());
        }
        page.commands.iter().for_each(|command| walk(command, silent));
    }
    let mut silent = Vec::new();
    walk(&Page::from_command(&canopus_cli::command::tree()), &mut silent);
    assert!(silent.is_empty(), "{silent:#?}");
}

/// Commands that ask something of a mesh or of files say what their exit codes mean.
#[test]
fn commands_say_their_exit_codes() {
    let page = Page::from_command(&canopus_cli::command::tree());
    let silent: Vec<&str> = page
        .commands
        .iter()
        .filter(|command| !command.sections.iter().any(|section| section.title == "Exit codes"))
        .filter(|command| command.commands.is_empty())
        .map(|command| command.command.as_str())
        .collect();
    assert!(silent.is_empty(), "{silent:#?}");
}

#[test]
fn table_of_the_official_report_is_current() {
    if std::env::var_os("UPDATE_GOLDENS").is_some() {
        report::update(&in_repository("")).unwrap();
    }
    let read = |name: &str| fs::read_to_string(in_repository(name)).unwrap();
    let page = read(report::PAGE);
    let stored = read(report::REPORT);
    assert!(!stored.contains("result: failure"), "{stored}");
    assert!(
        report::replaced(&page, &stored).unwrap() == page,
        "the table in {} is not that of {}; `cargo xtask gateway-conformance` writes both",
        report::PAGE,
        report::REPORT
    );
}
