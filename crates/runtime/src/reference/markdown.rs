//! Pages of Markdown: one per command of the program with those below it, and a list of all.

use std::fmt::Write as _;

use super::{Entry, File, Page, blocks};

/// The page that lists the others.
const INDEX: &str = "README.md";

pub(super) fn files(root: &Page) -> Vec<File> {
    let mut files = vec![File { name: INDEX.to_owned(), text: index(root) }];
    files.extend(root.commands.iter().map(|page| File {
        name: format!("{}.md", page.name()),
        text: {
            let mut text = String::new();
            write(&mut text, page, 1);
            text
        },
    }));
    files
}

fn index(root: &Page) -> String {
    let mut text = format!("# {}\n\n{}\n", root.command, escaped(&root.about));
    describe(&mut text, root);
    text.push_str("\n| command | what it does |\n|---|---|\n");
    for page in &root.commands {
        let _ = writeln!(text, "| [`{0}`]({0}.md) | {1} |", page.name(), escaped(&page.about));
    }
    table(&mut text, "## Flags of every command", "flag", &root.inherited);
    text
}

/// A command and those below it, the further down the smaller the heading.
fn write(text: &mut String, page: &Page, level: usize) {
    let heading = "#".repeat(level.min(4));
    let _ = writeln!(text, "{heading} {}\n\n{}", page.command, escaped(&page.about));
    let _ = writeln!(text, "\n```\n{}\n```", page.usage);
    if !page.aliases.is_empty() {
        let names: Vec<String> = page.aliases.iter().map(|name| format!("`{name}`")).collect();
        let _ = writeln!(text, "\nOther names: {}.", names.join(", "));
    }
    describe(text, page);
    table(text, "", "argument", &page.arguments);
    table(text, "", "flag", &page.flags);
    for section in &page.sections {
        if !section.title.is_empty() {
            let _ = writeln!(text, "\n**{}**", section.title);
        }
        if section.verbatim {
            let _ = writeln!(text, "\n```\n{}\n```", section.text);
        } else {
            let _ = writeln!(text, "\n{}", escaped(&section.text));
        }
    }
    for command in &page.commands {
        text.push('\n');
        write(text, command, level + 1);
    }
}

/// The long description; its first paragraph is the line that is there already.
fn describe(text: &mut String, page: &Page) {
    for (is_code, block) in blocks(&page.description) {
        if is_code {
            let _ = writeln!(text, "\n```\n{block}\n```");
        } else if block.trim_end_matches('.') != page.about.trim_end_matches('.') {
            let _ = writeln!(text, "\n{}", escaped(&block));
        }
    }
}

fn table(text: &mut String, heading: &str, kind: &str, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    if !heading.is_empty() {
        let _ = writeln!(text, "\n{heading}");
    }
    let _ = writeln!(text, "\n| {kind} | meaning |\n|---|---|");
    for entry in entries {
        let _ = writeln!(text, "| `{}` | {} |", entry.name.replace('|', "\\|"), escaped(&entry.help));
    }
}

/// Words as Markdown shows them; what stands in backquotes is left alone.
fn escaped(text: &str) -> String {
    let mut result = String::with_capacity(text.len());
    let mut in_code = false;
    for character in text.chars() {
        match character {
            '`' => in_code = !in_code,
            '<' | '*' | '_' if !in_code => result.push('\\'),
            '|' => result.push('\\'),
            _ => {}
        }
        result.push(character);
    }
    result
}
