//! A line of a proxy's access log, taken apart: Istio's default format as text or as JSON.

use std::fmt::Write as _;
use std::io::Read as _;

use anyhow::{Context as _, bail};
use serde_json::{Value, json};

use super::answer::policy;
use super::flags;

/// What RBAC filters write into the details of a denial.
const DENIED: &str = "rbac_access_denied_matched_policy[";

/// The longest line that is read from standard input.
const LONGEST: u64 = 1 << 20;

/// What a line says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    method: String,
    path: String,
    authority: String,
    status: String,
    flags: String,
    details: String,
    transport_failure: String,
    endpoint: String,
    cluster: String,
    route: String,
}

impl Line {
    /// Reads a line, or the last one of standard input.
    pub(super) fn read(argument: &str) -> anyhow::Result<Self> {
        if argument != "-" {
            return Self::parse(argument);
        }
        let mut text = String::new();
        std::io::stdin().lock().take(LONGEST).read_to_string(&mut text).context("standard input")?;
        let last = text.lines().rfind(|line| !line.trim().is_empty()).context("standard input is empty")?;
        Self::parse(last)
    }

    fn parse(line: &str) -> anyhow::Result<Self> {
        let line = line.trim();
        // Commands that print logs put the container's or pod's name in front.
        if let Some(start) = line.find('{')
            && let Ok(record) = serde_json::from_str::<Value>(&line[start..])
        {
            return Self::from_json(&record);
        }
        let start =
            line.find('[').context("expected a line of an access log, which begins with [TIME] or {")?;
        Self::from_words(&words(&line[start..]))
    }

    fn from_json(record: &Value) -> anyhow::Result<Self> {
        let text = |key: &str| match &record[key] {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        if record["response_flags"].is_null() && record["response_code"].is_null() {
            bail!("the record has neither response_flags nor response_code: is it of an access log?");
        }
        Ok(Self {
            method: text("method"),
            path: text("path"),
            authority: text("authority"),
            status: text("response_code"),
            flags: text("response_flags"),
            details: text("response_code_details"),
            transport_failure: text("upstream_transport_failure_reason"),
            endpoint: text("upstream_host"),
            cluster: text("upstream_cluster"),
            route: text("route_name"),
        })
    }

    fn from_words(words: &[String]) -> anyhow::Result<Self> {
        let [_, request, status, flags, details, _, transport_failure, rest @ ..] = words else {
            bail!(
                "expected [TIME] \"METHOD PATH PROTOCOL\" STATUS FLAGS DETAILS …, found {} words; give the line in quotes",
                words.len()
            );
        };
        let mut request = request.split(' ');
        let word = |at: usize| rest.get(at).cloned().unwrap_or_default();
        Ok(Self {
            method: request.next().unwrap_or_default().to_owned(),
            path: request.next().unwrap_or_default().to_owned(),
            status: status.clone(),
            flags: flags.clone(),
            details: details.clone(),
            transport_failure: transport_failure.clone(),
            authority: word(7),
            endpoint: word(8),
            cluster: word(9),
            route: word(14),
        })
    }

    /// What the line says, with its flags explained.
    pub(super) fn answer(&self) -> Value {
        let names = self.flags.split(',').map(str::trim).filter(|name| !name.is_empty() && *name != "-");
        let explained = names.map(|name| match flags::find(name) {
            Some(flag) => json!({"flag": name, "meaning": flag.meaning, "remedy": flag.remedy}),
            None => json!({"flag": name, "meaning": "Not a flag of Envoy that this program knows.", "remedy": null}),
        });
        let said = |text: &String| Some(text.clone()).filter(|text| !text.is_empty() && text != "-");
        json!({
            "method": said(&self.method),
            "path": said(&self.path),
            "authority": said(&self.authority),
            "status": said(&self.status),
            "flags": explained.collect::<Vec<_>>(),
            "details": said(&self.details),
            "detailsMeaning": self.meaning_of_details(),
            "transportFailure": said(&self.transport_failure),
            "cluster": said(&self.cluster),
            "endpoint": said(&self.endpoint),
            "route": said(&self.route),
        })
    }

    /// What the details of the answer say beside the flags.
    fn meaning_of_details(&self) -> Option<String> {
        if let Some((_, rest)) = self.details.split_once(DENIED) {
            let name = rest.strip_suffix(']').unwrap_or(rest);
            return Some(match name {
                "none" => "Denied: there are AuthorizationPolicies that allow, and none matches the request."
                    .to_owned(),
                name => format!("Denied by {}.", policy(name)),
            });
        }
        let known = [
            ("via_upstream", "The answer is the application's own."),
            ("route_not_found", "No route matches the request."),
            ("cluster_not_found", "The route names a cluster that the proxy does not have."),
            ("no_healthy_upstream", "The cluster has no healthy endpoint."),
            ("direct_response", "The route answers by itself."),
            ("fault_filter_abort", "A fault of the route ended the request."),
            ("filter_chain_not_found", "No filter chain takes the connection: it may lack mutual TLS."),
            ("jwt_authn_access_denied", "The token of the request is missing or not valid."),
            ("upstream_response_timeout", "The endpoint did not answer in the route's timeout."),
        ];
        known.iter().find(|(start, _)| self.details.starts_with(start)).map(|(_, text)| (*text).to_owned())
    }
}

/// The words of a line; what is in quotes or brackets at its beginning is one.
fn words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = line.trim_start();
    while let Some(first) = rest.chars().next() {
        let closing = match first {
            '"' => Some('"'),
            '[' => Some(']'),
            _ => None,
        };
        let (word, after) = match closing.and_then(|closing| rest[1..].split_once(closing)) {
            Some((word, after)) => (word, after),
            None => rest.split_once(char::is_whitespace).unwrap_or((rest, "")),
        };
        words.push(word.to_owned());
        rest = after.trim_start();
    }
    words
}

