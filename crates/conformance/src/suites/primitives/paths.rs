//! Untyped configuration of installations, and paths into it.

use anyhow::bail;
use canopus_base::tree::Node;
use canopus_install::path::{self, Segment};
use canopus_install::tree::{self, Tree};
use serde_json::Value as Json;

use super::Check;
use super::row::{Row, equal};
use crate::compare::Difference;

pub(super) fn check(test: &str) -> Option<Check> {
    Some(match test {
        "TestSplitEscaped" => |row| {
            let got = path::split_escaped(row.text("in")?, ':');
            Ok(equal("want", &row.texts("want")?, &got.into_iter().map(str::to_owned).collect()))
        },
        "TestPathFromString" => {
            |row| Ok(equal("expect", &row.texts("expect")?, &path::elements(row.text("in")?)))
        }
        "TestRemoveBrackets" => remove_brackets,
        "TestIsNPathElement" => |row| is(row, |segment| matches!(segment, Segment::Index(_))),
        "TestIsKVPathElement" => |row| is(row, |segment| matches!(segment, Segment::Entry(..))),
        "TestIsVPathElement" => |row| is(row, |segment| matches!(segment, Segment::Item(_))),
        "TestPathN" => index,
        "TestPathKV" => entry,
        "TestPathV" => item,
        "TestSetPath" => set,
        "TestGetPath" => get,
        "TestParseValue" => parse,
        "TestMergeFrom" => merge,
        _ => return None,
    })
}

fn is(row: Row<'_>, predicate: fn(&Segment) -> bool) -> anyhow::Result<Vec<Difference>> {
    let segment = Segment::parse(row.text("in")?);
    Ok(equal("expect", &row.truth("expect")?, &predicate(&segment)))
}

fn remove_brackets(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = path::without_brackets(row.text("in")?);
    let mut found = equal("expectStat", &row.truth("expectStat")?, &got.is_some());
    found.extend(equal("expect", &row.text("expect")?, &got.unwrap_or_default()));
    Ok(found)
}

/// Errors are columns that are there, whatever they say.
fn index(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = match Segment::parse(row.text("in")?) {
        Segment::Index(index) => Some(index),
        _ => None,
    };
    let fails = row.get("err").or_else(|| row.get("wantErr")).is_some();
    let mut found = equal("err", &fails, &got.is_none());
    if let Some(got) = got {
        found.extend(equal("want", &row.integer("want")?, &got));
    }
    Ok(found)
}

fn entry(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = match Segment::parse(row.text("in")?) {
        Segment::Entry(key, value) => Some((key, value)),
        _ => None,
    };
    let mut found = equal("wantErr", &row.get("wantErr").is_some(), &got.is_none());
    let (key, value) = got.unwrap_or_default();
    found.extend(equal("wantK", &row.text("wantK")?, &key.as_str()));
    found.extend(equal("wantV", &row.text("wantV")?, &value.as_str()));
    Ok(found)
}

fn item(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = match Segment::parse(row.text("in")?) {
        Segment::Item(value) => Some(value),
        _ => None,
    };
    let mut found = equal("err", &row.get("err").is_some(), &got.is_none());
    found.extend(equal("want", &row.text("want")?, &got.unwrap_or_default().as_str()));
    Ok(found)
}

/// A column that holds a configuration; none is an empty one.
fn configuration(row: Row<'_>, column: &str) -> anyhow::Result<Tree> {
    match row.get(column).map(Node::to_json) {
        None => Ok(Tree::new()),
        Some(Json::Object(map)) => Ok(map),
        Some(_) => bail!("column {column} is not a map"),
    }
}

/// Compares numbers as numbers: `0` and `0.0` are the same in a table.
fn same(column: &str, expected: &Json, got: &Json) -> Vec<Difference> {
    if let (Some(expected), Some(got)) = (expected.as_f64(), got.as_f64()) {
        return equal(column, &expected.to_bits(), &got.to_bits());
    }
    equal(column, expected, got)
}

fn set(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut base = configuration(row, "base")?;
    let data = row.get("inData").map(Node::to_json).unwrap_or_default();
    let is_set = tree::set(&mut base, row.text("inPath")?, data);
    let expected = row.text("out")?;
    if expected.is_empty() {
        return Ok(equal("out", &true, &is_set.is_err()));
    }
    if let Err(error) = is_set {
        bail!(error);
    }
    Ok(equal("out", &serde_json::from_str::<Json>(expected)?, &Json::Object(base)))
}

fn get(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let base = configuration(row, "base")?;
    let got = tree::get(&base, row.text("path")?).cloned().unwrap_or_default();
    Ok(same("out", &row.get("out").map(Node::to_json).unwrap_or_default(), &got))
}

fn parse(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let got = tree::parse_value(row.text("in")?);
    let expected = row.get("want").map(Node::to_json).unwrap_or_else(|| Json::from(""));
    Ok(same("want", &expected, &got))
}

fn merge(row: Row<'_>) -> anyhow::Result<Vec<Difference>> {
    let mut base = configuration(row, "base")?;
    tree::merge(&mut base, configuration(row, "other")?);
    Ok(equal("expected", &configuration(row, "expected")?, &base))
}
