//! Trees of YAML or JSON, field by field.

use std::collections::BTreeMap;

use canopus_base::tree::{Map, Node, Number, Value};

use super::{ABSENT, Difference};

/// What a comparison leaves out.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// JSON pointers of lists whose order means nothing.
    pub unordered: Vec<String>,
}

/// Where the trees differ. A text such as `<MASKED>` in the expected tree accepts any value.
pub fn difference(expected: &Node, got: &Node, rules: &Rules) -> Vec<Difference> {
    let mut comparison = Comparison { rules, path: String::new(), found: Vec::new() };
    comparison.nodes(expected, got);
    comparison.found
}

struct Comparison<'a> {
    rules: &'a Rules,
    path: String,
    found: Vec<Difference>,
}

impl Comparison<'_> {
    fn nodes(&mut self, expected: &Node, got: &Node) {
        match (&expected.value, &got.value) {
            (Value::Map(expected), Value::Map(got)) => self.maps(expected, got),
            (Value::List(expected), Value::List(got)) => self.lists(expected, got),
            (Value::String(text), _) if is_mask(text) => {}
            (Value::String(pattern), Value::String(text)) if fits(pattern, text) => {}
            _ if scalars_equal(&expected.value, &got.value) => {}
            _ => self.differ(Some(expected), Some(got)),
        }
    }

    fn maps(&mut self, expected: &Map, got: &Map) {
        for entry in expected {
            self.under(&entry.key, |this| match got.get(&entry.key) {
                Some(node) => this.nodes(&entry.node, node),
                None => this.differ(Some(&entry.node), None),
            });
        }
        for entry in got.iter().filter(|entry| !expected.contains_key(&entry.key)) {
            self.under(&entry.key, |this| this.differ(None, Some(&entry.node)));
        }
    }

    fn lists(&mut self, expected: &[Node], got: &[Node]) {
        if self.rules.unordered.contains(&self.path) {
            return self.multisets(expected, got);
        }
        match (names(expected), names(got)) {
            // Named items are aligned by name, so that one missing item is one difference.
            (Some(expected_names), Some(got_names)) if !same_names(&expected_names, &got_names) => {
                self.named_lists(expected, &expected_names, got, &got_names);
            }
            _ => self.aligned(expected, got),
        }
    }

    /// Item by item.
    fn aligned(&mut self, expected: &[Node], got: &[Node]) {
        for index in 0..expected.len().max(got.len()) {
            self.under(&index.to_string(), |this| match (expected.get(index), got.get(index)) {
                (Some(expected), Some(got)) => this.nodes(expected, got),
                (expected, got) => this.differ(expected, got),
            });
        }
    }

    fn named_lists(&mut self, expected: &[Node], expected_names: &[&str], got: &[Node], got_names: &[&str]) {
        let places: BTreeMap<&str, usize> = got_names.iter().copied().zip(0..).collect();
        for (index, (name, item)) in expected_names.iter().zip(expected).enumerate() {
            self.under(&index.to_string(), |this| match places.get(name) {
                Some(&place) => this.nodes(item, &got[place]),
                None => this.differ(Some(item), None),
            });
        }
        for (index, (name, item)) in got_names.iter().zip(got).enumerate() {
            if !expected_names.contains(name) {
                self.under(&format!("+{index}"), |this| this.differ(None, Some(item)));
            }
        }
        let common = |list: &[&str], other: &[&str]| -> Vec<String> {
            let shared = list.iter().filter(|name| other.contains(name));
            shared.map(|name| (*name).to_owned()).collect()
        };
        let (in_expected, in_got) = (common(expected_names, got_names), common(got_names, expected_names));
        if in_expected != in_got {
            let order = |names: Vec<String>| format!("order {}", names.join(", "));
            self.found.push(Difference::new(self.path.clone(), order(in_expected), order(in_got)));
        }
    }

    /// Equal items are taken away in pairs; what is left is compared in order.
    fn multisets(&mut self, expected: &[Node], got: &[Node]) {
        let mut left: Vec<&Node> = got.iter().collect();
        let mut unmatched = Vec::new();
        for item in expected {
            match left.iter().position(|other| difference(item, other, self.rules).is_empty()) {
                Some(place) => drop(left.remove(place)),
                None => unmatched.push(item.clone()),
            }
        }
        let left: Vec<Node> = left.into_iter().cloned().collect();
        self.aligned(&unmatched, &left);
    }

    fn under(&mut self, key: &str, compare: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push('/');
        self.path.push_str(&key.replace('~', "~0").replace('/', "~1"));
        compare(self);
        self.path.truncate(length);
    }

    fn differ(&mut self, expected: Option<&Node>, got: Option<&Node>) {
        let text = |node: Option<&Node>| node.map_or_else(|| ABSENT.to_owned(), shown);
        self.found.push(Difference::new(self.path.clone(), text(expected), text(got)));
    }
}

/// The distinct names of the items, if every item has one.
fn names(items: &[Node]) -> Option<Vec<&str>> {
    let names: Vec<_> = items.iter().map_while(|item| item.get("name")?.as_str()).collect();
    let mut sorted = names.clone();
    sorted.sort_unstable();
    sorted.dedup();
    (sorted.len() == items.len()).then_some(names)
}

