//! Which dependencies take part: aliases, tags and conditions.

use super::coalesce;
use super::load::{Chart, ChartError, Requirement};
use crate::limits::Budget;
use crate::value::{Map, Value};

/// Drops the dependencies that values switch off, here and further down. `path` leads to the chart's own values.
pub(super) fn select(budget: &Budget, chart: &mut Chart, user: &Map, path: &str) -> Result<(), ChartError> {
    if chart.requirements.is_empty() {
        return Ok(());
    }
    apply_aliases(chart);
    let values = coalesce::coalesce(budget, chart, &coalesce::copy(budget, user)?, false)?;
    let dropped: Vec<String> = chart
        .requirements
        .iter()
        .filter(|requirement| !is_enabled(requirement, &values, path))
        .map(|requirement| requirement.name.clone())
        .collect();
    chart.dependencies.retain(|dependency| !dropped.iter().any(|name| name == dependency.name()));
    chart.requirements.retain(|requirement| !dropped.contains(&requirement.name));
    for dependency in &mut chart.dependencies {
        let path = format!("{path}{}.", dependency.name());
        select(budget, dependency, &values, &path)?;
    }
    Ok(())
}

/// Writes the values of dependencies into those of the charts that name them, as Helm does before it applies the user's.
///
/// Parity: nulls in globals reach dependencies this way.
pub(super) fn fold_values(budget: &Budget, chart: &mut Chart) -> Result<(), ChartError> {
    for dependency in &mut chart.dependencies {
        fold_values(budget, dependency)?;
    }
    if !chart.requirements.is_empty() {
        let values = coalesce::coalesce(budget, chart, &Map::new(), true)?;
        chart.values = coalesce::copy(budget, &values)?;
    }
    Ok(())
}

/// A chart may be used several times, each time under another name.
fn apply_aliases(chart: &mut Chart) {
    let present = std::mem::take(&mut chart.dependencies);
    let named = |dependency: &Chart| {
        chart.requirements.iter().any(|requirement| requirement.name == dependency.name())
    };
    let mut used: Vec<Chart> = present.iter().filter(|dependency| !named(dependency)).cloned().collect();
    for requirement in &mut chart.requirements {
        let found = present.iter().find(|dependency| dependency.name() == requirement.name);
        if !requirement.alias.is_empty() {
            requirement.name.clone_from(&requirement.alias);
        }
        if let Some(found) = found {
            let mut dependency = found.clone();
            dependency.rename(&requirement.name);
            used.push(dependency);
        }
    }
    chart.dependencies = used;
}

fn is_enabled(requirement: &Requirement, values: &Map, path: &str) -> bool {
    let condition = requirement
        .condition
        .trim()
        .split(',')
        .filter(|condition| !condition.is_empty())
        .find_map(|condition| truth_at(values, &format!("{path}{condition}")));
    condition.unwrap_or_else(|| allowed_by_tags(requirement, values))
}

/// One true tag is enough; false ones count only if none is true.
fn allowed_by_tags(requirement: &Requirement, values: &Map) -> bool {
    let tags = values.get("tags");
    let tags = tags.as_ref().and_then(Value::as_map);
    let truths = requirement.tags.iter().filter_map(|tag| match tags?.get(tag) {
        Some(Value::Bool(truth)) => Some(truth),
        _ => None,
    });
    let truths: Vec<bool> = truths.collect();
    truths.is_empty() || truths.contains(&true)
}

fn truth_at(values: &Map, path: &str) -> Option<bool> {
    let mut value = Value::Map(values.clone());
    for key in path.split('.') {
        value = value.as_map()?.get(key)?;
    }
    match value {
        Value::Bool(truth) => Some(truth),
        _ => None,
    }
}
