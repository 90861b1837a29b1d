//! Pages for `man`: one for the program, one for each of its commands with those below it.

use std::fmt::Write as _;

use super::{Entry, File, Page, blocks};

pub(super) fn files(root: &Page) -> Vec<File> {
    let pages = std::iter::once(root).chain(&root.commands);
    pages.map(|page| File { name: format!("{}.1", file_name(page)), text: text(root, page) }).collect()
}

fn file_name(page: &Page) -> String {
    page.command.replace(' ', "-")
}

fn text(root: &Page, page: &Page) -> String {
    let name = file_name(page);
    let mut text = format!(".TH {} 1 \"\" {}\n", quoted(&name.to_uppercase()), quoted(&root.command));
    let about = page.about.trim_end_matches('.');
    let _ = writeln!(text, ".SH NAME\n{} \\- {}", escaped(&name), escaped(about));
    let _ = writeln!(text, ".SH SYNOPSIS\n{}", line(&page.usage));
    describe(&mut text, page);
    entries(&mut text, ".SH ARGUMENTS", &page.arguments);
    entries(&mut text, ".SH OPTIONS", &page.flags);
    entries(&mut text, ".SH OPTIONS OF EVERY COMMAND", &page.inherited);
    sections(&mut text, page, ".SH");
    if std::ptr::eq(root, page) {
        text.push_str(".SH COMMANDS\n");
        for command in &page.commands {
            let _ = writeln!(
                text,
                ".TP\n.BR {} (1)\n{}",
                quoted(&escaped(&file_name(command))),
                line(&command.about)
            );
        }
    } else {
        if !page.commands.is_empty() {
            text.push_str(".SH COMMANDS\n");
        }
        page.commands.iter().for_each(|command| below(&mut text, command));
        let _ = writeln!(text, ".SH SEE ALSO\n.BR {} (1)", escaped(&root.command));
    }
    text
}

/// A command below the one that the page is about.
fn below(text: &mut String, page: &Page) {
    let _ =
        writeln!(text, ".SS {}\n{}\n.PP\n{}", quoted(&page.command), line(&page.usage), line(&page.about));
    for (is_code, block) in blocks(&page.description) {
        if block.trim_end_matches('.') != page.about.trim_end_matches('.') {
            paragraph(text, is_code, &block);
        }
    }
    entries(text, "", &page.arguments);
    entries(text, "", &page.flags);
    sections(text, page, ".PP\n.B");
    page.commands.iter().for_each(|command| below(text, command));
}

fn describe(text: &mut String, page: &Page) {
    text.push_str(".SH DESCRIPTION\n");
    let long = if page.description.is_empty() { &page.about } else { &page.description };
    blocks(long).iter().for_each(|(is_code, block)| paragraph(text, *is_code, block));
    if !page.aliases.is_empty() {
        paragraph(text, false, &format!("Other names: {}.", page.aliases.join(", ")));
    }
}

fn paragraph(text: &mut String, is_code: bool, block: &str) {
    if is_code {
        let lines: Vec<String> = block.lines().map(line).collect();
        let _ = writeln!(text, ".PP\n.nf\n.RS 4\n{}\n.RE\n.fi", lines.join("\n"));
    } else {
        let _ = writeln!(text, ".PP\n{}", line(block));
    }
}

fn sections(text: &mut String, page: &Page, heading: &str) {
    for section in &page.sections {
        if !section.title.is_empty() {
            let title = match section.title.as_str() {
                "Exit codes" => "EXIT STATUS".to_owned(),
                title => title.to_uppercase(),
            };
            let _ = writeln!(text, "{heading} {}", quoted(&title));
        }
        paragraph(text, section.verbatim, &section.text);
    }
}

fn entries(text: &mut String, heading: &str, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    if !heading.is_empty() {
        let _ = writeln!(text, "{heading}");
    }
    for entry in entries {
        let _ = writeln!(text, ".TP\n.B {}\n{}", escaped(&entry.name), line(&entry.help));
    }
}

/// A line of text, which must not begin as a request does.
fn line(text: &str) -> String {
    let text = escaped(text);
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\e").replace('-', "\\-").replace('`', "")
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\\(dq"))
}
