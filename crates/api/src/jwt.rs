//! Routing on the claims of a request's JSON Web Token.

/// The header name that stands for claims in the match of a route.
pub const CLAIMS_HEADER: &str = "@request.auth.claims";

/// A claim a route matches on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RoutingClaim {
    /// How the route separated the names.
    pub separator: Separator,
    /// The claim's name, after the names of the claims it is nested in.
    pub path: Vec<String>,
}

/// The two ways to write nested claims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Separator {
    /// `@request.auth.claims.outer.inner`
    Dot,
    /// `@request.auth.claims[outer][inner]`, for names that have dots themselves.
    Brackets,
}

/// Reads the header name of a route match; `None` if it is an ordinary header.
pub fn routing_claim(header: &str) -> Option<RoutingClaim> {
    let (prefix, rest) = header.split_at_checked(CLAIMS_HEADER.len())?;
    if !prefix.eq_ignore_ascii_case(CLAIMS_HEADER) {
        return None;
    }
    let (separator, names) = if let Some(names) = rest.strip_prefix('.') {
        (Separator::Dot, names)
    } else {
        (Separator::Brackets, rest.strip_prefix('[')?.strip_suffix(']')?)
    };
    let between = match separator {
        Separator::Dot => ".",
        Separator::Brackets => "][",
    };
    (!names.is_empty())
        .then(|| RoutingClaim { separator, path: names.split(between).map(str::to_owned).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, expected: Option<(Separator, &[&str])>) {
        let expected = expected.map(|(separator, path)| RoutingClaim {
            separator,
            path: path.iter().map(|name| (*name).to_owned()).collect(),
        });
        assert_eq!(routing_claim(header), expected, "{header}");
    }

    #[test]
    fn claim_is_nested_by_dots_or_by_brackets() {
        check("@request.auth.claims.a.B-c", Some((Separator::Dot, &["a", "B-c"])));
        check("@Request.Auth.Claims.a", Some((Separator::Dot, &["a"])));
        check("@request.auth.claims[a.b][C]", Some((Separator::Brackets, &["a.b", "C"])));
        check("@request.auth.claims.[a]", Some((Separator::Dot, &["[a]"])));
        check("@request.auth.claims[a] [b]", Some((Separator::Brackets, &["a] [b"])));
    }

    #[test]
    fn header_is_ordinary_when_no_claim_is_named() {
        for header in [
            "@request.auth.claims",
            "@request.auth.claims.",
            "@request.auth.claims[]",
            "@request.auth.claims[a",
            "@request.auth.claims]a",
            "@request.auth.claims-a",
            "request.auth.claims.a",
            "@request.auth.claimé",
            "",
        ] {
            check(header, None);
        }
    }
}