/// Whether names are the same in the same order, but for what changes between runs.
fn same_names(expected: &[&str], got: &[&str]) -> bool {
    let same = |(expected, got): (&&str, &&str)| expected == got || is_mask(expected) || fits(expected, got);
    expected.len() == got.len() && expected.iter().zip(got).all(same)
}

/// Whether a recorded text stands for a value that changes between runs.
pub fn is_mask(text: &str) -> bool {
    text == "<TIME>"
        || text == "<TOKEN>"
        || text == "<ADDRESS>"
        || (text.starts_with("<MASKED") && text.ends_with('>'))
}

/// Whether a text is as recorded but for a part that changes between runs.
fn fits(pattern: &str, text: &str) -> bool {
    let Some((before, rest)) = pattern.split_once("<MASKED") else { return false };
    let after = rest.split_once('>').map_or("", |(_, after)| after);
    text.len() > before.len() + after.len() && text.starts_with(before) && text.ends_with(after)
}

fn scalars_equal(expected: &Value, got: &Value) -> bool {
    match (expected, got) {
        (Value::Number(a), Value::Number(b)) => numbers_equal(*a, *b),
        _ => expected == got,
    }
}

/// `1` and `1.0` are one number; large integers stay exact.
fn numbers_equal(a: Number, b: Number) -> bool {
    a == b || (matches!(a, Number::Float(_)) || matches!(b, Number::Float(_))) && a.as_f64() == b.as_f64()
}

/// A value on one line, cut where it gets long.
fn shown(node: &Node) -> String {
    const LIMIT: usize = 200;
    let text = node.to_json().to_string();
    match text.char_indices().nth(LIMIT) {
        Some((cut, _)) => format!("{}…", &text[..cut]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value as Json, json};

    #[track_caller]
    fn check(expected: Json, got: Json, unordered: &[&str], differences: &[(&str, &str, &str)]) {
        let rules = Rules { unordered: unordered.iter().map(|path| (*path).to_owned()).collect() };
        let wanted: Vec<_> =
            differences.iter().map(|(path, expected, got)| Difference::new(*path, expected, got)).collect();
        assert_eq!(difference(&expected.into(), &got.into(), &rules), wanted);
    }

    #[test]
    fn equal_trees_have_no_difference_whatever_the_order_of_keys() {
        check(json!({"a": 1, "b": [true]}), json!({"b": [true], "a": 1.0}), &[], &[]);
    }

    #[test]
    fn changed_missing_and_extra_fields_are_named() {
        check(
            json!({"a": {"b": 1, "c/d": 2}}),
            json!({"a": {"b": "1", "e": 3}}),
            &[],
            &[("/a/b", "1", "\"1\""), ("/a/c~1d", "2", ABSENT), ("/a/e", ABSENT, "3")],
        );
    }

    #[test]
    fn large_integers_are_compared_exactly() {
        check(
            json!(9_007_199_254_740_993_i64),
            json!(9_007_199_254_740_992_i64),
            &[],
            &[("", "9007199254740993", "9007199254740992")],
        );
    }

    #[test]
    fn order_matters_unless_the_rules_name_the_list() {
        let (one, other) = (json!({"l": [1, 2, 2]}), json!({"l": [2, 1, 2]}));
        check(one.clone(), other.clone(), &[], &[("/l/0", "1", "2"), ("/l/1", "2", "1")]);
        check(one.clone(), other, &["/l"], &[]);
        check(one, json!({"l": [2, 1, 1]}), &["/l"], &[("/l/0", "2", "1")]);
    }

    #[test]
    fn missing_named_item_is_one_difference() {
        check(
            json!([{"name": "a"}, {"name": "b"}, {"name": "c", "v": 1}]),
            json!([{"name": "b"}, {"name": "c", "v": 2}, {"name": "d"}]),
            &[],
            &[("/0", r#"{"name":"a"}"#, ABSENT), ("/2/v", "1", "2"), ("/+2", ABSENT, r#"{"name":"d"}"#)],
        );
    }

    #[test]
    fn order_of_named_items_is_a_difference_of_its_own() {
        check(
            json!([{"name": "a"}, {"name": "b"}]),
            json!([{"name": "b"}, {"name": "a"}]),
            &[],
            &[("", "order a, b", "order b, a")],
        );
    }

    #[test]
    fn mask_accepts_any_value_but_not_its_absence() {
        check(json!({"t": "<MASKED nonce 1>"}), json!({"t": [1]}), &[], &[]);
        check(json!({"t": "<MASKED>"}), json!({}), &[], &[("/t", "\"<MASKED>\"", ABSENT)]);
        check(json!("<mine>"), json!("x"), &[], &[("", "\"<mine>\"", "\"x\"")]);
        check(json!("a:<MASKED>"), json!("a:1"), &[], &[]);
        check(json!([{"name": "a-<MASKED>"}]), json!([{"name": "a-1"}]), &[], &[]);
        check(json!("a:<MASKED>"), json!("b:1"), &[], &[("", "\"a:<MASKED>\"", "\"b:1\"")]);
    }
}
