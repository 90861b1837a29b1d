//! The account of a change, for people, programs and pull requests.

use std::fmt::Write as _;

use canopus_envoy::impact::{FieldChange, GroupImpact, Impact, ResourceImpact};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{counted, names};
use crate::table::{aligned, row};

/// Proxies of a group that are named.
const NAMED: usize = 3;

/// What a change does, and what speaks against it.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Report {
    #[serde(flatten)]
    pub(super) impact: Impact,
    /// What the validation webhook would say against the objects.
    #[serde(default)]
    pub(super) refused: Vec<String>,
    /// What proxies would reject.
    #[serde(default)]
    pub(super) rejected: Vec<String>,
    #[serde(default)]
    pub(super) notices: Vec<String>,
}

impl Report {
    /// The accounts of two control planes as one.
    pub(super) fn merge(mut self, other: Self) -> Self {
        self.impact = self.impact.merge(other.impact);
        for (own, more) in [
            (&mut self.refused, other.refused),
            (&mut self.rejected, other.rejected),
            (&mut self.notices, other.notices),
        ] {
            own.extend(more);
            own.sort();
            own.dedup();
        }
        self
    }

    pub(super) fn json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    fn summary(&self) -> String {
        let Impact { proxies, changed_proxies, changed_resources, bytes, .. } = &self.impact;
        format!(
            "{changed_proxies} of {proxies} proxies change in {changed_resources} resources; {bytes} bytes would be sent"
        )
    }

    fn remarks(&self) -> Vec<String> {
        let lists = [
            ("would be refused", &self.refused),
            ("proxies would reject", &self.rejected),
            ("note", &self.notices),
        ];
        lists
            .iter()
            .flat_map(|(title, list)| list.iter().map(move |text| format!("{title}: {text}")))
            .collect()
    }

    pub(super) fn text(&self) -> String {
        let mut text = String::new();
        for group in &self.impact.changes {
            let _ = writeln!(text, "{}", heading(group));
            for line in aligned(&rows(group), 3).lines() {
                let _ = writeln!(text, "  {}", line.trim_end());
            }
            for change in group.changes.iter().filter(|change| !change.fields.is_empty()) {
                let _ = writeln!(text, "  {} {}:", change.resource, change.name);
                for line in fields(change) {
                    let _ = writeln!(text, "    {line}");
                }
            }
            if !group.requests.is_empty() {
                text.push_str("  requests that take another way:\n");
            }
            for request in &group.requests {
                let _ = writeln!(text, "    {}", request.request);
                let _ = writeln!(text, "      before: {}", request.before);
                let _ = writeln!(text, "      after:  {}", request.after);
            }
            text.push('\n');
        }
        for remark in self.remarks() {
            let _ = writeln!(text, "{remark}");
        }
        let _ = writeln!(text, "{}", self.summary());
        text
    }

    pub(super) fn markdown(&self) -> String {
        let mut text = format!("**{}**\n", self.summary());
        for remark in self.remarks() {
            let _ = write!(text, "\n- {remark}");
        }
        if !self.remarks().is_empty() {
            text.push('\n');
        }
        for group in &self.impact.changes {
            let _ = writeln!(text, "\n#### {}", heading(group));
            for (index, cells) in rows(group).iter().enumerate() {
                let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
                let _ = writeln!(text, "{}| {} |", if index == 0 { "\n" } else { "" }, cells.join(" | "));
                if index == 0 {
                    let _ = writeln!(text, "|{}", "---|".repeat(cells.len()));
                }
            }
            let described: Vec<&ResourceImpact> =
                group.changes.iter().filter(|change| !change.fields.is_empty()).collect();
            if !described.is_empty() {
                text.push_str("\n<details><summary>Fields</summary>\n\n```\n");
                for change in described {
                    let _ = writeln!(text, "{} {}", change.resource, change.name);
                    fields(change).iter().for_each(|line| {
                        let _ = writeln!(text, "  {line}");
                    });
                }
                text.push_str("```\n\n</details>\n");
            }
            if !group.requests.is_empty() {
                text.push_str(
                    "\nRequests that take another way:\n\n| request | before | after |\n|---|---|---|\n",
                );
            }
            for request in &group.requests {
                let cells = [&request.request, &request.before, &request.after];
                let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
                let _ = writeln!(text, "| `{}` | {} | {} |", cells[0], cells[1], cells[2]);
            }
        }
        text
    }
}

fn heading(group: &GroupImpact) -> String {
    let count = group.proxies.len();
    let kinds = counted(group.changes.iter().map(|change| change.change.as_str()));
    let kinds: Vec<String> = kinds.iter().map(|(what, count)| format!("{count} {what}")).collect();
    let noun = if count == 1 { "proxy" } else { "proxies" };
    format!("{count} {noun} ({}): {}", names(&group.proxies, NAMED), kinds.join(", "))
}

fn rows(group: &GroupImpact) -> Vec<Vec<String>> {
    let size = |bytes: Option<usize>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    let mut rows = vec![row(["RESOURCE", "NAME", "CHANGE", "BYTES", "NOTE"])];
    for change in &group.changes {
        rows.push(vec![
            change.resource.clone(),
            change.name.clone(),
            change.change.clone(),
            format!("{} -> {}", size(change.bytes_before), size(change.bytes_after)),
            note(change),
        ]);
    }
    rows
}

fn note(change: &ResourceImpact) -> String {
    match (change.drains, change.drained_chains.as_slice()) {
        (false, _) => String::new(),
        (true, []) => "drains all connections".to_owned(),
        (true, chains) => format!("drains connections of {}", names(chains, NAMED)),
    }
}

fn fields(change: &ResourceImpact) -> Vec<String> {
    let mut lines: Vec<String> = change.fields.iter().map(field).collect();
    if change.more_fields > 0 {
        lines.push(format!("and {} more fields", change.more_fields));
    }
    lines
}

fn field(field: &FieldChange) -> String {
    match (&field.before, &field.after) {
        (None, None) => format!("{}: differs", field.path),
        (None, Some(after)) => format!("{}: + {after}", field.path),
        (Some(before), None) => format!("{}: - {before}", field.path),
        (Some(before), Some(after)) => format!("{}: {before} -> {after}", field.path),
    }
}
