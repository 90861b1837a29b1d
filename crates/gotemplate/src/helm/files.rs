//! `.Files`: the files of a chart that are no templates.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::{glob, yaml};
use crate::limits::Budget;
use crate::sprig::{self, path};
use crate::value::{Function, Map, MapKind, Object, ObjectData, Str, Value};

/// Files by their path in the chart.
#[derive(Clone, Debug, Default)]
pub struct Files {
    files: Arc<BTreeMap<String, Str>>,
}

impl Files {
    /// The content of a file; nothing of one that is not there.
    fn content(&self, name: &str) -> Str {
        self.files.get(name).cloned().unwrap_or_else(|| Str::from(""))
    }

    fn glob(&self, pattern: &str) -> Self {
        self.files
            .iter()
            .filter(|(name, _)| glob::matches(pattern, name))
            .map(|(name, content)| (name.clone(), content.clone()))
            .collect()
    }

    fn lines(&self, name: &str) -> Vec<Str> {
        let content = self.content(name);
        let bytes = content.as_bytes();
        if bytes.is_empty() {
            return Vec::new();
        }
        bytes.strip_suffix(b"\n").unwrap_or(bytes).split(|byte| *byte == b'\n').map(Str::from).collect()
    }

    /// The files under their bare names, as the `data` of a ConfigMap or Secret.
    fn as_data(&self, budget: &Budget, encode: fn(&Str) -> Str) -> Vec<u8> {
        let entries =
            self.files.iter().map(|(name, content)| (path::base(name).into(), encode(content).into()));
        let map = Value::Map(Map::typed(MapKind::String, entries.collect()));
        yaml::encode(budget, &map).unwrap_or_default()
    }
}

impl FromIterator<(String, Str)> for Files {
    fn from_iter<I: IntoIterator<Item = (String, Str)>>(files: I) -> Self {
        Self { files: Arc::new(files.into_iter().collect()) }
    }
}

impl Object for Files {
    fn type_name(&self) -> Cow<'static, str> {
        "engine.files".into()
    }

    fn method(&self, name: &str) -> Option<Function> {
        let files = self.clone();
        Some(match name {
            "Get" => Function::new(move |name: String| files.content(&name)),
            "GetBytes" => Function::new(move |name: String| Value::Bytes(files.content(&name))),
            "Glob" => Function::new(move |pattern: String| Value::object(files.glob(&pattern))),
            "Lines" => Function::new(move |name: String| files.lines(&name)),
            "AsConfig" => Function::new(move |budget: &Budget| files.as_data(budget, Str::clone)),
            "AsSecrets" => Function::new(move |budget: &Budget| {
                files.as_data(budget, |content| sprig::base64(content.as_bytes()).into())
            }),
            _ => return None,
        })
    }

    fn data(&self) -> ObjectData {
        let entries = self
            .files
            .iter()
            .map(|(name, content)| (Str::from(name.as_str()), Value::Bytes(content.clone())));
        ObjectData::Map(Map::typed(MapKind::Any, entries.collect()))
    }

    fn print(&self) -> String {
        let budget = Budget::default();
        let ObjectData::Map(map) = self.data() else { return String::new() };
        let text = crate::gofmt::text(&budget, &Value::Map(map)).unwrap_or_default();
        String::from_utf8_lossy(&text).into_owned()
    }

    fn encode(&self) -> Value {
        match self.data() {
            ObjectData::Map(map) => Value::Map(map),
            _ => Value::Nil,
        }
    }
}
