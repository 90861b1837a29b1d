//! Names that users may have meant.

/// How many names are suggested.
const SUGGESTED: usize = 3;

/// `; did you mean "a" or "b"?` for names near the wanted one; empty if none is.
pub(crate) fn hint(wanted: &str, known: &[String]) -> String {
    let near = nearest(wanted, known);
    if near.is_empty() {
        return String::new();
    }
    let quoted: Vec<String> = near.iter().map(|name| format!("{name:?}")).collect();
    format!("; did you mean {}?", quoted.join(" or "))
}

/// The names near the wanted one, the nearest first: a few letters away, or beginning alike as names of pods do.
fn nearest<'a>(wanted: &str, known: &'a [String]) -> Vec<&'a str> {
    let limit = wanted.chars().count() / 3 + 1;
    let mut near: Vec<(usize, &str)> = known
        .iter()
        .filter_map(|name| {
            let distance = distance(wanted, name);
            let begins_alike =
                !wanted.is_empty() && (name.starts_with(wanted) || wanted.starts_with(name.as_str()));
            (distance <= limit || begins_alike).then_some((distance, name.as_str()))
        })
        .collect();
    near.sort_unstable();
    near.truncate(SUGGESTED);
    near.into_iter().map(|(_, name)| name).collect()
}

/// How many letters have to be inserted, deleted, replaced or swapped with their neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut next = vec![i + 1];
        for (j, y) in b.iter().enumerate() {
            let mut least = (row[j] + usize::from(x != y)).min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && *x == b[j - 1] && a[i - 1] == *y {
                least = least.min(before[j - 1] + 1);
            }
            next.push(least);
        }
        before = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn near_names_are_suggested_nearest_first() {
        let known = names(&["reviews-v1-7d4", "ratings-v1", "review", "db"]);
        assert_eq!(hint("reviews", &known), "; did you mean \"review\" or \"reviews-v1-7d4\"?");
        assert_eq!(hint("zzz", &known), "");
    }

    #[test]
    fn swapped_letters_are_one_mistake() {
        assert_eq!(distance("listenre", "listener"), 1);
        assert_eq!(distance("", "abc"), 3);
    }
}
