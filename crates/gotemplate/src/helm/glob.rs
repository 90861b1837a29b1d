//! Patterns for file names, as `.Files.Glob` takes them.

/// How deep alternatives may nest.
const MAX_DEPTH: usize = 16;
/// Positions tried before a pattern counts as not matching; only hostile patterns need as many.
const MAX_STEPS: usize = 1_000_000;

/// Whether a pattern matches a whole path. `*` and `?` stop at slashes, `**` does not.
pub(super) fn matches(pattern: &str, path: &str) -> bool {
    let mut steps = 0;
    expand(pattern, 0).iter().any(|pattern| {
        let pattern: Vec<char> = pattern.chars().collect();
        let path: Vec<char> = path.chars().collect();
        matches_from(&pattern, &path, &mut steps)
    })
}

/// Writes out `{a,b}`.
fn expand(pattern: &str, depth: usize) -> Vec<String> {
    let Some((open, close)) = braces(pattern).filter(|_| depth < MAX_DEPTH) else {
        return vec![pattern.to_owned()];
    };
    let (head, body, tail) = (&pattern[..open], &pattern[open + 1..close], &pattern[close + 1..]);
    let joined = alternatives(body).into_iter().map(|alternative| format!("{head}{alternative}{tail}"));
    joined.flat_map(|pattern| expand(&pattern, depth + 1)).collect()
}

/// The first brace and its partner.
fn braces(pattern: &str) -> Option<(usize, usize)> {
    let open = pattern.find('{')?;
    let mut depth = 0;
    for (at, c) in pattern[open..].char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some((open, open + at));
        }
    }
    None
}

fn alternatives(body: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut start, mut depth) = (0, 0);
    for (at, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&body[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&body[start..]);
    parts
}

fn matches_from(pattern: &[char], path: &[char], steps: &mut usize) -> bool {
    *steps += 1;
    if *steps > MAX_STEPS {
        return false;
    }
    match pattern {
        [] => path.is_empty(),
        ['*', '*', rest @ ..] => (0..=path.len()).any(|skip| matches_from(rest, &path[skip..], steps)),
        ['*', rest @ ..] => {
            let end = path.iter().position(|c| *c == '/').unwrap_or(path.len());
            (0..=end).any(|skip| matches_from(rest, &path[skip..], steps))
        }
        ['\\', c, rest @ ..] => {
            path.split_first().is_some_and(|(first, tail)| first == c && matches_from(rest, tail, steps))
        }
        ['[', rest @ ..] => {
            let (Some(close), Some((first, tail))) =
                (rest.iter().position(|c| *c == ']'), path.split_first())
            else {
                return false;
            };
            in_class(&rest[..close], *first) && matches_from(&rest[close + 1..], tail, steps)
        }
        [c, rest @ ..] => path.split_first().is_some_and(|(first, tail)| {
            (c == first || (*c == '?' && *first != '/')) && matches_from(rest, tail, steps)
        }),
    }
}

fn in_class(class: &[char], c: char) -> bool {
    let (negated, class) = match class {
        ['!' | '^', rest @ ..] => (true, rest),
        _ => (false, class),
    };
    let found = match class {
        [low, '-', high] => (*low..=*high).contains(&c),
        _ => class.contains(&c),
    };
    found != negated
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn stars_stop_at_slashes_unless_doubled() {
        let cases = [
            ("*.yaml", "a.yaml", true),
            ("*.yaml", "files/a.yaml", false),
            ("**.yaml", "files/a.yaml", true),
            ("files/profile-*.yaml", "files/profile-demo.yaml", true),
            ("files/*", "files/a/b", false),
            ("{a,b}/?[0-9]", "b/x7", true),
            ("[!a]*", "abc", false),
            ("\\*", "*", true),
        ];
        for (pattern, path, expected) in cases {
            assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
        }
    }
}