/// The line for people.
pub(super) fn text(answer: &Value) -> String {
    let mut text = String::new();
    for key in ["method", "authority", "path", "status", "route", "cluster", "endpoint"] {
        if let Some(value) = answer[key].as_str() {
            let _ = writeln!(text, "{key:>13}  {value}");
        }
    }
    for flag in answer["flags"].as_array().into_iter().flatten() {
        let word = |key: &str| flag[key].as_str().unwrap_or_default();
        let _ = writeln!(text, "{:>13}  {}: {}", "flag", word("flag"), word("meaning"));
        if !word("remedy").is_empty() {
            let _ = writeln!(text, "{:>13}  {}", "", word("remedy"));
        }
    }
    let details = [("details", "details"), ("", "detailsMeaning"), ("transport", "transportFailure")];
    for (title, key) in details {
        if let Some(value) = answer[key].as_str() {
            let _ = writeln!(text, "{title:>13}  {value}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ENDPOINTS: &str = r#"[2026-08-22T10:00:00.000Z] "GET /x?y=1 HTTP/1.1" 503 UH no_healthy_upstream - "-" 0 19 0 - "-" "curl/8" "id-1" "cart.shop:80" "-" outbound|80|v3|cart.shop.svc.cluster.local - 10.96.0.9:80 10.0.0.4:4242 - default"#;

    #[test]
    fn text_is_taken_apart() {
        let line = Line::parse(&format!("istio-proxy {NO_ENDPOINTS}")).unwrap();
        let expected = Line {
            method: "GET".to_owned(),
            path: "/x?y=1".to_owned(),
            authority: "cart.shop:80".to_owned(),
            status: "503".to_owned(),
            flags: "UH".to_owned(),
            details: "no_healthy_upstream".to_owned(),
            transport_failure: "-".to_owned(),
            endpoint: "-".to_owned(),
            cluster: "outbound|80|v3|cart.shop.svc.cluster.local".to_owned(),
            route: "default".to_owned(),
        };
        assert_eq!(line, expected);
        let text = text(&line.answer());
        assert!(text.contains("flag  UH: The cluster has no healthy endpoint."), "{text}");
        assert!(text.contains("Compare the selector"), "{text}");
    }

    #[test]
    fn json_says_the_same() {
        let record = json!({
            "method": "GET", "response_code": 403, "response_flags": "-",
            "response_code_details": "rbac_access_denied_matched_policy[ns[shop]-policy[no-delete]-rule[0]]",
        });
        let answer = Line::parse(&record.to_string()).unwrap().answer();
        assert_eq!(answer["status"], "403");
        assert_eq!(answer["detailsMeaning"], "Denied by AuthorizationPolicy shop/no-delete, rule 0.");
        assert_eq!(answer["flags"], json!([]));
    }

    #[test]
    fn what_is_no_line_is_refused_with_the_form_of_one() {
        for wrong in ["", "hello", "{\"a\": 1}", "[now] GET", "[", "\"", "["] {
            assert!(Line::parse(wrong).is_err(), "{wrong:?}");
        }
        let error = Line::parse("[now] \"GET / HTTP/1.1\" 200").unwrap_err().to_string();
        assert!(error.contains("STATUS FLAGS DETAILS"), "{error}");
    }

    #[test]
    fn several_flags_are_all_explained() {
        let line = NO_ENDPOINTS.replace(" UH ", " URX,UF,XX ");
        let answer = Line::parse(&line).unwrap().answer();
        let names: Vec<&str> =
            answer["flags"].as_array().unwrap().iter().filter_map(|flag| flag["flag"].as_str()).collect();
        assert_eq!(names, ["URX", "UF", "XX"]);
    }
}
