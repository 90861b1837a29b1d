//! One page of HTML for a web site: the fragment below the front matter that a site generator reads.

use std::fmt::Write as _;

use super::{Entry, Page, blocks};

pub(super) fn fragment(root: &Page) -> String {
    let mut text = format!(
        "---\ntitle: {}\ndescription: {}\nlayout: pkg-collateral-docs\n---\n",
        root.command,
        root.about.replace('\n', " ")
    );
    write(&mut text, root, 2);
    text
}

fn write(text: &mut String, page: &Page, level: usize) {
    let (id, level_below) = (page.command.replace(' ', "-"), level.min(6));
    let _ = writeln!(text, "<h{level_below} id=\"{id}\">{}</h{level_below}>", escaped(&page.command));
    let description = if page.description.is_empty() { &page.about } else { &page.description };
    for (is_code, block) in blocks(description) {
        paragraph(text, is_code, &block);
    }
    paragraph(text, true, &page.usage);
    for (title, entries) in
        [("Arguments", &page.arguments), ("Flags", &page.flags), ("Flags of every command", &page.inherited)]
    {
        table(text, title, entries);
    }
    for section in &page.sections {
        if !section.title.is_empty() {
            let _ = writeln!(text, "<p><strong>{}</strong></p>", escaped(&section.title));
        }
        paragraph(text, section.verbatim, &section.text);
    }
    page.commands.iter().for_each(|command| write(text, command, level + 1));
}

fn paragraph(text: &mut String, is_code: bool, block: &str) {
    let block = escaped(block);
    let _ = if is_code {
        writeln!(text, "<pre class=\"language-bash\"><code>{block}</code></pre>")
    } else {
        writeln!(text, "<p>{block}</p>")
    };
}

fn table(text: &mut String, title: &str, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    let _ = writeln!(text, "<table><caption>{title}</caption><tbody>");
    for entry in entries {
        let (name, help) = (escaped(&entry.name), escaped(&entry.help));
        let _ = writeln!(text, "<tr><td><code>{name}</code></td><td>{help}</td></tr>");
    }
    text.push_str("</tbody></table>\n");
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
