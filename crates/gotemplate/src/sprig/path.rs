//! Slash-separated paths.

use crate::value::Functions;

pub(super) fn add_to(functions: &mut Functions) {
    for (name, os_name) in
        [("base", "osBase"), ("dir", "osDir"), ("clean", "osClean"), ("ext", "osExt"), ("isAbs", "osIsAbs")]
    {
        for name in [name, os_name] {
            match name.trim_start_matches("os") {
                "base" | "Base" => functions.add(name, |path: String| base(&path)),
                "dir" | "Dir" => functions.add(name, |path: String| dir(&path)),
                "clean" | "Clean" => functions.add(name, |path: String| clean(&path)),
                "ext" | "Ext" => functions.add(name, |path: String| ext(&path)),
                _ => functions.add(name, |path: String| path.starts_with('/')),
            };
        }
    }
}

/// `path.Base`.
pub(crate) fn base(path: &str) -> String {
    if path.is_empty() {
        return ".".to_owned();
    }
    match path.trim_end_matches('/').rsplit('/').next() {
        None | Some("") => "/".to_owned(),
        Some(last) => last.to_owned(),
    }
}

fn dir(path: &str) -> String {
    let end = path.rfind('/').map_or(0, |slash| slash + 1);
    clean(&path[..end])
}

/// `path.Clean`.
pub(crate) fn clean(path: &str) -> String {
    let rooted = path.starts_with('/');
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => {
                parts.pop();
            }
            ".." if rooted => {}
            _ => parts.push(part),
        }
    }
    let joined = parts.join("/");
    match (rooted, joined.is_empty()) {
        (true, _) => format!("/{joined}"),
        (false, true) => ".".to_owned(),
        (false, false) => joined,
    }
}

fn ext(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    name.rfind('.').map_or_else(String::new, |dot| name[dot..].to_owned())
}
