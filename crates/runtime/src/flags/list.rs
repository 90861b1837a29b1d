//! The listing of all flags, for people and for machines.

use std::io::Write as _;

use canopus_base::yaml;
use clap::ValueEnum;
use serde::Serialize;
use tabwriter::TabWriter;

/// One flag as it is listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Row {
    /// Name of the environment variable.
    pub name: &'static str,
    /// Type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Part of the system.
    pub area: &'static str,
    /// Value if it were not set.
    pub default: String,
    /// Value it has, unless that must not be shown.
    pub value: String,
    /// Whether the value is another than the default.
    pub changed: bool,
    /// Whether anything reads it.
    pub read: bool,
    /// What it is for.
    pub description: &'static str,
}

/// Format of the listing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Aligned columns.
    #[default]
    Table,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
}

/// Prints the listing.
pub fn render(rows: &[Row], format: Format) -> String {
    match format {
        Format::Table => table(rows),
        Format::Json => serde_json::to_string_pretty(rows).expect("strings are always JSON") + "\n",
        Format::Yaml => yaml::to_string(rows).expect("strings are always YAML"),
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = TabWriter::new(Vec::new()).padding(3);
    let mut line = |columns: [&str; 6]| {
        writeln!(table, "{}", columns.join("\t")).expect("writing to memory cannot fail");
    };
    line(["NAME", "TYPE", "DEFAULT", "VALUE", "CHANGED", "DESCRIPTION"]);
    for row in rows {
        let changed = if row.changed { "yes" } else { "" };
        let description = match row.read {
            true => row.description.to_owned(),
            false => format!("(without effect yet) {}", row.description),
        };
        line([row.name, row.kind, &row.default, &row.value, changed, &description]);
    }
    let text = table.into_inner().expect("writing to memory cannot fail");
    String::from_utf8(text).expect("rows are text")
}
