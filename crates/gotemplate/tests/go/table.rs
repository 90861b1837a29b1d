//! Templates for every rule and function, one per line. An empty line or one that starts with `#` counts for nothing.

use super::oracle::Request;

const LANGUAGE: &str = include_str!("language.txt");
const PRINTF: &str = include_str!("printf.txt");
const SPRIG: &str = include_str!("sprig.txt");

pub(crate) fn data() -> serde_json::Value {
    serde_json::json!({
        "i": 3, "f": 1.5, "big": 1_000_000, "huge": 1e21, "s": "text", "e": "", "t": true, "n": null, "z": 0,
        "l": [1, "two", null, [3.5], {"k": "v"}], "ls": ["b", "a", "c", "a"], "el": [], "em": {},
        "m": {"a": 1, "b": {"c": "deep", "n": null}, "x-y": "dash", "": "empty"},
        "u": "grüße ☺ \u{301}", "q": "a\"b\\c\n\t'<&>", "ml": "one\ntwo\n", "semver": "1.2.3-beta.1+meta",
        "maps": [{"name": "x", "v": 1}, {"name": "y", "v": 2}],
    })
}

fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#'))
}

pub(crate) fn requests() -> Vec<Request> {
    let data = data();
    let mut requests = Vec::new();
    for line in lines(LANGUAGE) {
        let template = line.replace("\\n", "\n");
        for missing in ["", "zero", "error"] {
            requests.push(Request { missing, ..Request::new(template.clone(), &data) });
        }
    }
    for line in lines(PRINTF) {
        for argument in [
            ".i",
            ".f",
            ".s",
            ".t",
            ".n",
            ".l",
            ".m",
            ".u",
            ".q",
            "7",
            "-42",
            "(int64 9)",
            "(list 1 2)",
            "(b64dec \"/w==\")",
        ] {
            requests.push(Request::new(format!("{{{{ printf \"{line}\" {argument} }}}}"), &data));
        }
    }
    requests.extend(lines(SPRIG).map(|line| Request::new(line, &data)));
    requests
}
